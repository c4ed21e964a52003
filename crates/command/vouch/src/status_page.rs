//! The status socket and the metrics page of a daemon.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::sync::Notify;
use vouch_daemon::runtime_directory;
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_server::{self, StatusListeners, StatusSource};
use vouch_daemon::status_socket::StatusSocket;

use crate::exit::{At as _, Outcome};

/// Listeners that no thread serves yet.
pub(crate) struct StatusPage {
    listeners: StatusListeners,
    address: Option<SocketAddr>,
}

impl StatusPage {
    pub(crate) fn open(kind: DaemonKind, metrics: Option<SocketAddr>) -> Outcome<Self> {
        let page = metrics.map(|address| TcpListener::bind(address).at(address)).transpose()?;
        let address =
            page.as_ref().map(|listener| listener.local_addr().at("--metrics")).transpose()?;
        let socket = StatusSocket::open(kind, runtime_directory::of_process().as_deref());
        Ok(Self {
            listeners: StatusListeners { page, sockets: socket.into_iter().collect() },
            address,
        })
    }

    /// For the line that a daemon prints at its start; empty without a page.
    pub(crate) fn text(&self) -> String {
        self.address
            .map_or_else(String::new, |address| format!(", metrics on http://{address}/metrics"))
    }

    /// Answers while `serve` runs.
    pub(crate) fn answer_during<S: StatusSource>(
        self,
        source: S,
        serve: impl FnOnce() -> Outcome,
    ) -> Outcome {
        let stop = Arc::new(Notify::new());
        let (stopped, source) = (stop.clone(), Arc::new(source));
        let listeners = self.listeners;
        let server = std::thread::Builder::new().name("status".into());
        let server = server
            .spawn(move || status_server::run(listeners, &source, &stopped))
            .at("a thread")?;
        let served = serve();
        stop.notify_one();
        // A failure of the page is no failure of the service.
        let _ = server.join();
        served
    }
}
