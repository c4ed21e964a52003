//! The namespace of all trees: a directory in which self-certifying names appear when they are referred to.
//!
//! Looking `@HOST[:PORT],HOSTID` up contacts and verifies that tree; from then on it is listed. A key that forwards to
//! another name appears as a symbolic link to it, as does a name in another spelling than its own. Who may be believed
//! is the client's decision.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vouch_tree::{Blob, Content, Inode, Timestamp, TreeName};
use vouch_tree_client::{Client, Error, TreeOptions};

use crate::attr::{attributes, brief};
use crate::cookie::Cookie;
use crate::core::{Core, Found};
use crate::error::OpError;
use crate::kernel::Notice;
use crate::listing::Sink;
use crate::number::{NodeId, Numbering};
use crate::sweep;
use crate::volume::Volume;

/// The trees of a mount by their names.
pub(crate) struct Namespace {
    client: Arc<Client>,
    trees: TreeOptions,
    entries: Mutex<BTreeMap<String, Reference>>,
    opening: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    failures: Mutex<HashMap<String, (Instant, OpError)>>,
}

/// What a name refers to.
#[derive(Clone)]
enum Reference {
    Tree(Arc<Volume>),
    /// A symbolic link in the same directory.
    Link(Arc<Inode>),
}

impl Namespace {
    /// How long the kernel may believe in the namespace's own inodes.
    pub(crate) const TTL: Duration = Duration::from_secs(60);

    /// A namespace in which nothing has been referred to.
    pub(crate) fn new(client: Arc<Client>, mut trees: TreeOptions) -> Self {
        // A move is to be seen, not hidden.
        trees.refuse_forwarding = true;
        Self { client, trees, entries: Mutex::default(), opening: Mutex::default(), failures: Mutex::default() }
    }

    /// The namespace's own directory.
    pub(crate) fn root() -> Inode {
        let content = Content::Directory { entries: 0, subdirs: 0, opaque: true, top: None };
        Self::made(0o755, 2, content)
    }

    /// The trees referred to so far.
    pub(crate) fn volumes(&self) -> Vec<Arc<Volume>> {
        let trees = |reference: &Reference| match reference {
            Reference::Tree(volume) => Some(volume.clone()),
            Reference::Link(_) => None,
        };
        self.entries.lock().values().filter_map(trees).collect()
    }

    /// Looks a name up, contacting its tree if it is the first to refer to it.
    pub(crate) async fn lookup(&self, core: &Arc<Core>, name: &[u8]) -> Result<Found, OpError> {
        let Some((text, name)) = std::str::from_utf8(name).ok().and_then(|text| Some((text, text.parse::<TreeName>().ok()?))) else {
            // What can't be a name never will be one.
            return Ok(Found::Nothing(Self::TTL));
        };
        if let Some(reference) = self.known(text) {
            return self.found(core, text, &reference).await;
        }
        let turn = self.opening.lock().entry(text.to_owned()).or_default().clone();
        let _turn = turn.lock().await;
        let reference = match self.known(text) {
            Some(reference) => reference,
            None => self.open(core, text, &name).await.inspect_err(|_| self.forget_turn(text))?,
        };
        self.forget_turn(text);
        self.found(core, text, &reference).await
    }

    /// Lists what has been referred to.
    pub(crate) fn list(&self, core: &Arc<Core>, offset: u64, sink: &mut Sink) -> Result<(), OpError> {
        let root = core.table.get(NodeId::ROOT).ok_or(OpError::Gone)?;
        let mut at = Cookie::from_offset(offset);
        if sink.dots(&mut at, 0, &attributes(NodeId::ROOT, &root.inode), NodeId::ROOT) {
            return Ok(());
        }
        let Cookie::Entry { number, .. } = at else { return Ok(()) };
        let entries = self.entries.lock().clone();
        for (i, (name, reference)) in entries.iter().enumerate().skip(usize::try_from(number).unwrap_or(usize::MAX)) {
            let (id, volume, inode) = Self::node(name, reference);
            // Attributes may be of a tree that has expired: none are handed out with the name but a moment's.
            let inode = if sink.is_plus() { core.table.insert_reference(id, volume, name.as_bytes(), inode) } else { inode };
            if sink.add(&attributes(id, &inode), Cookie::Entry { tag: 0, number: i as u64 + 1 }, name.as_bytes(), Duration::ZERO) {
                if sink.is_plus() {
                    core.table.forget(id, 1);
                }
                break;
            }
        }
        Ok(())
    }

    fn known(&self, text: &str) -> Option<Reference> {
        self.entries.lock().get(text).cloned()
    }

    fn forget_turn(&self, text: &str) {
        self.opening.lock().remove(text);
    }

    async fn found(&self, core: &Arc<Core>, text: &str, reference: &Reference) -> Result<Found, OpError> {
        let (id, volume, inode) = Self::node(text, reference);
        let left = match &volume {
            Some(volume) => volume.fresh(core.patience()).await?,
            None => Self::TTL,
        };
        let inode = core.table.insert_reference(id, volume, text.as_bytes(), inode);
        Ok(Found::File(attributes(id, &inode), left))
    }

    fn node(text: &str, reference: &Reference) -> (NodeId, Option<Arc<Volume>>, Arc<Inode>) {
        match reference {
            Reference::Tree(volume) => (volume.root(), Some(volume.clone()), Arc::new(brief(volume.shown().root()))),
            Reference::Link(inode) => (Numbering::of_reference(text).root(), None, inode.clone()),
        }
    }

    async fn open(&self, core: &Arc<Core>, text: &str, name: &TreeName) -> Result<Reference, OpError> {
        if let Some(error) = self.failed_lately(text) {
            return Err(error);
        }
        let canonical = name.to_string();
        let reference = if canonical == text {
            match self.client.open(name, &self.trees).await {
                Ok(tree) => {
                    let numbering = Numbering::of_reference(text);
                    let root = numbering.root();
                    let clock = core.options.clock.clone();
                    let volume = Arc::new(Volume::new(tree, clock, numbering, root, canonical));
                    core.runtime.spawn(sweep::follow(Arc::downgrade(core), volume.clone()));
                    Reference::Tree(volume)
                }
                Err(Error::Forwarded { to }) => {
                    tracing::info!(tree = text, %to, "the key forwards to another name");
                    Self::link(to.to_string())
                }
                Err(error) => return Err(self.note_failure(text, error)),
            }
        } else {
            Self::link(canonical)
        };
        if !self.add(text, &reference) {
            return Err(OpError::Unfit("too many trees have been referred to; unmount and mount again"));
        }
        // Whoever has referred to it finds it listed.
        core.kernel.tell(Notice::Content(NodeId::ROOT));
        core.kernel.told().await;
        Ok(reference)
    }

    fn add(&self, text: &str, reference: &Reference) -> bool {
        let mut entries = self.entries.lock();
        let has_room = entries.len() < ENTRIES_MAX;
        if has_room {
            entries.insert(text.to_owned(), reference.clone());
        }
        has_room
    }

    fn failed_lately(&self, text: &str) -> Option<OpError> {
        let mut failures = self.failures.lock();
        failures.retain(|_, (at, _)| at.elapsed() < FAILURE_TTL);
        failures.get(text).map(|(_, error)| match error {
            OpError::Client(error) => OpError::Client(error.clone()),
            OpError::Revoked(why) => OpError::Revoked(why.clone()),
            _ => OpError::Unfit("the tree could not be opened a moment ago"),
        })
    }

    fn note_failure(&self, text: &str, error: Error) -> OpError {
        let why = error.to_string();
        let of = |error: &Error| match error {
            Error::Revoked { .. } => OpError::Revoked(why.clone()),
            other => OpError::Client(other.clone()),
        };
        tracing::warn!(tree = text, "can't be opened: {error}");
        self.failures.lock().insert(text.to_owned(), (Instant::now(), of(&error)));
        of(&error)
    }

    fn link(to: String) -> Reference {
        Reference::Link(Arc::new(Self::made(0o777, 1, Content::Symlink(to.into_bytes()))))
    }

    fn made(mode: u16, nlink: u32, content: Content) -> Inode {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Inode { mode, uid, gid, mtime: Timestamp::default(), nlink, link_group: 0, xattrs: Blob::empty(), content }
    }
}

/// Trees referred to through one mount. Each costs a connection or two and the bookkeeping of its caches.
const ENTRIES_MAX: usize = 4096;

/// A name that could not be opened is not tried again at once: shells ask several times for each word.
const FAILURE_TTL: Duration = Duration::from_secs(2);
