//! Options, and the state that all trees of a process share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::Instant;
use vouch_tree::TreeName;

use crate::clock::{Clock, SystemClock};
use crate::connector::{Connector, TcpConnector};
use crate::disk_cache::{DiskCache, DiskCacheOptions};
use crate::freshness::forwarding_target;
use crate::freshness::refresh::INTERVAL_MIN;
use crate::freshness::seen_store::SeenStore;
use crate::freshness::statement_files::CertificateTree;
use crate::memory_cache::{MemoryCache, TreeNumber};
use crate::tree::Origin;
use crate::{Error, FaultObserver, Result, Tree};

const FORWARDINGS_MAX: usize = 4;

/// Options of a client.
#[derive(Clone)]
pub struct ClientOptions {
    /// The network. [`HttpConnector`](crate::HttpConnector) adds URLs and TLS to the default, TCP.
    pub connector: Arc<dyn Connector>,
    /// Decides what has expired.
    pub clock: Arc<dyn Clock>,
    /// Longest time of an operation.
    pub deadline: Duration,
    /// Limit of one connection attempt and of one name lookup.
    pub connect_timeout: Duration,
    /// Shared by the decoded frames of all trees.
    pub memory_cache_bytes: u64,
    /// `None`: no disk cache.
    pub disk_cache: Option<DiskCacheOptions>,
    /// Stores the newest revision seen of each tree; `None`: memory only.
    pub state_dir: Option<PathBuf>,
    /// Opening a tree fails if `state_dir` is unusable; otherwise a warning.
    pub state_required: bool,
    /// Directories of key statements, in files named `HOSTID` or `HOSTID.*`.
    pub certificate_dirs: Vec<PathBuf>,
    /// Demanded of each revision, beside the policy that its tree demands itself.
    pub policies: Vec<vouch_log::policy::Policy>,
    /// Interval of refreshes; `None`: a quarter of the fsinfo's duration, from 60 s to 1 h.
    pub refresh_interval: Option<Duration>,
    /// Limit of the read-ahead window.
    pub read_ahead_bytes_max: u64,
    /// Receives each report of wrong or old data.
    pub fault_observer: Option<Arc<dyn FaultObserver>>,
    /// Seed of jitter and random choices, for repeatable tests; `None`: a random one.
    pub seed: Option<u64>,
    /// Work on files blocks the calling task, so that a simulation has one thread and one order of
    /// events.
    pub is_single_threaded: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connector: Arc::new(TcpConnector),
            clock: Arc::new(SystemClock),
            deadline: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            memory_cache_bytes: 256 << 20,
            disk_cache: None,
            state_dir: None,
            state_required: false,
            certificate_dirs: Vec::new(),
            policies: Vec::new(),
            refresh_interval: None,
            read_ahead_bytes_max: 8 << 20,
            fault_observer: None,
            seed: None,
            is_single_threaded: false,
        }
    }
}

/// Options of one tree.
#[derive(Debug, Clone, Default)]
pub struct TreeOptions {
    /// Replicas in addition to the name's HOST: `HOST[:PORT]`, `[IPV6]:PORT`.
    pub replicas: Vec<String>,
    /// Ignores the name's HOST.
    pub only_replicas: bool,
    /// Opening fails on a forwarding pointer.
    pub refuse_forwarding: bool,
}

/// Bytes in the caches of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUsage {
    /// Decoded frames.
    pub memory_bytes: u64,
    /// Frames and whole files on disk.
    pub disk_bytes: u64,
    /// 0 without a disk cache.
    pub disk_quota_bytes: u64,
}

/// Opens trees, which share its caches and its record of the newest revisions seen.
pub struct Client {
    pub(crate) options: ClientOptions,
    pub(crate) memory: MemoryCache,
    pub(crate) disk: Option<DiskCache>,
    disk_fault: Option<String>,
    pub(crate) seen: Arc<SeenStore>,
    pub(crate) runtime: Handle,
    certificate_trees: RwLock<Vec<CertificateTree>>,
    trees: AtomicU32,
    random: AtomicU64,
}

impl Client {
    /// Must run in a tokio runtime, which runs the background work. A disk cache that cannot be
    /// opened is a warning.
    pub fn new(options: ClientOptions) -> Result<Arc<Self>> {
        let runtime = Handle::try_current()
            .map_err(|e| Error::Damaged { what: format!("a client needs a tokio runtime: {e}") })?;
        let mut disk_fault = None;
        let open = |wanted| DiskCache::open(wanted, options.memory_cache_bytes);
        let disk = options.disk_cache.as_ref().and_then(|wanted| match open(wanted) {
            Ok(cache) => Some(cache),
            Err(error) => {
                let dir = wanted.dir.display();
                let fault = format!("disk cache {dir}: {error}; continuing without it");
                tracing::warn!("{fault}");
                disk_fault = Some(fault);
                None
            }
        });
        let seed = options.seed.unwrap_or_else(|| getrandom::u64().unwrap_or(0x5eed));
        Ok(Arc::new(Self {
            memory: MemoryCache::with_seed(options.memory_cache_bytes, seed),
            disk,
            disk_fault,
            seen: Arc::new(
                SeenStore::new(options.state_dir.clone(), options.state_required)
                    .with_threads(!options.is_single_threaded),
            ),
            runtime,
            certificate_trees: RwLock::default(),
            trees: AtomicU32::new(0),
            random: AtomicU64::new(seed),
            options,
        }))
    }

    /// Finds replicas and verifies the newest revision. Follows forwarding pointers, so the tree's
    /// name may differ. Ends within the deadline.
    pub async fn open(
        self: &Arc<Self>,
        name: &TreeName,
        options: &TreeOptions,
    ) -> Result<Arc<Tree>> {
        let mut name = name.clone();
        let mut options = options.clone();
        let mut origins = Vec::new();
        for _ in 0..=FORWARDINGS_MAX {
            let tree = Tree::without_revision(self, &name, &options).await?;
            match tree.first_revision(Instant::now() + self.options.deadline).await {
                Ok(()) => return tree.start(origins),
                Err(error) => match forwarding_target(&error) {
                    Some(to) if !options.refuse_forwarding => {
                        tracing::warn!("{name} has moved to {to}");
                        name = to.clone();
                        origins.push(Origin { tree, to: to.clone() });
                        // The new name has its own HOST.
                        options.only_replicas = false;
                    }
                    _ => return Err(error),
                },
            }
        }
        Err(Error::Forwarded { to: name })
    }

    /// Faults of this machine in spite of which trees are read, one line each. They are logged too.
    pub fn local_faults(&self) -> Vec<String> {
        self.disk_fault.clone().into_iter().chain(self.seen.fault()).collect()
    }

    /// Reads key statements also from a published tree: files `HOSTID` or `HOSTID.*` at `path`.
    /// Does not keep the tree open.
    pub fn add_certificate_tree(&self, tree: &Arc<Tree>, path: &[u8]) {
        let source = CertificateTree { tree: Arc::downgrade(tree), path: path.to_vec() };
        self.certificate_trees.write().push(source);
    }

    /// Validity of a forwarding pointer before its key is asked again: the refresh interval, or one
    /// minute.
    pub fn forwarding_ttl(&self) -> Duration {
        self.options.refresh_interval.unwrap_or(INTERVAL_MIN)
    }

    /// Longest time of an operation.
    pub fn deadline(&self) -> Duration {
        self.options.deadline
    }

    /// Bytes in use now.
    pub fn cache_usage(&self) -> CacheUsage {
        let (disk_bytes, disk_quota_bytes) =
            self.disk.as_ref().map_or((0, 0), |disk| (disk.used_bytes(), disk.quota_bytes()));
        CacheUsage { memory_bytes: self.memory.weight(), disk_bytes, disk_quota_bytes }
    }

    /// `None` without a disk cache.
    pub fn disk_cache_directory(&self) -> Option<&std::path::Path> {
        self.disk.as_ref()?;
        self.options.disk_cache.as_ref().map(|options| &*options.dir)
    }

    /// Waits some seconds at most for queued frames to be written.
    pub async fn flush(&self) {
        if let Some(disk) = &self.disk {
            disk.flush().await;
        }
    }

    pub(crate) fn certificate_trees(&self) -> Vec<CertificateTree> {
        self.certificate_trees.read().clone()
    }

    /// Work on files, on a thread beside the runtime's.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::result::Result<T, JoinError> {
        if self.options.is_single_threaded {
            return Ok(work());
        }
        tokio::task::spawn_blocking(work).await
    }

    pub(crate) fn next_tree(&self) -> TreeNumber {
        TreeNumber(self.trees.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_random(&self) -> u64 {
        let mut z = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
