use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use vouch_tree::TreeName;
use vouch_tree_client::{
    Client, ClientOptions, DiskCacheOptions, HttpConnector, HttpOptions, ReplicaTls, Tree,
    TreeOptions, read_policies,
};

use crate::directories::{STATEMENTS, cache_directory, state_directory};
use crate::{Error, ReadTree, Result, TreeSelection};

/// Asked every 40 ms by the waiting thread; true ends the operation with
/// [`Error::Interrupted`].
pub type Interrupt<'a> = &'a dyn Fn() -> bool;

/// Never interrupts.
pub const NOT_INTERRUPTED: Interrupt<'static> = &|| false;

const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// Of a file: programs that read tables ask for row groups of so many bytes at once.
const READ_AHEAD_MAX: u64 = 32 << 20;

const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Options of reading, as those of `vouch cat`.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Time limit of each operation.
    pub timeout: Duration,
    /// Directory of the disk cache, which processes and mounts may share; `None`: no disk cache.
    pub cache: Option<PathBuf>,
    /// Limit of the disk cache.
    pub cache_quota_bytes: u64,
    /// Limit of the memory cache.
    pub memory_cache_bytes: u64,
    /// Remembers the newest revision seen of each tree; `None`: in memory only.
    pub state: Option<PathBuf>,
    /// Opening a tree fails if `state` can't be written; otherwise [`Session::local_faults`] says so.
    pub state_required: bool,
    /// Files with policies of witnesses; /etc/vouch/policy holds beside them.
    pub policies: Vec<PathBuf>,
    /// Directories of key statements; /etc/vouch/statements is read beside them.
    pub statements: Vec<PathBuf>,
    /// Reads over TLS only.
    pub replica_tls: bool,
    /// Authorities (PEM) of replicas' certificates; `None`: those of the system.
    pub replica_ca: Option<PathBuf>,
    /// Proxies for replicas with a URL, as `vouch --proxy`.
    pub proxies: Vec<String>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        Self {
            timeout: Duration::from_secs(30),
            cache: variable("VOUCH_CACHE").or_else(cache_directory),
            cache_quota_bytes: 10 << 30,
            memory_cache_bytes: 256 << 20,
            state: variable("VOUCH_STATE").or_else(state_directory),
            state_required: false,
            policies: Vec::new(),
            statements: Vec::new(),
            replica_tls: false,
            replica_ca: None,
            proxies: Vec::new(),
        }
    }
}

/// Opens trees, which share its caches, its threads and its record of the newest revisions seen.
pub struct Session {
    client: Option<Arc<Client>>,
    process: Arc<Process>,
}

/// The threads of this process. A child has none of them.
struct Process {
    pid: u32,
    runtime: Runtime,
}

/// Never dropped: a runtime waits for its threads, which a child does not have.
static PROCESS: Mutex<Option<Arc<Process>>> = Mutex::new(None);

impl Process {
    fn current() -> Result<Arc<Self>> {
        let pid = std::process::id();
        let mut current = PROCESS.lock();
        if let Some(process) = current.as_ref().filter(|process| process.pid == pid) {
            return Ok(Arc::clone(process));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("vouch-reader")
            .build()
            .map_err(Error::Threads)?;
        let process = Arc::new(Self { pid, runtime });
        std::mem::forget(current.replace(Arc::clone(&process)));
        Ok(process)
    }

    fn is_this(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl Session {
    /// Opens the disk cache: O(cached frames).
    pub fn new(options: SessionOptions) -> Result<Arc<Self>> {
        let mut certificate_dirs = options.statements;
        for dir in &certificate_dirs {
            // A named directory must exist: the user relies on its statements.
            std::fs::read_dir(dir)
                .map_err(|source| Error::Statements { path: dir.clone(), source })?;
        }
        if Path::new(STATEMENTS).is_dir() {
            certificate_dirs.push(STATEMENTS.into());
        }
        let timeout = options.timeout.min(CONNECT_MAX);
        let tls = ReplicaTls::new(options.replica_ca.as_deref(), options.replica_tls)?;
        let http = HttpOptions { proxies: options.proxies, timeout, tls, ..HttpOptions::default() };
        let quota_bytes = options.cache_quota_bytes;
        let options = ClientOptions {
            connector: Arc::new(HttpConnector::new(http)?),
            deadline: options.timeout,
            connect_timeout: timeout,
            memory_cache_bytes: options.memory_cache_bytes,
            disk_cache: options.cache.map(|dir| DiskCacheOptions { dir, quota_bytes }),
            state_dir: options.state,
            state_required: options.state_required,
            certificate_dirs,
            policies: read_policies(&options.policies)?,
            read_ahead_bytes_max: READ_AHEAD_MAX,
            ..ClientOptions::default()
        };
        Self::with_client_options(options)
    }

    /// For a network, a clock or options of the caller's own.
    pub fn with_client_options(options: ClientOptions) -> Result<Arc<Self>> {
        let process = Process::current()?;
        let client = {
            let _runtime = process.runtime.enter();
            Client::new(options)?
        };
        Ok(Arc::new(Self { client: Some(client), process }))
    }

    /// Finds replicas and verifies the revision.
    pub fn open(
        self: &Arc<Self>,
        name: &TreeName,
        selection: &TreeSelection,
        interrupt: Interrupt<'_>,
    ) -> Result<Arc<ReadTree>> {
        let (tree, revision) = self.run(interrupt, async {
            let tree = self.open_tree(name, &selection.options).await?;
            let revision = selection.revision.require(&tree).await?;
            Ok((tree, revision))
        })?;
        Ok(Arc::new(ReadTree::new(Arc::clone(self), tree, revision)))
    }

    async fn open_tree(&self, name: &TreeName, options: &TreeOptions) -> Result<Arc<Tree>> {
        Ok(self.client().open(name, options).await?)
    }

    /// Waits until the disk cache has what was read, some seconds at most.
    pub fn flush(&self) -> Result<()> {
        self.run(NOT_INTERRUPTED, async {
            self.client().flush().await;
            Ok(())
        })
    }

    /// Faults of this machine in spite of which trees are read, one line each: the cache or the
    /// record of the newest revisions seen can't be used.
    pub fn local_faults(&self) -> Vec<String> {
        self.client().local_faults()
    }

    /// The asynchronous client below.
    pub fn client(&self) -> &Arc<Client> {
        self.client.as_ref().expect("only `drop` takes the client")
    }

    /// Waits for `work` in the calling thread.
    pub fn run<T>(
        &self,
        interrupt: Interrupt<'_>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.check_process()?;
        self.process.runtime.block_on(async {
            let mut work = pin!(work);
            loop {
                match tokio::time::timeout(POLL_INTERVAL, &mut work).await {
                    Ok(done) => return done,
                    Err(_) if interrupt() => return Err(Error::Interrupted),
                    Err(_) => {}
                }
            }
        })
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_this() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Drops what uses threads. In a child the locks of the parent's threads may stay taken, so
    /// that it leaks.
    pub(crate) fn release<T>(&self, value: Option<T>) {
        if self.process.is_this() { drop(value) } else { std::mem::forget(value) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let client = self.client.take();
        self.release(client);
    }
}
