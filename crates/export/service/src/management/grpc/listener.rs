//! Connections of administrators: TLS, HTTP/2, and their limits.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::body::Body;
use tonic::codegen::http;
use vouch_audit::record::Refusal;

use super::access::{RemoteAccess, Session};
use super::export_v1::answer_management;
use super::service::ManagementService;
use crate::audit::{Audit, Refused};
use crate::limits::{
    ACCEPT_PAUSE, HANDSHAKE_MAX, KEEPALIVE_INTERVAL, MANAGEMENT_AGE_MAX, MANAGEMENT_CALLS_MAX,
    MANAGEMENT_CONNECTION_CALLS_MAX, MANAGEMENT_DRAIN_MAX, MANAGEMENT_REQUEST_LEN_MAX,
};
use crate::monitoring::report::Report;

#[derive(Clone)]
struct Server {
    report: Arc<Report>,
    access: Arc<RemoteAccess>,
    service: ManagementService,
}

/// Runs on the calling thread until `stop` is notified.
pub(crate) fn run(
    listeners: Vec<TcpListener>,
    report: &Arc<Report>,
    access: &Arc<RemoteAccess>,
    stop: &Arc<Notify>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(MANAGEMENT_CALLS_MAX)
        .enable_all()
        .build()?;
    let service = ManagementService::new(report.clone());
    let server = Server { report: report.clone(), access: access.clone(), service };
    runtime.block_on(async {
        let mut accepting = JoinSet::new();
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            accepting.spawn(accept(listener, server.clone()));
        }
        stop.notified().await;
        io::Result::Ok(())
    })?;
    // A reload under way may take longer than the server wants to wait.
    runtime.shutdown_background();
    Ok(())
}

async fn accept(listener: tokio::net::TcpListener, server: Server) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let server = server.clone();
        let Some(place) = server.access.enter(peer.ip()) else {
            server.refuse(peer, "too many connections");
            continue;
        };
        tokio::spawn(async move {
            server.serve(stream, peer).await;
            drop(place);
        });
    }
}

impl Server {
    fn audit(&self) -> Option<&Audit> {
        self.report.driver.audit.as_deref()
    }

    fn refuse(&self, peer: SocketAddr, cause: &str) {
        let refused = Refused::from(Refusal::Authentication, peer);
        self.access.refuse(cause, refused, self.audit());
    }

    async fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        let acceptor = TlsAcceptor::from(self.access.live.credentials().config.clone());
        let stream = match tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return self.refuse(peer, &error.to_string()),
            Err(_) => return self.refuse(peer, "the handshake takes too long"),
        };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = certificates.iter().map(|one| one.clone().into_owned()).collect();
        self.serve_http(stream, Session { peer, chain }).await;
    }

    async fn serve_http(&self, stream: TlsStream<TcpStream>, session: Session) {
        let service = hyper::service::service_fn(|request| {
            let (server, session) = (self.clone(), session.clone());
            async move { Ok::<_, Infallible>(server.call(request, &session).await) }
        });
        let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .max_concurrent_streams(MANAGEMENT_CONNECTION_CALLS_MAX);
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = tokio::time::sleep(MANAGEMENT_AGE_MAX) => {
                connection.as_mut().graceful_shutdown();
                tokio::time::timeout(MANAGEMENT_DRAIN_MAX, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(peer = %session.peer, "a connection of an administrator ended: {error}");
        }
    }

    /// The role is checked before any of the request's body is read.
    async fn call(
        &self,
        request: http::Request<Incoming>,
        session: &Session,
    ) -> http::Response<Body> {
        match self.access.permit(session, request.uri().path(), self.audit()) {
            Err(status) => status.into_http(),
            Ok(administrator) => {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(administrator);
                answer_management(&self.service, request, MANAGEMENT_REQUEST_LEN_MAX).await
            }
        }
    }
}
