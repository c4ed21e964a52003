//! Many trees in one process, without secrets.
//!
//! `worker` reads requests, `connection` cuts and queues them, `answer` finds the frames in the
//! packs (`trees`), `send` gives them to the kernel. The same port answers HTTP (`http`), and TLS
//! with a certificate (`tls`).

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use tokio::sync::Notify;

mod answer;
mod connection;
mod counters;
mod damage;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(test)]
mod golden;
mod http;
mod limits;
mod output;
mod report;
mod request;
mod scrub;
mod send;
mod statements;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod trees;
mod wake_queue;
mod worker;

pub use limits::Limits;
pub use report::{ServeStatus, ServedTree, TreeState};
use tls::Tls;
pub use tls::{TlsError, TlsFiles};

use vouch_daemon::listener;
use vouch_daemon::sandbox::{self, Access, SandboxError, SandboxMode};
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_server::{self, StatusListeners};
use vouch_daemon::status_socket::StatusSocket;
use vouch_tree_cache::TreeCache;
use vouch_tree_store::is_bucket_address;

use answer::Replica;
use counters::{Count, Counters};
use limits::{DESCRIPTORS_RESERVED, TICK};
use report::Report;
use scrub::Scrubber;
use statements::StatementStore;
use trees::{Tree, Trees};
use worker::{Shared, Worker};

#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// One must be readable at the start; others may appear later.
    pub databases: Vec<PathBuf>,
    pub listen: Vec<SocketAddr>,
    pub passed: Vec<Arc<TcpListener>>,
    /// Certificate for HTTPS; `None`: clear text only.
    pub tls: Option<TlsFiles>,
    pub is_tls_only: bool,
    pub metrics: Option<SocketAddr>,
    /// `None`: one for each core.
    pub threads: Option<usize>,
    pub limits: Limits,
    /// Bytes per second; 0 turns the scrub off.
    pub scrub_rate: u64,
    /// Keeps statements that any client may send; `None` takes none.
    pub statements: Option<PathBuf>,
    /// Its directory is the only database.
    pub cache: Option<Arc<TreeCache>>,
    pub sandbox: SandboxMode,
    /// Holds the status socket; `None`: no socket.
    pub runtime_directory: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Config(&'static str),
    #[error("{address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Database(#[from] vouch_tree_store::Error),
    #[error("{path}: {source}")]
    Statements { path: PathBuf, source: io::Error },
    #[error("{first} and {second} are databases of the same tree; serve one of them")]
    SameTree { first: PathBuf, second: PathBuf },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("sandbox: {0}; --sandbox off runs without it")]
    Sandbox(#[from] SandboxError),
    #[error("{doing}: {source}")]
    System { doing: &'static str, source: io::Error },
    #[error("a serving thread ended by itself; this is a fault of this program")]
    ThreadEnded,
}

pub fn run(config: ServeConfig, stop: impl Fn() -> bool) -> Result<(), ServeError> {
    Server::open(config)?.run(stop)
}

/// Open databases and sockets, sandboxed if requested, not yet serving.
pub struct Server {
    workers: Vec<Worker>,
    listeners: StatusListeners,
    report: Arc<Report>,
    statements: Option<Arc<StatementStore>>,
    scrub_rate: u64,
    addresses: Vec<SocketAddr>,
    waiting: Vec<PathBuf>,
}

impl Server {
    /// Restricts the calling thread and its later threads: call this early.
    pub fn open(mut config: ServeConfig) -> Result<Self, ServeError> {
        if config.databases.is_empty() || config.listen.is_empty() && config.passed.is_empty() {
            return Err(ServeError::Config(
                "a replica needs a database and an address to listen on",
            ));
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // A pack from a bucket blocks a thread.
        let default_threads = if config.databases.iter().any(|path| is_bucket_address(path)) {
            cores.max(BUCKET_THREADS_MIN)
        } else {
            cores
        };
        let threads = config.threads.unwrap_or(default_threads).max(1);
        config.limits.connections_max =
            config.limits.connections_max.min(descriptors_for_connections()?).max(1);
        let (trees, waiting) = open_trees(&config.databases, config.cache.as_ref())?;
        let trees = Arc::new(trees);
        let statements = config.statements.as_deref().map(|path| {
            StatementStore::open(path)
                .map(Arc::new)
                .map_err(|source| ServeError::Statements { path: path.to_owned(), source })
        });
        let statements = statements.transpose()?;
        if let Some(store) = &statements {
            trees.all().iter().for_each(|tree| tree.take_statements(store.load(tree.hostid())));
        }
        let (of_thread, addresses) = listeners(&config, threads)?;
        let tls = config.tls.map(Tls::load).transpose()?;
        if config.is_tls_only && tls.is_none() {
            return Err(ServeError::Config(
                "a replica that refuses clear text needs a certificate",
            ));
        }
        let is_tls_only = config.is_tls_only;
        let shared = Arc::new(Shared {
            limits: config.limits,
            tls,
            is_tls_only,
            open: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });

        let page = config
            .metrics
            .map(|address| {
                TcpListener::bind(address).map_err(|source| ServeError::Listen { address, source })
            })
            .transpose()?;

        let counters: Vec<_> = (0..threads).map(|_| Arc::new(Counters::default())).collect();
        let workers = of_thread.into_iter().zip(&counters).map(|(listeners, counters)| {
            let replica = Replica {
                trees: trees.clone(),
                statements: statements.clone(),
                counters: counters.clone(),
            };
            Worker::new(listeners, replica, shared.clone())
        });
        let workers = workers
            .collect::<io::Result<_>>()
            .map_err(|source| ServeError::System { doing: "epoll", source })?;
        let listeners = StatusListeners {
            page,
            sockets: StatusSocket::open(DaemonKind::Serve, config.runtime_directory.as_deref())
                .into_iter()
                .collect(),
        };
        let report = Report {
            trees,
            shared,
            addresses: addresses.clone(),
            threads: counters,
            reloads: Count::default(),
            reload_failures: Count::default(),
        };
        let mut local_dirs = local_dirs(&report.trees, &config.databases);
        local_dirs.extend(report.shared.tls.iter().flat_map(Tls::directories));
        if config.cache.is_some() {
            tracing::info!("sandbox: threads that fetch for the cache are not restricted");
        }
        enter_sandbox(
            &local_dirs,
            statements.as_ref().map(|store| store.directory()),
            config.sandbox,
        )?;
        Ok(Self {
            workers,
            listeners,
            report: Arc::new(report),
            statements,
            scrub_rate: config.scrub_rate,
            addresses,
            waiting,
        })
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn page_address(&self) -> Option<SocketAddr> {
        self.listeners.page.as_ref().and_then(|page| page.local_addr().ok())
    }

    /// `stop` is called ten times a second.
    pub fn run(mut self, stop: impl Fn() -> bool) -> Result<(), ServeError> {
        let system = |source| ServeError::System { doing: "threads", source };
        let wakers: Vec<_> = self.workers.iter().map(Worker::waker).collect();
        let mut threads: Vec<JoinHandle<io::Result<()>>> = Vec::new();
        for (i, worker) in std::mem::take(&mut self.workers).into_iter().enumerate() {
            threads.push(
                thread::Builder::new()
                    .name(format!("serve-{i}"))
                    .spawn(move || worker.run())
                    .map_err(system)?,
            );
        }
        let page_stop = Arc::new(Notify::new());
        let listeners = std::mem::take(&mut self.listeners);
        let page = (!listeners.is_empty()).then(|| {
            let (report, stop) = (self.report.clone(), page_stop.clone());
            thread::Builder::new()
                .name("status".into())
                .spawn(move || status_server::run(listeners, &report, &stop))
        });
        let page = page.transpose().map_err(system)?;
        let scrub = (self.scrub_rate > 0).then(|| {
            let shared = self.report.shared.clone();
            let scrubber = Scrubber::new(self.report.trees.clone(), self.scrub_rate, move || {
                shared.stop.load(Ordering::Acquire)
            });
            thread::Builder::new().name("scrub".into()).spawn(move || scrubber.run())
        });
        let scrub = scrub.transpose().map_err(system)?;
        tracing::info!(addresses = ?self.addresses, threads = threads.len(), "serving");

        let mut ended = false;
        let mut looked_ago = Duration::ZERO;
        while !stop() && !ended {
            thread::sleep(STOP_STEP);
            looked_ago += STOP_STEP;
            if looked_ago >= TICK {
                looked_ago = Duration::ZERO;
                self.look_for_news();
            }
            ended = threads.iter().any(JoinHandle::is_finished)
                || page.as_ref().is_some_and(JoinHandle::is_finished);
        }
        self.report.shared.stop.store(true, Ordering::Release);
        for waker in wakers {
            waker.wake().map_err(system)?;
        }
        page_stop.notify_one();
        for thread in threads.into_iter().chain(page) {
            thread.join().map_err(|_| ServeError::ThreadEnded)?.map_err(system)?;
        }
        if let Some(scrub) = scrub {
            scrub.join().map_err(|_| ServeError::ThreadEnded)?;
        }
        tracing::info!("stopped");
        if ended { Err(ServeError::ThreadEnded) } else { Ok(()) }
    }

    fn look_for_news(&mut self) {
        if let Some(tls) = &self.report.shared.tls {
            tls.refresh();
        }
        for tree in self.report.trees.all() {
            let before = tree.trouble();
            match tree.refresh() {
                Ok(true) => {
                    self.report.reloads.add(1);
                    let revision = tree.offer().revision.map(|revision| revision.number);
                    tracing::info!(path = %tree.path().display(), ?revision, "database has changed");
                    tree.log_revocation();
                }
                Ok(false) if before.is_some() => {
                    tracing::info!(path = %tree.path().display(), "database is well again")
                }
                Ok(false) => {}
                Err(trouble) => {
                    self.report.reload_failures.add(1);
                    if before.as_ref() != Some(&trouble) {
                        tracing::error!(path = %tree.path().display(), %trouble, "database is broken; what is open is served on");
                    }
                }
            }
        }
        let trees = &self.report.trees;
        self.waiting.retain(|path| match Tree::open(path, None) {
            Ok(tree) => {
                let hostid = *tree.hostid();
                if let Some(store) = &self.statements {
                    tree.take_statements(store.load(&hostid));
                }
                match trees.add(tree) {
                    Ok(()) => tracing::info!(path = %path.display(), %hostid, "database has come up"),
                    Err(first) => tracing::error!(path = %path.display(), first = %first.display(), "another database of a tree that is served; ignored"),
                }
                false
            }
            Err(_) => true,
        });
    }
}

fn listeners(
    config: &ServeConfig,
    threads: usize,
) -> Result<(Vec<Vec<TcpListener>>, Vec<SocketAddr>), ServeError> {
    let mut of_thread: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for passed in &config.passed {
        let failed = |source| ServeError::System { doing: "passed sockets", source };
        addresses.push(passed.local_addr().map_err(failed)?);
        for list in &mut of_thread {
            list.push(passed.try_clone().map_err(failed)?);
        }
    }
    for &address in &config.listen {
        let failed = |source| ServeError::Listen { address, source };
        let listeners = listener::bind(address, threads).map_err(failed)?;
        addresses.push(listeners[0].local_addr().map_err(failed)?);
        of_thread.iter_mut().zip(listeners).for_each(|(list, listener)| list.push(listener));
    }
    Ok((of_thread, addresses))
}

fn open_trees(
    paths: &[PathBuf],
    cache: Option<&Arc<TreeCache>>,
) -> Result<(Trees, Vec<PathBuf>), ServeError> {
    let trees = Trees::default();
    let mut failed = Vec::new();
    for path in paths {
        match Tree::open(path, cache.cloned()) {
            Ok(tree) => {
                let (hostid, revision) =
                    (*tree.hostid(), tree.offer().revision.map(|revision| revision.number));
                tree.log_revocation();
                trees
                    .add(tree)
                    .map_err(|first| ServeError::SameTree { first, second: path.clone() })?;
                tracing::info!(path = %path.display(), %hostid, ?revision, "database opened");
            }
            Err(error) => failed.push((path.clone(), error)),
        }
    }
    if failed.len() == paths.len() {
        return Err(failed.swap_remove(0).1.into());
    }
    for (path, error) in &failed {
        tracing::error!(path = %path.display(), %error, "database can't be opened; it is tried again every second");
    }
    Ok((trees, failed.into_iter().map(|(path, _)| path).collect()))
}

fn enter_sandbox(
    databases: &[PathBuf],
    statements: Option<&Path>,
    mode: SandboxMode,
) -> Result<(), ServeError> {
    if mode != SandboxMode::Off && databases.iter().any(|path| is_bucket_address(path)) {
        tracing::warn!("sandbox: threads that read from buckets are not restricted");
    }
    // Only the parent directory can permit a missing database.
    let read: Vec<&Path> =
        databases.iter().map(PathBuf::as_path).filter(|path| path.is_dir()).collect();
    // A publisher may be another user; Landlock limits this right to the databases.
    let capabilities = CapabilitySet::DAC_READ_SEARCH;
    let access =
        Access { read: &read, write: statements.as_slice(), connects: false, capabilities };
    Ok(sandbox::enter(&access, mode)?)
}

/// Permitted by the sandbox: databases, and work directories of buckets.
fn local_dirs(trees: &Trees, databases: &[PathBuf]) -> Vec<PathBuf> {
    let opened = trees.all();
    let work_dirs = opened.iter().map(|tree| tree.snapshot().local_dir().to_owned());
    work_dirs.chain(databases.iter().cloned()).collect()
}

fn descriptors_for_connections() -> Result<usize, ServeError> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).map_err(|errno| {
        ServeError::System { doing: "limit on open files", source: errno.into() }
    })?;
    let all = usize::try_from(maximum.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    Ok(all - DESCRIPTORS_RESERVED.min(all / 2))
}

const BUCKET_THREADS_MIN: usize = 8;

const STOP_STEP: Duration = Duration::from_millis(100);
