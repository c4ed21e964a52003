//! The driver of live exports: sockets, threads, clocks, files of state and the system's names,
//! around the engine in `vouch-nfs4-server`, which has none of these.
//!
//! The way of a call: `accept` deals the connection to a `worker`, which `receive`s records in
//! place, reads the RPC header (`call`), has the engine run the compound, and gathers replies in
//! the connection's `output`, which `send` hands to the kernel. A compound that would have to wait
//! goes on in the `pool`. `driver` carries out the engine's effects: callbacks (`dial` for clients
//! of 4.0), recovery records (`recovery`). Deliberately lacks any knowledge of an NFS operation.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;

mod accept;
mod access;
mod asking;
mod audit;
mod call;
mod clock;
mod connection;
pub mod control;
mod dial;
mod driver;
mod error;
mod exports;
mod gathered;
mod gss;
mod hosts;
mod identity;
mod inbox;
mod limits;
mod metrics;
mod naming;
mod open;
mod output;
mod pool;
mod privileges;
mod receive;
mod recovery;
mod reloader;
mod report;
mod resolver;
mod seams;
mod send;
mod shares;
mod sources;
mod standing;
mod state_directory;
mod status;
#[cfg(test)]
mod tests;
mod together;
mod tools;
mod traffic;
mod trees;
mod worker;

pub use audit::AuditConfig;
pub use error::ExportError;
pub use exports::Source;
pub use identity::{Groups, Unknown};
pub use limits::Limits;
pub use recovery::RecoveryError;
pub use sources::{Origin, SourceError};
pub use state_directory::{StateError, control_path};
pub use status::{ClientStatus, ErrorStatus, ExportStatus, Status};

use asking::Asking;
use driver::Driver;
use hosts::Hosts;
use identity::{Idmap, Names};
use inbox::Inbox;
use limits::WAITING_MAX;
use metrics::Metrics;
use pool::Pool;
use recovery::Recovery;
use reloader::{Reloader, read_principal_map};
use report::Report;
use seams::{Seams, open_gss};
use sources::Sources;
use state_directory::StateDirectory;
use traffic::Traffic;
use worker::Worker;

/// What to export, where, and within which bounds.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// Where the list of exports comes from.
    pub origin: Origin,
    /// Addresses to answer clients on.
    pub listen: Vec<SocketAddr>,
    /// Sockets that listen already, and are to be used besides.
    pub passed: Vec<Arc<TcpListener>>,
    /// Address of the metrics and health page.
    pub metrics: Option<SocketAddr>,
    /// Directory of recovery records and keys.
    pub state: PathBuf,
    /// How long a client may be silent, and how long after a restart it may reclaim.
    pub lease: Duration,
    /// Threads; as many as there are cores if `None`.
    pub threads: Option<usize>,
    /// Minor versions spoken, lowest and highest.
    pub minor_versions: std::ops::RangeInclusive<u32>,
    /// Whether delegations are given.
    pub delegations: bool,
    /// Domain of owner strings; from idmapd.conf or the host's name if `None`.
    pub domain: Option<String>,
    /// idmapd.conf.
    pub idmap: Option<PathBuf>,
    /// Owners go out as numbers under AUTH_SYS.
    pub numeric_owners: bool,
    /// Where supplementary groups come from.
    pub groups: Groups,
    /// Static map from Kerberos principals to accounts.
    pub principal_map: Option<PathBuf>,
    /// What is done with principals that have no account.
    pub unknown_principals: Unknown,
    /// Keys of the Kerberos principals nfs/HOST; the system's keytab if `None`, and no Kerberos if
    /// that has none.
    pub keytab: Option<PathBuf>,
    /// How often host names of the exports are resolved anew.
    pub resolve_every: Duration,
    /// Bounds of connections and threads.
    pub limits: Limits,
    /// What is recorded of what clients do; nothing if `None`.
    pub audit: Option<AuditConfig>,
}

/// A server with everything open; nothing is answered yet.
pub struct Server {
    driver: Arc<Driver>,
    report: Arc<Report>,
    reloader: Arc<Reloader>,
    polls: Vec<mio::Poll>,
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    page: Option<TcpListener>,
    control: std::os::unix::net::UnixListener,
    /// What is to be said of the list of exports.
    comments: Vec<String>,
    rights: privileges::Rights,
    resolve_every: Duration,
    opener: Option<Arc<open::Opener>>,
    _state: StateDirectory,
}

impl Server {
    /// Opens exports, state and sockets, and gives up privileges that are not needed, for the
    /// calling thread and all that it starts later: call it early.
    ///
    /// # Errors
    /// When exports or state can't be served as they are, or an address is taken.
    pub fn open(config: ExportConfig) -> Result<Self, ExportError> {
        let disbelief = Arc::new(audit::Disbelief::default());
        let witness = config.audit.is_some().then(|| disbelief.clone() as Arc<dyn vouch_tree_client::FaultObserver>);
        let opener = Arc::new(open::Opener::new(&config.state, witness));
        let shared = opener.clone();
        let seams = Seams::system(Box::new(move |source, options| shared.open(source, options)));
        let mut server = Self::open_with(config, Seams { disbelief, ..seams })?;
        server.opener = Some(opener);
        Ok(server)
    }

    fn open_with(mut config: ExportConfig, seams: Seams) -> Result<Self, ExportError> {
        let system = |doing| move |source: io::Error| ExportError::System { doing, source };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = config.threads.unwrap_or(cores).max(1);
        let descriptors = descriptors().map_err(system("limit on open files"))?;
        config.limits.connections_max = config.limits.connections_max.min(limits::connections_max(descriptors));
        let state = StateDirectory::open(&config.state)?;
        let (recovery, boot, recovered) = Recovery::open(&state.recovery_path(), wall_nanos())?;

        let idmap = read_idmap(config.idmap.as_ref())?;
        let domain = config.domain.clone().or_else(|| idmap.domain.clone()).unwrap_or_else(host_domain);
        let map = read_principal_map(config.principal_map.as_deref())?;
        let names = Arc::new(Names::new(seams.names, idmap, config.groups, map, config.unknown_principals));
        let hosts = Arc::new(Hosts::new(seams.resolver).telling(config.audit.is_some()));
        let sources = Sources::new(config.origin.clone(), hosts.clone(), seams.opener);

        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for passed in &config.passed {
            listeners.push(passed.try_clone().map_err(system("passed sockets"))?);
            addresses.push(passed.local_addr().map_err(system("passed sockets"))?);
        }
        for &address in &config.listen {
            let failed = |source| ExportError::Listen { address, source };
            for listener in vouch_daemon::listener::bind(address, 1).map_err(failed)? {
                addresses.push(listener.local_addr().map_err(failed)?);
                listeners.push(listener);
            }
        }
        let page = config
            .metrics
            .map(|address| TcpListener::bind(address).map_err(|source| ExportError::Listen { address, source }))
            .transpose()?;
        let control = control::listen(&state_directory::control_path(&config.state)).map_err(system("control socket"))?;
        let rights = privileges::reduce().map_err(|errno| ExportError::System { doing: "privileges", source: errno.into() })?;
        let (mut polls, mut inboxes) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let poll = mio::Poll::new().map_err(system("epoll"))?;
            inboxes.push(Arc::new(Inbox::new(poll.registry(), worker::WAKE).map_err(system("eventfd"))?));
            polls.push(poll);
        }
        // Before trees are opened, whose replicas may lie.
        let audit = config.audit.take().map(|audit| audit::Audit::open(audit, hosts.clone(), seams.disk)).transpose()?.map(Arc::new);
        audit.iter().for_each(|audit| seams.disbelief.tell(audit));
        let loaded = sources.load()?;
        let to_wake = inboxes.clone();
        let relief = move || to_wake.iter().for_each(|inbox| inbox.post(inbox::Message::LookBehind));
        let gss = open_gss(seams.acceptor, config.keytab.as_deref(), relief.clone())?;
        if let (Some(audit), Some(_)) = (&audit, &gss) {
            seams::keytab(config.keytab).into_iter().for_each(|keytab| audit.watch_keys(keytab));
        }
        let left_out = loaded.left_out.clone();
        let (exports, mut comments) = loaded.into_parts(gss.as_deref());

        let metrics = Arc::new(Metrics::new());
        let listed = list(&exports);
        if let Some(path) = audit.as_ref().and_then(|audit| audit.name_exports(&exports, &left_out).first().copied()) {
            return Err(ExportError::NotDenied {
                path: path.to_owned(),
                exports: listed.iter().map(|export| export.source.clone()).collect(),
            });
        }
        metrics.name_exports(exports.all().iter().map(|export| (export.id, export.source.clone())));
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|error| ExportError::System { doing: "randomness", source: io::Error::other(error.to_string()) })?;
        let lease_ms = u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX);
        let limits = limits::of_engine(descriptors);
        let record_len_max = usize::try_from(limits.message_len_max).unwrap_or(usize::MAX) + RPC_HEADER_LEN_MAX;
        let engine_config = vouch_nfs4_server::Config {
            lease_ms,
            grace_ms: if recovered.records.is_empty() { 0 } else { lease_ms },
            minor_versions: config.minor_versions.clone(),
            delegations: config.delegations,
            domain,
            numeric_owners: config.numeric_owners,
            server_owner: state.server_id()?.to_vec(),
            boot,
            filehandle_key: *state.filehandle_key()?,
            implementation: Some(("vouch".into(), concat!("vouch ", env!("CARGO_PKG_VERSION")).into())),
            limits,
        };
        let observer: Arc<dyn vouch_nfs4_server::Observer> = match &audit {
            Some(audit) => Arc::new(audit::Audited { metrics: metrics.clone(), audit: audit.clone() }),
            None => metrics.clone(),
        };
        let engine = vouch_nfs4_server::Server::new(engine_config, exports, names.clone(), observer, recovered, seed, clock::now());

        comments.extend(sources::detours(&engine));
        if let Some(gss) = &gss {
            engine.set_callback_contexts(gss.clone());
        }

        let names_pool = Pool::new("names", limits::NAMES_THREADS_MAX, WAITING_MAX, relief.clone());
        let driver = Arc::new(Driver {
            engine,
            gss,
            audit,
            pool: Pool::new("waiting", config.limits.waiting_threads_max, WAITING_MAX, relief.clone()),
            shares: shares::Commons::bounded(&config.limits, limits::HELD_LEN_MAX, relief),
            naming: naming::Naming::default(),
            telling: naming::Naming::default(),
            names: names_pool,
            gathered: gathered::Gathered::default(),
            diallers: dial::Diallers::new(),
            recovery,
            connections: Mutex::default(),
            exports: Mutex::new(listed),
            hosts,
            open: inboxes.iter().map(|_| AtomicUsize::new(0)).collect(),
            inboxes,
            traffic: Traffic::default(),
            strangers: Mutex::new(vouch_daemon::rate_limit::Throttle::of_lines()),
            stop: AtomicBool::new(false),
            record_len_max,
            limits: config.limits,
        });
        let report = Arc::new(Report { driver: driver.clone(), metrics: metrics.clone() });
        let reloader = Arc::new(Reloader {
            sources,
            driver: driver.clone(),
            metrics,
            names,
            principal_map: config.principal_map,
            turn: Mutex::new(()),
        });
        Ok(Server {
            driver,
            report,
            reloader,
            polls,
            listeners,
            addresses,
            page,
            control,
            comments,
            rights,
            resolve_every: config.resolve_every,
            opener: None,
            _state: state,
        })
    }

    /// Where clients are answered; with the port that was found where 0 was asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the metrics page is.
    pub fn page_address(&self) -> Option<SocketAddr> {
        self.page.as_ref().and_then(|page| page.local_addr().ok())
    }

    /// What is exported: source and place.
    pub fn exports(&self) -> Vec<(String, String)> {
        self.driver.exports.lock().iter().map(|export| (export.source.clone(), export.pseudo_path.clone())).collect()
    }

    /// What is to be said of the list of exports, a line each.
    pub fn comments(&self) -> &[String] {
        &self.comments
    }

    /// The user with whose rights everything is done, if it isn't each caller's own.
    pub fn acts_as(&self) -> Option<u32> {
        match self.rights {
            privileges::Rights::EachCaller => None,
            privileges::Rights::User(uid) => Some(uid),
        }
    }

    /// Something that has the exports read anew, from any thread.
    pub fn reload(&self) -> impl Fn() + Send + Sync + 'static {
        let reloader = self.reloader.clone();
        move || {
            // What came of it is in the log.
            let _ = reloader.reload();
        }
    }

    /// Serves until `stop`, which is asked ten times a second, returns true; then lets replies
    /// under way leave.
    ///
    /// # Errors
    /// When a thread can't be started, or ends by itself.
    pub fn run(self, stop: impl Fn() -> bool) -> Result<(), ExportError> {
        let system = |source| ExportError::System { doing: "threads", source };
        let driver = self.driver;
        driver.recovery.start().map_err(system)?;
        let mut threads: Vec<JoinHandle<io::Result<()>>> = Vec::new();
        for (number, poll) in self.polls.into_iter().enumerate() {
            let worker = Worker::new(number, poll, driver.clone());
            threads.push(thread::Builder::new().name(format!("export-{number}")).spawn(move || worker.run()).map_err(system)?);
        }
        let (listeners, shared) = (self.listeners, driver.clone());
        threads.push(thread::Builder::new().name("accept".into()).spawn(move || accept::run(listeners, &shared)).map_err(system)?);
        let (control, report, reloader) = (self.control, self.report.clone(), self.reloader.clone());
        let answer = move || {
            control::run(&control, &report, &|| reloader.reload());
            Ok(())
        };
        threads.push(thread::Builder::new().name("control".into()).spawn(answer).map_err(system)?);
        let page_stop = Arc::new(Notify::new());
        if let Some(listener) = self.page {
            let (report, stop) = (self.report.clone(), page_stop.clone());
            threads.push(
                thread::Builder::new()
                    .name("page".into())
                    .spawn(move || vouch_daemon::metrics_page::run(listener, &report, &stop))
                    .map_err(system)?,
            );
        }
        tracing::info!(addresses = ?self.addresses, "exporting");
        let audit = driver.audit.clone();
        audit.iter().for_each(|audit| audit.started());

        let (mut due_ms, mut flush_ms, mut expire_ms) = (0, 0, 0);
        let mut asking = Asking::new(self.resolve_every, clock::mono_ms());
        let mut ended = false;
        while !stop() && !ended && !audit.as_ref().is_some_and(|audit| audit.has_halted()) {
            let now = clock::now();
            if now.mono_ms >= due_ms {
                let tick = driver.engine.tick(now);
                driver.carry_alone(tick.effects);
                due_ms = tick.next_due_ms.min(now.mono_ms + ENGINE_TICK_MS);
            }
            if now.mono_ms >= flush_ms {
                flush_ms = now.mono_ms + FLUSH_TICK_MS;
                self.opener.iter().for_each(|opener| opener.flush());
                self.reloader.sources.maintain();
            }
            if now.mono_ms >= expire_ms {
                expire_ms = now.mono_ms + EXPIRE_TICK_MS;
                driver.gss.iter().for_each(|gss| gss.expire());
                audit.iter().for_each(|audit| {
                    audit.look_at_keys();
                    audit.tell_left_out();
                });
            }
            asking.look(now.mono_ms, &self.reloader);
            thread::sleep(STOP_STEP);
            ended = threads.iter().any(JoinHandle::is_finished);
        }
        driver.stop.store(true, Ordering::Release);
        driver.inboxes.iter().for_each(|inbox| inbox.wake());
        page_stop.notify_one();
        for thread in threads {
            thread.join().map_err(|_| ExportError::ThreadEnded)?.map_err(system)?;
        }
        driver.diallers.stop();
        driver.pool.stop();
        driver.names.stop();
        driver.gss.iter().for_each(|gss| gss.stop());
        driver.recovery.stop();
        audit.iter().for_each(|audit| audit.stop());
        let halted = audit.as_ref().is_some_and(|audit| audit.has_halted());
        self.opener.iter().for_each(|opener| opener.flush());
        tracing::info!("stopped");
        match (ended, halted) {
            (true, _) => Err(ExportError::ThreadEnded),
            (_, true) => Err(ExportError::Halted),
            _ => Ok(()),
        }
    }
}

fn list(exports: &vouch_nfs4_server::Exports) -> Vec<ExportStatus> {
    let path = |parts: &[Vec<u8>]| {
        let joined: String = parts.iter().map(|part| format!("/{}", vouch_daemon::printable::printable(part))).collect();
        if joined.is_empty() { "/".into() } else { joined }
    };
    let status = |export: &Arc<vouch_nfs4_server::Export>| ExportStatus {
        source: export.source.to_string(),
        pseudo_path: path(&export.pseudo_path),
        id: export.id.0,
    };
    exports.all().iter().map(status).collect()
}

fn read_idmap(path: Option<&PathBuf>) -> Result<Idmap, ExportError> {
    let default = PathBuf::from("/etc/idmapd.conf");
    match std::fs::read_to_string(path.unwrap_or(&default)) {
        Ok(text) => Ok(Idmap::parse(&text)),
        // Only a file that was asked for must be there.
        Err(_) if path.is_none() => Ok(Idmap::default()),
        Err(source) => Err(ExportError::Idmap { path: path.unwrap_or(&default).clone(), source }),
    }
}

/// As idmapd does: what is behind the first dot of the host's name.
fn host_domain() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().to_ascii_lowercase();
    name.split_once('.').map_or_else(|| "localdomain".to_owned(), |(_, domain)| domain.to_owned())
}

fn wall_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Raises the limit on descriptors as far as it goes.
fn descriptors() -> io::Result<usize> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(usize::try_from(maximum.unwrap_or(u64::MAX)).unwrap_or(usize::MAX))
}

/// Header of a call with the longest credential and verifier (RFC 5531, section 9).
const RPC_HEADER_LEN_MAX: usize = 1024;

/// How often the order to stop is looked for.
const STOP_STEP: Duration = Duration::from_millis(100);

/// The engine is told of time at least this often.
const ENGINE_TICK_MS: u64 = 1000;

/// Contexts whose tickets have ended are looked for this often.
const EXPIRE_TICK_MS: u64 = 60_000;

/// Which names were given out is written down this often.
const FLUSH_TICK_MS: u64 = 5000;
