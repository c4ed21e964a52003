//! Options of the driver for Kubernetes, which is in `vouch_csi`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use vouch_csi::{Driver, ExportServer, Launch};
use vouch_daemon::service_manager;

use crate::cli::Global;
use crate::client_options;
use crate::exit::{At as _, Outcome};
use crate::{interrupt, output, when};

/// Serve trees and exports as volumes of Kubernetes: a driver of the Container Storage Interface.
///
/// The pods of a node share one mount of each tree. Its process outlives the driver. docs/kubernetes.md
/// has the manifests and the attributes of volumes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch csi --node-id node1\n  vouch csi --node-id node1 -- --cache-quota 50G --replica mirror.example\n  \
                  vouch csi --node-id 10.0.0.1 --driver-name exports.csi.vouch --export-root /srv/volumes\n\n\
                  It runs until SIGTERM or SIGINT. Mounts continue."
)]
pub(crate) struct Args {
    /// The socket of the driver.
    #[arg(long, value_name = "PATH", env = "CSI_ENDPOINT", default_value = "/csi/csi.sock", value_parser = socket_path)]
    socket: PathBuf,
    /// Name of this node: its name in Kubernetes, and for exports its address.
    #[arg(long, value_name = "ID", env = "VOUCH_NODE_ID")]
    node_id: String,
    /// Name of the driver, as in CSIDriver, StorageClass and PersistentVolume.
    #[arg(long, value_name = "NAME", default_value = "csi.vouch", value_parser = driver_name)]
    driver_name: String,
    /// Directory of the driver's records and of the mounts of trees. The node must see it at the same
    /// path, and it must outlive the driver's pod.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/vouch/csi")]
    driver_state: PathBuf,
    /// The way in which a mount's process outlives the driver: `process` for a driver that runs on the node itself,
    /// `systemd` for a scope of the node's systemd (needs hostPID and privileges). `auto` takes systemd
    /// in a container of a node that has it.
    #[arg(long, value_name = "WAY", default_value = "auto")]
    launch: LaunchArg,
    /// Unmount a tree that no pod has used for this time.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = when::parse_duration)]
    idle_max: Duration,
    /// Make volumes as directories here, which `vouch export` on this machine serves.
    #[arg(long, value_name = "DIR")]
    export_root: Option<PathBuf>,
    /// Export list that the driver writes, and that `vouch export` reads beside its own.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/exports.d/vouch-csi.exports",
        requires = "export_root"
    )]
    export_list: PathBuf,
    /// Control socket of `vouch export`, in its state directory.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/var/lib/vouch/export/control.sock",
        requires = "export_root"
    )]
    export_socket: PathBuf,
    /// Enforce capacity: each export has quota=, see vouch-export(1).
    #[arg(long, requires = "export_root")]
    quota: bool,
    /// Socket of `vouch jobs agent` on this node, for volumes with podTickets.
    #[arg(long, value_name = "PATH", default_value = super::jobs::AGENT_SOCKET)]
    jobs_agent: PathBuf,
    /// Address of the metrics and health page. The same is on the status socket, see vouch-status(1).
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    metrics: Option<SocketAddr>,
    /// Options of each `vouch mount`, after `--`.
    #[arg(last = true, value_name = "MOUNT-OPTION")]
    mount_options: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LaunchArg {
    Auto,
    Process,
    Systemd,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    service_manager::connect();
    vouch_daemon::interrupt::become_daemon().at("signals")?;
    interrupt::watch().at("signals")?;
    let exports = args
        .export_root
        .map(|root| -> Outcome<ExportServer> {
            let shown = root.display().to_string();
            let root = root.canonicalize().at(&shown)?;
            ExportServer::new(root, args.export_list, args.export_socket, args.quota).at(shown)
        })
        .transpose()?;
    let driver = Driver {
        name: args.driver_name,
        node_id: args.node_id,
        socket: args.socket,
        state: args.driver_state,
        launch: match args.launch {
            LaunchArg::Auto => Launch::detect(),
            LaunchArg::Process => Launch::Process,
            LaunchArg::Systemd => Launch::Systemd,
        },
        mount_options: args.mount_options,
        idle_max: args.idle_max,
        exports,
        jobs_agent: args.jobs_agent,
        metrics: args.metrics,
    };
    client_options::block_on(async {
        let stop = Arc::new(Notify::new());
        let notify = stop.clone();
        let _taken = interrupt::stop_gracefully(move || {
            service_manager::stopping();
            notify.notify_one();
        });
        // A closed standard output is no reason to end.
        vouch_csi::run(driver, stop.notified(), |line| drop(output::text(&format!("{line}\n"))))
            .await?;
        Ok(())
    })
}

/// Also as sidecars and other drivers write it.
fn socket_path(text: &str) -> Result<PathBuf, String> {
    let path =
        text.strip_prefix("unix:").map_or(text, |path| path.strip_prefix("//").unwrap_or(path));
    if path.starts_with('/') {
        Ok(path.into())
    } else {
        Err("write the absolute path of a Unix socket".to_owned())
    }
}

/// Container Storage Interface, GetPluginInfoResponse.
fn driver_name(text: &str) -> Result<String, String> {
    let is_edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    if text.len() <= 63
        && is_edge(text.bytes().next())
        && is_edge(text.bytes().next_back())
        && text.bytes().all(is_inner)
    {
        Ok(text.to_owned())
    } else {
        Err("write a domain name of at most 63 characters".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn socket_is_taken_as_sidecars_write_it() {
        for text in ["/csi/csi.sock", "unix:///csi/csi.sock", "unix:/csi/csi.sock"] {
            assert_eq!(socket_path(text), Ok("/csi/csi.sock".into()));
        }
        assert!(socket_path("tcp://127.0.0.1:1").is_err() && socket_path("csi.sock").is_err());
    }

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn manifests_have_valid_arguments() {
        let manifest = include_str!("../../../../../packaging/kubernetes/trees.yaml");
        let chart =
            include_str!("../../../../../packaging/helm/vouch-csi/templates/controller.yaml");
        for text in [manifest, chart] {
            let lines = text.lines().skip_while(|line| line.trim() != "args:").skip(2);
            let lines = lines.map(str::trim).take_while(|line| line.starts_with(['-', '{']));
            let arguments = lines.filter_map(|line| line.strip_prefix("- "));
            // A value of the chart is one word.
            let filled = |text: &str| match (text.find("{{"), text.find("}}")) {
                (Some(start), Some(end)) => format!("{}x{}", &text[..start], &text[end + 2..]),
                _ => text.to_owned(),
            };
            let arguments: Vec<String> = arguments.map(filled).collect();
            assert!(arguments.len() > 4, "{arguments:?}");
            let parsed = Command::try_parse_from(
                ["csi"].into_iter().chain(arguments.iter().map(String::as_str)),
            );
            assert!(parsed.is_ok(), "{arguments:?}: {:?}", parsed.err());
        }
    }

    #[test]
    fn driver_name_is_a_domain() {
        assert!(driver_name("exports.csi.vouch").is_ok());
        for bad in ["", ".a", "a_", "a b", &"a".repeat(64)] {
            assert!(driver_name(bad).is_err(), "{bad}");
        }
    }
}
