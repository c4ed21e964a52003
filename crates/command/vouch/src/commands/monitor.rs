use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_server::{self, StatusListeners};
use vouch_daemon::status_socket::StatusSocket;
use vouch_daemon::{runtime_directory, service_manager};
use vouch_monitor::{MonitorOptions, Report, Round, Sink, TreeMonitor};
use vouch_tree_client::Client;
use vouch_tree_store::Database;

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Code, Failure, Outcome};
use crate::tree_path::TreePath;
use crate::{interrupt, when};

/// Watch the logs of published trees on all replicas and witnesses, and raise an alarm on what should
/// not be there.
///
/// Reports each revision with its signing key and time, one line each. Raises an alarm on a revision
/// that the publisher's own database does not know (--expect), on a signed revision outside of the
/// log, on two histories of one log, on entries that a witness knows and no replica shows, and on a
/// log that has no new head. An alarm lasts until a
/// person removes its directory below STATE/monitor, which has the evidence. A log that has stopped
/// clears its alarm by its next head.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch monitor @pub.example.org,HOSTID --expect /srv/db --metrics 127.0.0.1:9346\n  \
                  vouch monitor --once --stale-after 1d @pub.example.org,HOSTID      in a cron job\n\n\
                  With --once, the exit code is 1 if an alarm is in force, and 6 if no replica of a tree answers."
)]
pub(crate) struct Args {
    /// The trees.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
    /// The publisher's own database (a directory or s3://BUCKET/PREFIX), which knows all revisions
    /// of its tree; may be repeated for several trees.
    #[arg(long, value_name = "DB")]
    expect: Vec<PathBuf>,
    /// Time between two looks at all replicas.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = when::parse_duration)]
    interval: Duration,
    /// Raise an alarm if a log has no new head, or with a policy no new cosignatures, for this long.
    /// The default is the end of the newest revision's validity.
    #[arg(long, value_name = "DURATION", value_parser = when::parse_duration)]
    stale_after: Option<Duration>,
    /// Look once, then end.
    #[arg(long, conflicts_with = "interval")]
    once: bool,
    /// Address of the metrics and health page.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address, conflicts_with = "once")]
    metrics: Option<SocketAddr>,
    /// Print one JSON object on each line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        !self.once
    }
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let names = args.names.iter().map(|name| TreePath::parse(name)).collect::<Outcome<Vec<_>>>()?;
    if let Some(name) = names.iter().find(|name| !name.path.is_empty()) {
        return Err(Failure::usage(&name.name, "a whole tree is monitored, not a path in it"));
    }
    let monitors = open(&args, &names)?;
    let json = args.json;
    let sink: Arc<Sink> = Arc::new(move |event| {
        let mut out = io::stdout().lock();
        if json {
            serde_json::to_writer(&mut out, event)?;
            return writeln!(out).and_then(|()| out.flush());
        }
        writeln!(out, "{event}").and_then(|()| out.flush())
    });
    if args.once {
        return client_options::block_on(look_once(&args, monitors, &sink));
    }
    serve(&args, &names, monitors, sink)
}

/// Each holds the lock of its tree.
fn open(args: &Args, names: &[TreePath]) -> Outcome<Vec<TreeMonitor>> {
    let state = args.client.state_directory().ok_or_else(|| {
        Failure::usage("--state", "missing: there is no home directory for its default")
    })?;
    let mut databases = args
        .expect
        .iter()
        .map(|path| Ok((Database::open_read(path)?.hostid(), path.clone())))
        .collect::<Outcome<Vec<_>>>()?;
    let policies = args.client.policies()?;
    let mut monitors = Vec::new();
    for TreePath { name, .. } in names {
        let found = databases.iter().position(|(hostid, _)| hostid == name.hostid());
        let options = MonitorOptions {
            name: name.clone(),
            tree: args.client.tree_options(name),
            http: args.client.http_options()?,
            time_max: args.client.answer_max(),
            state_dir: state.join("monitor"),
            expected: found.map(|found| databases.swap_remove(found).1),
            policies: policies.clone(),
            stale_after_s: args.stale_after.map(|limit| limit.as_secs()),
        };
        monitors.push(TreeMonitor::open(options, when::now_s())?);
    }
    match databases.first() {
        None => Ok(monitors),
        Some((_, path)) => Err(Failure::usage(
            format_args!("--expect {}", path.display()),
            "is the database of none of these trees",
        )),
    }
}

async fn look_once(args: &Args, monitors: Vec<TreeMonitor>, sink: &Arc<Sink>) -> Outcome {
    let client = args.client.client().await?;
    let (mut alarms, mut unreachable) = (0, Vec::new());
    for mut monitor in monitors {
        let round = monitor.round(&client, when::now_s(), &**sink).await?;
        warn(&round);
        alarms += round.status.alarms.len();
        if round.status.good_replicas == 0 {
            unreachable.push(round.failures.join("; "));
        }
    }
    client.flush().await;
    if alarms > 0 {
        // The alarms that this look has raised are printed; earlier ones are in the directory.
        eprintln!("alarms in force: {alarms}; see `alarms` in the state directory of each tree");
        return Err(Failure::silent(Code::Differs));
    }
    match unreachable.first() {
        None => Ok(()),
        Some(attempts) => {
            let attempts = attempts.clone();
            Err(vouch_tree_client::Error::Unreachable { attempts }.into())
        }
    }
}

fn warn(round: &Round) {
    for failure in &round.failures {
        tracing::warn!(tree = round.status.tree, "no use: {failure}");
    }
}

fn serve(args: &Args, names: &[TreePath], monitors: Vec<TreeMonitor>, sink: Arc<Sink>) -> Outcome {
    service_manager::connect();
    let page = args.metrics.map(|address| TcpListener::bind(address).at(address)).transpose()?;
    let address = page.as_ref().map(|page| page.local_addr().at("--metrics")).transpose()?;
    let socket =
        StatusSocket::open(DaemonKind::Monitor, runtime_directory::of_process().as_deref());
    let listeners = StatusListeners { page, sockets: socket.into_iter().collect() };
    let names = names.iter().map(|name| name.name.to_string());
    let report = Arc::new(Report::new(names, args.interval.as_secs()));
    let stop = Arc::new(Notify::new());
    let status = {
        let (report, stop) = (report.clone(), stop.clone());
        std::thread::Builder::new()
            .name("status".into())
            .spawn(move || status_server::run(listeners, &report, &stop))
            .at("a thread")?
    };
    let shown = address.map(|address| format!(", metrics on http://{address}/metrics"));
    tracing::info!("monitoring {} trees{}", monitors.len(), shown.unwrap_or_default());
    let stopped = Arc::new(Notify::new());
    let notify = stopped.clone();
    let _taken = interrupt::stop_gracefully(move || {
        service_manager::stopping();
        notify.notify_one();
    });
    service_manager::ready("monitoring");
    let outcome = client_options::block_on(async {
        let client = args.client.client().await?;
        let mut rounds = tokio::task::JoinSet::new();
        for (number, monitor) in monitors.into_iter().enumerate() {
            let (client, report, sink) = (client.clone(), report.clone(), sink.clone());
            rounds.spawn(follow(number, monitor, client, report, sink, args.interval));
        }
        stopped.notified().await;
        // A round is as good as killed: its state is on disk.
        rounds.shutdown().await;
        client.flush().await;
        Ok(())
    });
    stop.notify_one();
    let _ = status.join();
    outcome
}

async fn follow(
    number: usize,
    mut monitor: TreeMonitor,
    client: Arc<Client>,
    report: Arc<Report>,
    sink: Arc<Sink>,
    interval: Duration,
) {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(100)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match monitor.round(&client, when::now_s(), &*sink).await {
            Ok(round) => {
                warn(&round);
                report.set(number, round.status);
            }
            Err(error) => {
                tracing::error!("a round has failed: {error}");
                report.set_error(number, error.to_string());
            }
        }
    }
}
