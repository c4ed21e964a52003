use std::ffi::OsString;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::sandbox_option::Sandbox;
use crate::tree_path::TreePath;
use crate::{interrupt, output, size, when};
use tokio::runtime::Runtime;
use vouch_daemon::{runtime_directory, service_manager};
use vouch_replica::{Limits, ServeConfig, Server, TlsFiles};
use vouch_tree_cache::{CacheOptions, TreeCache};
use vouch_tree_client::{
    Client, ClientOptions, HttpConnector, HttpOptions, ReplicaTls, TreeOptions,
};

/// Serve databases to clients: a replica.
///
/// A replica holds no secret and may run anywhere; clients verify every byte. A new revision, by
/// `vouch publish` or `vouch pull` on the same database, is served without a restart. The same port
/// answers HTTP: http://HOST:4340/HOSTID/ is a replica for clients and for web caches in between.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch serve --db /srv/db\n  vouch serve --db /srv/a --db /srv/b --listen 192.0.2.1:4340 --metrics 127.0.0.1:9340\n  vouch serve --cache-of @pub.example.org,HOSTID --db /var/cache/vouch-tools --quota 50G\n\n\
                  It runs until SIGTERM or SIGINT, and then lets replies under way leave. Metrics: GET /metrics (Prometheus), GET /healthz."
)]
pub(crate) struct Args {
    /// A database, a directory or s3://BUCKET/PREFIX; may be repeated. At least one must exist at the start.
    #[arg(long, value_name = "DB", required = true)]
    db: Vec<PathBuf>,
    /// Address to listen on; may be repeated. Without it, the sockets of the service manager
    /// (systemd.socket(5)), else [::]:4340.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    listen: Vec<SocketAddr>,
    /// Certificate chain (PEM) for TLS on the same addresses: for HTTPS, and for clients with
    /// `--replica tls://HOST`. Read at the start.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Refuse clients without TLS, so that nobody on the network between sees what they read.
    #[arg(long, requires = "tls_cert")]
    tls_only: bool,
    /// Address of the metrics and health page.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    metrics: Option<SocketAddr>,
    /// Threads; the default is one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Most connections.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max as u32, value_parser = clap::value_parser!(u32).range(1..))]
    connections_max: u32,
    /// Close a connection that was idle for this long.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = when::parse_duration)]
    idle_max: Duration,
    /// Close a connection that takes longer than this to send a request or to accept a part of an
    /// answer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = when::parse_duration)]
    stall_max: Duration,
    /// Bytes a second of the scrub, which hashes all data in the background and reports rotten bytes
    /// in metrics and health; 0 turns it off.
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = size::parse)]
    scrub_rate: u64,
    /// Take revocations and forwarding pointers of the served trees' keys from anybody, keep them in
    /// this directory, and send them to clients.
    #[arg(long, value_name = "DIR")]
    accept_statements: Option<PathBuf>,
    #[command(flatten)]
    cache: CacheArgs,
    /// Sandbox: Landlock restricts reading to the databases.
    #[arg(long, value_name = "MODE", default_value = "best-effort")]
    sandbox: Sandbox,
}

/// Options of a pull-through cache.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cache options")]
struct CacheArgs {
    /// Be a cache of this tree: fetch what clients ask for from the host in the name and from
    /// --replica, verify it, and keep it in the directory --db.
    #[arg(long, value_name = "NAME", requires = "quota")]
    cache_of: Option<OsString>,
    /// Most disk space of the cache, in disk blocks: its files have holes. What was not used for the
    /// longest time is removed first.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "cache_of")]
    quota: Option<u64>,
    /// Fetch from this replica too; may be repeated. tls://HOST[:PORT] is a replica over TLS, and
    /// another URL is a database behind a web server.
    #[arg(long, value_name = "HOST[:PORT]|URL")]
    replica: Vec<String>,
    /// Fetch only from the replicas given by --replica.
    #[arg(long, requires = "replica")]
    only_replicas: bool,
    /// Fetch over TLS only, from the host in the name too.
    #[arg(long)]
    replica_tls: bool,
    /// Authorities (PEM) that may sign replicas' certificates. The default is those of the system.
    #[arg(long, value_name = "FILE")]
    replica_ca: Option<PathBuf>,
    /// Proxy for replicas with a URL; may be repeated, in the order of preference.
    #[arg(long, value_name = "URL")]
    proxy: Vec<String>,
    /// Time limit of a fetch.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = when::parse_duration)]
    timeout: Duration,
    /// Interval at which the cache looks for a new revision.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = when::parse_duration)]
    refresh: Duration,
    /// With --cache-of, take only revisions that witnesses have seen: a policy (C2SP tlog-policy) with a
    /// quorum; may be repeated, and all must hold. The policy of the tree, certified by its root key,
    /// holds beside it. /etc/vouch/policy is always read if it exists.
    #[arg(long = "policy", value_name = "FILE", help_heading = "Reading options")]
    witness_policy: Vec<PathBuf>,
}

impl CacheArgs {
    /// Fetches of the cache run on the runtime.
    fn open(&self, db: &[PathBuf]) -> Outcome<Option<(Runtime, Arc<TreeCache>)>> {
        let (Some(name), Some(quota)) = (&self.cache_of, self.quota) else { return Ok(None) };
        let path = TreePath::parse(name)?;
        if !path.path.is_empty() {
            return Err(Failure::usage("--cache-of", "a whole tree is cached, not a path in it"));
        }
        let [dir] = db else {
            return Err(Failure::usage(
                "--db",
                "--cache-of takes one --db, the directory of the cache",
            ));
        };
        if vouch_tree_store::is_bucket_address(dir) {
            return Err(Failure::usage("--db", "the directory of a cache is local"));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .at("runtime")?;
        let timeout = self.timeout.min(Duration::from_secs(5));
        let tls = ReplicaTls::new(self.replica_ca.as_deref(), self.replica_tls)?;
        let http =
            HttpOptions { proxies: self.proxy.clone(), timeout, tls, ..HttpOptions::default() };
        let cache = runtime.block_on(async {
            let client = Client::new(ClientOptions {
                connector: Arc::new(HttpConnector::new(http.clone())?),
                deadline: self.timeout,
                connect_timeout: timeout,
                memory_cache_bytes: 16 << 20,
                state_dir: Some(dir.join("state")),
                refresh_interval: Some(self.refresh),
                policies: vouch_tree_client::read_policies(&self.witness_policy)?,
                ..ClientOptions::default()
            })?;
            let tree = TreeOptions {
                replicas: self.replica.clone(),
                only_replicas: self.only_replicas,
                ..TreeOptions::default()
            };
            let options = CacheOptions {
                name: path.name,
                dir: dir.clone(),
                quota,
                tree,
                refresh: self.refresh,
                http,
            };
            TreeCache::open(client, options).await.map_err(|error| match error {
                vouch_tree_cache::Error::Client(error) => Failure::from(error),
                vouch_tree_cache::Error::Store(error) => Failure::from(error),
                vouch_tree_cache::Error::Io { path, source } => {
                    Failure::new(path.display(), source)
                }
                error => Failure::input(dir.display(), error),
            })
        })?;
        Ok(Some((runtime, cache)))
    }
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    service_manager::connect();
    let _taken = interrupt::stop_gracefully(service_manager::stopping);
    let (listen, passed) = addresses(args.listen)?;
    // The cache's threads need the network, which the sandbox denies.
    let (_runtime, cache) = args.cache.open(&args.db)?.unzip();
    let config = ServeConfig {
        databases: args.db,
        listen,
        passed,
        tls: args
            .tls_cert
            .zip(args.tls_key)
            .map(|(certificate, key)| TlsFiles { certificate, key }),
        is_tls_only: args.tls_only,
        metrics: args.metrics,
        threads: args.threads.map(usize::from),
        limits: Limits {
            connections_max: args.connections_max as usize,
            idle_max: args.idle_max,
            stall_max: args.stall_max,
            ..Limits::default()
        },
        scrub_rate: args.scrub_rate,
        statements: args.accept_statements,
        cache,
        sandbox: args.sandbox.into(),
        runtime_directory: runtime_directory::of_process(),
    };
    let server = Server::open(config)?;
    interrupt::watch().at("signals")?;
    // Tells the supervisor that clients are served, and where.
    let addresses: Vec<String> = server.addresses().iter().map(SocketAddr::to_string).collect();
    let page = server
        .page_address()
        .map_or_else(String::new, |address| format!(", metrics on http://{address}/metrics"));
    output::text(&format!("serving on {}{page}\n", addresses.join(", ")))?;
    service_manager::ready(&format!("serving on {}", addresses.join(", ")));
    server.run(interrupt::requested).map_err(Failure::from)
}

fn addresses(addresses: Vec<SocketAddr>) -> Outcome<(Vec<SocketAddr>, Vec<Arc<TcpListener>>)> {
    let passed: Vec<_> =
        service_manager::listeners().at("passed sockets")?.into_iter().map(Arc::new).collect();
    let default_addresses = if passed.is_empty() {
        vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, vouch_tree::PORT_DEFAULT))]
    } else {
        Vec::new()
    };
    Ok((if addresses.is_empty() { default_addresses } else { addresses }, passed))
}
