//! gRPC over a Unix socket.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::http;
use vouch_daemon::failure::{At as _, Outcome};
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_server::{self, StatusListeners};
use vouch_daemon::status_socket::StatusSocket;
use vouch_daemon::{private_socket, runtime_directory, service_manager};

use crate::controller::ControllerService;
use crate::copies::Pending;
use crate::csi_v1::{answer_controller, answer_identity, answer_node};
use crate::exports::ExportServer;
use crate::identity::IdentityService;
use crate::launcher::{Launch, Launcher};
use crate::locks::Locks;
use crate::mounts::Mounts;
use crate::node::NodeService;
use crate::pod_tickets::PodTickets;
use crate::provisioned::{self, ProvisionedVolumes, Snapshots};
use crate::records::Records;
use crate::report::{Calls, Report};

pub struct Driver {
    pub name: String,
    pub node_id: String,
    pub socket: PathBuf,
    /// Records and mounts. The node and the driver see it at the same path.
    pub state: PathBuf,
    pub launch: Launch,
    /// Options of each `vouch mount`.
    pub mount_options: Vec<OsString>,
    /// A tree that no pod uses is unmounted after this time.
    pub idle_max: Duration,
    pub exports: Option<ExportServer>,
    /// Socket of `vouch jobs agent` on this node.
    pub jobs_agent: PathBuf,
    pub metrics: Option<SocketAddr>,
}

/// Serves until `stop`. `announce` prints a line that says where.
pub async fn run(
    driver: Driver,
    stop: impl Future<Output = ()>,
    announce: impl FnOnce(&str),
) -> Outcome {
    let Driver {
        name,
        node_id,
        socket,
        state,
        launch,
        mount_options,
        idle_max,
        exports,
        jobs_agent,
        metrics,
    } = driver;
    DirBuilder::new().recursive(true).mode(0o700).create(&state).at(state.display())?;
    let state = state.canonicalize().at(state.display())?;
    let records = Arc::new(Records::open(state.join("published")).at("records of volumes")?);
    let launcher = Launcher::new(launch, &state, with_directories(mount_options, &state))?;
    let mounts = Mounts::open(&state, launcher, records.clone(), idle_max).at("mounts")?;
    let mounts = Arc::new(mounts);
    let made = match &exports {
        Some(exports) => {
            let made = exports.root.join(".vouch-csi");
            provisioned::claim(&made, &name).at(exports.root.display())?;
            made
        }
        None => state.join("volumes"),
    };
    let snapshots = Snapshots::open(made.join("snapshots")).at("records of the controller")?;
    let volumes = Arc::new(ProvisionedVolumes::open(made).at("records of the controller")?);
    let exports = exports.map(Arc::new);
    let tickets = PodTickets::open(jobs_agent, state.join("ended-pods.json")).at("ends of pods")?;
    let tickets = Arc::new(tickets);
    let calls = Arc::new(Calls::default());
    let report = Report {
        driver_name: name.clone(),
        node_id: node_id.clone(),
        mounts: mounts.clone(),
        volumes: volumes.clone(),
        calls: calls.clone(),
    };
    let services = Services {
        identity: Arc::new(IdentityService { driver_name: name.clone() }),
        controller: Arc::new(ControllerService {
            volumes,
            exports,
            operations: Locks::default(),
            snapshots: Arc::new(snapshots),
            pending: Pending::default(),
        }),
        node: Arc::new(NodeService {
            node_id,
            mounts: mounts.clone(),
            records,
            targets: Locks::default(),
            asked: Locks::default(),
            tickets: tickets.clone(),
        }),
        calls,
    };
    let page_stop = start_report(metrics, report)?;
    let listener = listen(&socket).at(socket.display())?;
    let maintenance = start_maintenance(mounts, tickets);
    let text = format!("serving {name} on {}", socket.display());
    announce(&text);
    service_manager::ready(&text);
    tokio::select! {
        () = stop => {}
        () = accept(listener, services) => {}
    }
    maintenance.iter().for_each(JoinHandle::abort);
    page_stop.notify_one();
    Ok(())
}

/// An agent that does not answer delays no mount.
fn start_maintenance(mounts: Arc<Mounts>, tickets: Arc<PodTickets>) -> [JoinHandle<()>; 2] {
    let healing = async move {
        mounts.upgrade().await;
        let mut work = HashMap::new();
        loop {
            mounts.maintain(&mut work);
            tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        }
    };
    let ends = async move {
        loop {
            let tickets = tickets.clone();
            let _ = tokio::task::spawn_blocking(move || tickets.retry()).await;
            tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        }
    };
    [tokio::spawn(healing), tokio::spawn(ends)]
}

/// The node's own directories for trees may have the wrong mode, or be read-only.
fn with_directories(mut options: Vec<OsString>, state: &Path) -> Vec<OsString> {
    let has = |options: &[OsString], name: &str| {
        let text = |option: &OsString| option.to_string_lossy().into_owned();
        options.iter().map(text).any(|option| option.split('=').next() == Some(name))
    };
    if !has(&options, "--state") {
        options.extend(["--state".into(), state.join("state").into()]);
    }
    if !has(&options, "--cache") && !has(&options, "--no-cache") {
        options.extend(["--cache".into(), state.join("cache").into()]);
    }
    options
}

fn start_report(metrics: Option<SocketAddr>, report: Report) -> Outcome<Arc<Notify>> {
    let page = metrics.map(|address| TcpListener::bind(address).at(address)).transpose()?;
    let socket = StatusSocket::open(DaemonKind::Csi, runtime_directory::of_process().as_deref());
    let listeners = StatusListeners { page, sockets: socket.into_iter().collect() };
    let (stop, report) = (Arc::new(Notify::new()), Arc::new(report));
    let stopped = stop.clone();
    let run = move || status_server::run(listeners, &report, &stopped);
    std::thread::Builder::new().name("status".into()).spawn(run).at("a thread")?;
    Ok(stop)
}

/// Only root, as kubelet and the sidecars are.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    crate::records::remove_if_there(path)?;
    let listener = private_socket::bind(path, 0o600)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

async fn accept(listener: UnixListener, services: Services) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let services = services.clone();
                tokio::spawn(async move {
                    serve(stream, services).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, services: Services) {
    let service =
        hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let services = services.clone();
            async move { Ok::<_, Infallible>(services.call(request.map(Body::new)).await) }
        });
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.max_concurrent_streams(CALLS_MAX);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("a connection ended: {error}");
    }
}

#[derive(Clone)]
struct Services {
    identity: Arc<IdentityService>,
    controller: Arc<ControllerService>,
    node: Arc<NodeService>,
    calls: Arc<Calls>,
}

impl Services {
    async fn call(self, request: http::Request<Body>) -> http::Response<Body> {
        let path = request.uri().path().to_owned();
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let response = match service {
            "csi.v1.Identity" => answer_identity(&*self.identity, request, REQUEST_LEN_MAX).await,
            "csi.v1.Controller" => {
                answer_controller(&*self.controller, request, REQUEST_LEN_MAX).await
            }
            "csi.v1.Node" => answer_node(&*self.node, request, REQUEST_LEN_MAX).await,
            _ => tonic::Status::unimplemented(format!("no service {service}")).into_http(),
        };
        if let Some(method) = METHODS.iter().find(|known| **known == method) {
            // A failure of a call without a stream is in the head of the response.
            let code = response
                .headers()
                .get("grpc-status")
                .and_then(|code| code.to_str().ok()?.parse().ok());
            self.calls.count(method, code.unwrap_or(0));
        }
        response
    }
}

/// Those that are counted.
const METHODS: [&str; 11] = [
    "CreateVolume",
    "DeleteVolume",
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "ControllerExpandVolume",
    "CreateSnapshot",
    "DeleteSnapshot",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeGetVolumeStats",
    "NodeGetVolumeHealth",
];

/// Kubelet and the sidecars have a few.
const CONNECTIONS_MAX: usize = 64;

const CALLS_MAX: u32 = 256;

/// As other servers of gRPC.
const REQUEST_LEN_MAX: usize = 4 << 20;

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_mounts_are_beside_the_driver_unless_given() {
        let options = |given: &str| {
            let given = given.split_whitespace().map(OsString::from).collect();
            let all = with_directories(given, Path::new("/d"));
            all.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(options(""), "--state /d/state --cache /d/cache");
        assert_eq!(options("--cache=/c --state /s"), "--cache=/c --state /s");
        assert_eq!(options("--no-cache"), "--no-cache --state /d/state");
    }
}
