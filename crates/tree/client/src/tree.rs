use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use vouch_log::evidence::Witnessing;
use vouch_tree::{BlockHandle, FRAME_LEN_MAX, FrameKind, HostId, Iv, TreeName, frame};

use crate::client::{Client, TreeOptions};
use crate::file::known_layout::KnownLayout;
use crate::frame::Frame;
use crate::freshness::Freshness;
use crate::freshness::refresh::{self, DEMAND_INTERVAL};
use crate::memory_cache::{MemoryCache, TreeNumber};
use crate::mirrors;
use crate::replica::{
    CounterCells, Counters, FrameRequest, Location, Priority, Reach, ReplicaSet, ReplicaStatus,
};
use crate::replica_fault::FaultReporter;
use crate::revision::Revision;
use crate::{Error, Result};

/// Typical metadata frame; sizes batches.
pub(crate) const PAGE_LEN_EXPECTED: usize = 16 * 1024;

/// Every byte is verified before it is returned.
pub struct Tree {
    client: Arc<Client>,
    name: TreeName,
    number: TreeNumber,
    iv: Iv,
    replicas: Arc<ReplicaSet>,
    follows_mirrors: bool,
    counters: Arc<CounterCells>,
    freshness: Arc<Freshness>,
    refresh_turn: tokio::sync::Mutex<()>,
    refresh_rounds: AtomicU64,
    last_demand: Mutex<Option<Instant>>,
    refresher: OnceLock<AbortHandle>,
    origins: Vec<Origin>,
    this: OnceLock<Weak<Tree>>,
    known_layout: Mutex<KnownLayout>,
}

#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// Memory and disk cache; never waits.
    Local,
    Replicas(Priority, Instant),
}

impl Source {
    pub(crate) fn foreground(deadline: Instant) -> Self {
        Source::Replicas(Priority::Foreground, deadline)
    }
}

/// A moved tree. Its key may still revoke itself or name another target.
pub(crate) struct Origin {
    pub(crate) tree: Tree,
    pub(crate) to: TreeName,
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(refresher) = self.refresher.get() {
            refresher.abort();
        }
    }
}

impl Tree {
    pub(crate) async fn without_revision(
        client: &Arc<Client>,
        name: &TreeName,
        options: &TreeOptions,
    ) -> Result<Self> {
        let hostid = *name.hostid();
        let (seen, clock) = (Arc::clone(&client.seen), Arc::clone(&client.options.clock));
        let policies = client.options.policies.clone();
        let load = move || Freshness::load(hostid, clock, seen, policies);
        let loaded = client.seen.run_blocking(load).await;
        let freshness = loaded.unwrap_or_else(|e| {
            Err(Error::Damaged { what: format!("loading the newest revision seen: {e}") })
        })?;
        let counters = Arc::new(CounterCells::default());
        let reach = Reach {
            connector: Arc::clone(&client.options.connector),
            connect_timeout: client.options.connect_timeout.min(client.options.deadline),
            seed: client.next_random(),
            reporter: client
                .options
                .fault_observer
                .clone()
                .map(|observer| FaultReporter { observer, tree: name.clone() }),
        };
        let locations = locations(name, options)?;
        Ok(Self {
            client: Arc::clone(client),
            name: name.clone(),
            number: client.next_tree(),
            iv: Iv::from_bytes([0; 32]),
            replicas: Arc::new(ReplicaSet::new(hostid, locations, reach, Arc::clone(&counters))),
            follows_mirrors: !options.only_replicas,
            counters,
            freshness: Arc::new(freshness),
            refresh_turn: tokio::sync::Mutex::new(()),
            refresh_rounds: AtomicU64::new(0),
            last_demand: Mutex::new(None),
            refresher: OnceLock::new(),
            origins: Vec::new(),
            this: OnceLock::new(),
            known_layout: Mutex::default(),
        })
    }

    /// Requires a revision from [`Tree::first_revision`]. Refreshes check the keys of `origins`.
    pub(crate) fn start(mut self, origins: Vec<Origin>) -> Result<Arc<Self>> {
        let revision = self.freshness.revision()?;
        self.iv = revision.fsinfo.iv;
        self.origins = origins;
        let tree = Arc::new(self);
        let weak = Arc::downgrade(&tree);
        let _ = tree.this.set(weak.clone());
        let client = Arc::downgrade(&tree.client);
        let random = move || {
            client
                .upgrade()
                .map_or(0.5, |client| (client.next_random() >> 11) as f64 / (1u64 << 53) as f64)
        };
        let refresher = tree.client.runtime.spawn(refresh::refresh_periodically(weak, random));
        let _ = tree.refresher.set(refresher.abort_handle());
        Ok(tree)
    }

    /// As given, or after the last forwarding pointer.
    pub const fn name(&self) -> &TreeName {
        &self.name
    }

    /// The hash of the root key.
    pub const fn hostid(&self) -> &HostId {
        self.name.hostid()
    }

    pub(crate) const fn follows_mirrors(&self) -> bool {
        self.follows_mirrors
    }

    /// The key of all frame hashes.
    pub const fn iv(&self) -> Iv {
        self.iv
    }

    /// The newest verified revision, if it is valid now.
    pub fn revision(&self) -> Result<Arc<Revision>> {
        self.freshness.revision()
    }

    /// Even if expired.
    pub fn newest(&self) -> Arc<Revision> {
        self.freshness.newest().expect("`start` needs a revision, and none is ever removed")
    }

    /// The cosignatures of [`Tree::newest`]; `None` if no policy demands any.
    pub fn witnessing(&self) -> Option<Witnessing> {
        self.freshness.witnessing()
    }

    /// Notifies of each newer [`Tree::newest`].
    pub fn watch(&self) -> watch::Receiver<()> {
        self.freshness.watch()
    }

    /// All known replicas, as the client sees them.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        self.replicas.status()
    }

    /// Since the tree was opened.
    pub fn counters(&self) -> Counters {
        self.counters.read()
    }

    /// The client that opened the tree.
    pub const fn client(&self) -> &Arc<Client> {
        &self.client
    }
}

impl Tree {
    pub(crate) async fn start_operation(&self) -> Result<Instant> {
        let deadline = Instant::now() + self.client.options.deadline;
        if !self.freshness.is_fresh() {
            self.ensure_fresh().await?;
        }
        Ok(deadline)
    }

    /// `None` if a refresh is due first.
    pub(crate) fn can_start_now(&self) -> Option<bool> {
        if self.freshness.is_fresh() {
            return Some(true);
        }
        if self.freshness.blocked_for_good().is_none()
            && self.last_demand.lock().is_none_or(|at| at.elapsed() >= DEMAND_INTERVAL)
        {
            return None;
        }
        Some(false)
    }

    pub(crate) fn operation_max(&self) -> Duration {
        self.client.options.deadline
    }

    /// `None`: the frame must be fetched, but the source is local.
    pub(crate) async fn frame_from(
        &self,
        kind: FrameKind,
        handle: &BlockHandle,
        len_expected: usize,
        source: Source,
    ) -> Result<Option<Frame>> {
        match source {
            Source::Local => self.local_frame(kind, handle).transpose(),
            Source::Replicas(priority, deadline) => {
                self.frame_by(kind, handle, len_expected, priority, deadline).await.map(Some)
            }
        }
    }

    pub(crate) fn run_local<T>(
        &self,
        operation: impl Future<Output = Result<Option<T>>>,
    ) -> Option<Result<T>> {
        if !self.can_start_now()? {
            return Some(Err(self.freshness.unusable_error(self.freshness.newest().as_deref())));
        }
        match std::pin::pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done.transpose(),
            Poll::Pending => unreachable!("local frames are never awaited"),
        }
    }

    pub(crate) async fn frame_by(
        &self,
        kind: FrameKind,
        handle: &BlockHandle,
        len_expected: usize,
        priority: Priority,
        deadline: Instant,
    ) -> Result<Frame> {
        if let Some(found) = self.client.memory.get(self.number, kind, handle) {
            CounterCells::add(&self.counters.memory_frames, 1);
            return found;
        }
        let fetch = async {
            if let Some(frame) = self.disk_frame_off_reactor(kind, handle).await {
                return Ok(frame);
            }
            let request = FrameRequest {
                handle: *handle,
                iv: self.iv,
                decode: Some(kind),
                len_expected,
                priority,
            };
            let fetched = self
                .replicas
                .fetch(request, deadline, self.operation_max())
                .await
                .inspect_err(|error| self.note_failure(error))?;
            if let Some(disk) = &self.client.disk {
                disk.put(handle, fetched.stored.clone());
            }
            fetched.decoded.unwrap_or_else(|| Frame::decode(kind, handle, &fetched.stored))
        };
        let shared = self.client.memory.get_or_fetch(self.number, kind, handle, fetch);
        match timeout_at(deadline, shared).await {
            Ok(done) => done,
            Err(_) => Err(Error::TimedOut {
                after: self.operation_max(),
                last: format!("waiting for frame {handle}"),
            }),
        }
    }

    /// Returns the stored form, verified by its hash. Bypasses all caches: for caches that pass
    /// frames on.
    pub async fn fetch_stored(&self, handle: &BlockHandle, len_expected: usize) -> Result<Bytes> {
        let (deadline, priority) = (Instant::now() + self.operation_max(), Priority::Foreground);
        let request =
            FrameRequest { handle: *handle, iv: self.iv, decode: None, len_expected, priority };
        let fetched = self.replicas.fetch(request, deadline, self.operation_max()).await;
        fetched.map(|fetched| fetched.stored).inspect_err(|error| self.note_failure(error))
    }

    fn note_failure(&self, error: &Error) {
        if matches!(error, Error::Missing { .. })
            && let Some(tree) = self.this.get().and_then(Weak::upgrade)
            && self.may_refresh_on_demand()
        {
            self.client.runtime.spawn(async move { drop(tree.refresh().await) });
        }
    }

    pub(crate) fn local_frame(
        &self,
        kind: FrameKind,
        handle: &BlockHandle,
    ) -> Option<Result<Frame>> {
        self.local_frame_kept_if(kind, handle, |_| true)
    }

    /// As [`Tree::local_frame`]. If the memory cache is full, it takes few frames from disk: a table
    /// that is larger would evict its own frames before they are read again.
    pub(crate) fn local_frame_of_long_read(
        &self,
        kind: FrameKind,
        handle: &BlockHandle,
    ) -> Option<Result<Frame>> {
        self.local_frame_kept_if(kind, handle, MemoryCache::admits_of_long_read)
    }

    fn local_frame_kept_if(
        &self,
        kind: FrameKind,
        handle: &BlockHandle,
        is_kept: impl FnOnce(&MemoryCache) -> bool,
    ) -> Option<Result<Frame>> {
        let memory = &self.client.memory;
        if let Some(found) = memory.get(self.number, kind, handle) {
            CounterCells::add(&self.counters.memory_frames, 1);
            return Some(found);
        }
        let frame = self.disk_frame(kind, handle)?;
        if is_kept(memory) {
            memory.insert(self.number, handle, frame.clone());
        }
        Some(Ok(frame))
    }

    /// Does not change the memory cache: for bulk reads.
    pub(crate) fn peek(&self, kind: FrameKind, handle: &BlockHandle) -> Option<Frame> {
        match self.client.memory.get(self.number, kind, handle) {
            Some(found) => found.ok(),
            None => self.disk_frame(kind, handle),
        }
    }

    pub(crate) fn is_in_memory(&self, handle: &BlockHandle) -> bool {
        self.client.memory.contains(self.number, handle)
    }

    pub(crate) fn forget_in_memory(&self, handle: &BlockHandle) {
        self.client.memory.remove(self.number, handle);
    }

    fn disk_frame(&self, kind: FrameKind, handle: &BlockHandle) -> Option<Frame> {
        let disk = self.client.disk.as_ref()?;
        self.verify_disk_frame(kind, handle, disk.get(handle)?)
    }

    async fn disk_frame_off_reactor(&self, kind: FrameKind, handle: &BlockHandle) -> Option<Frame> {
        let disk = self.client.disk.as_ref()?;
        if !disk.contains(handle) {
            return None;
        }
        let (client, handle_copy) = (Arc::clone(&self.client), *handle);
        let read = self
            .client
            .run_blocking(move || client.disk.as_ref().and_then(|disk| disk.get(&handle_copy)));
        self.verify_disk_frame(kind, handle, read.await.ok().flatten()?)
    }

    fn verify_disk_frame(
        &self,
        kind: FrameKind,
        handle: &BlockHandle,
        stored: Vec<u8>,
    ) -> Option<Frame> {
        let stored = Bytes::from(stored);
        if let Err(error) = frame::verify(&self.iv, handle, &stored) {
            tracing::warn!("disk cache: {error}; fetching the frame again");
            if let Some(disk) = &self.client.disk {
                disk.remove_frame(handle);
            }
            return None;
        }
        CounterCells::add(&self.counters.disk_frames, 1);
        Frame::decode(kind, handle, &stored).ok()
    }

    pub(crate) fn cache_companions(&self, frames: &[Vec<u8>]) {
        let Some(revision) = self.freshness.newest() else { return };
        for stored in frames {
            let handle = revision.fsinfo.iv.handle_of(stored);
            let (Some(kind), stored) = (frame::kind_of(stored), Bytes::copy_from_slice(stored))
            else {
                continue;
            };
            if stored.len() <= FRAME_LEN_MAX
                && !self.is_in_memory(&handle)
                && let Ok(frame) = Frame::decode(kind, &handle, &stored)
            {
                self.client.memory.insert(self.number, &handle, frame);
                if let Some(disk) = &self.client.disk {
                    disk.put(&handle, stored);
                }
            }
        }
    }

    pub(crate) const fn freshness(&self) -> &Arc<Freshness> {
        &self.freshness
    }

    pub(crate) const fn known_layout(&self) -> &Mutex<KnownLayout> {
        &self.known_layout
    }

    pub(crate) const fn replicas_set(&self) -> &Arc<ReplicaSet> {
        &self.replicas
    }

    pub(crate) fn origins(&self) -> &[Origin] {
        &self.origins
    }

    pub(crate) const fn refresh_turn(&self) -> &tokio::sync::Mutex<()> {
        &self.refresh_turn
    }

    pub(crate) fn refresh_rounds(&self) -> u64 {
        self.refresh_rounds.load(Ordering::Acquire)
    }

    pub(crate) fn note_refresh_round(&self) {
        self.refresh_rounds.fetch_add(1, Ordering::Release);
        CounterCells::add(&self.counters.refreshes, 1);
    }

    /// Starts the next interval.
    pub(crate) fn may_refresh_on_demand(&self) -> bool {
        let mut last_demand = self.last_demand.lock();
        let due = last_demand.is_none_or(|at| at.elapsed() >= DEMAND_INTERVAL);
        if due {
            *last_demand = Some(Instant::now());
        }
        due
    }
}

fn locations(name: &TreeName, options: &TreeOptions) -> Result<Vec<Location>> {
    let mut locations = Vec::new();
    if !options.only_replicas {
        locations.push(mirrors::location(&mirrors::location_of_name(name), name.hostid())?);
    }
    for replica in &options.replicas {
        locations.push(mirrors::location(replica, name.hostid())?);
    }
    locations.dedup();
    Ok(locations)
}
