//! Requests to one web server, directly or through proxies.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use reqwest::{StatusCode, Url};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use vouch_tree_store::{RemoteFile, RemoteView};

use super::options::HttpOptions;
use super::proxy_script::{self, ProxyScript};
use super::transport::{HttpRequest, HttpResponse, HttpTransport, Network};
use super::url::without_userinfo;
use crate::clock::Clock;
use crate::connector::TransportError;
use crate::{Error, Result};

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{0}: {1}")]
    NotFound(String, String),
    /// An answer that cannot be this file: a cache may keep it.
    #[error("{0}: {1}")]
    WrongObject(String, Arc<str>),
    #[error("{0}: {1}")]
    Other(String, Arc<str>),
}

pub(super) struct Fetcher {
    base: Url,
    routes: Vec<RouteSource>,
    requests: Semaphore,
    received: AtomicU64,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

pub(super) struct RangeRequest<'a> {
    pub(super) path: &'a str,
    /// The file changes: its URL has the minute, for caches that keep it too long.
    is_mutable: bool,
    /// No cache must answer from what it keeps.
    pub(super) is_anew: bool,
    pub(super) range: Option<Range<u64>>,
    /// Of the whole file.
    len: RangeInclusive<u64>,
    /// A file that begins with other bytes is an error, found before the rest arrives.
    magic: &'static [u8],
}

impl<'a> RangeRequest<'a> {
    /// `range`: not empty. Caches keep whole small files also where they keep no parts.
    pub(super) fn part(file: &'a RemoteFile, range: &Range<u64>, is_anew: bool) -> Self {
        let range = (*range != (0..file.len)).then(|| range.clone());
        Self {
            path: &file.path,
            is_mutable: false,
            is_anew,
            range,
            len: file.len..=file.len,
            magic: b"",
        }
    }

    /// A file that never changes, of a length that is not known.
    pub(super) fn whole(path: &'a str, len_max: u64) -> Self {
        let (is_mutable, is_anew, magic) = (false, false, &b""[..]);
        Self { path, is_mutable, is_anew, range: None, len: 1..=len_max, magic }
    }
}

impl RangeRequest<'static> {
    fn manifest(is_anew: bool) -> Self {
        let (path, magic) = (RemoteView::MANIFEST, RemoteView::MANIFEST_MAGIC);
        Self { path, is_mutable: true, is_anew, range: None, len: 0..=MANIFEST_LEN_MAX, magic }
    }
}

pub(super) trait Sink: Send {
    /// `len`: of the body, if known. Returns how many bytes an earlier, failed response has
    /// brought.
    fn begin(&mut self, len: Option<u64>) -> u64;

    fn take(&mut self, chunk: Bytes);

    /// The response was another object: the next one starts again.
    fn discard(&mut self);
}

/// Keeps nothing of a failed response: the next may be of another version.
impl Sink for BytesMut {
    fn begin(&mut self, len: Option<u64>) -> u64 {
        self.clear();
        self.reserve(len.unwrap_or(0).min(RESERVED_LEN_MAX) as usize);
        0
    }

    fn take(&mut self, chunk: Bytes) {
        self.extend_from_slice(&chunk);
    }

    fn discard(&mut self) {
        self.clear();
    }
}

enum RouteSource {
    Fixed(Arc<Route>),
    Script(Box<ScriptedRoutes>),
}

struct ScriptedRoutes {
    script: ProxyScript,
    options: HttpOptions,
    /// Routes of earlier results: they remember failures and open connections.
    known: Mutex<HashMap<String, Arc<Route>>>,
}

impl ScriptedRoutes {
    async fn routes(&self, url: &Url) -> Vec<Arc<Route>> {
        let ways = self.script.find(url).await;
        let connect_timeout = connect_timeout(&self.options, ways.len());
        let mut known = self.known.lock();
        if known.len() > ROUTES_KNOWN_MAX {
            known.clear();
        }
        let mut routes = Vec::with_capacity(ways.len());
        for way in ways {
            let route = match known.get(&way) {
                Some(route) => Arc::clone(route),
                None => match Route::new(way.clone(), connect_timeout, &self.options) {
                    Ok(route) => Arc::clone(known.entry(way).or_insert(Arc::new(route))),
                    Err(error) => {
                        tracing::warn!("{error}");
                        continue;
                    }
                },
            };
            routes.push(route);
        }
        routes
    }
}

struct Route {
    name: String,
    transport: Arc<dyn HttpTransport>,
    failed_until: Mutex<Option<Instant>>,
}

impl Fetcher {
    pub(super) fn new(url: &str, options: &HttpOptions) -> Result<Self> {
        let path =
            |why| Error::Path { path: format!("'{}'", without_userinfo(url)).into_bytes(), why };
        let base = super::url::parse(url).map_err(path)?;
        if options.tls.is_required() && base.scheme() != "https" {
            return Err(path("in clear text, but TLS is required; give an https:// URL"));
        }
        let names = if options.proxies.is_empty() {
            vec!["environment".to_owned()]
        } else {
            options.proxies.clone()
        };
        let connect_timeout = connect_timeout(options, names.len());
        let script_of = |name: &str| {
            let strict = name
                .strip_prefix(proxy_script::PREFIX_STRICT)
                .map(|place| (place.to_owned(), true));
            strict.or_else(|| {
                name.strip_prefix(proxy_script::PREFIX).map(|place| (place.to_owned(), false))
            })
        };
        let source = |name: String| match script_of(&name) {
            Some((place, is_strict)) => {
                let script = ProxyScript::new(&place, is_strict, options)?;
                Ok(RouteSource::Script(Box::new(ScriptedRoutes {
                    script,
                    options: options.clone(),
                    known: Mutex::default(),
                })))
            }
            None => Ok(RouteSource::Fixed(Arc::new(Route::new(name, connect_timeout, options)?))),
        };
        let routes = names.into_iter().map(source).collect::<Result<_>>()?;
        let (requests, received) = (Semaphore::new(REQUESTS_MAX), AtomicU64::new(0));
        Ok(Self {
            base,
            routes,
            requests,
            received,
            timeout: options.timeout,
            clock: Arc::clone(&options.clock),
        })
    }

    async fn routes(&self) -> Vec<Arc<Route>> {
        let mut routes = Vec::with_capacity(self.routes.len());
        for source in &self.routes {
            match source {
                RouteSource::Fixed(route) => routes.push(Arc::clone(route)),
                RouteSource::Script(scripted) => routes.extend(scripted.routes(&self.base).await),
            }
        }
        let now = Instant::now();
        routes.sort_by_key(|route| route.failed_until.lock().is_some_and(|until| now < until));
        routes
    }

    pub(super) fn url(&self) -> &Url {
        &self.base
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(super) async fn get(
        &self,
        wanted: RangeRequest<'_>,
    ) -> std::result::Result<Bytes, FetchError> {
        let mut bytes = BytesMut::new();
        self.get_into(wanted, &mut bytes).await?;
        Ok(bytes.freeze())
    }

    /// The manifest in force, as the server or a cache tells it.
    pub(super) async fn manifest(&self) -> std::result::Result<(Bytes, RemoteView), FetchError> {
        let mut is_anew = false;
        loop {
            let bytes = self.get(RangeRequest::manifest(is_anew)).await?;
            match RemoteView::parse(&bytes) {
                Ok(view) => return Ok((bytes, view)),
                Err(error) if is_anew => return Err(wrong(RemoteView::MANIFEST, error)),
                Err(_) => is_anew = true,
            }
        }
    }

    /// Passes the bytes of a file to `sink` as they arrive. After an error the sink has a part of
    /// them. Another object is fetched a second time, past all caches.
    pub(super) async fn get_into(
        &self,
        mut wanted: RangeRequest<'_>,
        sink: &mut impl Sink,
    ) -> std::result::Result<(), FetchError> {
        match self.get_once(&wanted, sink).await {
            Err(FetchError::WrongObject(..) | FetchError::NotFound(..)) if !wanted.is_anew => {
                wanted.is_anew = true;
                sink.discard();
                self.get_once(&wanted, sink).await
            }
            done => done,
        }
    }

    /// Requests past caches have a query, which all caches obey, and `Cache-Control`, which mends
    /// what some keep. Clients share them for a minute.
    fn url_of(&self, wanted: &RangeRequest<'_>) -> std::result::Result<Url, FetchError> {
        let mut url = self.base.join(wanted.path).map_err(|error| other(wanted.path, error))?;
        let minute = u64::try_from(self.clock.now()).unwrap_or(0) / 60;
        let again = if wanted.is_mutable && wanted.is_anew { "&again" } else { "" };
        url.set_query(
            (wanted.is_mutable || wanted.is_anew).then(|| format!("at={minute}{again}")).as_deref(),
        );
        Ok(url)
    }

    async fn get_once(
        &self,
        wanted: &RangeRequest<'_>,
        sink: &mut impl Sink,
    ) -> std::result::Result<(), FetchError> {
        let path = wanted.path;
        let Ok(_permit) = self.requests.acquire().await else {
            return Err(other(path, "the client is closing"));
        };
        let url = self.url_of(wanted)?;
        let mut failure = None;
        let routes = self.routes().await;
        for (route, more) in routes.iter().zip((0..routes.len()).rev()) {
            let request = HttpRequest {
                url: url.clone(),
                range: wanted.range.clone(),
                is_anew: wanted.is_anew,
            };
            let response = match self.ask(route, request, more).await {
                Ok(response) if !route.is_proxy() || !is_from_proxy(status(&response)) => response,
                Ok(response) => {
                    failure = Some(route.note_failure(path, status(&response)));
                    continue;
                }
                Err(error) => {
                    failure = Some(route.note_failure(path, error));
                    continue;
                }
            };
            match self.read(response, wanted, sink).await {
                Err(ReadError::Broken(error)) => failure = Some(route.note_failure(path, error)),
                // A proxy's own page.
                Err(ReadError::OtherFile) if route.is_proxy() => {
                    route.note_failure(path, OTHER_FILE);
                    failure = Some(wrong(path, OTHER_FILE));
                }
                Err(ReadError::OtherFile) => return Err(wrong(path, OTHER_FILE)),
                Err(ReadError::Answer(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
        Err(failure.unwrap_or_else(|| {
            other(path, "the proxy script names no way to the server; the log says why")
        }))
    }

    /// A proxy that says nothing leaves time for the routes after it.
    async fn ask(
        &self,
        route: &Route,
        request: HttpRequest,
        routes_left: usize,
    ) -> std::result::Result<HttpResponse, TransportError> {
        let answer = route.transport.get(request);
        if routes_left == 0 {
            return answer.await;
        }
        let limit = (self.timeout / (routes_left as u32 + 1)).min(ANSWER_TIME_MAX);
        timeout(limit, answer).await.unwrap_or_else(|_| {
            Err(format!("no answer within {:.1} s", limit.as_secs_f32()).into())
        })
    }

    /// `query`: changes each second, so that no cache answers with an old date.
    pub(super) async fn server_time(&self, query: u64) -> Option<u64> {
        let mut url = self.base.join(RemoteView::MANIFEST).ok()?;
        url.set_query(Some(&format!("at={query}")));
        let routes = self.routes().await;
        for (route, more) in routes.iter().zip((0..routes.len()).rev()) {
            match self
                .ask(
                    route,
                    HttpRequest { url: url.clone(), range: Some(0..1), is_anew: false },
                    more,
                )
                .await
            {
                Ok(response) if !route.is_proxy() || !is_from_proxy(status(&response)) => {
                    return response.date;
                }
                _ => {}
            }
        }
        None
    }

    async fn read(
        &self,
        response: HttpResponse,
        wanted: &RangeRequest<'_>,
        sink: &mut impl Sink,
    ) -> std::result::Result<(), ReadError> {
        let refuse =
            |what: &dyn std::fmt::Display| Err(ReadError::Answer(wrong(wanted.path, what)));
        // A server without range requests sends the whole file.
        let (mut skip, want) = match (status(&response), wanted.range.as_ref()) {
            (StatusCode::OK, None) => (0, None),
            // `rclone serve s3` answers a range with 200 and Content-Range (1.75).
            (StatusCode::PARTIAL_CONTENT | StatusCode::OK, Some(range))
                if response.range_start == Some(range.start) =>
            {
                (0, Some(range.end - range.start))
            }
            (StatusCode::OK, Some(range))
                if response.range_start.is_none() && range.end <= SKIPPED_LEN_MAX =>
            {
                (range.start, Some(range.end - range.start))
            }
            (StatusCode::OK, Some(_)) if response.range_start.is_none() => {
                return refuse(&"the server does not answer range requests");
            }
            (StatusCode::PARTIAL_CONTENT | StatusCode::OK, _) => {
                return refuse(&"the server sent another range");
            }
            (status @ (StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN), _) => {
                return Err(ReadError::Answer(FetchError::NotFound(
                    wanted.path.to_owned(),
                    format!("the server answers {status}"),
                )));
            }
            (status, _) if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(ReadError::Answer(other(wanted.path, status)));
            }
            (status, _) => return refuse(&status),
        };
        let mut body = response.body;
        let mut len = sink.begin(want);
        skip += len;
        while want.is_none_or(|want| len < want) {
            let Some(mut chunk) = body.next().await.transpose().map_err(ReadError::Broken)? else {
                break;
            };
            self.received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            let skipped = chunk.split_to(skip.min(chunk.len() as u64) as usize);
            skip -= skipped.len() as u64;
            if let Some(want) = want {
                chunk.truncate((want - len).min(chunk.len() as u64) as usize);
            }
            let magic = wanted.magic.get(len as usize..).unwrap_or_default();
            let checked = magic.len().min(chunk.len());
            if chunk[..checked] != magic[..checked] {
                return Err(ReadError::OtherFile);
            }
            len += chunk.len() as u64;
            if want.is_none() && len > *wanted.len.end() {
                return refuse(&format_args!("longer than {} bytes", wanted.len.end()));
            }
            sink.take(chunk);
        }
        if len < want.unwrap_or(*wanted.len.start()) {
            refuse(&"the file is shorter than the manifest says")
        } else {
            Ok(())
        }
    }
}

impl Route {
    fn new(name: String, connect_timeout: Duration, options: &HttpOptions) -> Result<Self> {
        let transport = match &options.transport {
            Some(make) => make(&name, connect_timeout),
            None => Arc::new(Network::new(&name, connect_timeout, options.timeout, &options.tls)?),
        };
        Ok(Self { name, transport, failed_until: Mutex::default() })
    }

    fn is_proxy(&self) -> bool {
        self.name != "DIRECT" && self.name != "environment"
    }

    fn note_failure(&self, path: &str, what: impl std::fmt::Display) -> FetchError {
        let mut until = self.failed_until.lock();
        let now = Instant::now();
        if self.is_proxy() && until.is_none_or(|until| until < now) {
            tracing::warn!(proxy = %without_userinfo(&self.name), "the proxy failed: {what}; trying the next one for {} s", RETRY_AFTER.as_secs());
        }
        *until = Some(now + RETRY_AFTER);
        if self.is_proxy() {
            other(path, format_args!("through {}: {what}", without_userinfo(&self.name)))
        } else {
            other(path, what)
        }
    }
}

fn is_from_proxy(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED)
}

enum ReadError {
    Broken(TransportError),
    Answer(FetchError),
    OtherFile,
}

/// A host that answers nothing leaves time for the other routes.
fn connect_timeout(options: &HttpOptions, routes: usize) -> Duration {
    (options.timeout / routes.max(1) as u32).max(CONNECT_TIMEOUT_MIN)
}

fn status(response: &HttpResponse) -> StatusCode {
    StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn other(path: &str, what: impl std::fmt::Display) -> FetchError {
    FetchError::Other(path.to_owned(), what.to_string().into())
}

fn wrong(path: &str, what: impl std::fmt::Display) -> FetchError {
    FetchError::WrongObject(path.to_owned(), what.to_string().into())
}

/// Enough for four million packs and revisions.
const MANIFEST_LEN_MAX: u64 = 128 << 20;
/// 24 MiB of short packs: 1 GB/s at 20 ms.
const REQUESTS_MAX: usize = 64;
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const ROUTES_KNOWN_MAX: usize = 64;
/// Of a route that is not the last: less than half of the default limit of a connection attempt.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
const OTHER_FILE: &str = "another file";
const RETRY_AFTER: Duration = Duration::from_secs(30);
const RESERVED_LEN_MAX: u64 = 8 << 20;
/// Servers without range requests send the file from its start: bytes skipped at most.
const SKIPPED_LEN_MAX: u64 = 64 << 20;
