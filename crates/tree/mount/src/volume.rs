//! The revision shown to the kernel, and its freshness. `revision_update` updates known files
//! before it shows a newer revision. An expired revision is never shown.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use tokio::sync::watch;
use vouch_tree::inode_number::{InodeNumber as NodeId, InodeNumbering};
use vouch_tree::{Blob, Content, Inode};
use vouch_tree_client::{Clock, Error, FileReader, Revision, RevisionOrder, Tree};

use crate::config::MountOptions;
use crate::cookie;
use crate::error::MountError;
use crate::journal::record::{Record, VolumeRecord};
use crate::journal::{HEADER_LEN, Journal};
use crate::negative_names::NegativeNames;
use crate::node_table::Owner;

pub(crate) struct Volume {
    number: u32,
    journal: Option<Arc<Journal>>,
    tree: Arc<Tree>,
    clock: Arc<dyn Clock>,
    numbering: InodeNumbering,
    root: NodeId,
    label: String,
    pinned: Option<Arc<Revision>>,
    shown: RwLock<Arc<Revision>>,
    shown_until: AtomicI64,
    shown_signal: watch::Sender<RevisionOrder>,
    next_refresh: Mutex<Option<Instant>>,
    /// Next refresh because of a missing frame, at the earliest.
    next_refresh_for_missing: Mutex<Option<Instant>>,
    readers: Cache<NodeId, Arc<FileReader>>,
    negative_names: Mutex<NegativeNames>,
    older_directories: Mutex<VecDeque<(NodeId, u32, Arc<Inode>)>>,
    referenced: Mutex<HashMap<NodeId, BTreeSet<Box<[u8]>>>>,
    pub(crate) unfinished: Mutex<HashSet<NodeId>>,
}

enum Freshness {
    Fresh(Duration),
    Updating,
    Refused(Error),
}

pub(crate) struct VolumeRegistry {
    clock: Arc<dyn Clock>,
    journal: Option<Arc<Journal>>,
    in_use: Mutex<(u32, Vec<Weak<Volume>>)>,
}

impl VolumeRegistry {
    pub(crate) fn new(options: &MountOptions) -> Result<Self, MountError> {
        Self::with_journal(options, HEADER_LEN)
    }

    /// The journal continues after `end`.
    pub(crate) fn with_journal(options: &MountOptions, end: u64) -> Result<Self, MountError> {
        let open = |file: &Arc<File>| Journal::open(file.try_clone()?, end).map(Arc::new);
        let failed =
            |source| MountError::Io { doing: "opening", path: "the mount journal".into(), source };
        let journal = options.journal.as_ref().map(open).transpose().map_err(failed)?;
        Ok(Self { clock: options.clock.clone(), journal, in_use: Mutex::default() })
    }

    pub(crate) fn journal(&self) -> Option<Arc<Journal>> {
        self.journal.clone()
    }

    /// Shows the newest revision, or the pinned one.
    pub(crate) fn add(
        &self,
        tree: Arc<Tree>,
        numbering: InodeNumbering,
        root: NodeId,
        label: String,
        pinned: Option<Arc<Revision>>,
    ) -> Arc<Volume> {
        let number = self.in_use.lock().0;
        let shown = pinned.clone().unwrap_or_else(|| tree.newest());
        let volume =
            self.insert(Volume::new(number, self, tree, numbering, root, label, shown, pinned));
        volume.record(false);
        volume
    }

    pub(crate) fn restore(
        &self,
        record: &VolumeRecord,
        tree: Arc<Tree>,
        shown: Arc<Revision>,
        is_pinned: bool,
    ) -> Arc<Volume> {
        let numbering = match record.root {
            NodeId::ROOT => InodeNumbering::of_tree(&shown.fsinfo.hostid),
            _ => InodeNumbering::of_reference(&record.label),
        };
        let pinned = is_pinned.then(|| shown.clone());
        self.insert(Volume::new(
            record.number,
            self,
            tree,
            numbering,
            record.root,
            record.label.clone(),
            shown,
            pinned,
        ))
    }

    fn insert(&self, volume: Volume) -> Arc<Volume> {
        let volume = Arc::new(volume);
        let mut in_use = self.in_use.lock();
        in_use.0 = in_use.0.max(volume.number + 1);
        in_use.1.retain(|other| other.strong_count() > 0);
        in_use.1.push(Arc::downgrade(&volume));
        volume
    }

    pub(crate) fn all(&self) -> Vec<Arc<Volume>> {
        self.in_use.lock().1.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Volume {
    #[allow(
        clippy::too_many_arguments,
        reason = "one caller for a new volume, and one for a restored one"
    )]
    fn new(
        number: u32,
        registry: &VolumeRegistry,
        tree: Arc<Tree>,
        numbering: InodeNumbering,
        root: NodeId,
        label: String,
        shown: Arc<Revision>,
        pinned: Option<Arc<Revision>>,
    ) -> Self {
        Self {
            number,
            journal: registry.journal.clone(),
            clock: registry.clock.clone(),
            tree,
            numbering,
            root,
            label,
            shown_until: AtomicI64::new(shown.expires()),
            shown_signal: watch::Sender::new(shown.order()),
            pinned,
            shown: RwLock::new(shown),
            next_refresh: Mutex::default(),
            next_refresh_for_missing: Mutex::default(),
            readers: Cache::new(READERS_MAX),
            negative_names: Mutex::default(),
            older_directories: Mutex::default(),
            referenced: Mutex::default(),
            unfinished: Mutex::default(),
        }
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The newest, unless the mount is pinned to one.
    pub(crate) fn target(&self) -> Arc<Revision> {
        self.pinned.clone().unwrap_or_else(|| self.tree.newest())
    }

    pub(crate) fn shown(&self) -> Arc<Revision> {
        self.shown.read().clone()
    }

    pub(crate) fn show(&self, revision: Arc<Revision>) {
        self.shown_until.store(revision.expires(), Ordering::Release);
        let order = revision.order();
        *self.shown.write() = revision;
        self.record(false);
        self.shown_signal.send_replace(order);
    }

    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.freshness(), Freshness::Fresh(_))
    }

    /// If the revision has expired, refreshes and waits for a newer one, at most `wait_max`.
    pub(crate) async fn wait_until_fresh(&self, wait_max: Duration) -> Result<Duration, Error> {
        let refused = match self.freshness() {
            Freshness::Fresh(left) => return Ok(left),
            Freshness::Updating => Error::TimedOut {
                after: wait_max,
                last: "files are being updated to a newer revision".into(),
            },
            Freshness::Refused(error) => {
                self.refresh_if_due(error.clone()).await?;
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
                    Freshness::Updating => {}
                }
                if signal.changed().await.is_err() {
                    return Err(refused.clone());
                }
            }
        };
        tokio::time::timeout(wait_max, wait).await.unwrap_or(Err(refused.clone()))
    }

    /// Fails if a refresh failed recently.
    async fn refresh_if_due(&self, refused: Error) -> Result<(), Error> {
        if !matches!(refused, Error::Expired { .. })
            || self.next_refresh.lock().is_some_and(|at| Instant::now() < at)
        {
            return Err(refused);
        }
        let refreshed = self.tree.refresh().await;
        match self.tree.revision() {
            Ok(_) => {
                *self.next_refresh.lock() = None;
                Ok(())
            }
            Err(still) => {
                *self.next_refresh.lock() = Some(Instant::now() + REFRESH_INTERVAL_MIN);
                Err(refreshed.err().unwrap_or(still))
            }
        }
    }

    pub(crate) async fn wait_for_newer(&self, of: RevisionOrder, wait_max: Duration) -> bool {
        let newer_is_shown = async {
            if self.pinned.is_some() {
                return false;
            }
            if self.shown().order() == of && self.tree.newest().order() <= of {
                if self.next_refresh_for_missing.lock().is_some_and(|at| Instant::now() < at) {
                    return false;
                }
                let _ = self.tree.refresh().await;
                if self.tree.newest().order() <= of {
                    *self.next_refresh_for_missing.lock() =
                        Some(Instant::now() + REFRESH_INTERVAL_MIN);
                    return false;
                }
            }
            self.shown_signal.subscribe().wait_for(|shown| *shown != of).await.is_ok()
        };
        tokio::time::timeout(wait_max, newer_is_shown).await.unwrap_or(false)
    }

    fn freshness(&self) -> Freshness {
        if let Err(error) = self.tree.revision() {
            return Freshness::Refused(error);
        }
        let until = if self.pinned.is_some() {
            self.tree.newest().expires()
        } else {
            self.shown_until.load(Ordering::Acquire)
        };
        match until.saturating_sub(self.clock.now()) {
            // The clock has a resolution of 1 s, so the last second is not used.
            left @ 1.. => Freshness::Fresh(Duration::from_secs(left as u64 - 1)),
            _ => Freshness::Updating,
        }
    }

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

    /// Running listings need the earlier version.
    pub(crate) fn keep_older_directory(&self, id: NodeId, inode: Arc<Inode>) {
        if let Some(journal) = &self.journal {
            journal.append_later([Record::OlderDirectory {
                volume: self.number,
                id,
                inode: inode.clone(),
            }]);
        }
        self.insert_older_directory(id, inode);
    }

    pub(crate) fn insert_older_directory(&self, id: NodeId, inode: Arc<Inode>) {
        let mut older = self.older_directories.lock();
        older.push_back((id, tag_of(&inode), inode));
        if older.len() > OLDER_MAX {
            older.pop_front();
        }
    }

    pub(crate) fn older_directory(&self, id: NodeId, tag: u32) -> Option<Arc<Inode>> {
        self.older_directories
            .lock()
            .iter()
            .rev()
            .find(|(i, t, _)| *i == id && *t == tag)
            .map(|(_, _, inode)| inode.clone())
    }

    pub(crate) fn note_reference(&self, directory: NodeId, name: &[u8]) -> bool {
        let mut referenced = self.referenced.lock();
        let names = referenced.entry(directory).or_default();
        let is_new = names.len() < REFERENCED_MAX && names.insert(name.into());
        if let Some(journal) = self.journal.as_ref().filter(|_| is_new) {
            journal.append([Record::Referenced {
                volume: self.number,
                directory,
                name: name.into(),
            }]);
        }
        is_new
    }

    pub(crate) fn note_missing(
        &self,
        directory: NodeId,
        name: &[u8],
    ) -> Option<(NodeId, Box<[u8]>)> {
        let mut names = self.negative_names.lock();
        let (is_new, evicted) = names.insert(directory, name);
        if let Some(journal) = self.journal.as_ref().filter(|_| is_new) {
            let volume = self.number;
            let dropped = evicted.iter().map(|(directory, name)| (*directory, name.clone(), false));
            let changes = std::iter::once((directory, name.into(), true)).chain(dropped);
            journal.append(changes.map(|(directory, name, is_cached)| Record::Missing {
                volume,
                directory,
                name,
                is_cached,
            }));
        }
        evicted
    }

    pub(crate) fn drain_missing(&self, directory: NodeId) -> Vec<Box<[u8]>> {
        let mut names = self.negative_names.lock();
        let drained = names.drain(directory);
        if let Some(journal) = self.journal.as_ref().filter(|_| !drained.is_empty()) {
            journal.append([Record::MissingDropped { volume: self.number, directory }]);
        }
        drained
    }

    pub(crate) fn record(&self, is_updating: bool) {
        let Some(journal) = &self.journal else { return };
        journal.append([self.own_record(is_updating)]);
    }

    fn own_record(&self, is_updating: bool) -> Record {
        let (label, signed) = (self.label.clone(), self.shown().signed.to_vec());
        Record::Volume(VolumeRecord {
            number: self.number,
            label,
            root: self.root,
            signed,
            is_updating,
        })
    }

    pub(crate) fn record_all(&self, journal: &Journal) {
        let volume = self.number;
        journal.append([self.own_record(false)]);
        {
            let names = self.negative_names.lock();
            let missing = names.iter().map(|(directory, name)| Record::Missing {
                volume,
                directory,
                name: name.into(),
                is_cached: true,
            });
            journal.append(missing);
        }
        {
            let referenced = self.referenced.lock();
            let names = referenced
                .iter()
                .flat_map(|(directory, names)| names.iter().map(|name| (*directory, name.clone())));
            journal.append(names.map(|(directory, name)| Record::Referenced {
                volume,
                directory,
                name,
            }));
        }
        let older = self.older_directories.lock();
        journal.append(older.iter().map(|(id, _, inode)| Record::OlderDirectory {
            volume,
            id: *id,
            inode: inode.clone(),
        }));
    }

    pub(crate) fn restore_missing(&self, directory: NodeId, name: &[u8]) {
        self.negative_names.lock().insert(directory, name);
    }

    pub(crate) fn restore_referenced(&self, directory: NodeId, name: Box<[u8]>) {
        self.referenced.lock().entry(directory).or_default().insert(name);
    }

    pub(crate) fn missing_names(&self) -> Vec<(NodeId, Box<[u8]>)> {
        self.negative_names
            .lock()
            .iter()
            .map(|(directory, name)| (directory, name.into()))
            .collect()
    }

    pub(crate) fn referenced(&self, directory: NodeId) -> Vec<Box<[u8]>> {
        self.referenced.lock().get(&directory).into_iter().flatten().cloned().collect()
    }
}

impl Owner for Volume {
    fn numbering(&self) -> &InodeNumbering {
        &self.numbering
    }

    fn number(&self) -> u32 {
        self.number
    }
}

pub(crate) fn tag_of(directory: &Inode) -> u32 {
    match &directory.content {
        Content::Directory { top: Some(top), .. } => cookie::tag_of(top.handle.prefix()),
        _ => 0,
    }
}

const READERS_MAX: usize = 512;

pub(crate) const OLDER_MAX: usize = 256;

const REFERENCED_MAX: usize = 65_536;

const REFRESH_INTERVAL_MIN: Duration = Duration::from_secs(1);
