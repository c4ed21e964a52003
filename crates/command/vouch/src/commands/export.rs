//! Options of the NFSv4 server, which is in `vouch_export`.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::audit_options::AuditArgs;
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::{interrupt, output, when};
use clap::ValueEnum;
use vouch_daemon::{runtime_directory, service_manager};
use vouch_export::management::ManagementConfig;
use vouch_export::{
    AuditConfig, Balancers, ExportConfig, ExportError, ExportList, GroupSource, HeldLease,
    IdentityLives, Limits, Server, SharedState, Source, TlsConfig, TlsFiles, UnknownPrincipal,
    admit, ignore_attempts, option_forms, wait_for_lease,
};

use vouch_krb5_seal::Kernels;
use vouch_tree_client::read_policy;

mod check;
mod manage;
mod reload;
mod running;
mod status;

use running::{Running, ServerArgs};

/// Export directories and published trees to NFSv4 clients.
///
/// Supports NFSv4.2, 4.1 and 4.0 over TCP; no portmapper and no other daemon is needed. As root,
/// the server acts with each caller's user and groups. As another user, it serves that user's files
/// with that user's rights.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = after_help()
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// File of exports in exports(5) syntax, or a directory of such files (*.exports); may be
    /// repeated.
    #[arg(long, value_name = "FILE", required_unless_present = "dir", conflicts_with_all = ["dir", "pseudo", "options"])]
    exports: Vec<PathBuf>,
    /// Export this directory (or tree:NAME, tree:DB) to all clients that reach the address.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Path of --dir for clients.
    #[arg(long, value_name = "PATH", default_value = "/export")]
    pseudo: String,
    /// Options of --dir, as in exports(5).
    #[arg(long, value_name = "LIST", default_value = "rw,insecure", value_parser = parse_export_options)]
    options: String,
    /// Export published trees only in revisions that witnesses have seen: a policy (C2SP tlog-policy)
    /// with a quorum; may be repeated, and all must hold for every exported tree. The policy of a tree,
    /// certified by its root key, holds beside it. /etc/vouch/policy is always read if it exists.
    #[arg(long = "policy", value_name = "FILE", help_heading = "Reading options")]
    witness_policy: Vec<PathBuf>,
    /// Address to listen on; may be repeated. Without it, the sockets of the service manager
    /// (systemd.socket(5)), else 127.0.0.1:2049.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    listen: Vec<SocketAddr>,
    /// Address of this server that clients may use together with the one that they mounted from
    /// (session trunking: the options trunkdiscovery and max_connect of nfs(5)); may be repeated.
    /// The default is the addresses of --listen, if several are neither wildcard nor loopback.
    #[arg(long, value_name = "ADDR")]
    trunk: Vec<IpAddr>,
    /// Directory of recovery records and keys; the default is /var/lib/vouch/export for root, else
    /// ~/.local/state/vouch/export.
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<PathBuf>,
    /// File with the key of file handles, for several servers that export the same trees: clients of
    /// one continue at another. 64 hexadecimal digits, as in filehandle.key of the state directory,
    /// which is the default.
    #[arg(long, value_name = "FILE")]
    filehandle_key: Option<PathBuf>,
    /// Share the state directory with other heads on other machines: one serves, the others are
    /// standbys. The directory must exist. It and the exports must be on storage that all heads see
    /// alike.
    #[arg(long, help_heading = "Failover")]
    shared_state: bool,
    /// Name of this head, unlike those of the others; the default is the host name.
    #[arg(long, value_name = "NAME", global = true, help_heading = "Failover")]
    head: Option<String>,
    /// A head that cannot renew its record on the shared storage for this time stops and ends. A
    /// standby waits for it and a tenth more; if heads have different values, for the longer one.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_state_lease, requires = "shared_state", help_heading = "Failover")]
    state_lease: Duration,
    /// Program and arguments, without a shell. It switches the head named in VOUCH_FENCE_HEAD off and
    /// exits with 0; then a standby takes over without waiting for the rest of the lease.
    #[arg(long, value_name = "PROGRAM", requires = "shared_state", help_heading = "Failover")]
    fence: Option<String>,
    /// Take over only after a success of the fencing program.
    #[arg(long, requires = "fence", help_heading = "Failover")]
    fence_required: bool,
    /// Lease of clients, and grace period after a restart, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease: u64,
    /// Worker threads; the default is one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Most threads that wait for disks and name services.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4096))]
    waiting_threads: u16,
    /// Lowest minor version.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=2))]
    minor_min: u32,
    /// Highest minor version.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=2))]
    minor_max: u32,
    /// Grant no delegations.
    #[arg(long)]
    no_delegations: bool,
    /// Domain of owner names (user@domain); the default is that of idmapd.conf, else of the host
    /// name.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// File with domain, local realms and static map, as in idmapd.conf(5); the default is
    /// /etc/idmapd.conf if it exists.
    #[arg(long, value_name = "FILE")]
    idmap: Option<PathBuf>,
    /// Send owners as names under sec=sys too, instead of numbers.
    #[arg(long)]
    owner_names: bool,
    /// Source of the supplementary groups of sec=sys callers.
    #[arg(long, value_name = "WHENCE", default_value = "auto")]
    groups: GroupsName,
    /// Life of the name service's answers about users and groups: a removed membership ends after this
    /// time and 5 s more. Missing users are looked up again after 30 s at most.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = when::parse_duration)]
    identity_cache: Duration,
    /// Longest life of an answer while the name service does not answer.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = when::parse_duration)]
    identity_outage: Duration,
    /// Longest wait of a call for the name service. Then known users keep their rights, and calls of
    /// others get NFS4ERR_DELAY.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = when::parse_duration)]
    identity_wait: Duration,
    /// File that maps Kerberos principals to accounts, one on a line: PRINCIPAL USER, with * for a
    /// component, or !squash, !refuse, !local instead of a user; read again by reload.
    #[arg(long, value_name = "FILE")]
    principal_map: Option<PathBuf>,
    /// Treatment of Kerberos principals without an account.
    #[arg(long, value_name = "HOW", default_value = "refuse")]
    unknown_principals: UnknownName,
    /// Keytab with the keys of nfs/HOST, for sec=krb5, krb5i and krb5p; the default is KRB5_KTNAME,
    /// else the system's.
    #[arg(long, value_name = "FILE")]
    keytab: Option<PathBuf>,
    /// Offer RPC-with-TLS (RFC 9289) with this certificate (PEM, with intermediate certificates). The
    /// TLS files are read again when they change.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "TLS")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    tls_key: Option<PathBuf>,
    /// Authorities (PEM) of client certificates, for xprtsec=mtls.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    tls_client_ca: Option<PathBuf>,
    /// Certificate revocation list of these authorities (PEM or DER); may be repeated.
    #[arg(long, value_name = "FILE", requires = "tls_client_ca", help_heading = "TLS")]
    tls_crl: Vec<PathBuf>,
    /// File that maps client certificates to users, one on a line: sha256:FINGERPRINT USER,
    /// subject:NAME USER or * USER, with !machine (AUTH_SYS is believed) or !refuse instead of a
    /// user. Without a line, a certificate with the otherName user@domain acts as this user, and
    /// others are machines.
    #[arg(long, value_name = "FILE", requires = "tls_client_ca", help_heading = "TLS")]
    certificate_map: Option<PathBuf>,
    /// Let the kernel encrypt what is sent, if it has the module tls: file data then leaves by
    /// sendfile(2). Measure before you use it.
    #[arg(long, requires = "tls_cert", help_heading = "TLS")]
    kernel_tls: bool,
    /// Take orders of administrators over the network at this address, by gRPC over TLS with client
    /// certificates; may be repeated.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address, requires_all = ["management_client_ca", "management_roles"], help_heading = "Management")]
    management: Vec<SocketAddr>,
    /// Certificate (PEM) for --management; the default is --tls-cert.
    #[arg(long, value_name = "FILE", requires = "management_key", help_heading = "Management")]
    management_cert: Option<PathBuf>,
    /// Private key of this certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "management_cert", help_heading = "Management")]
    management_key: Option<PathBuf>,
    /// Authorities (PEM) of administrators' certificates.
    #[arg(long, value_name = "FILE", requires = "management", help_heading = "Management")]
    management_client_ca: Option<PathBuf>,
    /// Certificate revocation list of these authorities (PEM or DER); may be repeated.
    #[arg(long, value_name = "FILE", requires = "management", help_heading = "Management")]
    management_crl: Vec<PathBuf>,
    /// File of roles (read, exports or all), one certificate on a line: sha256:FINGERPRINT ROLE,
    /// subject:NAME ROLE, dns:HOST ROLE, email:USER@DOMAIN ROLE, uri:URI ROLE, user:USER@DOMAIN ROLE
    /// or * ROLE. Other certificates have none.
    #[arg(long, value_name = "FILE", requires = "management", help_heading = "Management")]
    management_roles: Option<PathBuf>,
    /// Address or network of balancers whose connections begin with a PROXY header, version 2, which
    /// names the client; may be repeated. Connections of others have none.
    #[arg(long, value_name = "ADDR[/BITS]")]
    proxy_from: Vec<Balancers>,
    /// Interval for resolving the host names in the list again.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = when::parse_duration)]
    resolve_every: Duration,
    /// Most connections.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max)]
    connections_max: usize,
    /// Most connections of one address.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_per_address_max)]
    connections_per_address_max: usize,
    /// Close a connection that takes longer than this to complete a call or to accept a reply.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = when::parse_duration)]
    stall_max: Duration,
    /// Address of the metrics and health page.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    metrics: Option<SocketAddr>,
    /// Protect Kerberos messages by narrower instructions than this CPU has, to measure what they
    /// gain: plain, aes-ni, avx2, vaes-256, avx-512, vaes-512 or armv8.
    #[arg(long, value_name = "SET", help_heading = "Measuring")]
    sealing_kernels: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    audit: AuditArgs,
    /// Refuse operations on this export, given by its path in the list, while they can't be
    /// recorded; may be repeated.
    #[arg(long = "audit-deny", value_name = "PATH", value_parser = parse_source, requires = "audit", help_heading = "Audit")]
    audit_deny: Vec<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Check(Box<check::Args>),
    Reload(reload::Args),
    Status(status::Args),
    List(manage::ListArgs),
    Add(manage::SetArgs),
    /// Replace the clients of an export and their options.
    ///
    /// Clients keep their state unless they lose their access.
    Set(manage::SetArgs),
    Remove(manage::RemoveArgs),
    #[command(subcommand)]
    Client(manage::ClientCommand),
    States(manage::StatesArgs),
    Unlock(manage::UnlockArgs),
    Drain(manage::DrainArgs),
}

/// With the options that the parser of the lists has.
fn after_help() -> String {
    let options: Vec<String> = option_forms().collect();
    format!(
        "{EXAMPLES}\n\nOf the options of exports(5), these are taken: {}. A line is logged for each other one that is known, and the list is \
         refused if one is not. Paths tree:DB and tree:NAME export published trees.",
        options.join(" ")
    )
}

const EXAMPLES: &str = "Examples:\n  vouch export --dir /srv/data --listen 127.0.0.1:2049     one directory, for a first try\n  \
                  mount -t nfs4 127.0.0.1:/export /mnt                     on the client\n  \
                  vouch export --exports /etc/exports --listen '[::]:2049'  what exports(5) lists\n  \
                  vouch export check                                       a dry run: faults of the lists, and each client's options\n  \
                  vouch export reload                                      read the list anew, no client notices\n  \
                  vouch export status                                      clients, opens, locks, recent errors\n  \
                  vouch export add /srv/new '192.0.2.0/24(rw)'              export it at once, until the server stops\n\n\
                  It runs until SIGTERM or SIGINT, and then lets replies under way leave; SIGHUP reads the exports anew. Metrics: GET /metrics (Prometheus), GET /healthz.";

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        self.command.is_none()
    }
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let running =
        Running { state: args.state.as_deref(), head: args.head.as_deref(), server: &args.server };
    match args.command {
        Some(Command::Check(check)) => return check::run(*check, running),
        Some(Command::Reload(args)) => return reload::run(&args, running),
        Some(Command::Status(status)) => return status::run(&status, running),
        Some(Command::List(list)) => return manage::list(&list, running),
        Some(Command::Add(add)) => return manage::add(add, running),
        Some(Command::Set(set)) => return manage::set(set, running),
        Some(Command::Remove(remove)) => return manage::remove(&remove, running),
        Some(Command::Client(command)) => return manage::client(&command, running),
        Some(Command::States(states)) => return manage::states(states, running),
        Some(Command::Unlock(unlock)) => return manage::unlock(&unlock, running),
        Some(Command::Drain(drain)) => return manage::drain(&drain, running),
        None if args.server.is_given() => {
            return Err(Failure::usage("--server", "is for commands such as `vouch export list`"));
        }
        None => {}
    }
    let state = match &args.state {
        Some(path) => path.clone(),
        None => default_state()?,
    };
    if args.minor_min > args.minor_max {
        return Err(Failure::usage("--minor-min", "is above --minor-max"));
    }
    if let Some(name) = &args.sealing_kernels {
        Kernels::choose(name).map_err(|error| Failure::usage("--sealing-kernels", error))?;
    }
    service_manager::connect();
    let _taken = interrupt::stop_gracefully(service_manager::stopping);
    let passed: Vec<_> =
        service_manager::listeners().at("passed sockets")?.into_iter().map(Arc::new).collect();
    let shared = args.shared_state.then(|| shared_state(&args));
    let management = management(&args)?;
    args.witness_policy.iter().try_for_each(|path| read_policy(path).map(drop))?;
    let mut config = ExportConfig { management, ..config(args, state, passed) };
    config.shared = shared;
    let lease = wait_for_turn(&mut config)?;
    let signals = interrupt::hold().at("signals")?;
    let server = Server::open(config, lease)?;
    signals.watch_and_reload(server.reload()).at("signals")?;
    for comment in server.warnings() {
        tracing::warn!("{comment}");
    }
    output::text(&greeting(&server))?;
    service_manager::ready(&format!("{} exports", server.exports().len()));
    server.run(interrupt::requested).map_err(Failure::from)
}

/// Returns at once without a shared state directory. A standby has its sockets before it serves: a
/// refusal would delay a client's next attempt.
fn wait_for_turn(config: &mut ExportConfig) -> Outcome<Option<HeldLease>> {
    let Some(shared) = config.shared.clone() else {
        config.passed.iter().try_for_each(|listener| admit(listener)).at("passed sockets")?;
        return Ok(None);
    };
    for address in std::mem::take(&mut config.listen) {
        let bound = vouch_daemon::listener::bind_before_address_is_here(address, ignore_attempts);
        config
            .passed
            .push(Arc::new(bound.map_err(|source| ExportError::Listen { address, source })?));
    }
    let lease = wait_for_lease(config, &shared, service_manager::ready)?;
    Ok(Some(lease))
}

fn shared_state(args: &Args) -> SharedState {
    let fence =
        args.fence.iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect();
    SharedState {
        head: args.head.clone().unwrap_or_else(host_name),
        lease: args.state_lease,
        fence,
        is_fence_required: args.fence_required,
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn parse_export_options(text: &str) -> Result<String, String> {
    ExportList::check_options(text).map(|()| text.to_owned())
}

/// Below a second, a busy disk would cost a head its lease.
fn parse_state_lease(text: &str) -> Result<Duration, String> {
    let lease = when::parse_duration(text)?;
    let is_usable = (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&lease);
    if is_usable { Ok(lease) } else { Err("from 1s to 1h".to_owned()) }
}

fn config(args: Args, state: PathBuf, passed: Vec<Arc<TcpListener>>) -> ExportConfig {
    let default_addresses =
        if passed.is_empty() { vec![SocketAddr::from(([127, 0, 0, 1], 2049))] } else { Vec::new() };
    ExportConfig {
        exports: match args.dir {
            Some(dir) => ExportList::One {
                source: dir.into_os_string().into_encoded_bytes(),
                pseudo: args.pseudo,
                options: args.options,
            },
            None => ExportList::Files(args.exports),
        },
        policies: args.witness_policy,
        listen: if args.listen.is_empty() { default_addresses } else { args.listen },
        passed,
        trunk: args.trunk,
        metrics: args.metrics,
        state,
        filehandle_key: args.filehandle_key,
        lease: Duration::from_secs(args.lease),
        threads: args.threads.map(usize::from),
        minor_versions: args.minor_min..=args.minor_max,
        delegations: !args.no_delegations,
        domain: args.domain,
        idmap: args.idmap,
        numeric_owners: !args.owner_names,
        groups: args.groups.into(),
        identity_lives: IdentityLives {
            known: args.identity_cache,
            outage: args.identity_outage,
            wait: args.identity_wait,
        },
        principal_map: args.principal_map,
        unknown_principals: args.unknown_principals.into(),
        keytab: args.keytab,
        tls: args.tls_cert.zip(args.tls_key).map(|(certificate, key)| TlsConfig {
            files: TlsFiles {
                certificate,
                key,
                client_authorities: args.tls_client_ca,
                revoked: args.tls_crl,
            },
            certificate_map: args.certificate_map,
            by_kernel: args.kernel_tls,
        }),
        management: None,
        balancers: args.proxy_from,
        resolve_every: args.resolve_every,
        limits: Limits {
            connections_max: args.connections_max,
            connections_per_address_max: args.connections_per_address_max,
            stall_max: args.stall_max,
            waiting_threads_max: args.waiting_threads.into(),
            ..Limits::default()
        },
        audit: args.audit.config().map(|trail| AuditConfig { trail, deny: args.audit_deny }),
        runtime_directory: runtime_directory::of_process(),
        shared: None,
    }
}

fn management(args: &Args) -> Outcome<Option<ManagementConfig>> {
    let (Some(authorities), Some(roles)) = (&args.management_client_ca, &args.management_roles)
    else {
        return Ok(None);
    };
    let own = args.management_cert.clone().zip(args.management_key.clone());
    let pair = own.or_else(|| args.tls_cert.clone().zip(args.tls_key.clone()));
    let (certificate, key) = pair.ok_or_else(|| {
        Failure::usage(
            "--management",
            "needs --management-cert and --management-key, or --tls-cert",
        )
    })?;
    let files = TlsFiles {
        certificate,
        key,
        client_authorities: Some(authorities.clone()),
        revoked: args.management_crl.clone(),
    };
    let listen = args.management.clone();
    Ok(Some(ManagementConfig { listen, files, roles: roles.clone() }))
}

fn parse_source(text: &str) -> Result<String, String> {
    let source =
        Source::parse(text.as_bytes()).map_err(|(what, cure)| format!("{what}; {cure}"))?;
    Ok(source.to_string())
}

fn greeting(server: &Server) -> String {
    let addresses: Vec<String> = server.addresses().iter().map(SocketAddr::to_string).collect();
    let page = server
        .metrics_address()
        .map_or_else(String::new, |address| format!(", metrics on http://{address}/metrics"));
    let managed = server.management_addresses();
    let managed: String = managed.iter().map(|address| format!(", managed at {address}")).collect();
    let mut text = format!("exporting on {}{page}{managed}\n", addresses.join(", "));
    for (source, place) in server.exports() {
        text.push_str(&format!(
            "  {}  {}\n",
            vouch_daemon::printable::printable(place.as_bytes()),
            vouch_daemon::printable::printable(source.as_bytes())
        ));
    }
    if let Some(uid) = server.acting_user() {
        text.push_str(&format!("  not run by root: all access uses the rights of user {uid}\n"));
    }
    text
}

fn default_state() -> Outcome<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/vouch/export"));
    }
    let home =
        std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")));
    home.map(|home| home.join("vouch/export"))
        .ok_or_else(|| Failure::usage("--state", "is required without HOME"))
}

/// `--groups` on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GroupsName {
    /// The groups that the client sends; the name service is asked only if the client sent 16, the
    /// maximum, and may have left some out.
    Auto,
    /// Only the groups that the client sends.
    Client,
    /// Only the name service, like `--manage-gids` of the kernel's server.
    Server,
}

impl From<GroupsName> for GroupSource {
    fn from(name: GroupsName) -> Self {
        match name {
            GroupsName::Auto => GroupSource::Auto,
            GroupsName::Client => GroupSource::Client,
            GroupsName::Server => GroupSource::Server,
        }
    }
}

/// `--unknown-principals` on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UnknownName {
    /// Refuse the principal and log a line.
    Refuse,
    /// Map the principal to the anonymous user.
    Squash,
}

impl From<UnknownName> for UnknownPrincipal {
    fn from(name: UnknownName) -> Self {
        match name {
            UnknownName::Refuse => UnknownPrincipal::Refuse,
            UnknownName::Squash => UnknownPrincipal::Squash,
        }
    }
}
