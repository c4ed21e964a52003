use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vouch_audit::trail::{SystemDisk, Trail};
use vouch_daemon::status::DaemonKind;
use vouch_daemon::{audit_trail, listener, service_manager};
use vouch_jobs::broker::{Broker, BrokerConfig, BrokerReport, Listeners, NodePrincipals};
use vouch_jobs::limits::{Limits, SERVICE_COUNT_MAX};
use vouch_jobs::pods::PodCluster;
use vouch_jobs::{PORT_DEFAULT, SERVICE};
use vouch_trust::Access;

use super::{BROKER_SOCKET, SPOOL, listen};
use crate::audit_options::AuditArgs;
use crate::exit::{At as _, Failure, Outcome};
use crate::status_page::StatusPage;
use crate::{interrupt, output, when};

/// Mint tickets for registered jobs.
///
/// The KDC must allow the broker's principal to delegate to the services, and nothing else decides
/// for which services: see docs/jobs.md. The scheduler registers jobs over --socket; agents ask over
/// TCP, with the key of host/NODE.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    vouch jobs broker --principal vouch-jobs/head.example.org --keytab /etc/vouch/jobs.keytab \\\n    \
    --service nfs/filer.example.org --scheduler slurm --audit /var/lib/vouch-jobs/audit\n\n\
    It runs until SIGTERM or SIGINT. Registered jobs are kept for the next start.")]
pub(super) struct Args {
    /// The broker's own principal: vouch-jobs/HOST, where HOST is the name that agents use.
    #[arg(long, value_name = "PRINCIPAL")]
    principal: String,
    /// Keytab with the principal's key.
    #[arg(long, value_name = "FILE")]
    keytab: PathBuf,
    /// Principal of a service that jobs use: nfs/SERVER; may be repeated.
    #[arg(long, value_name = "PRINCIPAL", required = true)]
    service: Vec<String>,
    /// Address to listen on for agents; may be repeated. Without it, the sockets of the service
    /// manager, else [::]:4344.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    listen: Vec<SocketAddr>,
    /// Socket for the scheduler.
    #[arg(long, value_name = "PATH", default_value = BROKER_SOCKET)]
    socket: PathBuf,
    /// User that may register jobs, beside root and the broker's own; may be repeated.
    #[arg(long, value_name = "USER", default_value = "slurm")]
    scheduler: Vec<String>,
    /// Directory of the registered jobs.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/vouch-jobs")]
    state: PathBuf,
    /// Directory where `vouch jobs end` notes the ends of jobs while the broker is away. Only root and the
    /// group of --scheduler may write there.
    #[arg(long, value_name = "DIR", default_value = SPOOL)]
    spool: PathBuf,
    /// Realm of the users; by default the broker's.
    #[arg(long, value_name = "REALM")]
    realm: Option<String>,
    /// Domain of the users of --realm in names such as AD\alice and alice@ad.example.org; may be
    /// repeated.
    #[arg(long, value_name = "DOMAIN")]
    user_domain: Vec<String>,
    /// Domain of nodes that the scheduler knows by short names; by default the broker's.
    #[arg(long, value_name = "DOMAIN")]
    node_domain: Option<String>,
    /// Principal that may speak for any node: for nodes of one image with one keytab. May be
    /// repeated. The first agent that asks for a job under a node's name gets its tickets.
    #[arg(long, value_name = "PRINCIPAL")]
    shared_node_principal: Vec<String>,
    /// Issuer of the tokens of a Kubernetes cluster, whose pods get tickets: see docs/kubernetes.md.
    #[arg(long, value_name = "URL", requires_all = ["pod_keys", "pod_users"])]
    pod_issuer: Option<String>,
    /// Public keys of the cluster, as `kubectl get --raw /openid/v1/jwks` prints them.
    #[arg(long, value_name = "FILE", requires = "pod_issuer")]
    pod_keys: Option<PathBuf>,
    /// Users of the cluster's service accounts: lines NAMESPACE/SERVICEACCOUNT USER, or NAMESPACE/* USER.
    #[arg(long, value_name = "FILE", requires = "pod_issuer")]
    pod_users: Option<PathBuf>,
    /// Audience of the tokens.
    #[arg(long, value_name = "TEXT", default_value = SERVICE)]
    pod_audience: String,
    /// Longest life of a ticket.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = when::parse_duration)]
    ticket_life: Duration,
    /// Longest time from a job's registration to its deadline.
    #[arg(long, value_name = "DURATION", default_value = "31d", value_parser = when::parse_duration)]
    job_life_max: Duration,
    /// Most jobs at once.
    #[arg(long, value_name = "N", default_value_t = Limits::default().job_count_max as u32, value_parser = clap::value_parser!(u32).range(1..))]
    jobs_max: u32,
    /// Most jobs of one user at once.
    #[arg(long, value_name = "N", default_value_t = Limits::default().user_job_count_max as u32, value_parser = clap::value_parser!(u32).range(1..))]
    user_jobs_max: u32,
    /// Users with a lower uid get no tickets.
    #[arg(long, value_name = "UID", default_value_t = Limits::default().uid_min)]
    uid_min: u32,
    /// Most connections of agents at once; others wait.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connection_count_max as u32, value_parser = clap::value_parser!(u32).range(1..))]
    connections_max: u32,
    /// Address of the metrics and health page.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    audit: AuditArgs,
}

pub(super) fn run(args: Args) -> Outcome {
    service_manager::connect();
    let _taken = interrupt::stop_gracefully(service_manager::stopping);
    let config = config(&args)?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.state)
        .at(config.state.display())?;
    let mut agents = service_manager::listeners().at("passed sockets")?;
    let default_addresses = [SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT_DEFAULT))];
    let addresses = if args.listen.is_empty() && agents.is_empty() {
        &default_addresses[..]
    } else {
        &args.listen
    };
    for address in addresses {
        agents.extend(listener::bind(*address, 1).at(address)?);
    }
    let halted = Arc::new(AtomicBool::new(false));
    let trail = trail(&args.audit, halted.clone())?;
    let broker = Arc::new(Broker::open(config, trail)?);
    // Any local user may connect; the kernel says who it is.
    let scheduler = listen(&args.socket, 0o666)?;
    let page = StatusPage::open(DaemonKind::JobsBroker, args.metrics)?;
    interrupt::watch().at("signals")?;
    let shown: Vec<String> = agents
        .iter()
        .filter_map(|listener| listener.local_addr().ok())
        .map(|address| address.to_string())
        .collect();
    let text = format!("serving agents on {}", shown.join(", "));
    output::text(&format!("{text}{}\n", page.text()))?;
    service_manager::ready(&text);
    let stopped = || interrupt::requested() || halted.load(Ordering::Relaxed);
    let report = BrokerReport { broker: broker.clone(), addresses: shown };
    page.answer_during(report, || Ok(broker.run(Listeners { agents, scheduler }, stopped)?))?;
    match halted.load(Ordering::Relaxed) {
        true => Err(Failure::new(
            "--audit",
            std::io::Error::other("records cannot be written, and the policy is halt"),
        )),
        false => Ok(()),
    }
}

fn config(args: &Args) -> Outcome<BrokerConfig> {
    let full =
        |name: &String| vouch_gss_mit::full_name(name).map_err(|fault| Failure::input(name, fault));
    let all = |names: &[String]| names.iter().map(full).collect::<Outcome<Vec<_>>>();
    let principal = full(&args.principal)?;
    let own = principal
        .strip_prefix(SERVICE)
        .and_then(|rest| rest.strip_prefix('/'))
        .and_then(|rest| rest.rsplit_once('@'));
    let Some((host, realm)) = own else {
        return Err(Failure::input("--principal", format!("{principal} is not {SERVICE}/HOST")));
    };
    if args.service.len() > SERVICE_COUNT_MAX {
        return Err(Failure::input("--service", format!("at most {SERVICE_COUNT_MAX}")));
    }
    let schedulers: Vec<_> = args.scheduler.iter().filter_map(|name| account(name)).collect();
    let domain = args
        .node_domain
        .clone()
        .unwrap_or_else(|| host.split_once('.').map_or("", |(_, domain)| domain).to_owned());
    Ok(BrokerConfig {
        keytab: args.keytab.clone(),
        services: all(&args.service)?,
        realm: args.realm.clone().unwrap_or_else(|| realm.to_owned()),
        user_domains: args.user_domain.clone(),
        scheduler_uids: schedulers.iter().map(|(uid, _)| *uid).collect(),
        scheduler_group: schedulers.iter().find_map(|(_, group)| *group),
        nodes: NodePrincipals {
            realm: realm.to_owned(),
            domain,
            shared: all(&args.shared_node_principal)?,
        },
        pods: pods(args)?,
        state: args.state.clone(),
        spool: args.spool.clone(),
        limits: Limits {
            job_count_max: args.jobs_max as usize,
            user_job_count_max: args.user_jobs_max as usize,
            job_s_max: args.job_life_max.as_secs(),
            ticket_s_max: args.ticket_life.as_secs(),
            uid_min: args.uid_min,
            connection_count_max: args.connections_max as usize,
        },
        principal,
    })
}

fn pods(args: &Args) -> Outcome<Option<PodCluster>> {
    let (Some(issuer), Some(keys), Some(users)) =
        (&args.pod_issuer, &args.pod_keys, &args.pod_users)
    else {
        return Ok(None);
    };
    let (issuer, audience) = (issuer.clone(), args.pod_audience.clone());
    let cluster = PodCluster { issuer, audience, keys: keys.clone(), users: users.clone() };
    // Their content decides whose tickets a pod gets, so nobody but root may write them.
    for file in [keys, users] {
        if let Some(exposure) = vouch_trust::find_exposure(file, Access::Read).at(file.display())? {
            return Err(Failure::input(file.display(), exposure));
        }
    }
    cluster.check().map_err(|error| Failure::input("--pod-issuer", error))?;
    Ok(Some(cluster))
}

/// User and group. None for a user that this host does not have: a broker without Slurm.
fn account(name: &str) -> Option<(u32, Option<u32>)> {
    let number = name.parse().ok();
    let found = match number {
        Some(uid) => nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)),
        None => nix::unistd::User::from_name(name),
    };
    match (found.ok().flatten(), number) {
        (Some(user), _) => Some((user.uid.as_raw(), Some(user.gid.as_raw()))),
        (None, Some(uid)) => Some((uid, None)),
        (None, None) => {
            tracing::warn!(user = name, "the user of --scheduler is unknown on this host");
            None
        }
    }
}

fn trail(args: &AuditArgs, halted: Arc<AtomicBool>) -> Outcome<Option<Trail>> {
    let Some(config) = args.config() else { return Ok(None) };
    if config.rules.is_some() {
        return Err(Failure::usage("--audit-rules", "the broker records everything"));
    }
    let halt = move || halted.store(true, Ordering::Relaxed);
    let (trail, rules, account) = audit_trail::begin(&config, Arc::new(SystemDisk), &[], halt)?;
    account.started(&trail, &rules, concat!("vouch jobs broker ", env!("CARGO_PKG_VERSION")));
    Ok(Some(trail))
}
