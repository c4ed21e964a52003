//! Options of commands that read published trees; they create the client and its runtime.

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vouch_diagnose::ClientSettings;
use vouch_log::policy::Policy;
use vouch_tree::TreeName;
use vouch_tree_client::{
    Client, ClientOptions, DiskCacheOptions, FaultObserver, HttpConnector, HttpOptions, ReplicaTls,
    Tree, TreeOptions,
};
use vouch_tree_reader::STATEMENTS;

use crate::config;
use crate::exit::{At as _, Failure, Outcome};
use crate::tree_path::TreePath;
use crate::{size, when};

/// Options of reading.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reading options")]
pub(crate) struct ClientArgs {
    /// Ask this replica too; may be repeated. The default port is 4340. A URL (http:// or https://)
    /// is a database behind a web server or in a bucket; tls://HOST[:PORT] is a replica over TLS.
    #[arg(long, value_name = "HOST[:PORT]|URL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    replica: Vec<String>,
    /// Ask only the replicas given by --replica, not the host in the name.
    #[arg(long, requires = "replica")]
    only_replicas: bool,
    /// Read over TLS only, also from the host in the name, so that nobody on the network between sees
    /// what is read. http:// URLs are refused.
    #[arg(long)]
    replica_tls: bool,
    /// Authorities (PEM) that may sign replicas' certificates. The default is those of the system.
    #[arg(long, value_name = "FILE")]
    replica_ca: Option<PathBuf>,
    /// Proxy for replicas with a URL, as http://HOST:PORT, socks5://HOST:PORT or DIRECT, or
    /// pac:URL or pac:FILE, a proxy auto-configuration script; may be repeated, in the order of
    /// preference. If the script fails, replicas are asked directly, and with pac-strict:URL or
    /// pac-strict:FILE not at all. The default is http_proxy, https_proxy and no_proxy.
    #[arg(long, value_name = "URL")]
    proxy: Vec<String>,
    /// Time limit of each operation.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = when::parse_duration)]
    timeout: Duration,
    /// Directory that remembers the newest revision seen of each tree, which detects rollbacks. The
    /// default is /var/lib/vouch for root, else $XDG_STATE_HOME/vouch.
    #[arg(long, value_name = "DIR", env = "VOUCH_STATE")]
    state: Option<PathBuf>,
    /// Refuse to read, instead of warning, when the newest revision seen can't be stored.
    #[arg(long)]
    state_required: bool,
    /// Directory of key statements (revocations, forwarding pointers); may be repeated.
    /// /etc/vouch/statements is always read if it exists.
    #[arg(long, value_name = "DIR")]
    statements: Vec<PathBuf>,
    /// Directory of a published tree with key statements in files named HOSTID, as
    /// @HOST[:PORT],HOSTID/PATH; may be repeated. A tree that can't be opened or lacks the
    /// directory is an error, because its statements may matter.
    #[arg(long, value_name = "NAME/PATH")]
    statement_tree: Vec<OsString>,
    /// Believe only revisions that witnesses have seen: a policy (C2SP tlog-policy) with a quorum; may
    /// be repeated, and all must hold. The policy of a tree, certified by its root key, holds beside
    /// it. /etc/vouch/policy is always read if it exists.
    #[arg(long = "policy", value_name = "FILE")]
    witness_policy: Vec<PathBuf>,
    /// Interval at which replicas are asked for a newer revision. The default is a quarter of the
    /// tree's validity, from 1 minute to 1 hour.
    #[arg(long, value_name = "DURATION", value_parser = when::parse_duration)]
    refresh: Option<Duration>,
    /// Directory of the disk cache for verified blocks; processes may share it. The default is
    /// /var/cache/vouch for root, else $XDG_CACHE_HOME/vouch.
    #[arg(long, value_name = "DIR", env = "VOUCH_CACHE")]
    cache: Option<PathBuf>,
    /// Maximum size of the disk cache.
    #[arg(long, value_name = "SIZE", default_value = "10G", value_parser = size::parse)]
    cache_quota: u64,
    /// Use no disk cache.
    #[arg(long)]
    no_cache: bool,
    /// Maximum size of the memory cache.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    memory_cache: u64,
    /// Do not follow forwarding pointers to a tree's new name.
    #[arg(long)]
    refuse_forwarding: bool,
}

impl ClientArgs {
    pub(crate) fn tree_options(&self, name: &TreeName) -> TreeOptions {
        let configured = config::loaded().by_name(name).and_then(|(_, tree)| tree.tree_options());
        configured.filter(|_| self.replica.is_empty()).unwrap_or_else(|| self.common_tree_options())
    }

    pub(crate) fn common_tree_options(&self) -> TreeOptions {
        TreeOptions {
            replicas: self.replica.clone(),
            only_replicas: self.only_replicas,
            refuse_forwarding: self.refuse_forwarding,
        }
    }

    /// For a system call or a request. The error of a fetch, which names the cause, comes first.
    pub(crate) const fn answer_max(&self) -> Duration {
        self.timeout.saturating_add(Duration::from_secs(1))
    }

    pub(crate) fn writable_directories(&self) -> Vec<PathBuf> {
        self.cache_directory()
            .map(|(directory, _)| directory)
            .into_iter()
            .chain(self.state_directory())
            .collect()
    }

    /// Only the directories that the user has named.
    pub(crate) fn statement_dirs(&self) -> &[PathBuf] {
        &self.statements
    }

    pub(crate) fn state_directory(&self) -> Option<PathBuf> {
        self.state.clone().or_else(vouch_tree_reader::state_directory)
    }

    /// The directory and its quota. None without a disk cache.
    pub(crate) fn cache_directory(&self) -> Option<(PathBuf, u64)> {
        let directory = || self.cache.clone().or_else(vouch_tree_reader::cache_directory);
        (!self.no_cache).then(directory).flatten().map(|directory| (directory, self.cache_quota))
    }

    pub(crate) fn use_no_cache_by_default(&mut self) {
        self.no_cache |= self.cache.is_none();
    }

    /// Returns the directory unless another one is set.
    pub(crate) fn use_state_by_default<'a>(&mut self, directory: &'a Path) -> Option<&'a Path> {
        let is_set = self.state.is_some();
        (!is_set).then(|| {
            self.state = Some(directory.to_owned());
            directory
        })
    }

    pub(crate) fn connector(&self) -> Outcome<Arc<HttpConnector>> {
        Ok(Arc::new(HttpConnector::new(self.http_options()?)?))
    }

    pub(crate) fn http_options(&self) -> Outcome<HttpOptions> {
        let timeout = self.connect_timeout();
        let tls = ReplicaTls::new(self.replica_ca.as_deref(), self.replica_tls)?;
        Ok(HttpOptions { proxies: self.proxy.clone(), timeout, tls, ..HttpOptions::default() })
    }

    /// All must hold.
    pub(crate) fn policies(&self) -> Outcome<Vec<Policy>> {
        Ok(vouch_tree_client::read_policies(&self.witness_policy)?)
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.timeout.min(CONNECT_MAX)
    }

    fn has_proxy(&self) -> bool {
        let variables =
            ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
        self.proxy.iter().any(|proxy| proxy != "DIRECT")
            || self.proxy.is_empty()
                && variables.iter().any(|name| std::env::var_os(name).is_some())
    }

    pub(crate) fn settings(&self) -> ClientSettings {
        ClientSettings {
            state_directory: self.state_directory(),
            cache: self.cache_directory(),
            policies: self.witness_policy.clone(),
            connector: self.connector().map_err(|failure| failure.to_string()),
            timeout: self.timeout,
            connect_timeout: self.connect_timeout(),
            has_proxy: self.has_proxy(),
        }
    }

    /// Also opens the trees with key statements.
    pub(crate) async fn client(&self) -> Outcome<Arc<Client>> {
        self.client_before(None).await
    }

    /// `witness` observes wrong data from replicas.
    pub(crate) async fn client_before(
        &self,
        witness: Option<Arc<dyn FaultObserver>>,
    ) -> Outcome<Arc<Client>> {
        let certificate_dirs = statement_directories(&self.statements)?;
        let cache = self.cache_directory();
        let options = ClientOptions {
            connector: self.connector()?,
            deadline: self.timeout,
            connect_timeout: self.connect_timeout(),
            memory_cache_bytes: self.memory_cache,
            disk_cache: cache.map(|(dir, quota_bytes)| DiskCacheOptions { dir, quota_bytes }),
            state_dir: self.state_directory(),
            state_required: self.state_required,
            certificate_dirs,
            policies: self.policies()?,
            refresh_interval: self.refresh,
            fault_observer: witness,
            ..ClientOptions::default()
        };
        let client = Client::new(options)?;
        for argument in &self.statement_tree {
            let listed = TreePath::parse(argument)?;
            let tree = client.open(&listed.name, &TreeOptions::default()).await?;
            check_listed(&tree, &listed).await.at(argument.to_string_lossy())?;
            client.add_certificate_tree(&tree, &listed.path);
            STATEMENT_TREES.lock().push(tree);
        }
        Ok(client)
    }
}

pub(crate) fn statement_directories(given: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    for dir in given {
        // A named directory must exist: the user relies on its statements.
        std::fs::read_dir(dir).map_err(|error| {
            Failure::input(dir.display(), error)
                .cure("give a directory of key statements that this user may read")
        })?;
    }
    let mut dirs = given.to_vec();
    if Path::new(STATEMENTS).is_dir() {
        dirs.push(STATEMENTS.into());
    }
    Ok(dirs)
}

/// A missing path would silently never revoke anything.
async fn check_listed(tree: &Tree, listed: &TreePath) -> Result<(), vouch_tree_client::Error> {
    let found = tree.lookup_path(tree.revision()?.root(), &listed.path).await?;
    if found.is_directory() {
        Ok(())
    } else {
        Err(vouch_tree_client::Error::NotADirectory { path: listed.path.clone() })
    }
}

/// Trees with key statements stay open until the process ends; the client does not hold them.
static STATEMENT_TREES: Mutex<Vec<Arc<Tree>>> = Mutex::new(Vec::new());

pub(crate) fn block_on<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().at("runtime")?.block_on(work)
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
