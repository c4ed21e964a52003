//! Accepts connections, applies their limits, and runs HTTP/1.1 or HTTP/2 on each.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use vouch_daemon::rate_limit::Throttle;
use vouch_tree_client::Tree;

use crate::address_quota::{AddressQuota, ConnectionPermit};
use crate::body::Body;
use crate::limits::{
    ACCEPT_PAUSE, HANDSHAKE_TIME_MAX, HEADERS_MAX, Limits, REQUEST_LEN_MAX, STREAMS_MAX,
};
use crate::report::{Counters, Report};
use crate::respond::Responder;
use crate::revisions::Revisions;
use crate::stall::StallLimit;
use crate::tls::{self, Tls, TlsError, TlsFiles};

#[derive(Debug, Clone)]
pub struct GatewayOptions {
    pub tls: Option<TlsFiles>,
    pub limits: Limits,
    /// Limit for finding a file and its first bytes.
    pub deadline: Duration,
    pub allows_scripts: bool,
    /// Shows `index.html` for its directory.
    pub shows_index: bool,
}

pub struct Gateway {
    responder: Responder,
    tls: Option<Tls>,
    limits: Limits,
    quota: Arc<AddressQuota>,
    counters: Arc<Counters>,
    log: Arc<Log>,
}

/// Any peer can cause these warnings.
struct Log {
    throttle: Mutex<Throttle>,
    started: Instant,
}

impl Log {
    fn warn(&self, peer: IpAddr, line: &str) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Some(omitted) = self.throttle.lock().admit(peer, now_ms) {
            tracing::warn!(%peer, omitted, "{line}");
        }
    }
}

impl Gateway {
    pub fn new(tree: Arc<Tree>, options: GatewayOptions) -> Result<Arc<Self>, TlsError> {
        let GatewayOptions { tls, limits, deadline, allows_scripts, shows_index } = options;
        Ok(Arc::new(Self {
            responder: Responder {
                tree,
                revisions: Revisions::default(),
                deadline,
                allows_scripts,
                shows_index,
            },
            tls: tls.map(Tls::load).transpose()?,
            quota: AddressQuota::new(limits.connections_max, limits.address_connections_max),
            limits,
            counters: Arc::default(),
            log: Arc::new(Log {
                throttle: Mutex::new(Throttle::of_lines()),
                started: Instant::now(),
            }),
        }))
    }

    pub fn report(&self, addresses: Vec<String>) -> Arc<Report> {
        Arc::new(Report {
            addresses,
            tree: self.responder.tree.clone(),
            counters: self.counters.clone(),
            quota: self.quota.clone(),
        })
    }

    pub fn reload_certificates(&self) -> Result<(), TlsError> {
        self.tls.as_ref().map_or(Ok(()), Tls::reload)
    }

    pub async fn run(
        self: Arc<Self>,
        listeners: Vec<TcpListener>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let (sender, stopping) = watch::channel(false);
        let mut accepting = JoinSet::new();
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            accepting.spawn(self.clone().accept(listener, stopping.clone()));
        }
        stop.await;
        accepting.abort_all();
        let _ = sender.send(true);
        drop(stopping);
        // Each connection has a receiver.
        let _ = tokio::time::timeout(STOP_TIME_MAX, sender.closed()).await;
        Ok(())
    }

    async fn accept(
        self: Arc<Self>,
        listener: tokio::net::TcpListener,
        stopping: watch::Receiver<bool>,
    ) {
        loop {
            let Ok((socket, peer)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Some(place) = self.admit(peer.ip()) else { continue };
            // Responses are written whole: Nagle's algorithm would only delay them.
            let _ = socket.set_nodelay(true);
            tokio::spawn(self.clone().connection(socket, peer.ip(), place, stopping.clone()));
        }
    }

    fn admit(&self, peer: IpAddr) -> Option<ConnectionPermit> {
        let place = self.quota.take(peer);
        let counter =
            if place.is_some() { &self.counters.accepted } else { &self.counters.refused };
        Counters::add(counter, 1);
        place
    }

    async fn connection(
        self: Arc<Self>,
        socket: TcpStream,
        peer: IpAddr,
        _place: ConnectionPermit,
        stopping: watch::Receiver<bool>,
    ) {
        let socket = StallLimit::new(socket, self.limits.stall_max);
        let Some(tls) = &self.tls else { return self.http(socket, peer, stopping).await };
        match tokio::time::timeout(HANDSHAKE_TIME_MAX, tls.acceptor().accept(socket)).await {
            Ok(Ok(stream)) if tls::has_chosen_http2(&stream) => {
                self.http2(stream, peer, stopping).await
            }
            Ok(Ok(stream)) => self.http(stream, peer, stopping).await,
            _ => Counters::add(&self.counters.handshakes_failed, 1),
        }
    }

    async fn http(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: IpAddr,
        mut stopping: watch::Receiver<bool>,
    ) {
        let activity = Arc::new(Activity::default());
        let service = service_fn(async |request: Request<Incoming>| {
            Ok::<_, Infallible>(self.respond(request, peer, &activity).await)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.limits.idle_max);
        http.max_buf_size(REQUEST_LEN_MAX).max_headers(HEADERS_MAX);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let stopped = async { drop(stopping.wait_for(|is_stopping| *is_stopping).await) };
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!("connection: {error}");
        }
    }

    async fn http2(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: IpAddr,
        mut stopping: watch::Receiver<bool>,
    ) {
        let activity = Arc::new(Activity::default());
        let (gateway, seen) = (self.clone(), activity.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (gateway, activity) = (gateway.clone(), seen.clone());
            async move { Ok::<_, Infallible>(gateway.respond(request, peer, &activity).await) }
        });
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_send_buf_size(REQUEST_LEN_MAX);
        http.max_header_list_size(REQUEST_LEN_MAX as u32);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let stopped = async { drop(stopping.wait_for(|is_stopping| *is_stopping).await) };
        // A peer can leave its streams without a window: nothing is written and nothing stalls.
        let silent = activity.silence(self.limits.idle_max + 4 * self.limits.stall_max);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = silent => return,
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!("connection: {error}");
        }
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        activity: &Arc<Activity>,
    ) -> Response<CountedBody> {
        activity.touch();
        let (response, log) = self.responder.respond(&request).await;
        if let Some(line) = log {
            self.log.warn(peer, &line);
        }
        self.counters.count_response(response.status());
        tracing::debug!(method = %request.method(), path = request.uri().path(), status = response.status().as_u16());
        let (counters, log, activity) = (self.counters.clone(), self.log.clone(), activity.clone());
        response.map(|body| CountedBody { body, counters, log, activity, peer })
    }
}

/// Counts bytes given to the connection, and logs a cut body.
struct CountedBody {
    body: Body,
    counters: Arc<Counters>,
    log: Arc<Log>,
    activity: Arc<Activity>,
    peer: IpAddr,
}

/// When a connection has last asked for something, or taken a part of a response.
struct Activity(Mutex<tokio::time::Instant>);

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new(tokio::time::Instant::now()))
    }
}

impl Activity {
    fn touch(&self) {
        *self.0.lock() = tokio::time::Instant::now();
    }

    async fn silence(&self, limit: Duration) {
        loop {
            let last = *self.0.lock();
            if last.elapsed() >= limit {
                return;
            }
            tokio::time::sleep_until(last + limit).await;
        }
    }
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = std::pin::Pin::new(&mut self.body).poll_frame(context);
        if polled.is_ready() {
            self.activity.touch();
        }
        match &polled {
            Poll::Ready(Some(Ok(frame))) => Counters::add(
                &self.counters.sent_len,
                frame.data_ref().map_or(0, Bytes::len) as u64,
            ),
            Poll::Ready(Some(Err(error))) => self.log.warn(self.peer, &error.to_string()),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

const STOP_TIME_MAX: Duration = Duration::from_secs(10);
