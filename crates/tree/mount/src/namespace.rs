//! The directory of all trees.
//!
//! Looking up `@HOST[:PORT],HOSTID` opens that tree, which is listed from then on. A forwarded key
//! is a symbolic link to the new name. Other spellings and hosts of an open tree's key are links
//! that are not stored, because a user could invent them without limit. An administrator's short
//! name is always listed. Each key has one tree; too many trees evict the least recently used.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vouch_tree::inode_number::{InodeNumber as NodeId, InodeNumbering};
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

#[derive(Clone, Default)]
pub struct NamespaceTrees {
    pub options: TreeOptions,
    /// Trees with options of their own.
    pub by_key: HashMap<HostId, TreeOptions>,
    /// Symbolic links in the root directory. Names must not begin with `@`.
    pub short_names: BTreeMap<String, TreeName>,
}

pub(crate) struct Namespace {
    client: Arc<Client>,
    trees: NamespaceTrees,
    entries: Mutex<BTreeMap<String, Entry>>,
    opening: Mutex<HashMap<HostId, Arc<tokio::sync::Mutex<()>>>>,
    failures: Mutex<HashMap<String, (Instant, OpError)>>,
}

struct Entry {
    reference: Reference,
    used: Instant,
}

#[derive(Clone)]
enum Reference {
    Tree(Arc<Volume>),
    /// A forwarding link is checked again at `until`; other spellings never change.
    Link {
        to: String,
        inode: Arc<Inode>,
        until: Option<Instant>,
    },
}

impl Namespace {
    /// Limits the kernel's cache of the namespace's own inodes.
    pub(crate) const TTL: Duration = Duration::from_secs(60);

    pub(crate) fn new(client: Arc<Client>, mut trees: NamespaceTrees) -> Self {
        // Forwarding appears as a symbolic link.
        trees.options.refuse_forwarding = true;
        trees.by_key.values_mut().for_each(|options| options.refuse_forwarding = true);
        Self {
            client,
            trees,
            entries: Mutex::default(),
            opening: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    pub(crate) fn restore(&self, volume: &Arc<Volume>) {
        let entry = Entry { reference: Reference::Tree(volume.clone()), used: Instant::now() };
        self.entries.lock().insert(volume.label().to_owned(), entry);
    }

    pub(crate) fn root() -> Inode {
        let content = Content::Directory { entries: 0, subdirs: 0, opaque: true, top: None };
        Self::make_inode(0o755, 2, content)
    }

    pub(crate) const fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn volumes(&self) -> Vec<Arc<Volume>> {
        self.entries.lock().values().filter_map(|entry| entry.reference.volume().cloned()).collect()
    }

    pub(crate) async fn lookup(
        &self,
        state: &Arc<MountState>,
        name: &[u8],
    ) -> Result<LookupResult, OpError> {
        if let Some((text, reference)) =
            std::str::from_utf8(name).ok().and_then(|text| Some((text, self.short(text)?)))
        {
            return self.reply(state, text, &reference).await;
        }
        let Some((text, name)) = std::str::from_utf8(name)
            .ok()
            .and_then(|text| Some((text, text.parse::<TreeName>().ok()?)))
        else {
            // An invalid name never becomes valid.
            return Ok(LookupResult::Nothing(Self::TTL));
        };
        let canonical = name.to_string();
        if canonical != text {
            return self.reply(state, text, &Reference::link(canonical, None)).await;
        }
        if let Some(reference) = self.find(text, &name) {
            return self.reply(state, text, &reference).await;
        }
        let open_lock = self.opening.lock().entry(*name.hostid()).or_default().clone();
        let _open_guard = open_lock.lock().await;
        let reference = match self.find(text, &name) {
            Some(reference) => Ok(reference),
            None => self.open(state, text, &name).await,
        };
        self.opening.lock().remove(name.hostid());
        self.reply(state, text, &reference?).await
    }

    pub(crate) fn list(
        &self,
        state: &Arc<MountState>,
        offset: u64,
        reply: &mut ListingReply,
    ) -> Result<(), OpError> {
        let root = state.table.get(NodeId::ROOT).ok_or(OpError::Gone)?;
        let mut at = Cookie::from_offset(offset);
        if reply.dots(&mut at, 0, &attributes(NodeId::ROOT, &root.inode), NodeId::ROOT) {
            return Ok(());
        }
        let Cookie::Entry { number, .. } = at else { return Ok(()) };
        let mut entries: Vec<_> = self
            .trees
            .short_names
            .iter()
            .map(|(short, name)| (short.clone(), Reference::to(name)))
            .collect();
        entries.extend(
            self.entries.lock().iter().map(|(name, entry)| (name.clone(), entry.reference.clone())),
        );
        for (i, (name, reference)) in
            entries.iter().enumerate().skip(usize::try_from(number).unwrap_or(usize::MAX))
        {
            let (id, volume, inode) = Self::node(name, reference);
            // An expired tree's attributes must not be cached.
            let inode = if reply.is_plus() {
                state.table.insert_reference(id, volume, name.as_bytes(), inode)
            } else {
                inode
            };
            if reply.add(
                &attributes(id, &inode),
                Cookie::Entry { tag: 0, number: i as u64 + 1 },
                name.as_bytes(),
                Duration::ZERO,
            ) {
                if reply.is_plus() {
                    state.table.forget(id, 1);
                }
                break;
            }
        }
        Ok(())
    }

    fn short(&self, text: &str) -> Option<Reference> {
        self.trees.short_names.get(text).map(Reference::to)
    }

    /// The listed entry, else a link to the open, fresh tree of the same key.
    fn find(&self, text: &str, name: &TreeName) -> Option<Reference> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(text) {
            if entry.reference.is_due() {
                return None;
            }
            entry.used = Instant::now();
            return Some(entry.reference.clone());
        }
        let same_key = |entry: &Entry| {
            entry
                .reference
                .volume()
                .is_some_and(|v| v.tree().hostid() == name.hostid() && v.is_fresh())
        };
        entries
            .iter()
            .find(|(_, entry)| same_key(entry))
            .map(|(listed, _)| Reference::link(listed.clone(), None))
    }

    async fn reply(
        &self,
        state: &Arc<MountState>,
        text: &str,
        reference: &Reference,
    ) -> Result<LookupResult, OpError> {
        let (id, volume, inode) = Self::node(text, reference);
        let ttl = match &volume {
            Some(volume) => volume.wait_until_fresh(state.freshness_wait_max()).await?,
            None => reference.ttl(),
        };
        let inode = state.table.insert_reference(id, volume, text.as_bytes(), inode);
        Ok(LookupResult::File(attributes(id, &inode), ttl))
    }

    fn node(text: &str, reference: &Reference) -> (NodeId, Option<Arc<Volume>>, Arc<Inode>) {
        match reference {
            Reference::Tree(volume) => (
                volume.root(),
                Some(volume.clone()),
                Arc::new(without_inline(volume.shown().root())),
            ),
            // The content of a node never changes, so a link's node id covers its target.
            Reference::Link { to, inode, .. } => (
                InodeNumbering::of_reference(&format!("link {text} {to}")).root(),
                None,
                inode.clone(),
            ),
        }
    }

    async fn open(
        &self,
        state: &Arc<MountState>,
        text: &str,
        name: &TreeName,
    ) -> Result<Reference, OpError> {
        if let Some(error) = self.recent_failure(text) {
            return Err(error);
        }
        let reference = match self
            .client
            .open(name, self.trees.by_key.get(name.hostid()).unwrap_or(&self.trees.options))
            .await
        {
            Ok(tree) => {
                let numbering = InodeNumbering::of_reference(text);
                let root = numbering.root();
                let volume = state.volumes.add(tree, numbering, root, text.to_owned(), None);
                state.observe_event(&TreeEvent::Shown {
                    tree: text,
                    revision: volume.shown().number(),
                    before: None,
                });
                state.runtime.spawn(revision_update::follow(Arc::downgrade(state), volume.clone()));
                Reference::Tree(volume)
            }
            Err(Error::Forwarded { to }) => {
                tracing::info!(tree = text, %to, "the tree has moved to another name");
                Reference::link(to.to_string(), Some(Instant::now() + self.client.forwarding_ttl()))
            }
            Err(error) => {
                state.observe_event(&TreeEvent::NotOpened {
                    tree: text,
                    class: error.class(),
                    why: &error.to_string(),
                });
                self.drop_link(state, text);
                return Err(self.note_failure(text, error));
            }
        };
        self.make_room(state).await?;
        self.add(text, name, &reference);
        // The next listing must show the name.
        state.kernel.send(Notice::Content(NodeId::ROOT));
        state.kernel.flush().await;
        Ok(reference)
    }

    async fn make_room(&self, state: &Arc<MountState>) -> Result<(), OpError> {
        for _ in 0..ROOM_ATTEMPTS_MAX {
            if self.evict(state) {
                return Ok(());
            }
            state.kernel.flush().await;
            // The kernel's FORGET requests arrive separately.
            tokio::time::sleep(FORGET_PAUSE).await;
        }
        Err(OpError::Unfit("too many trees in use"))
    }

    fn evict(&self, state: &MountState) -> bool {
        let mut entries = self.entries.lock();
        if entries.len() < ENTRIES_MAX {
            return true;
        }
        let mut oldest: Vec<_> =
            entries.iter().map(|(name, entry)| (entry.used, name.clone())).collect();
        oldest.sort_unstable();
        oldest.truncate(EVICTED_AT_ONCE);
        for (_, name) in oldest {
            let Some(entry) = entries.get_mut(&name) else { continue };
            if state.table.get(Self::node(&name, &entry.reference).0).is_some() {
                state.kernel.send(Notice::Name(NodeId::ROOT, name.as_bytes().into()));
                entry.used = Instant::now();
            } else {
                tracing::info!(tree = name, "closed an unused tree");
                entries.remove(&name);
            }
        }
        entries.len() < ENTRIES_MAX
    }

    fn add(&self, text: &str, name: &TreeName, reference: &Reference) {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| {
            entry.reference.volume().is_none_or(|volume| volume.tree().hostid() != name.hostid())
        });
        entries
            .insert(text.to_owned(), Entry { reference: reference.clone(), used: Instant::now() });
    }

    fn drop_link(&self, state: &MountState, text: &str) {
        if self.entries.lock().remove(text).is_some() {
            state.kernel.send(Notice::Content(NodeId::ROOT));
        }
    }

    fn recent_failure(&self, text: &str) -> Option<OpError> {
        let mut failures = self.failures.lock();
        failures.retain(|_, (at, _)| at.elapsed() < FAILURE_TTL);
        failures.get(text).map(|(_, error)| match error {
            OpError::Client(error) => OpError::Client(error.clone()),
            OpError::Revoked(why) => OpError::Revoked(why.clone()),
            _ => OpError::Unfit("the tree could not be opened recently"),
        })
    }

    fn note_failure(&self, text: &str, error: Error) -> OpError {
        let why = error.to_string();
        let of = |error: &Error| match error {
            Error::Revoked { .. } => OpError::Revoked(why.clone()),
            other => OpError::Client(other.clone()),
        };
        tracing::warn!(tree = text, "cannot open the tree: {error}");
        self.failures.lock().insert(text.to_owned(), (Instant::now(), of(&error)));
        of(&error)
    }

    fn make_inode(mode: u16, nlink: u32, content: Content) -> Inode {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Inode {
            mode,
            uid,
            gid,
            mtime: Timestamp::default(),
            nlink,
            link_group: 0,
            xattrs: Blob::empty(),
            content,
        }
    }
}

impl Reference {
    fn link(to: String, until: Option<Instant>) -> Self {
        let inode =
            Arc::new(Namespace::make_inode(0o777, 1, Content::Symlink(to.clone().into_bytes())));
        Self::Link { to, inode, until }
    }

    fn to(name: &TreeName) -> Self {
        Self::link(name.to_string(), None)
    }

    fn is_due(&self) -> bool {
        matches!(self, Self::Link { until: Some(until), .. } if *until <= Instant::now())
    }

    fn ttl(&self) -> Duration {
        match self {
            Self::Link { until: Some(until), .. } => {
                until.saturating_duration_since(Instant::now()).min(Namespace::TTL)
            }
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

/// Trees of one mount. Each costs one or two connections and some memory.
const ENTRIES_MAX: usize = 4096;

/// Evicted at once: not every lookup waits for the kernel.
const EVICTED_AT_ONCE: usize = 256;

const ROOM_ATTEMPTS_MAX: usize = 2 * ENTRIES_MAX / EVICTED_AT_ONCE;

const FORGET_PAUSE: Duration = Duration::from_millis(20);

/// Shells look a failing name up several times.
const FAILURE_TTL: Duration = Duration::from_secs(2);
