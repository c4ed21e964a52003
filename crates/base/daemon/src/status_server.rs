//! Over HTTP/1.1: `/metrics` for Prometheus and `/healthz` for load balancers over TCP and the
//! status socket; `/status`, `/reload` and `/order` over the status socket only.
//!
//! There is no authentication: bind TCP to a protected address. Permissions protect the status
//! socket.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::status::DaemonStatus;
use crate::status_client::OrderError;
use crate::status_socket::StatusSocket;

/// The server's own thread calls these.
pub trait StatusSource: Send + Sync + 'static {
    fn metrics(&self) -> String;

    /// Health at `now_s` (seconds since 1970), and details in JSON.
    fn health(&self, now_s: u64) -> (bool, String);

    fn status(&self) -> DaemonStatus;

    /// Returns warnings, or the reason why the old configuration stays. `None` if the daemon has
    /// none. May block.
    fn reload(&self) -> Option<Result<Vec<String>, String>> {
        None
    }

    /// An order of an administrator, with the user id of the process that sent it. `None` if the
    /// daemon takes none. May block.
    fn order(&self, _order: &[u8], _by: u32) -> Option<Result<Vec<u8>, OrderError>> {
        None
    }
}

#[derive(Debug, Default)]
pub struct StatusListeners {
    pub page: Option<TcpListener>,
    pub sockets: Vec<StatusSocket>,
}

impl StatusListeners {
    pub fn is_empty(&self) -> bool {
        self.page.is_none() && self.sockets.is_empty()
    }
}

/// Runs on the calling thread until `stop` is notified.
pub fn run<S: StatusSource>(
    listeners: StatusListeners,
    source: &Arc<S>,
    stop: &Arc<Notify>,
) -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let StatusListeners { page, sockets } = &listeners;
        let mut servers = tokio::task::JoinSet::new();
        if let Some(listener) = page {
            listener.set_nonblocking(true)?;
            servers.spawn(serve(
                Listener::Tcp(tokio::net::TcpListener::from_std(listener.try_clone()?)?),
                source.clone(),
            ));
        }
        for socket in sockets {
            let listener = tokio::net::UnixListener::from_std(socket.listener.try_clone()?)?;
            servers.spawn(serve(Listener::Unix(listener), source.clone()));
        }
        stop.notified().await;
        io::Result::Ok(())
    })?;
    // A reload under way may take longer than the daemon wants to wait.
    runtime.shutdown_background();
    Ok(())
}

enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Listener {
    /// With the user of the peer, if it is a process of this machine.
    async fn accept(&self) -> io::Result<(Box<dyn Connection>, Option<u32>)> {
        Ok(match self {
            Self::Tcp(listener) => (Box::new(listener.accept().await?.0), None),
            Self::Unix(listener) => {
                let stream = listener.accept().await?.0;
                let user = stream.peer_cred()?.uid();
                (Box::new(stream), Some(user))
            }
        })
    }
}

async fn serve<S: StatusSource>(listener: Listener, source: Arc<S>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((connection, user)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let source = source.clone();
        let connection = tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| {
                let source = source.clone();
                async move { Ok::<_, Infallible>(respond(request, source, user).await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(REQUEST_WAIT_MAX)
                .max_buf_size(REQUEST_LEN_MAX);
            // A client can open another connection.
            let _ = tokio::time::timeout(
                CONNECTION_AGE_MAX,
                http.serve_connection(TokioIo::new(connection), service),
            )
            .await;
        });
        open.push_back(connection.abort_handle());
    }
}

async fn respond<S: StatusSource>(
    request: Request<Incoming>,
    source: Arc<S>,
    user: Option<u32>,
) -> Response<Full<Bytes>> {
    let is_local = user.is_some();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/reload" if is_local && *request.method() == Method::POST => reload(source).await,
        "/reload" if is_local => not_allowed("POST"),
        "/order"
            if *request.method() == Method::POST
                && let Some(user) = user =>
        {
            order(request.into_body(), source, user).await
        }
        "/order" if is_local => not_allowed("POST"),
        _ if !is_read => not_allowed("GET, HEAD"),
        "/metrics" => response(StatusCode::OK, "text/plain; version=0.0.4", source.metrics()),
        "/health" | "/healthz" => {
            let (healthy, json) = source.health(unix_now());
            response(
                if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE },
                "application/json",
                json,
            )
        }
        "/status" if is_local => match serde_json::to_string(&source.status()) {
            Ok(json) => response(StatusCode::OK, "application/json", json + "\n"),
            Err(error) => {
                response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error}\n"))
            }
        },
        "/" => response(StatusCode::OK, "text/plain", "vouch: /metrics /healthz\n".into()),
        _ => response(
            StatusCode::NOT_FOUND,
            "text/plain",
            "unknown path; use /metrics or /healthz\n".into(),
        ),
    }
}

async fn reload<S: StatusSource>(source: Arc<S>) -> Response<Full<Bytes>> {
    match tokio::task::spawn_blocking(move || source.reload()).await {
        Ok(Some(Ok(warnings))) => response(
            StatusCode::OK,
            "application/json",
            serde_json::to_string(&warnings).unwrap_or_else(|_| "[]".to_owned()),
        ),
        Ok(Some(Err(why))) => response(StatusCode::CONFLICT, "text/plain", why),
        Ok(None) => response(
            StatusCode::NOT_FOUND,
            "text/plain",
            "this daemon has nothing to reload".into(),
        ),
        Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

async fn order<S: StatusSource>(
    body: Incoming,
    source: Arc<S>,
    user: u32,
) -> Response<Full<Bytes>> {
    let Ok(body) = Limited::new(body, ORDER_LEN_MAX).collect().await else {
        return response(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "too long\n".into());
    };
    let body = body.to_bytes();
    match tokio::task::spawn_blocking(move || source.order(&body, user)).await {
        Ok(Some(Ok(answer))) => {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            response(StatusCode::OK, "application/json", answer)
        }
        Ok(Some(Err(OrderError::NotFound(why)))) => {
            response(StatusCode::UNPROCESSABLE_ENTITY, "text/plain", why)
        }
        Ok(Some(Err(error))) => response(StatusCode::CONFLICT, "text/plain", error.to_string()),
        Ok(None) => {
            response(StatusCode::NOT_FOUND, "text/plain", "this daemon takes no orders".into())
        }
        Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

fn not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut response =
        response(StatusCode::METHOD_NOT_ALLOWED, "text/plain", format!("use {allowed}\n"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Clients of one export may be many.
const ORDER_LEN_MAX: usize = 1 << 20;

const REQUEST_LEN_MAX: usize = 8 * 1024;

/// A new connection closes the oldest, so idle ones block nobody.
const CONNECTIONS_MAX: usize = 64;

const REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);

/// A reload may take two minutes.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(150);

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;
    use crate::status::DaemonKind;
    use crate::status_client;

    struct HealthySource;

    impl StatusSource for HealthySource {
        fn metrics(&self) -> String {
            "a_total 1\n".to_owned()
        }

        fn health(&self, _: u64) -> (bool, String) {
            (true, "{}\n".to_owned())
        }

        fn status(&self) -> DaemonStatus {
            DaemonStatus::of_process(DaemonKind::Mount, &"detail")
        }

        fn reload(&self) -> Option<Result<Vec<String>, String>> {
            Some(Err("line 1: a fault".to_owned()))
        }
    }

    fn with_server(listeners: StatusListeners, test: impl FnOnce()) {
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let server = std::thread::spawn(move || run(listeners, &Arc::new(HealthySource), &stopped));
        test();
        stop.notify_one();
        server.join().unwrap().unwrap();
    }

    fn request_over_tcp(address: std::net::SocketAddr, line: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(REQUEST_WAIT_MAX / 2)).unwrap();
        write!(client, "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn idle_connections_do_not_delay_answers() {
        let page = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = page.local_addr().unwrap();
        with_server(StatusListeners { page: Some(page), sockets: Vec::new() }, || {
            let idle: Vec<_> =
                (0..3 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
            let answer = request_over_tcp(address, "GET /healthz");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            drop(idle);
        });
    }

    #[test]
    fn status_and_reload_are_only_on_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mount-1.sock");
        let page = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = page.local_addr().unwrap();
        let listeners =
            StatusListeners { page: Some(page), sockets: vec![StatusSocket::bind(&path).unwrap()] };
        with_server(listeners, || {
            assert!(request_over_tcp(address, "GET /status").starts_with("HTTP/1.1 404"));
            assert!(request_over_tcp(address, "POST /reload").starts_with("HTTP/1.1 405"));
            assert_eq!(status_client::metrics(&path).unwrap(), "a_total 1\n");
            let status = status_client::ask(&path).unwrap();
            assert_eq!((status.kind, status.pid), (DaemonKind::Mount, std::process::id()));
            assert_eq!(status_client::reload(&path).unwrap_err().to_string(), "line 1: a fault");
        });
        assert!(!path.exists() && status_client::ask(&path).is_err());
    }
}
