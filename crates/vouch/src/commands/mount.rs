//! `vouch mount`: mounts published trees.

mod audit;
mod link;
mod report;
mod role;
mod supervisor;
pub(crate) mod upgrade_socket;
mod worker;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use vouch_daemon::runtime_directory;
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_server::StatusListeners;
use vouch_daemon::status_socket::StatusSocket;
use vouch_tree_client::{Client, FaultObserver};
use vouch_tree_mount::{MountConfig, MountOptions, Mounted, NamespaceTrees, Observer, Passthrough, XattrMode, mount_namespace, mount_tree};

use crate::audit_options::AuditArgs;
use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Cause, Code, Failure, Outcome};
use crate::revision_options::RevisionArgs;
use crate::tree_path::TreePath;
use crate::{config, interrupt, logging, output, size};
use audit::MountAudit;
use link::Link;
use report::{MountReport, ReportServer};
use role::Role;
use supervisor::Supervisor;
use worker::{Orders, Task};

/// Mount a published tree, or the namespace of all trees.
///
/// All data is verified up to the key in the name. A new revision appears without a remount; open
/// files stay readable. While no replica is reachable, cached and valid data is still served; other
/// data gives an error within --timeout and never hangs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch mount @pub.example.org,HOSTID /mnt\n  vouch mount --background @pub.example.org,HOSTID /mnt --replica mirror.example\n  \
                  vouch mount --tag v1.2 @pub.example.org,HOSTID /mnt   stays at that revision\n  \
                  vouch mount --auto /vouch          then: ls /vouch/@pub.example.org,HOSTID/\n\n\
                  With --background the log goes to the system's log once it is mounted, unless --log-file is given. In the foreground it runs until Ctrl-C, SIGTERM or `vouch umount DIR`. With --audit, SIGHUP reads the audit rules anew."
)]
pub(crate) struct Args {
    /// The tree, or with --auto the mount point. A mount point alone is a tree of the configuration.
    #[arg(value_name = "NAME")]
    first: OsString,
    /// The mount point.
    #[arg(value_name = "DIR")]
    second: Option<PathBuf>,
    /// Mount the whole namespace: @HOST[:PORT],HOSTID appears when it is used, and links between
    /// trees work.
    #[arg(long, conflicts_with = "second")]
    auto: bool,
    /// Return when mounted, and continue in the background.
    #[arg(long, short)]
    background: bool,
    /// Set by the command itself for the background process.
    #[arg(long, hide = true)]
    detached: bool,
    /// Set by mount.vouch: print nothing, and succeed if this tree is mounted here already.
    #[arg(long, hide = true)]
    helper: bool,
    /// Serve in this process, without a supervisor. The mount then ends with the process, and
    /// `vouch upgrade` cannot replace it.
    #[arg(long)]
    no_supervisor: bool,
    /// Set by the command itself for the processes that it starts.
    #[arg(long, hide = true, default_value = "supervisor")]
    role: Role,
    #[command(flatten)]
    revision: RevisionArgs,
    /// Give other users access. Default for root; other users need user_allow_other in
    /// /etc/fuse.conf.
    #[arg(long, conflicts_with = "only_me")]
    allow_other: bool,
    /// Give no other user access, even if root mounts.
    #[arg(long)]
    only_me: bool,
    /// Honour set-user-id bits: this trusts the publisher with privileges.
    #[arg(long)]
    suid: bool,
    /// Honour device nodes.
    #[arg(long)]
    dev: bool,
    /// Forbid execution.
    #[arg(long)]
    noexec: bool,
    /// Extended attributes: auto shows them unless the tree has none. `off` also turns off
    /// user.vouch.*.
    #[arg(long, value_name = "MODE", default_value = "auto")]
    xattrs: Xattrs,
    /// Threads that answer the kernel; the default is one for each core, 2 to 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Read-ahead of the kernel.
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = size::parse)]
    read_ahead: u64,
    /// Let the kernel itself read large, wholly cached files (FUSE passthrough): as fast as local
    /// files, but each open asks the daemon. `auto` stops when opens of small files cost more than
    /// is gained. Needs root, a disk cache and kernel support; otherwise acts as `never`. A file
    /// opened this way stays readable after the tree has expired or was revoked; use `never` if
    /// that is not acceptable. SECURITY.md says what protects the copies.
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    passthrough: PassthroughArg,
    /// Address of the metrics and health page. The same is on the status socket, see vouch-status(1).
    #[arg(long, alias = "audit-metrics", value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Xattrs {
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PassthroughArg {
    Never,
    Auto,
    Always,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let (tree, point) = match (&args.second, args.auto) {
        (Some(point), false) => (Some(TreePath::parse(&args.first)?), point.clone()),
        (None, true) => (None, PathBuf::from(&args.first)),
        _ => match config::loaded().mounted_at(Path::new(&args.first)) {
            Some((_, entry)) => (Some(TreePath { name: entry.name.clone(), path: Vec::new() }), PathBuf::from(&args.first)),
            None => {
                return Err(
                    Failure::usage("DIR", "missing").cure("give the mount point, or `dir` in [tree.NAME.mount] of the configuration")
                );
            }
        },
    };
    if args.background && !args.detached {
        let label = tree.as_ref().map_or_else(|| config::AUTO.to_owned(), |tree| tree.name.to_string());
        if args.helper && vouch_tree_mount::is_mounted(&label, &point) {
            return Ok(());
        }
        interrupt::watch().at("signals")?;
        return detach(args.helper);
    }
    let (is_detached, is_audited) = (args.detached, args.audit.config().is_some());
    let job = match args.role {
        Role::Supervisor if !args.no_supervisor => return Supervisor::start(is_detached, is_audited)?.run(),
        Role::Successor => return Supervisor::resume(is_detached, is_audited)?.run(),
        Role::Worker => Some(worker::begin(&args)?),
        Role::Supervisor | Role::Alone => None,
    };
    if args.auto && !args.revision.is_newest() {
        return Err(Failure::usage("--auto", "always shows the newest revisions").cure("mount one tree to choose its revision"));
    }
    if tree.as_ref().is_some_and(|tree| !tree.path.is_empty()) {
        return Err(Failure::usage("NAME", "a whole tree is mounted, not a path in it"));
    }
    let label = tree.as_ref().map_or_else(|| "all trees".into(), |tree| tree.name.to_string());
    let detail = format!("{VERSION}: {label} on {}", point.display());
    let page = parking_lot::Mutex::new(None);
    let mut audit = None;
    let mut begin_audit = || -> Outcome<Option<Arc<MountAudit>>> {
        (audit, *page.lock()) = begin_audit(&args, &point, &detail)?;
        Ok(audit.clone())
    };
    let outcome = match job {
        Some((link, Task::TakeOver(device, journal))) => client_options::block_on(async {
            let taken = worker::take_over(&args, tree.as_ref(), (device, journal), &link, begin_audit).await;
            let (mounted, client, audit) = taken.inspect_err(|failure| worker::report(&link, failure))?;
            let orders = Orders::of(link).at("a thread")?;
            let page = page.lock().take();
            serve(mounted, client, audit.as_ref(), Some(orders), page).await
        }),
        other => {
            let audit = begin_audit()?;
            let supervised = other.and_then(|(link, task)| match task {
                Task::Start(journal) => Some((link, journal)),
                Task::TakeOver(..) => None,
            });
            let page = page.lock().take();
            client_options::block_on(mount_and_serve(&args, tree, point.clone(), audit.as_ref(), supervised, page))
        }
    };
    if let Some(audit) = audit {
        match &outcome {
            Ok(()) => audit.stop(VERSION),
            Err(failure) => audit.stop(&format!("{VERSION}: {failure}")),
        }
    }
    outcome
}

/// Begins the trail, if there is one, and the handling of signals; listens for the metrics page.
fn begin_audit(args: &Args, point: &Path, detail: &str) -> Outcome<(Option<Arc<MountAudit>>, Option<TcpListener>)> {
    let page = args.metrics.map(|address| TcpListener::bind(address).at(address)).transpose()?;
    let Some(config) = args.audit.config() else {
        interrupt::watch().at("signals")?;
        return Ok((None, page));
    };
    let audit = Arc::new(MountAudit::begin(&config, point)?);
    let reloaded = audit.clone();
    interrupt::watch_and_reload(move || reloaded.reload()).at("signals")?;
    audit.started(detail);
    Ok((Some(audit), page))
}

async fn mount_and_serve(
    args: &Args,
    tree: Option<TreePath>,
    point: PathBuf,
    audit: Option<&Arc<MountAudit>>,
    supervised: Option<(Arc<Link>, Arc<File>)>,
    page: Option<TcpListener>,
) -> Outcome {
    let (link, journal) = supervised.unzip();
    let stop = Arc::new(Notify::new());
    let notify = stop.clone();
    let taken = interrupt::take(move || notify.notify_one());
    let client = args.client.client_before(audit.map(|audit| audit.clone() as Arc<dyn FaultObserver>)).await?;
    let observer = audit.map(|audit| audit.clone() as Arc<dyn Observer>);
    let mut config = MountConfig { point, options: MountOptions { observer, journal, ..mount_options(args)? } };
    let mounted = match tree {
        Some(tree) => {
            let options = args.client.tree_options(&tree.name);
            let opened = tokio::select! {
                opened = client.open(&tree.name, &options) => opened?,
                () = stop.notified() => return Err(Failure::interrupted()),
            };
            if !args.revision.is_newest() {
                config.options.revision = Some(args.revision.find(&opened).await?);
            }
            mount_tree(config, opened).await?
        }
        None => mount_namespace(config, client.clone(), namespace_trees(&args.client)).await?,
    };
    if args.detached {
        // Not before: below an autofs mount, only the process group of automount(8) may look at a
        // mount point that is being mounted. Fails only for a group leader, which a child is not.
        let _ = rustix::process::setsid();
    }
    let revision = mounted.status().trees.first().map_or_else(String::new, |tree| format!(", revision {}", tree.revision));
    // A closed standard output must not end the mount.
    output::text(&format!("mounted on {}{revision}\n", mounted.point().display()))?;
    if args.detached {
        logging::leave_standard_error();
    }
    let orders = link.map(Orders::of).transpose().at("a thread")?;
    if let Some(orders) = &orders {
        orders.report_mounted(&mounted)?;
    }
    drop(taken);
    serve(mounted, client, audit, orders, page).await
}

/// Serves until a signal, an order of the supervisor or an unmount ends the mount.
async fn serve(
    mounted: Mounted,
    client: Arc<Client>,
    audit: Option<&Arc<MountAudit>>,
    orders: Option<Orders>,
    page: Option<TcpListener>,
) -> Outcome {
    let socket = StatusSocket::open(DaemonKind::Mount, runtime_directory::of_process().as_deref());
    let report = MountReport { monitor: mounted.monitor(), audit: audit.cloned() };
    let _server = ReportServer::start(StatusListeners { page, sockets: socket.into_iter().collect() }, report)?;
    let stop = Arc::new(Notify::new());
    let notify = stop.clone();
    let _taken = interrupt::take(move || notify.notify_one());
    if interrupt::requested() {
        // It came while this process mounted.
        stop.notify_one();
    }
    let handle = mounted.handle();
    let end_audit = || audit.iter().for_each(|audit| audit.stop("another process serves the mount"));
    let obeying = async {
        match orders {
            Some(mut orders) => orders.obey(&handle, end_audit).await,
            None => std::future::pending().await,
        }
    };
    let ended = async {
        tokio::select! {
            () = stop.notified() => {}
            () = obeying => {}
        }
    };
    let Some(audit) = audit else {
        mounted.serve_until(ended).await?;
        client.flush().await;
        return Ok(());
    };
    let mut halted = false;
    let until = async {
        tokio::pin!(ended);
        let mut step = tokio::time::interval(LEFT_OUT_STEP);
        loop {
            tokio::select! {
                () = &mut ended => return,
                () = audit.halted() => {
                    halted = true;
                    return;
                }
                _ = step.tick() => audit.record_omitted(),
            }
        }
    };
    mounted.serve_until(until).await?;
    client.flush().await;
    if halted {
        let why = io::Error::other("records can't be written, and the policy is halt");
        return Err(Failure::new("--audit", Cause::Io(why)).cure("free disk space, or fix the error in the log"));
    }
    Ok(())
}

/// Short names and replicas of the trees of a namespace.
fn namespace_trees(client: &ClientArgs) -> NamespaceTrees {
    let trees = &config::loaded().trees;
    NamespaceTrees {
        options: client.common_tree_options(),
        by_key: trees.values().map(|tree| (*tree.name.hostid(), client.tree_options(&tree.name))).collect(),
        short_names: trees.iter().map(|(short, tree)| (short.clone(), tree.name.clone())).collect(),
    }
}

fn mount_options(args: &Args) -> Outcome<MountOptions> {
    Ok(MountOptions {
        allow_other: if args.allow_other { Some(true) } else { args.only_me.then_some(false) },
        suid: args.suid,
        dev: args.dev,
        exec: !args.noexec,
        threads: args.threads.map(usize::from),
        read_ahead_bytes: u32::try_from(args.read_ahead).map_err(|_| Failure::usage("--read-ahead", "is more than 4G"))?,
        xattrs: match args.xattrs {
            Xattrs::Auto => XattrMode::Auto,
            Xattrs::On => XattrMode::On,
            Xattrs::Off => XattrMode::Off,
        },
        passthrough: match args.passthrough {
            PassthroughArg::Never => Passthrough::Never,
            PassthroughArg::Auto => Passthrough::Auto,
            PassthroughArg::Always => Passthrough::Always,
        },
        // One system call may need several operations of the client.
        deadline: args.client.timeout().saturating_mul(2),
        ..MountOptions::default()
    })
}

const VERSION: &str = concat!("vouch mount ", env!("CARGO_PKG_VERSION"));

/// Interval of records about omitted refusals.
const LEFT_OUT_STEP: Duration = Duration::from_secs(10);

/// Arguments of the background process. There are no options after `--`.
fn arguments_behind(ours: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ours.collect();
    let at = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    arguments.insert(at, "--detached".into());
    arguments
}

/// Starts this command again and waits until it has mounted. A fork would lose the
/// threads.
fn detach(is_silent: bool) -> Outcome {
    let program = std::env::current_exe().at("this program")?;
    let mut command = Command::new(program);
    command
        .args(arguments_behind(config::arguments().into_iter().skip(1)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().at("the mount behind")?;
    // Passes on its messages until it has mounted. Its pipes then close, so that callers can wait
    // for the end of our output; later messages go to the log.
    let words = child.stderr.take().map(|mut words| std::thread::spawn(move || io::copy(&mut words, &mut io::stderr())));
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).at("the mount behind")?;
    }
    if !line.is_empty() {
        return if is_silent { Ok(()) } else { output::text(&line) };
    }
    let status = child.wait().at("the mount behind")?;
    if let Some(words) = words {
        // Print its last messages before ours.
        let _ = words.join();
    }
    Err(match status.code().and_then(Code::from_number) {
        Some(code) => Failure::silent(code),
        None => Failure::new("the mount behind", Cause::Io(io::Error::other(format!("ended with {status}")))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passthrough_default_is_automatic() {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: Args,
        }
        let chosen = |more: &[&str]| Command::parse_from([&["mount", "NAME", "DIR"], more].concat()).args.passthrough;
        assert_eq!(chosen(&[]), PassthroughArg::Auto);
        assert_eq!(chosen(&["--passthrough"]), PassthroughArg::Auto);
        assert_eq!(chosen(&["--passthrough=never"]), PassthroughArg::Never);
    }

    #[test]
    fn background_option_precedes_double_dash() {
        let behind = |line: &str| arguments_behind(line.split(' ').map(OsString::from)).join(std::ffi::OsStr::new(" "));
        assert_eq!(behind("mount --background NAME DIR"), "mount --background NAME DIR --detached");
        assert_eq!(behind("mount --background -- NAME DIR"), "mount --background --detached -- NAME DIR");
    }
}
