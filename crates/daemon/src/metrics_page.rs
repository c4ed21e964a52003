//! Metrics and health page: `/metrics` for Prometheus, `/health` for load balancers. HTTP/1.1,
//! read-only, without authentication: bind it to a protected address.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// The page's own thread calls these.
pub trait PageSource: Send + Sync + 'static {
    fn metrics(&self) -> String;
    /// Health at `now_s` (seconds since 1970), and details in JSON.
    fn health(&self, now_s: u64) -> (bool, String);
}

/// Runs on the calling thread until `stop` is notified.
pub fn run<P: PageSource>(listener: TcpListener, report: &Arc<P>, stop: &Arc<Notify>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            () = serve(listener, report) => {}
            () = stop.notified() => {}
        }
        Ok(())
    })
}

async fn serve<P: PageSource>(listener: tokio::net::TcpListener, report: &Arc<P>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= PAGE_CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let report = report.clone();
        let connection = tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| {
                let response = respond(&request, &*report);
                async { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(PAGE_SECONDS_MAX).max_buf_size(REQUEST_LEN_MAX);
            // A scraper can open another connection.
            let _ = tokio::time::timeout(PAGE_SECONDS_MAX * 10, http.serve_connection(TokioIo::new(socket), service)).await;
        });
        open.push_back(connection.abort_handle());
    }
}

fn respond(request: &Request<Incoming>, report: &impl PageSource) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "read-only\n".into());
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => text(StatusCode::OK, "text/plain; version=0.0.4", report.metrics()),
        "/health" | "/healthz" => {
            let (healthy, json) = report.health(unix_now());
            text(if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, "application/json", json)
        }
        "/" => text(StatusCode::OK, "text/plain", "vouch: /metrics /health\n".into()),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "unknown path; use /metrics or /health\n".into()),
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Request line and headers; the minimum of hyper.
const REQUEST_LEN_MAX: usize = 8 * 1024;

/// A new connection closes the oldest, so idle ones block nobody.
const PAGE_CONNECTIONS_MAX: usize = 64;

const PAGE_SECONDS_MAX: Duration = Duration::from_secs(10);

/// Pause after a lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    struct HealthySource;

    impl PageSource for HealthySource {
        fn metrics(&self) -> String {
            String::new()
        }

        fn health(&self, _: u64) -> (bool, String) {
            (true, "{}\n".to_owned())
        }
    }

    #[test]
    fn idle_connections_do_not_delay_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let page = std::thread::spawn(move || run(listener, &Arc::new(HealthySource), &stopped));
        let idle: Vec<_> = (0..3 * PAGE_CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PAGE_SECONDS_MAX / 2)).unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(idle);
        stop.notify_one();
        page.join().unwrap().unwrap();
    }
}
