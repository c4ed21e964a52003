//! Gives up privileges before any thread starts.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vouch_nfs4_server::Transport;

use crate::config::ExportConfig;
use crate::driver::{Driver, DriverParts};
use crate::error::ExportError;
use crate::exports::changes::Changes;
use crate::exports::opener::FileSystemOpener;
use crate::exports::reload::{Reloader, apply_quotas, list, read_principal_map};
use crate::exports::sources::{Sources, exports_without_directory};
use crate::hosts::Hosts;
use crate::identity::{AccountRules, Accounts, Idmap, NameService};
use crate::lease::{GuardedDisk, HeldLease};
use crate::management::grpc::RemoteAccess;
use crate::management::manager::{Configured, Manager};
use crate::monitoring::operation_metrics::Metrics;
use crate::monitoring::report::Report;
use crate::monitoring::status::SiteStatus;
use crate::recovery::RecoveryStore;
use crate::state_directory::{StateDirectory, control_path, kept_exports_path};
use crate::system_hooks::{SystemHooks, keytab_path, open_gss};
use crate::tls::Tls;
use crate::transport::inbox::{Inbox, Message};
use crate::transport::proxy_header::Balancers;
use crate::worker::WAKE;
use crate::{audit, clock, limits, privileges};
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_server::StatusListeners;
use vouch_daemon::status_socket::StatusSocket;

pub struct Server {
    pub(crate) driver: Arc<Driver>,
    pub(super) report: Arc<Report>,
    pub(super) reloader: Arc<Reloader>,
    pub(super) polls: Vec<mio::Poll>,
    pub(super) sockets: Sockets,
    warnings: Vec<String>,
    rights: privileges::Rights,
    pub(super) resolve_every: Duration,
    pub(super) opener: Option<Arc<FileSystemOpener>>,
    pub(super) lease: Option<HeldLease>,
    _state: StateDirectory,
}

pub(super) struct Sockets {
    pub(super) listeners: Vec<TcpListener>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) status: StatusListeners,
    pub(super) management: Vec<TcpListener>,
    pub(super) balancers: Vec<Balancers>,
}

impl Sockets {
    fn open(config: &ExportConfig) -> Result<Self, ExportError> {
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for passed in &config.passed {
            listeners.push(passed.try_clone().map_err(system("passed sockets"))?);
            addresses.push(passed.local_addr().map_err(system("passed sockets"))?);
        }
        let failed = |address| move |source| ExportError::Listen { address, source };
        for &address in &config.listen {
            for listener in vouch_daemon::listener::bind(address, 1).map_err(failed(address))? {
                addresses.push(listener.local_addr().map_err(failed(address))?);
                listeners.push(listener);
            }
        }
        let page = config
            .metrics
            .map(|address| TcpListener::bind(address).map_err(failed(address)))
            .transpose()?;
        let management = config.management.iter().flat_map(|management| &management.listen);
        let management = management
            .map(|&address| TcpListener::bind(address).map_err(failed(address)))
            .collect::<Result<_, _>>()?;
        let control = StatusSocket::bind(&control_path(
            &config.state,
            config.shared.as_ref().map(|shared| &*shared.head),
        ));
        let control = match control {
            // Not every shared storage has sockets.
            Err(_) if config.shared.is_some() => None,
            control => Some(control.map_err(system("control socket"))?),
        };
        let sockets =
            [control, StatusSocket::open(DaemonKind::Export, config.runtime_directory.as_deref())];
        let status = StatusListeners { page, sockets: sockets.into_iter().flatten().collect() };
        let balancers = config.balancers.clone();
        Ok(Sockets { listeners, addresses, status, management, balancers })
    }
}

impl Server {
    /// Gives up unneeded privileges of the calling thread and of all threads that it starts later:
    /// call it before any thread starts. `lease`: of a shared state directory.
    pub fn open(config: ExportConfig, lease: Option<HeldLease>) -> Result<Self, ExportError> {
        let right = lease.as_ref().map(|lease| lease.right().clone());
        let replica_faults = Arc::new(audit::ReplicaFaultReporter::default());
        let fault_observer = config
            .audit
            .is_some()
            .then(|| replica_faults.clone() as Arc<dyn vouch_tree_client::FaultObserver>);
        let policies = config.policies.clone();
        let opener = FileSystemOpener::new(&config.state, policies, right.clone(), fault_observer);
        let opener = Arc::new(opener);
        let shared = opener.clone();
        let hooks =
            SystemHooks::system(Box::new(move |source, options| shared.open(source, options)));
        let disk = right.map_or(hooks.disk, |right| Arc::new(GuardedDisk(right)));
        let mut server =
            Self::open_with(config, SystemHooks { replica_faults, disk, ..hooks }, lease)?;
        server.opener = Some(opener);
        Ok(server)
    }

    pub(crate) fn open_with(
        mut config: ExportConfig,
        hooks: SystemHooks,
        lease: Option<HeldLease>,
    ) -> Result<Self, ExportError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = config.threads.unwrap_or(cores).max(1);
        let descriptors = raise_descriptor_limit().map_err(system("limit on open files"))?;
        config.limits.connections_max =
            config.limits.connections_max.min(limits::connections_max(descriptors));
        let right = lease.as_ref().map(|lease| lease.right().clone());
        let state = if right.is_some() {
            StateDirectory::of_heads(&config.state)
        } else {
            StateDirectory::open(&config.state)?
        };
        let path = state.recovery_path();
        let (recovery, boot, recovered) = RecoveryStore::open(&path, right.as_ref(), wall_nanos())
            .map_err(|source| ExportError::Recovery { path, source })?;

        let (domain, accounts) = open_accounts(&mut config, hooks.names)?;
        let hosts = Arc::new(Hosts::new(hooks.resolver).recording_names(config.audit.is_some()));
        let configured = Configured {
            exports: config.exports.clone(),
            state: config.state.clone(),
            tls: config.tls.clone(),
        };
        let (tls, offered) = open_tls(&mut config, &domain)?;
        let management = config.management.as_ref();
        let management = management
            .map(|config| RemoteAccess::open(config.files.clone(), config.roles.clone()))
            .transpose()?
            .map(Arc::new);
        let kept = kept_exports_path(&config.state);
        let changes = Changes::read(&kept)?;
        let sources = Sources::new(config.exports.clone(), hosts.clone(), hooks.opener)
            .offering(offered)
            .with_state(Some(&config.state))
            .with_changes(changes.clone());
        let sockets = Sockets::open(&config)?;
        let rights = privileges::reduce()
            .map_err(|errno| ExportError::System { doing: "privileges", source: errno.into() })?;
        let (polls, inboxes) = open_inboxes(threads)?;

        // Replicas of trees may send false data, which the trail records.
        let audit = config
            .audit
            .take()
            .map(|audit| audit::Audit::open(audit, hosts.clone(), hooks.disk))
            .transpose()?
            .map(Arc::new);
        audit.iter().for_each(|audit| hooks.replica_faults.attach(audit));
        let loaded = sources.load(&changes)?;
        let to_wake = inboxes.clone();
        let on_room = move || to_wake.iter().for_each(|inbox| inbox.post(Message::RoomFreed));
        let gss = open_gss(hooks.acceptor, config.keytab.as_deref(), on_room.clone())?;
        let keytab = gss.as_ref().and_then(|_| keytab_path(config.keytab.take()));
        keytab.iter().for_each(|keytab| vouch_trust::warn_if_exposed(keytab));
        keytab.iter().zip(&audit).for_each(|(keytab, audit)| audit.watch_keytab(keytab.clone()));
        let (left_out, rules) = (loaded.left_out.clone(), Mutex::new(loaded.rules.clone()));
        let (exports, mut warnings) = loaded.into_parts(gss.as_deref());
        let listed = list(&exports);
        if let Some(path) =
            audit.as_ref().and_then(|audit| audit.set_exports(&exports, &left_out).first().copied())
        {
            let exports = listed.iter().map(|export| export.source.clone()).collect();
            return Err(ExportError::NotDenied { path: path.to_owned(), exports });
        }

        let metrics = Arc::new(Metrics::new());
        metrics.name_exports(exports.all().iter().map(|export| (export.id, export.source.clone())));
        let needs_grace =
            !recovered.records.is_empty() && !exports.all().iter().all(|export| is_of_tree(export));
        let engine_config = vouch_nfs4_server::Config {
            addresses: trunk_addresses(&config.trunk, &sockets.addresses),
            ..engine_config(&config, &state, domain, boot, needs_grace, descriptors)?
        };
        let record_len_max = usize::try_from(engine_config.limits.message_len_max)
            .unwrap_or(usize::MAX)
            + RPC_HEADER_LEN_MAX;
        let observer = observer(&metrics, audit.as_ref());
        let seed = random_seed()?;
        let engine = vouch_nfs4_server::Server::new(
            engine_config,
            exports.clone(),
            accounts.clone(),
            observer,
            recovered,
            seed,
            clock::now(),
        );
        warnings.extend(exports_without_directory(&engine));
        warnings.extend(apply_quotas(&engine));
        gss.iter().for_each(|gss| engine.set_callback_contexts(gss.clone()));

        let limits = config.limits;
        let client_faults = metrics.client_faults.clone();
        let parts = DriverParts {
            engine,
            tls,
            gss,
            audit,
            recovery,
            exports: listed,
            hosts,
            inboxes,
            record_len_max,
            limits,
            right,
            client_faults,
        };
        let driver = Arc::new(Driver::new(parts, on_room));
        driver.apply_qos(&exports);
        let reloader = Arc::new(Reloader {
            sources,
            driver: driver.clone(),
            metrics: metrics.clone(),
            accounts,
            principal_map: config.principal_map,
            rules,
            kept,
            management,
            turn: Mutex::new(()),
        });
        let site = site_status(&config.state, &sockets, keytab);
        let head = lease.as_ref().map(|lease| (lease.head().to_owned(), lease.epoch()));
        let report = Arc::new(Report {
            driver: driver.clone(),
            metrics,
            manager: Manager { driver: driver.clone(), reloader: reloader.clone(), configured },
            reloader: reloader.clone(),
            site,
            head,
        });
        let (resolve_every, opener) = (config.resolve_every, None);
        Ok(Server {
            driver,
            report,
            reloader,
            polls,
            sockets,
            warnings,
            rights,
            resolve_every,
            opener,
            lease,
            _state: state,
        })
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.sockets.addresses
    }

    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.sockets.status.page.as_ref().and_then(|page| page.local_addr().ok())
    }

    pub fn management_addresses(&self) -> Vec<SocketAddr> {
        let listeners = self.sockets.management.iter();
        listeners.filter_map(|listener| listener.local_addr().ok()).collect()
    }

    pub fn exports(&self) -> Vec<(String, String)> {
        self.driver
            .exports
            .lock()
            .iter()
            .map(|export| (export.source.clone(), export.pseudo_path.clone()))
            .collect()
    }

    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub fn acting_user(&self) -> Option<u32> {
        match self.rights {
            privileges::Rights::EachCaller => None,
            privileges::Rights::User(uid) => Some(uid),
        }
    }

    /// Any thread may call the function. The log has the outcome.
    pub fn reload(&self) -> impl Fn() + Send + Sync + 'static {
        let reloader = self.reloader.clone();
        move || {
            let _ = reloader.reload();
        }
    }
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> ExportError {
    move |source| ExportError::System { doing, source }
}

type Inboxes = Vec<Arc<Inbox>>;

type SharedAccounts = Arc<Accounts<Arc<dyn NameService>>>;

fn open_accounts(
    config: &mut ExportConfig,
    names: Arc<dyn NameService>,
) -> Result<(String, SharedAccounts), ExportError> {
    let idmap = read_idmap(config.idmap.as_ref())?;
    let domain = config.domain.clone().or_else(|| idmap.domain.clone()).unwrap_or_else(host_domain);
    let map = read_principal_map(config.principal_map.as_deref())?;
    let rules =
        AccountRules { idmap, groups: config.groups, map, unknown: config.unknown_principals };
    let accounts = Arc::new(Accounts::new(names, rules, config.identity_lives));
    Ok((domain, accounts))
}

fn open_tls(
    config: &mut ExportConfig,
    domain: &str,
) -> Result<(Option<Arc<Tls>>, Transport), ExportError> {
    let tls =
        config.tls.take().map(|tls| Tls::open(tls, domain.to_owned())).transpose()?.map(Arc::new);
    let offered = match tls.as_ref().map(|tls| tls.live.credentials().accepts_clients()) {
        None => Transport::Clear,
        Some(false) => Transport::Tls,
        Some(true) => Transport::MutualTls,
    };
    Ok((tls, offered))
}

fn observer(
    metrics: &Arc<Metrics>,
    audit: Option<&Arc<audit::Audit>>,
) -> Arc<dyn vouch_nfs4_server::Observer> {
    match audit {
        Some(audit) => {
            Arc::new(audit::AuditObserver { metrics: metrics.clone(), audit: audit.clone() })
        }
        None => metrics.clone(),
    }
}

fn site_status(state: &Path, sockets: &Sockets, keytab: Option<PathBuf>) -> SiteStatus {
    SiteStatus {
        addresses: sockets.addresses.iter().map(SocketAddr::to_string).collect(),
        state: state.display().to_string(),
        keytab: keytab.map(|path| path.display().to_string()),
    }
}

fn open_inboxes(threads: usize) -> Result<(Vec<mio::Poll>, Inboxes), ExportError> {
    let (mut polls, mut inboxes) = (Vec::new(), Vec::new());
    for _ in 0..threads {
        let poll = mio::Poll::new().map_err(system("epoll"))?;
        inboxes.push(Arc::new(Inbox::new(poll.registry(), WAKE).map_err(system("eventfd"))?));
        polls.push(poll);
    }
    Ok((polls, inboxes))
}

fn engine_config(
    config: &ExportConfig,
    state: &StateDirectory,
    domain: String,
    boot: u64,
    needs_grace: bool,
    descriptors: usize,
) -> Result<vouch_nfs4_server::Config, ExportError> {
    let lease_ms = u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX);
    let key = state.filehandle_key(config.filehandle_key.as_deref())?;
    Ok(vouch_nfs4_server::Config {
        lease_ms,
        grace_ms: if needs_grace { lease_ms } else { 0 },
        minor_versions: config.minor_versions.clone(),
        delegations: config.delegations,
        domain,
        numeric_owners: config.numeric_owners,
        server_owner: state.server_id()?.to_vec(),
        server_scope: server_scope(&key),
        addresses: Vec::new(),
        boot,
        filehandle_key: *key,
        implementation: Some(("vouch".into(), concat!("vouch ", env!("CARGO_PKG_VERSION")).into())),
        limits: limits::of_engine(descriptors),
    })
}

/// Clients reclaim reads of a tree at any time: nothing that is granted before can conflict.
fn is_of_tree(export: &vouch_nfs4_server::Export) -> bool {
    export.file_system.home(&export.file_system.root()).system.tree_number().is_some()
}

/// Equal on the heads that share a key: their clients may reclaim opens and locks after a move.
fn server_scope(filehandle_key: &[u8; 32]) -> Vec<u8> {
    blake3::derive_key("vouch 2026-11-26 scope of servers with one filehandle key", filehandle_key)
        [..16]
        .to_vec()
}

/// The given addresses, or else those that the server listens on, if there are several. Clients use
/// the port that they mounted from.
fn trunk_addresses(given: &[IpAddr], listening: &[SocketAddr]) -> Vec<String> {
    let mut all: Vec<IpAddr> = match given.is_empty() {
        true => listening
            .iter()
            .map(SocketAddr::ip)
            .filter(|ip| !ip.is_unspecified() && !ip.is_loopback())
            .collect(),
        false => given.to_vec(),
    };
    all.dedup();
    all.truncate(TRUNK_ADDRESSES_MAX);
    if given.is_empty() && all.len() < 2 {
        Vec::new()
    } else {
        all.iter().map(IpAddr::to_string).collect()
    }
}

fn random_seed() -> Result<[u8; 32], ExportError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)
        .map_err(|error| system("randomness")(io::Error::other(error.to_string())))?;
    Ok(seed)
}

fn read_idmap(path: Option<&PathBuf>) -> Result<Idmap, ExportError> {
    let default = PathBuf::from("/etc/idmapd.conf");
    match std::fs::read_to_string(path.unwrap_or(&default)) {
        Ok(text) => Ok(Idmap::parse(&text)),
        Err(_) if path.is_none() => Ok(Idmap::default()),
        Err(source) => Err(ExportError::Idmap { path: path.unwrap_or(&default).clone(), source }),
    }
}

fn host_domain() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().to_ascii_lowercase();
    name.split_once('.').map_or_else(|| "localdomain".to_owned(), |(_, domain)| domain.to_owned())
}

fn wall_nanos() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn raise_descriptor_limit() -> io::Result<usize> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(usize::try_from(maximum.unwrap_or(u64::MAX)).unwrap_or(usize::MAX))
}

/// Longest credential and verifier (RFC 5531 §9).
const RPC_HEADER_LEN_MAX: usize = 1024;

/// Servers in one location of `vouch_nfs4::attr::FsLocations`, which clients of ours decode.
const TRUNK_ADDRESSES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trunk_has_given_addresses_or_several_that_others_reach() {
        let listening = |list: &[&str]| {
            list.iter().map(|address| address.parse().unwrap()).collect::<Vec<SocketAddr>>()
        };
        let two = listening(&["127.0.0.1:1", "192.0.2.1:1", "[2001:db8::1]:1", "[::]:1"]);
        assert_eq!(trunk_addresses(&[], &two), ["192.0.2.1", "2001:db8::1"]);
        assert!(trunk_addresses(&[], &listening(&["127.0.0.1:1", "192.0.2.1:1"])).is_empty());
        assert_eq!(trunk_addresses(&["192.0.2.9".parse().unwrap()], &two), ["192.0.2.9"]);
    }
}
