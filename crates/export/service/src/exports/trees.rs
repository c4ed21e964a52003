//! `tree:@NAME` from replicas, `tree:DB` from a database. Every byte is verified.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use vouch_tree::TreeName;
use vouch_tree_client::{Client, ClientOptions, FaultObserver, LocalConnector, TreeOptions};
use vouch_vfs_tree::TreeFs;

pub(crate) struct Trees {
    state: PathBuf,
    policies: Vec<PathBuf>,
    by_name: Mutex<Option<Arc<Client>>>,
    fault_observer: Option<Arc<dyn FaultObserver>>,
}

impl Trees {
    /// The newest revisions in the state directory prevent rollback after a restart.
    pub(crate) fn new(
        state: &Path,
        policies: Vec<PathBuf>,
        fault_observer: Option<Arc<dyn FaultObserver>>,
    ) -> Self {
        Trees { state: state.join("trees"), policies, by_name: Mutex::default(), fault_observer }
    }

    /// A self-certifying name begins with `@`. Returns within the client's deadline.
    pub(crate) fn open(&self, what: &[u8]) -> io::Result<TreeFs> {
        let runtime = runtime()?;
        let opened = if what.starts_with(b"@") {
            let name: TreeName =
                std::str::from_utf8(what).map_err(malformed)?.parse().map_err(malformed)?;
            let client = self.client_by_name(runtime)?;
            runtime.block_on(client.open(&name, &TreeOptions::default()))
        } else {
            let connector = LocalConnector::open(Path::new(OsStr::from_bytes(what)))
                .map_err(io::Error::other)?;
            let name = connector.name().map_err(io::Error::other)?;
            let options = ClientOptions {
                connector: Arc::new(connector),
                refresh_interval: Some(LOCAL_REFRESH),
                ..self.options()?
            };
            let client = self.client(runtime, options)?;
            let options = TreeOptions { refuse_forwarding: true, ..TreeOptions::default() };
            runtime.block_on(client.open(&name, &options))
        };
        Ok(TreeFs::new(opened.map_err(io::Error::other)?, runtime.handle().clone()))
    }

    fn client_by_name(&self, runtime: &Runtime) -> io::Result<Arc<Client>> {
        let mut by_name = self.by_name.lock();
        if let Some(client) = &*by_name {
            return Ok(client.clone());
        }
        let client = self.client(runtime, self.options()?)?;
        *by_name = Some(client.clone());
        Ok(client)
    }

    fn client(&self, runtime: &Runtime, options: ClientOptions) -> io::Result<Arc<Client>> {
        let _entered = runtime.enter();
        Client::new(options).map_err(plainly)
    }

    fn options(&self) -> io::Result<ClientOptions> {
        let statements = Path::new(STATEMENTS);
        Ok(ClientOptions {
            policies: vouch_tree_client::read_policies(&self.policies).map_err(plainly)?,
            state_dir: Some(self.state.clone()),
            fault_observer: self.fault_observer.clone(),
            certificate_dirs: if statements.is_dir() {
                vec![statements.to_owned()]
            } else {
                Vec::new()
            },
            ..ClientOptions::default()
        })
    }
}

fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let started = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("vouch-tree")
        .enable_all()
        .build()?;
    Ok(RUNTIME.get_or_init(|| started))
}

fn malformed(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

fn plainly(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

const STATEMENTS: &str = "/etc/vouch/statements";

/// A check is one system call.
const LOCAL_REFRESH: Duration = Duration::from_secs(5);

/// Workers copy data in memory themselves.
const THREADS: usize = 2;
