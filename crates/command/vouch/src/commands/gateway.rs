use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::thread::CapabilitySet;
use tokio::sync::Notify;
use vouch_daemon::sandbox::{self, Access, SandboxMode};
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_server::{self, StatusListeners};
use vouch_daemon::status_socket::StatusSocket;
use vouch_daemon::{listener, runtime_directory, service_manager};
use vouch_gateway::{Gateway, GatewayOptions, Limits, Report, TlsFiles};

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Failure, Outcome};
use crate::sandbox_option::Sandbox;
use crate::tree_path::TreePath;
use crate::{interrupt, output, when};

/// Serve a published tree as web pages and files: a gateway.
///
/// For browsers, curl, wget and apt. The gateway verifies every byte before it sends it; its own
/// clients verify nothing, so they must trust the gateway and their connection to it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch gateway @pub.example.org,HOSTID --listen 127.0.0.1:8080\n  \
                  vouch gateway @pub.example.org,HOSTID --listen [::]:443 --tls-cert cert.pem --tls-key key.pem\n\n\
                  URLs:\n  /PATH               a file or directory of the newest revision\n  \
                  /@12/PATH           of revision 12\n  /@tag:NAME/PATH     of the newest revision with this tag\n  \
                  /@/PATH             of the newest revision, also if PATH begins with @\n  \
                  /@revisions         the list of revisions\n  ?format=json        as JSON, as with Accept: application/json\n\n\
                  It runs until SIGTERM or SIGINT. SIGHUP reads the certificate again."
)]
pub(crate) struct Args {
    /// The tree.
    #[arg(value_name = "NAME")]
    name: OsString,
    /// Address to listen on; may be repeated. Without it, the sockets of the service manager
    /// (systemd.socket(5)), else [::]:8080.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    listen: Vec<SocketAddr>,
    /// Certificate and its issuers in PEM: serve HTTPS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Address of the metrics and health page.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    metrics: Option<SocketAddr>,
    /// Most connections.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_max as u32, value_parser = clap::value_parser!(u32).range(1..))]
    connections_max: u32,
    /// Most connections of one address; an IPv6 /64 network counts as one. Raise it to the value of
    /// --connections-max behind a reverse proxy.
    #[arg(long, value_name = "N", default_value_t = Limits::default().address_connections_max as u32, value_parser = clap::value_parser!(u32).range(1..))]
    address_connections_max: u32,
    /// Close a connection that sends no request for this long.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = when::parse_duration)]
    idle_max: Duration,
    /// Close a connection that accepts less than 8 KiB of a response in this time.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = when::parse_duration)]
    stall_max: Duration,
    /// Let HTML files of the tree run scripts. They then act as pages of the gateway's host.
    #[arg(long)]
    allow_scripts: bool,
    /// List also directories that have an index.html, instead of showing this file.
    #[arg(long)]
    no_index: bool,
    /// Sandbox: Landlock restricts writing to the cache and state directories, and reading to
    /// system files.
    #[arg(long, value_name = "MODE", default_value = "best-effort")]
    sandbox: Sandbox,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let name = TreePath::parse(&args.name)?;
    if !name.path.is_empty() {
        return Err(Failure::usage("NAME", "a whole tree is served, not a path in it"));
    }
    service_manager::connect();
    let listeners = listeners(&args.listen)?;
    let addresses: Vec<String> = listeners
        .iter()
        .filter_map(|one| one.local_addr().ok())
        .map(|address| address.to_string())
        .collect();
    let metrics = args.metrics.map(|address| TcpListener::bind(address).at(address)).transpose()?;
    let page_address =
        metrics.as_ref().map(|listener| listener.local_addr().at("--metrics")).transpose()?;
    let socket =
        StatusSocket::open(DaemonKind::Gateway, runtime_directory::of_process().as_deref());
    let status = StatusListeners { page: metrics, sockets: socket.into_iter().collect() };
    enter_sandbox(&args)?;
    let gateway_slot: Arc<OnceLock<Arc<Gateway>>> = Arc::default();
    let reloaded = gateway_slot.clone();
    interrupt::watch_and_reload(move || reload(reloaded.get())).at("signals")?;
    let page_stop = Arc::new(Notify::new());
    client_options::block_on(async {
        let stop = Arc::new(Notify::new());
        let notify = stop.clone();
        let _taken = interrupt::stop_gracefully(move || {
            service_manager::stopping();
            notify.notify_one();
        });
        let client = args.client.client().await?;
        let tree_options = args.client.tree_options(&name.name);
        let tree = tokio::select! {
            opened = client.open(&name.name, &tree_options) => opened?,
            () = stop.notified() => return Err(Failure::interrupted()),
        };
        let gateway = Gateway::new(tree, options(&args))
            .map_err(|error| Failure::input("--tls-cert", error))?;
        let _ = gateway_slot.set(gateway.clone());
        let page = start_status(status, gateway.report(addresses.clone()), &page_stop)?;
        let text = format!("serving on {}", addresses.join(", "));
        let shown = page_address
            .map_or_else(String::new, |address| format!(", metrics on http://{address}/metrics"));
        output::text(&format!("{text}{shown}\n"))?;
        service_manager::ready(&text);
        let served = gateway.run(listeners, stop.notified()).await.at("sockets");
        page_stop.notify_one();
        let _ = page.join();
        client.flush().await;
        served
    })
}

fn options(args: &Args) -> GatewayOptions {
    let tls = args
        .tls_cert
        .clone()
        .zip(args.tls_key.clone())
        .map(|(certificates, key)| TlsFiles { certificates, key });
    GatewayOptions {
        tls,
        limits: Limits {
            connections_max: args.connections_max as usize,
            address_connections_max: args.address_connections_max as usize,
            idle_max: args.idle_max,
            stall_max: args.stall_max,
        },
        deadline: args.client.answer_max(),
        allows_scripts: args.allow_scripts,
        shows_index: !args.no_index,
    }
}

fn listeners(addresses: &[SocketAddr]) -> Outcome<Vec<TcpListener>> {
    let mut listeners = service_manager::listeners().at("passed sockets")?;
    let default_addresses = [SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT_DEFAULT))];
    let addresses = if addresses.is_empty() && listeners.is_empty() {
        &default_addresses[..]
    } else {
        addresses
    };
    for address in addresses {
        listeners.extend(listener::bind(*address, 1).at(address)?);
    }
    Ok(listeners)
}

fn start_status(
    listeners: StatusListeners,
    report: Arc<Report>,
    stop: &Arc<Notify>,
) -> Outcome<std::thread::JoinHandle<io::Result<()>>> {
    let stop = stop.clone();
    std::thread::Builder::new()
        .name("status".into())
        .spawn(move || status_server::run(listeners, &report, &stop))
        .at("a thread")
}

fn reload(gateway: Option<&Arc<Gateway>>) {
    match gateway.map(|gateway| gateway.reload_certificates()) {
        Some(Ok(())) => tracing::info!("the certificate was read again"),
        Some(Err(error)) => tracing::error!("the old certificate stays in force: {error}"),
        None => {}
    }
}

/// The gateway reads system files (host names, authorities, name service), and writes only its
/// cache and state.
fn enter_sandbox(args: &Args) -> Outcome {
    let mode = SandboxMode::from(args.sandbox);
    let write = args.client.writable_directories();
    if mode != SandboxMode::Off {
        for dir in &write {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).at(dir.display())?;
        }
    }
    let given = args
        .tls_cert
        .iter()
        .chain(&args.tls_key)
        .map(|file| file.parent().filter(|dir| !dir.as_os_str().is_empty()));
    let mut read: Vec<PathBuf> =
        given.map(|dir| dir.unwrap_or(Path::new(".")).to_owned()).collect();
    read.extend(SYSTEM_FILES.iter().map(PathBuf::from));
    read.extend(args.client.statement_dirs().iter().cloned());
    read.extend(
        ["SSL_CERT_FILE", "SSL_CERT_DIR"]
            .into_iter()
            .filter_map(std::env::var_os)
            .map(PathBuf::from),
    );
    read.retain(|path| path.exists());
    let read: Vec<&Path> = read.iter().map(PathBuf::as_path).collect();
    let write: Vec<&Path> = write.iter().map(PathBuf::as_path).collect();
    let access =
        Access { read: &read, write: &write, connects: true, capabilities: CapabilitySet::empty() };
    sandbox::enter(&access, mode)
        .map_err(|error| Failure::input("--sandbox", error).cure("--sandbox off runs without it"))
}

const SYSTEM_FILES: [&str; 8] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/run/nscd",
    "/dev/urandom",
    "/proc/self",
];

const PORT_DEFAULT: u16 = 8080;
