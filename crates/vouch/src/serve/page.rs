//! The second port: `/metrics` for Prometheus, `/health` for balancers and people. HTTP/1.1, read-only.
//! Deliberately has no authentication: bind it to an address that only the right ones reach.

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
use tokio::sync::{Notify, Semaphore};

use super::limits::{ACCEPT_PAUSE, PAGE_CONNECTIONS_MAX, PAGE_SECONDS_MAX};
use super::report::Report;

/// Serves the page until `stop` is notified. Runs on the calling thread alone.
pub(super) fn run(listener: TcpListener, report: &Arc<Report>, stop: &Arc<Notify>) -> io::Result<()> {
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

async fn serve(listener: tokio::net::TcpListener, report: &Arc<Report>) {
    let places = Arc::new(Semaphore::new(PAGE_CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let report = report.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(|request| {
                let response = respond(&request, &report);
                async { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(PAGE_SECONDS_MAX).max_buf_size(REQUEST_LEN_MAX);
            // A whole connection gets ten times a request's time; a scraper that keeps it open longer opens another.
            let _ = tokio::time::timeout(PAGE_SECONDS_MAX * 10, http.serve_connection(TokioIo::new(socket), service)).await;
            drop(place);
        });
    }
}

fn respond(request: &Request<Incoming>, report: &Report) -> Response<Full<Bytes>> {
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
        "/" => text(StatusCode::OK, "text/plain", "vouch serve: /metrics /health\n".into()),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "there are /metrics and /health\n".into()),
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

/// Request line and headers of a scraper or a browser; hyper takes no less.
const REQUEST_LEN_MAX: usize = 8 * 1024;
