use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use tokio::runtime::Handle;
use vouch_tree::fsinfo::MESSAGE_XATTR;
use vouch_tree::inode_number::InodeNumbering;
use vouch_tree::xattr::Xattrs;
use vouch_tree::{Content, Inode};
use vouch_tree_client::{Entry, Revision, RevisionOrder, Tree};
use vouch_vfs::{
    Attributes, Blocking, Caller, Error, FileId, PosixAcl, PosixAclKind, Result, SystemId,
};

use crate::acl::acl_in;
use crate::attributes::attributes;
use crate::error::error;
use crate::identity::Identities;
use crate::node::{Node, Nodes, nodes};
use crate::rights;
use crate::watch::Watches;

pub(crate) struct Core {
    pub(crate) tree: Arc<Tree>,
    runtime: Handle,
    pub(crate) identities: Identities,
    pub(crate) system: SystemId,
    pub(crate) numbering: InodeNumbering,
    pub(crate) root: FileId,
    pub(crate) nodes: Nodes,
    /// Removed files, with the newest generation without them. Saves repeated searches.
    pub(crate) gone: Cache<FileId, u64>,
    served: RwLock<VecDeque<ServedRevision>>,
    used_names: Mutex<HashMap<FileId, UsedNames>>,
    /// Earliest time to ask replicas again for a newer revision after a missing frame.
    next_missing_request: Mutex<Option<Instant>>,
    began_s: u64,
    pub(crate) watches: Arc<Watches>,
}

struct ServedRevision {
    revision: Arc<Revision>,
    generation: u64,
}

#[derive(Default)]
struct UsedNames {
    names: BTreeSet<Box<[u8]>>,
    moved: u64,
}

impl Core {
    pub(crate) fn new(tree: Arc<Tree>, runtime: Handle) -> Self {
        let identities = Identities::of_tree(tree.hostid());
        Core {
            root: identities.of(b"", vouch_tree::FileType::Directory),
            system: identities.system(),
            numbering: InodeNumbering::of_tree(tree.hostid()),
            identities,
            tree,
            runtime,
            nodes: nodes(NODES_LEN_MAX),
            gone: Cache::new(GONE_MAX),
            served: RwLock::default(),
            used_names: Mutex::default(),
            next_missing_request: Mutex::default(),
            began_s: unix_seconds(),
            watches: Arc::default(),
        }
    }

    /// Starts a call in the newest valid revision. If it has expired, a call that may wait asks the
    /// replicas first.
    pub(crate) fn begin_call(&self, blocking: Blocking) -> Result<CallContext<'_>> {
        let revision = match self.tree.revision() {
            Ok(revision) => revision,
            Err(why) => {
                let newest = self.tree.newest();
                // An empty walk checks freshness like every operation.
                match blocking {
                    Blocking::Forbidden => match self.tree.try_lookup_path(newest.root(), b"") {
                        Some(Ok(_)) => self.tree.revision().map_err(error)?,
                        Some(Err(_)) => return Err(error(why)),
                        None => return Err(Error::WouldBlock),
                    },
                    Blocking::Allowed => {
                        self.wait(self.tree.lookup_path(newest.root(), b""))?;
                        self.tree.revision().map_err(error)?
                    }
                }
            }
        };
        let (revision, generation) = self.enter(revision);
        Ok(CallContext {
            core: self,
            revision,
            generation,
            blocking,
            is_frame_missing: Cell::new(false),
        })
    }

    /// Sees a new revision without a call, and the end of the last one's validity: clients must not
    /// go on with names that nobody vouches for.
    pub(crate) fn check_revision(&self) {
        match self.tree.revision() {
            Ok(revision) => drop(self.enter(revision)),
            Err(_) => self.watches.report(),
        }
    }

    /// Extended attributes and ACLs: of any file but for the publisher's message on the root.
    pub(crate) fn has_xattrs(&self) -> bool {
        let newest = self.tree.newest();
        let root = &newest.fsinfo.root;
        let is_message = |pair: &(Vec<u8>, Vec<u8>)| pair.0 == MESSAGE_XATTR;
        match newest.fsinfo.counts.with_xattrs {
            0 => false,
            1 if root.xattrs.size > 0 => match self.tree.try_xattrs(root) {
                Some(Ok(set)) => !set.pairs().iter().all(is_message),
                Some(Err(_)) | None => true,
            },
            _ => true,
        }
    }

    /// The revision's number, but grows also if a later certificate restarts below the numbers
    /// signed with a stolen key.
    fn enter(&self, revision: Arc<Revision>) -> (Arc<Revision>, u64) {
        let order = revision.order();
        let known_newest = |served: &VecDeque<ServedRevision>| {
            let newest = served.front().filter(|newest| newest.revision.order() >= order)?;
            Some((newest.revision.clone(), newest.generation))
        };
        if let Some(found) = known_newest(&self.served.read()) {
            return found;
        }
        let mut served = self.served.write();
        if let Some(found) = known_newest(&served) {
            return found;
        }
        let next = served.front().map_or(0, |newest| newest.generation + 1);
        let generation = revision.number().min(GENERATION_NUMBER_MAX).max(next);
        served.push_front(ServedRevision { revision: revision.clone(), generation });
        served.truncate(SERVED_MAX);
        drop(served);
        self.watches.report();
        (revision, generation)
    }

    /// Repeats `work` once in the next revision if replicas dropped what it needs.
    pub(crate) fn with<T>(
        &self,
        blocking: Blocking,
        mut work: impl FnMut(&CallContext<'_>) -> Result<T>,
    ) -> Result<T> {
        let call = self.begin_call(blocking)?;
        match work(&call) {
            Err(_)
                if call.is_frame_missing.get()
                    && self.has_newer_revision(call.revision.order()) =>
            {
                work(&self.begin_call(blocking)?)
            }
            done => done,
        }
    }

    fn has_newer_revision(&self, than: RevisionOrder) -> bool {
        if self.tree.newest().order() <= than {
            if self.next_missing_request.lock().is_some_and(|at| Instant::now() < at) {
                return false;
            }
            let _ = self.runtime.block_on(self.tree.refresh());
        }
        let moved = self.tree.newest().order() > than;
        *self.next_missing_request.lock() = (!moved).then(|| Instant::now() + MISSED_INTERVAL);
        moved
    }

    fn wait<T>(&self, work: impl Future<Output = vouch_tree_client::Result<T>>) -> Result<T> {
        self.runtime.block_on(work).map_err(error)
    }

    pub(crate) fn earlier_revisions(&self, generation: u64) -> Vec<Arc<Revision>> {
        self.served
            .read()
            .iter()
            .filter(|served| served.generation < generation)
            .map(|served| served.revision.clone())
            .collect()
    }

    pub(crate) fn note_used_name(&self, directory: &FileId, name: &[u8]) {
        let mut used = self.used_names.lock();
        if used.len() >= OPAQUE_MAX && !used.contains_key(directory) {
            return;
        }
        let began = self.began_s;
        let of = used.entry(*directory).or_default();
        if of.names.len() < USED_NAMES_MAX && of.names.insert(name.into()) {
            of.moved = unix_seconds().max(of.moved.max(began) + 1);
        }
    }

    pub(crate) fn used_names(&self, directory: &FileId) -> Vec<Box<[u8]>> {
        self.used_names
            .lock()
            .get(directory)
            .map(|of| of.names.iter().cloned().collect())
            .unwrap_or_default()
    }

    pub(crate) fn attributes(&self, node: &Node) -> Attributes {
        attributes(node, self.identities.fsid(), self.change(node))
    }

    /// Moves with every change, and is the same on all servers that show the same revision. An opaque
    /// directory's also moves with this server's list of used names.
    pub(crate) fn change(&self, node: &Node) -> u64 {
        let moved = match node.is_opaque() {
            true => self.used_names.lock().get(&node.id).map_or(self.began_s, |of| of.moved),
            false => 0,
        };
        node.change.wrapping_add(moved)
    }
}

pub(crate) struct CallContext<'a> {
    pub(crate) core: &'a Core,
    pub(crate) revision: Arc<Revision>,
    pub(crate) generation: u64,
    pub(crate) blocking: Blocking,
    pub(crate) is_frame_missing: Cell<bool>,
}

impl CallContext<'_> {
    pub(crate) fn answer<T, F>(
        &self,
        cached: Option<vouch_tree_client::Result<T>>,
        fetched: impl FnOnce() -> F,
    ) -> Result<T>
    where
        F: Future<Output = vouch_tree_client::Result<T>>,
    {
        match (cached, self.blocking) {
            (Some(answer), _) => answer.map_err(error),
            (None, Blocking::Forbidden) => Err(Error::WouldBlock),
            (None, Blocking::Allowed) => self.core.runtime.block_on(fetched()).map_err(|why| {
                self.is_frame_missing.set(
                    self.is_frame_missing.get()
                        || matches!(why, vouch_tree_client::Error::Missing { .. }),
                );
                error(why)
            }),
        }
    }

    /// `None` if the signed tree proves its absence.
    pub(crate) fn entry(&self, directory: &Inode, name: &[u8]) -> Result<Option<Entry>> {
        let tree = &self.core.tree;
        self.answer(tree.try_lookup(directory, name), || tree.lookup(directory, name))
    }

    pub(crate) fn whole(&self, node: &Node) -> Result<Inode> {
        let (above, name) = split(&node.path);
        if node.path.is_empty() {
            return Ok(self.revision.root().clone());
        }
        let above = self.at(above)?.ok_or(Error::Stale)?;
        let entry = self
            .entry(&above.inode, name)?
            .filter(|entry| entry.inode.file_type() == node.inode.file_type());
        entry.map(|entry| entry.inode.clone()).ok_or(Error::Stale)
    }

    pub(crate) fn xattrs(&self, node: &Node) -> Result<Arc<Xattrs>> {
        if node.inode.xattrs.size == 0 {
            return Ok(Arc::default());
        }
        let tree = &self.core.tree;
        self.answer(tree.try_xattrs(&node.inode), || tree.xattrs(&node.inode))
    }

    pub(crate) fn acl(&self, node: &Node, kind: PosixAclKind) -> Result<PosixAcl> {
        let none = match (&node.inode.content, kind) {
            (Content::Symlink(_), _) => true,
            (Content::Directory { .. }, _) => false,
            (_, kind) => kind == PosixAclKind::Default,
        };
        if none || node.inode.xattrs.size == 0 {
            return Ok(PosixAcl::default());
        }
        acl_in(&*self.xattrs(node)?, kind)
    }

    pub(crate) fn check_access(&self, caller: &Caller, node: &Node, wanted: u8) -> Result<()> {
        rights::check_access(caller, &node.inode, &self.acl(node, PosixAclKind::Access)?, wanted)
    }
}

pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

const NODES_LEN_MAX: u64 = 64 << 20;

const GONE_MAX: usize = 4096;

/// Revisions in which a listing can find a vanished entry.
const SERVED_MAX: usize = 8;

/// Honest publishers never reach it. A thief might, and later generations must still be larger.
const GENERATION_NUMBER_MAX: u64 = 1 << 30;

const MISSED_INTERVAL: Duration = Duration::from_secs(1);

const OPAQUE_MAX: usize = 4096;

/// In an opaque directory; later names are found but not listed.
const USED_NAMES_MAX: usize = 65_536;
