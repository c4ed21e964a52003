//! The namespace of all trees: a directory in which self-certifying names appear when they are
//! referred to.
//!
//! Looking `@HOST[:PORT],HOSTID` up contacts and verifies that tree; from then on it is listed. A
//! key that forwards to another name appears as a symbolic link to it. A name in another spelling
//! than its own, or with another host of a key whose tree is there and fresh, is a link to that as
//! well, but is remembered nowhere: whoever may look names up could invent them without end. There
//! is one volume a key, and the least recently used give way when there are too many. Who may be
//! believed is the client's decision.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vouch_tree::{Blob, Content, HostId, Inode, Timestamp, TreeName};
use vouch_tree_client::{Client, Error, TreeOptions};

use crate::attributes::{attributes, without_inline};
use crate::cookie::Cookie;
use crate::error::OpError;
use crate::kernel_notices::Notice;
use crate::listing_reply::ListingReply;
use crate::observer::TreeEvent;
use crate::revision_update;
use crate::state::{LookupResult, MountState};
use crate::volume::Volume;
use vouch_tree::inode_number::{InodeNumber as NodeId, InodeNumbering};

/// The trees of a mount by their names.
pub(crate) struct Namespace {
    client: Arc<Client>,
    trees: TreeOptions,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// By key, who opens its tree just now.
    opening: Mutex<HashMap<HostId, Arc<tokio::sync::Mutex<()>>>>,
    failures: Mutex<HashMap<String, (Instant, OpError)>>,
}

/// A name that is listed.
struct Entry {
    reference: Reference,
    used: Instant,
}

/// What a name refers to.
#[derive(Clone)]
enum Reference {
    Tree(Arc<Volume>),
    /// A symbolic link in the same directory. `until`: when its key is to be asked again whether it
    /// still forwards there; a link to another spelling never changes.
    Link {
        to: String,
        inode: Arc<Inode>,
        until: Option<Instant>,
    },
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
        self.entries.lock().values().filter_map(|entry| entry.reference.volume().cloned()).collect()
    }

    /// Looks a name up, contacting its tree if it is the first to refer to it.
    pub(crate) async fn lookup(&self, state: &Arc<MountState>, name: &[u8]) -> Result<LookupResult, OpError> {
        let Some((text, name)) = std::str::from_utf8(name).ok().and_then(|text| Some((text, text.parse::<TreeName>().ok()?))) else {
            // What can't be a name never will be one.
            return Ok(LookupResult::Nothing(Self::TTL));
        };
        let canonical = name.to_string();
        if canonical != text {
            return self.found(state, text, &Reference::link(canonical, None)).await;
        }
        if let Some(reference) = self.known(text, &name) {
            return self.found(state, text, &reference).await;
        }
        let turn = self.opening.lock().entry(*name.hostid()).or_default().clone();
        let _turn = turn.lock().await;
        let reference = match self.known(text, &name) {
            Some(reference) => Ok(reference),
            None => self.open(state, text, &name).await,
        };
        self.opening.lock().remove(name.hostid());
        self.found(state, text, &reference?).await
    }

    /// Lists what has been referred to.
    pub(crate) fn list(&self, state: &Arc<MountState>, offset: u64, reply: &mut ListingReply) -> Result<(), OpError> {
        let root = state.table.get(NodeId::ROOT).ok_or(OpError::Gone)?;
        let mut at = Cookie::from_offset(offset);
        if reply.dots(&mut at, 0, &attributes(NodeId::ROOT, &root.inode), NodeId::ROOT) {
            return Ok(());
        }
        let Cookie::Entry { number, .. } = at else { return Ok(()) };
        let entries: Vec<_> = self.entries.lock().iter().map(|(name, entry)| (name.clone(), entry.reference.clone())).collect();
        for (i, (name, reference)) in entries.iter().enumerate().skip(usize::try_from(number).unwrap_or(usize::MAX)) {
            let (id, volume, inode) = Self::node(name, reference);
            // Attributes may be of a tree that has expired: none are handed out with the name but a moment's.
            let inode = if reply.is_plus() { state.table.insert_reference(id, volume, name.as_bytes(), inode) } else { inode };
            if reply.add(&attributes(id, &inode), Cookie::Entry { tag: 0, number: i as u64 + 1 }, name.as_bytes(), Duration::ZERO) {
                if reply.is_plus() {
                    state.table.forget(id, 1);
                }
                break;
            }
        }
        Ok(())
    }

    /// What is listed under a name; else a link to the name under which the same key's tree is,
    /// unless that can't be shown.
    fn known(&self, text: &str, name: &TreeName) -> Option<Reference> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(text) {
            if entry.reference.is_due() {
                return None;
            }
            entry.used = Instant::now();
            return Some(entry.reference.clone());
        }
        let same_key = |entry: &Entry| entry.reference.volume().is_some_and(|v| v.tree().hostid() == name.hostid() && v.is_fresh());
        entries.iter().find(|(_, entry)| same_key(entry)).map(|(listed, _)| Reference::link(listed.clone(), None))
    }

    async fn found(&self, state: &Arc<MountState>, text: &str, reference: &Reference) -> Result<LookupResult, OpError> {
        let (id, volume, inode) = Self::node(text, reference);
        let left = match &volume {
            Some(volume) => volume.fresh(state.freshness_wait_max()).await?,
            None => reference.left(),
        };
        let inode = state.table.insert_reference(id, volume, text.as_bytes(), inode);
        Ok(LookupResult::File(attributes(id, &inode), left))
    }

    fn node(text: &str, reference: &Reference) -> (NodeId, Option<Arc<Volume>>, Arc<Inode>) {
        match reference {
            Reference::Tree(volume) => (volume.root(), Some(volume.clone()), Arc::new(without_inline(volume.shown().root()))),
            // Not the number that a tree of this name would have: the kernel may know both in turn.
            // By its target as well: a node's content never changes under it.
            Reference::Link { to, inode, .. } => (InodeNumbering::of_reference(&format!("link {text} {to}")).root(), None, inode.clone()),
        }
    }

    async fn open(&self, state: &Arc<MountState>, text: &str, name: &TreeName) -> Result<Reference, OpError> {
        if let Some(error) = self.failed_lately(text) {
            return Err(error);
        }
        let reference = match self.client.open(name, &self.trees).await {
            Ok(tree) => {
                let numbering = InodeNumbering::of_reference(text);
                let root = numbering.root();
                let clock = state.options.clock.clone();
                let volume = Arc::new(Volume::new(tree, clock, numbering, root, text.to_owned()));
                state.observe_event(&TreeEvent::Shown { tree: text, revision: volume.shown().number(), before: None });
                state.runtime.spawn(revision_update::follow(Arc::downgrade(state), volume.clone()));
                Reference::Tree(volume)
            }
            Err(Error::Forwarded { to }) => {
                tracing::info!(tree = text, %to, "the key forwards to another name");
                Reference::link(to.to_string(), Some(Instant::now() + self.client.forwarding_ttl()))
            }
            Err(error) => {
                state.observe_event(&TreeEvent::NotOpened { tree: text, class: error.class(), why: &error.to_string() });
                self.drop_link(state, text);
                return Err(self.note_failure(text, error));
            }
        };
        self.make_room(state).await?;
        self.add(text, name, &reference);
        // Whoever has referred to it finds it listed.
        state.kernel.tell(Notice::Content(NodeId::ROOT));
        state.kernel.flush().await;
        Ok(reference)
    }

    /// Makes sure that one more reference has room.
    async fn make_room(&self, state: &Arc<MountState>) -> Result<(), OpError> {
        for _ in 0..ROOM_ATTEMPTS_MAX {
            if self.evict(state) {
                return Ok(());
            }
            state.kernel.flush().await;
            // What the kernel forgets it says in requests of their own.
            tokio::time::sleep(FORGET_PAUSE).await;
        }
        Err(OpError::Unfit("too many trees are in use at once"))
    }

    /// Where there are too many references, lets go of the least recently used that the kernel does
    /// not hold, and asks it to forget the others of them that nobody uses. True if there is
    /// room.
    fn evict(&self, state: &MountState) -> bool {
        let mut entries = self.entries.lock();
        if entries.len() < ENTRIES_MAX {
            return true;
        }
        let mut oldest: Vec<_> = entries.iter().map(|(name, entry)| (entry.used, name.clone())).collect();
        oldest.sort_unstable();
        oldest.truncate(EVICTED_AT_ONCE);
        for (_, name) in oldest {
            let Some(entry) = entries.get_mut(&name) else { continue };
            if state.table.get(Self::node(&name, &entry.reference).0).is_some() {
                state.kernel.tell(Notice::Name(NodeId::ROOT, name.as_bytes().into()));
                // If it is in use, it must not stand in the way of the next attempt.
                entry.used = Instant::now();
            } else {
                tracing::info!(tree = name, "not used for long; let go of");
                entries.remove(&name);
            }
        }
        entries.len() < ENTRIES_MAX
    }

    /// Lists a reference, and nothing else of its key: another host did not keep the key's tree
    /// fresh.
    fn add(&self, text: &str, name: &TreeName, reference: &Reference) {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| entry.reference.volume().is_none_or(|volume| volume.tree().hostid() != name.hostid()));
        entries.insert(text.to_owned(), Entry { reference: reference.clone(), used: Instant::now() });
    }

    /// What a link led to is not to be believed any more.
    fn drop_link(&self, state: &MountState, text: &str) {
        if self.entries.lock().remove(text).is_some() {
            state.kernel.tell(Notice::Content(NodeId::ROOT));
        }
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

    fn made(mode: u16, nlink: u32, content: Content) -> Inode {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Inode { mode, uid, gid, mtime: Timestamp::default(), nlink, link_group: 0, xattrs: Blob::empty(), content }
    }
}

impl Reference {
    /// A symbolic link in the same directory.
    fn link(to: String, until: Option<Instant>) -> Self {
        let inode = Arc::new(Namespace::made(0o777, 1, Content::Symlink(to.clone().into_bytes())));
        Self::Link { to, inode, until }
    }

    /// Whether the key behind a link is to be asked again.
    fn is_due(&self) -> bool {
        matches!(self, Self::Link { until: Some(until), .. } if *until <= Instant::now())
    }

    /// How long the kernel may believe in a link.
    fn left(&self) -> Duration {
        match self {
            Self::Link { until: Some(until), .. } => until.saturating_duration_since(Instant::now()).min(Namespace::TTL),
            _ => Namespace::TTL,
        }
    }

    fn volume(&self) -> Option<&Arc<Volume>> {
        match self {
            Self::Tree(volume) => Some(volume),
            Self::Link { .. } => None,
        }
    }
}

/// Trees referred to through one mount. Each costs a connection or two and the bookkeeping of its
/// caches.
const ENTRIES_MAX: usize = 4096;

/// References that are let go of together, so that not each new one has to wait for the kernel.
const EVICTED_AT_ONCE: usize = 256;

/// Rounds through the oldest, so that all have been tried.
const ROOM_ATTEMPTS_MAX: usize = 2 * ENTRIES_MAX / EVICTED_AT_ONCE;

/// How long the kernel is given to say what it has forgotten.
const FORGET_PAUSE: Duration = Duration::from_millis(20);

/// A name that could not be opened is not tried again at once: shells ask several times for each
/// word.
const FAILURE_TTL: Duration = Duration::from_secs(2);
