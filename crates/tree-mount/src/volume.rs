//! One mounted tree: its client, the revision that the kernel is shown, and until when.
//!
//! The client may have a newer revision than is shown: the sweep (see [`crate::revision_update`]) takes the
//! known files over first. What is shown is never past its end.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use tokio::sync::watch;
use vouch_tree::{Blob, Content, Inode};
use vouch_tree_client::{Clock, Error, FileReader, Revision, RevisionOrder, Tree};

use crate::cookie;
use crate::negative_names::NegativeNames;
use crate::node_table::Owner;
use vouch_tree::inode_number::{InodeNumber as NodeId, InodeNumbering};

/// A tree within a mount.
pub(crate) struct Volume {
    tree: Arc<Tree>,
    clock: Arc<dyn Clock>,
    numbering: InodeNumbering,
    root: NodeId,
    label: String,
    shown: RwLock<Arc<Revision>>,
    shown_until: AtomicI64,
    shown_signal: watch::Sender<RevisionOrder>,
    /// Not before then are the replicas asked again for a fresh revision on a reader's behalf.
    ask_again: Mutex<Option<Instant>>,
    /// Not before then are they asked because a frame is missing: the last time they had nothing
    /// newer.
    missed_again: Mutex<Option<Instant>>,
    /// Readers of large files, for their read-ahead.
    readers: Cache<NodeId, Arc<FileReader>>,
    pub(crate) negative_names: Mutex<NegativeNames>,
    /// Directories as they were, for listings under way.
    older_directory: Mutex<VecDeque<(NodeId, u32, Arc<Inode>)>>,
    /// Names in opaque directories that somebody has referred to.
    referenced: Mutex<HashMap<NodeId, BTreeSet<Box<[u8]>>>>,
    /// Directories that a sweep could not finish.
    pub(crate) unfinished: Mutex<HashSet<NodeId>>,
}

/// Whether the shown revision may be shown.
enum Freshness {
    /// For so long.
    Fresh(Duration),
    /// The client has a fresh one, which is about to be shown.
    Behind,
    /// No.
    Refused(Error),
}

impl Volume {
    /// A volume that shows the tree's newest revision.
    pub(crate) fn new(tree: Arc<Tree>, clock: Arc<dyn Clock>, numbering: InodeNumbering, root: NodeId, label: String) -> Self {
        let newest = tree.newest();
        Self {
            tree,
            clock,
            numbering,
            root,
            label,
            shown_until: AtomicI64::new(newest.expires()),
            shown_signal: watch::Sender::new(newest.order()),
            shown: RwLock::new(newest),
            ask_again: Mutex::default(),
            missed_again: Mutex::default(),
            readers: Cache::new(READERS_MAX),
            negative_names: Mutex::default(),
            older_directory: Mutex::default(),
            referenced: Mutex::default(),
            unfinished: Mutex::default(),
        }
    }

    /// The tree's client.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The node of its root directory.
    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    /// Its name, for the log.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The revision that the kernel is shown.
    pub(crate) fn shown(&self) -> Arc<Revision> {
        self.shown.read().clone()
    }

    /// All known files have been taken over to `revision`.
    pub(crate) fn show(&self, revision: Arc<Revision>) {
        self.shown_until.store(revision.expires(), Ordering::Release);
        let order = revision.order();
        *self.shown.write() = revision;
        self.shown_signal.send_replace(order);
    }

    /// Whether what is shown is fresh and not refused.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.freshness(), Freshness::Fresh(_))
    }

    /// How long the kernel may believe what it is told now. Where the revision has ended, asks the
    /// replicas for a newer one first and waits until it is shown, at most `freshness_wait_max`.
    pub(crate) async fn fresh(&self, freshness_wait_max: Duration) -> Result<Duration, Error> {
        let refused = match self.freshness() {
            Freshness::Fresh(left) => return Ok(left),
            Freshness::Behind => Error::TimedOut { after: freshness_wait_max, last: "a newer revision is being taken over".into() },
            Freshness::Refused(error) => {
                self.ask(error.clone()).await?;
                error
            }
        };
        let mut signal = self.shown_signal.subscribe();
        let wait = async {
            loop {
                signal.mark_unchanged();
                match self.freshness() {
                    Freshness::Fresh(left) => return Ok(left),
                    Freshness::Refused(error) => return Err(error),
                    Freshness::Behind => {}
                }
                if signal.changed().await.is_err() {
                    return Err(refused.clone());
                }
            }
        };
        tokio::time::timeout(freshness_wait_max, wait).await.unwrap_or(Err(refused.clone()))
    }

    /// Asks for a newer revision, unless that has failed a moment ago.
    async fn ask(&self, refused: Error) -> Result<(), Error> {
        if !matches!(refused, Error::Expired { .. }) || self.ask_again.lock().is_some_and(|at| Instant::now() < at) {
            return Err(refused);
        }
        let asked = self.tree.refresh().await;
        match self.tree.revision() {
            Ok(_) => {
                *self.ask_again.lock() = None;
                Ok(())
            }
            Err(still) => {
                *self.ask_again.lock() = Some(Instant::now() + ASK_INTERVAL);
                Err(asked.err().unwrap_or(still))
            }
        }
    }

    /// Where all replicas lack a frame of the revision `of`, they may have gone on. True once a
    /// newer one is shown, within `freshness_wait_max`.
    pub(crate) async fn wait_for_newer(&self, of: RevisionOrder, freshness_wait_max: Duration) -> bool {
        let moved = async {
            if self.shown().order() == of && self.tree.newest().order() <= of {
                if self.missed_again.lock().is_some_and(|at| Instant::now() < at) {
                    return false;
                }
                let _ = self.tree.refresh().await;
                if self.tree.newest().order() <= of {
                    *self.missed_again.lock() = Some(Instant::now() + ASK_INTERVAL);
                    return false;
                }
            }
            self.shown_signal.subscribe().wait_for(|shown| *shown != of).await.is_ok()
        };
        tokio::time::timeout(freshness_wait_max, moved).await.unwrap_or(false)
    }

    fn freshness(&self) -> Freshness {
        if let Err(error) = self.tree.revision() {
            return Freshness::Refused(error);
        }
        match self.shown_until.load(Ordering::Acquire).saturating_sub(self.clock.now()) {
            // The clock ticks in seconds, the kernel's in less: the last second is not given away.
            left @ 1.. => Freshness::Fresh(Duration::from_secs(left as u64 - 1)),
            _ => Freshness::Behind,
        }
    }

    /// The reader of a large file, which remembers where its reads are.
    pub(crate) fn reader(&self, id: NodeId, blob: &Blob) -> Arc<FileReader> {
        if let Some(reader) = self.readers.get(&id)
            && reader.blob() == blob
        {
            return reader;
        }
        let reader = Arc::new(self.tree.open_file(blob.clone()));
        self.readers.insert(id, reader.clone());
        reader
    }

    /// Keeps a directory as it was, for listings under way.
    pub(crate) fn keep_older_directory(&self, id: NodeId, inode: Arc<Inode>) {
        let mut older_directory = self.older_directory.lock();
        older_directory.push_back((id, tag_of(&inode), inode));
        if older_directory.len() > OLDER_MAX {
            older_directory.pop_front();
        }
    }

    /// A directory as it was when a cookie with `tag` was handed out.
    pub(crate) fn older_directory(&self, id: NodeId, tag: u32) -> Option<Arc<Inode>> {
        self.older_directory.lock().iter().rev().find(|(i, t, _)| *i == id && *t == tag).map(|(_, _, inode)| inode.clone())
    }

    /// Notes that a name in an opaque directory was referred to. True if it had not been.
    pub(crate) fn note_reference(&self, directory: NodeId, name: &[u8]) -> bool {
        let mut referenced = self.referenced.lock();
        let names = referenced.entry(directory).or_default();
        names.len() < REFERENCED_MAX && names.insert(name.into())
    }

    /// The names in an opaque directory that were referred to, sorted.
    pub(crate) fn referenced(&self, directory: NodeId) -> Vec<Box<[u8]>> {
        self.referenced.lock().get(&directory).into_iter().flatten().cloned().collect()
    }
}

impl Owner for Volume {
    fn numbering(&self) -> &InodeNumbering {
        &self.numbering
    }
}

/// What tells one version of a directory from another within a cookie.
pub(crate) fn tag_of(directory: &Inode) -> u32 {
    match &directory.content {
        Content::Directory { top: Some(top), .. } => cookie::tag_of(top.handle.prefix()),
        _ => 0,
    }
}

/// Large files read at once with read-ahead; more of them share by turns.
const READERS_MAX: usize = 512;

/// Directories kept as they were.
const OLDER_MAX: usize = 256;

/// Names remembered of one opaque directory; one that is referred to later is found, but not
/// listed.
const REFERENCED_MAX: usize = 65_536;

/// Readers of an expired tree get an answer at once, and replicas are not asked by each of them.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
