//! Mounts or takes over, then serves until a signal, an order of the supervisor or an unmount.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use vouch_daemon::failure::{At as _, Failure};
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_server::StatusListeners;
use vouch_daemon::status_socket::StatusSocket;
use vouch_daemon::{interrupt, log_output, runtime_directory};
use vouch_tree_client::{Client, FaultObserver};
use vouch_tree_mount::{MountConfig, MountOptions, Mounted, Observer, mount_namespace, mount_tree};

use crate::audit::MountAudit;
use crate::link::Link;
use crate::plan::{MountPlan, MountSource};
use crate::report::{MountReport, ReportServer};
use crate::role::Role;
use crate::worker::{self, Orders, Task};

/// For a worker, standard input is the link to its supervisor.
pub fn run<S: MountSource>(role: Role, plan: &MountPlan, source: &S) -> Result<(), S::Error> {
    let job = match role {
        Role::Worker => Some(worker::begin(plan.is_detached)?),
        Role::Supervisor | Role::Successor | Role::Alone => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().at("runtime")?;
    match job {
        Some((link, Task::TakeOver(device, journal))) => {
            let mut companions = Companions::default();
            let outcome = runtime.block_on(async {
                let taken =
                    worker::take_over(plan, source, (device, journal), &link, &mut companions)
                        .await;
                let (mounted, client) = taken.inspect_err(|error| worker::report(&link, error))?;
                let orders = Orders::of(link).at("a thread")?;
                serve(mounted, client, Some(orders), &mut companions).await
            });
            companions.end_audit(plan, outcome)
        }
        Some((link, Task::Start(journal))) => start(&runtime, plan, source, Some((link, journal))),
        None => start(&runtime, plan, source, None),
    }
}

fn start<S: MountSource>(
    runtime: &tokio::runtime::Runtime,
    plan: &MountPlan,
    source: &S,
    supervised: Option<(Arc<Link>, Arc<File>)>,
) -> Result<(), S::Error> {
    let mut companions = Companions::default();
    companions.begin::<S::Error>(plan)?;
    let outcome = runtime.block_on(mount_and_serve(plan, source, supervised, &mut companions));
    companions.end_audit(plan, outcome)
}

#[derive(Default)]
pub(crate) struct Companions {
    pub(crate) audit: Option<Arc<MountAudit>>,
    page: Option<TcpListener>,
}

impl Companions {
    /// Begins the trail, if there is one, and the handling of signals; listens for the metrics
    /// page.
    pub(crate) fn begin<E: From<Failure> + From<vouch_daemon::audit_trail::TrailError>>(
        &mut self,
        plan: &MountPlan,
    ) -> Result<(), E> {
        interrupt::become_daemon().at("signals")?;
        self.page =
            plan.metrics.map(|address| TcpListener::bind(address).at(address)).transpose()?;
        let Some(config) = &plan.trail else {
            return Ok(interrupt::watch().at("signals")?);
        };
        let audit = Arc::new(MountAudit::begin(config, Path::new(&plan.point))?);
        let reloaded = audit.clone();
        interrupt::watch_and_reload(move || reloaded.reload()).at("signals")?;
        audit.started(&format!("{}: {} on {}", plan.program, plan.label(), plan.point.display()));
        self.audit = Some(audit);
        Ok(())
    }

    pub(crate) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.audit.clone().map(|audit| audit as Arc<dyn Observer>)
    }

    pub(crate) fn fault_observer(&self) -> Option<Arc<dyn FaultObserver>> {
        self.audit.clone().map(|audit| audit as Arc<dyn FaultObserver>)
    }

    fn end_audit<E: std::fmt::Display>(
        self,
        plan: &MountPlan,
        outcome: Result<(), E>,
    ) -> Result<(), E> {
        if let Some(audit) = self.audit {
            match &outcome {
                Ok(()) => audit.stop(plan.program),
                Err(failure) => audit.stop(&format!("{}: {failure}", plan.program)),
            }
        }
        outcome
    }
}

async fn mount_and_serve<S: MountSource>(
    plan: &MountPlan,
    source: &S,
    supervised: Option<(Arc<Link>, Arc<File>)>,
    companions: &mut Companions,
) -> Result<(), S::Error> {
    let (link, journal) = supervised.unzip();
    let stop = Arc::new(Notify::new());
    let notify = stop.clone();
    let taken = interrupt::stop_gracefully(move || notify.notify_one());
    let client = source.client(companions.fault_observer()).await?;
    let options = MountOptions { observer: companions.observer(), journal, ..plan.options.clone() };
    let mut config = MountConfig { point: plan.point.clone(), options };
    let mounted = match &plan.tree {
        Some(tree) => {
            let opened = tokio::select! {
                opened = client.open(&tree.name, &tree.options) => opened?,
                () = stop.notified() => return Err(Failure::interrupted().into()),
            };
            config.options.revision = source.revision(&opened).await?;
            mount_tree(config, opened).await?
        }
        None => mount_namespace(config, client.clone(), plan.namespace.clone()).await?,
    };
    if plan.is_detached {
        // Below an autofs mount, only the process group of automount(8) may look at a mount point
        // that is being mounted. Fails only for a group leader, which a child is not.
        let _ = rustix::process::setsid();
    }
    let orders = link.map(Orders::of).transpose().at("a thread")?;
    if let Some(orders) = &orders {
        // From now on, another worker can take over.
        orders.report_mounted(&mounted)?;
    }
    let revision = mounted
        .status()
        .trees
        .first()
        .map_or_else(String::new, |tree| format!(", revision {}", tree.revision));
    // A closed standard output must not end the mount.
    source.announce(&format!("mounted on {}{revision}\n", mounted.point().display()))?;
    if plan.is_detached {
        log_output::leave_standard_error();
    }
    drop(taken);
    serve(mounted, client, orders, companions).await
}

async fn serve<E: From<Failure> + From<vouch_tree_mount::MountError>>(
    mounted: Mounted,
    client: Arc<Client>,
    orders: Option<Orders>,
    companions: &mut Companions,
) -> Result<(), E> {
    let audit = companions.audit.clone();
    let socket = StatusSocket::open(DaemonKind::Mount, runtime_directory::of_process().as_deref());
    let report = MountReport { monitor: mounted.monitor(), audit: audit.clone() };
    let listeners =
        StatusListeners { page: companions.page.take(), sockets: socket.into_iter().collect() };
    let _server = ReportServer::start(listeners, report)?;
    let stop = Arc::new(Notify::new());
    let notify = stop.clone();
    let _taken = interrupt::stop_gracefully(move || notify.notify_one());
    if interrupt::requested() {
        // It came while this process mounted.
        stop.notify_one();
    }
    let handle = mounted.handle();
    let end_audit =
        || audit.iter().for_each(|audit| audit.stop("another process serves the mount"));
    let obeying = async {
        match orders {
            Some(mut orders) => orders.execute_orders(&handle, end_audit).await,
            None => std::future::pending().await,
        }
    };
    let ended = async {
        tokio::select! {
            () = stop.notified() => {}
            () = obeying => {}
        }
    };
    let mut halted = false;
    match &audit {
        None => mounted.serve_until(ended).await?,
        Some(audit) => {
            mounted.serve_until(async { halted = audit_until(audit, ended).await }).await?
        }
    }
    client.flush().await;
    if halted {
        let why = io::Error::other("records can't be written, and the policy is halt");
        return Err(Failure::io("--audit", why)
            .cure("free disk space, or fix the error in the log")
            .into());
    }
    Ok(())
}

/// Records omitted refusals. Returns whether the trail's policy ends the mount.
async fn audit_until(audit: &MountAudit, ended: impl Future<Output = ()>) -> bool {
    tokio::pin!(ended);
    let mut step = tokio::time::interval(OMITTED_INTERVAL);
    loop {
        tokio::select! {
            () = &mut ended => return false,
            () = audit.halted() => return true,
            _ = step.tick() => audit.record_omitted(),
        }
    }
}

/// Between records about omitted refusals.
const OMITTED_INTERVAL: Duration = Duration::from_secs(10);
