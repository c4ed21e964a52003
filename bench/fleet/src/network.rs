use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use vouch_tree_client::{HttpRequest, HttpResponse, HttpTransport, TransportError};

use crate::events::{Events, Pending, Request};
use crate::link::Micros;
use crate::release::WebFiles;

/// Bandwidths are in bytes per second, each way.
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    pub caches: usize,
    /// One for all, or one for each cache.
    pub cache_bandwidths: Vec<f64>,
    pub cache_rtt: Duration,
    pub origin_bandwidth: f64,
    pub origin_rtt: Duration,
    pub node_bandwidth: f64,
    /// Limit of each server.
    pub requests_per_s: f64,
    /// Probability for each packet.
    pub loss: f64,
    /// The nodes' time-out of pauses; proxies share it for connection attempts.
    pub timeout: Duration,
    pub failures: Vec<CacheFailure>,
    pub slow_start: bool,
}

impl Default for NetworkOptions {
    /// Eight caches with 10 Gbit/s before nodes with 1 Gbit/s; the origin has 1 Gbit/s at 20 ms.
    fn default() -> Self {
        Self {
            caches: 8,
            cache_bandwidths: vec![10e9 / 8.0],
            cache_rtt: Duration::from_micros(500),
            origin_bandwidth: 1e9 / 8.0,
            origin_rtt: Duration::from_millis(20),
            node_bandwidth: 1e9 / 8.0,
            requests_per_s: 10_000.0,
            loss: 0.0,
            timeout: Duration::from_secs(5),
            failures: Vec::new(),
            slow_start: true,
        }
    }
}

impl NetworkOptions {
    pub(crate) fn cache_bandwidth(&self, cache: usize) -> f64 {
        let all = self.cache_bandwidths.first().copied().unwrap_or_default();
        self.cache_bandwidths.get(cache).copied().unwrap_or(all)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheFailure {
    pub cache: usize,
    pub at: Duration,
    pub lasts: Duration,
    /// The host answers nothing. Otherwise it refuses connections.
    pub is_silent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Traffic {
    pub origin_requests: u64,
    pub origin_bytes: u64,
    pub cache_requests: u64,
    pub cache_hits: u64,
    pub cache_bytes: u64,
}

pub(crate) struct Network {
    events: Mutex<Events>,
    changed: Notify,
    start: Instant,
}

impl Network {
    pub(crate) fn new(options: NetworkOptions, files: Arc<WebFiles>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            events: Mutex::new(Events::new(options, files, seed)),
            changed: Notify::new(),
            start: Instant::now(),
        })
    }

    fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    /// Orders requests of one instant by node: the order of tasks does not change the outcome.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let next = self.events.lock().next().map(|at| self.start + Duration::from_micros(at));
            tokio::select! {
                biased;
                () = async { sleep_until(next.unwrap_or(self.start)).await }, if next.is_some() => {}
                () = self.changed.notified() => sleep(INSTANT).await,
            }
            let now = self.now();
            self.events.lock().advance(now);
        }
    }

    pub(crate) fn release(&self, files: Arc<WebFiles>) {
        let now = self.now();
        self.events.lock().release(now, files);
        self.changed.notify_one();
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.events.lock().traffic()
    }

    /// `None`: directly.
    pub(crate) fn transport(
        self: &Arc<Self>,
        node: u32,
        cache: Option<usize>,
        connect_timeout: Duration,
    ) -> Arc<dyn HttpTransport> {
        Arc::new(Transport { network: Arc::clone(self), node, cache, connect_timeout })
    }
}

struct Transport {
    network: Arc<Network>,
    node: u32,
    cache: Option<usize>,
    connect_timeout: Duration,
}

impl HttpTransport for Transport {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let (reply, answer) = oneshot::channel();
            let url = &request.url;
            let path: Arc<str> = url.path().trim_start_matches('/').into();
            let request = Request {
                node: self.node,
                cache: self.cache,
                key: (
                    url.query().map_or_else(
                        || Arc::clone(&path),
                        |query| format!("{path}?{query}").into(),
                    ),
                    request.range.map(|r| (r.start, r.end)),
                ),
                path,
            };
            let now = self.network.now();
            self.network.events.lock().request(
                now,
                Pending {
                    request,
                    connect_timeout: self.connect_timeout,
                    is_connected: true,
                    reply,
                },
            );
            self.network.changed.notify_one();
            let answer = answer.await.unwrap_or_else(|_| Err("the connection was lost".into()))?;
            let body = stream::unfold(answer.body, |mut body| async move {
                body.recv().await.map(|part| (part, body))
            })
            .boxed();
            Ok(HttpResponse {
                status: answer.status,
                range_start: answer.range_start,
                date: None,
                body,
            })
        }
        .boxed()
    }
}

/// Resolution of tokio's timers.
const INSTANT: Duration = Duration::from_millis(1);
