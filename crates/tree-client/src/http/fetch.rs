//! Requests to one web server, directly or through proxies.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use reqwest::{StatusCode, Url};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::HttpOptions;
use super::transport::{HttpRequest, HttpResponse, HttpTransport, Network};
use crate::{Error, Result};

/// Cloned to all readers of a shared request.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{0}: not found")]
    NotFound(String),
    #[error("{0}: {1}")]
    Other(String, Arc<str>),
}

pub(super) struct Fetcher {
    base: Url,
    routes: Vec<Route>,
    requests: Semaphore,
}

struct Route {
    name: String,
    transport: Arc<dyn HttpTransport>,
    /// The other routes are tried first until then.
    failed_until: Mutex<Option<Instant>>,
}

/// A URL of a directory, with a final slash.
pub(super) fn parse(url: &str) -> std::result::Result<Url, &'static str> {
    let mut url = Url::parse(url).map_err(|_| "not a URL; expected http:// or https://, a host and the path of a database")?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL of a database has no query and no fragment");
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

impl Fetcher {
    pub(super) fn new(url: &str, options: &HttpOptions) -> Result<Self> {
        let path = |why| Error::Path { path: format!("'{url}'").into_bytes(), why };
        let base = parse(url).map_err(path)?;
        if options.tls.is_required() && base.scheme() != "https" {
            return Err(path("in clear text, but TLS is required; give an https:// URL"));
        }
        let names = if options.proxies.is_empty() { vec!["environment".to_owned()] } else { options.proxies.clone() };
        // Leaves time for the other routes if a host is silent.
        let connect_timeout = (options.timeout / names.len() as u32).max(CONNECT_TIMEOUT_MIN);
        let routes: Result<Vec<_>> = names.into_iter().map(|name| Route::new(name, connect_timeout, options)).collect();
        Ok(Self { base, routes: routes?, requests: Semaphore::new(REQUESTS_MAX) })
    }

    pub(super) fn url(&self) -> &Url {
        &self.base
    }

    /// Reads a file or a range of it. Fails beyond `len_max` bytes. A new `query` bypasses caches
    /// that keep a file too long.
    pub(super) async fn get(
        &self,
        path: &str,
        query: Option<u64>,
        range: Option<&Range<u64>>,
        len_max: u64,
    ) -> std::result::Result<Bytes, FetchError> {
        let Ok(_permit) = self.requests.acquire().await else { return Err(other(path, "the client is closing")) };
        let mut url = self.base.join(path).map_err(|error| other(path, error))?;
        url.set_query(query.map(|number| format!("at={number}")).as_deref());
        let now = Instant::now();
        let mut routes: Vec<_> = self.routes.iter().collect();
        routes.sort_by_key(|route| route.failed_until.lock().is_some_and(|until| now < until));
        let mut failure = None;
        for route in routes {
            let request = HttpRequest { url: url.clone(), range: range.cloned() };
            let response = match route.transport.get(request).await {
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
            match read(response, path, range, len_max).await {
                Err(ReadError::Broken(error)) => failure = Some(route.note_failure(path, error)),
                Err(ReadError::Answer(error)) => return Err(error),
                Ok(bytes) => return Ok(bytes),
            }
        }
        Err(failure.unwrap_or_else(|| other(path, "no way to the server")))
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
            tracing::warn!(proxy = %self.name, "the proxy failed: {what}; trying the next one for {} s", RETRY_AFTER.as_secs());
        }
        *until = Some(now + RETRY_AFTER);
        if self.is_proxy() { other(path, format_args!("through {}: {what}", self.name)) } else { other(path, what) }
    }
}

/// A proxy may have sent this status itself: another route may work.
fn is_from_proxy(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED)
}

enum ReadError {
    /// The connection failed within the response.
    Broken(String),
    Answer(FetchError),
}

async fn read(response: HttpResponse, path: &str, range: Option<&Range<u64>>, len_max: u64) -> std::result::Result<Bytes, ReadError> {
    let refuse = |what: &dyn std::fmt::Display| Err(ReadError::Answer(other(path, what)));
    // A server without range requests sends the whole file.
    let (mut skip, want) = match (status(&response), range) {
        (StatusCode::OK, None) => (0, None),
        (StatusCode::PARTIAL_CONTENT, Some(range)) if response.range_start == Some(range.start) => (0, Some(range.end - range.start)),
        (StatusCode::OK, Some(range)) if range.end <= SKIPPED_LEN_MAX => (range.start, Some(range.end - range.start)),
        (StatusCode::OK, Some(_)) => return refuse(&"the server does not answer range requests"),
        (StatusCode::PARTIAL_CONTENT, _) => return refuse(&"the server sent another range"),
        (StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN, _) => {
            return Err(ReadError::Answer(FetchError::NotFound(path.to_owned())));
        }
        (status, _) => return refuse(&status),
    };
    let (mut body, mut bytes) = (response.body, BytesMut::with_capacity(want.unwrap_or(0).min(RESERVED_LEN_MAX) as usize));
    let mut len = 0_u64;
    while want.is_none_or(|want| len < want) {
        let Some(mut chunk) = body.next().await.transpose().map_err(ReadError::Broken)? else { break };
        let skipped = chunk.split_to(skip.min(chunk.len() as u64) as usize);
        skip -= skipped.len() as u64;
        len += chunk.len() as u64;
        // Copies while the chunk is in the CPU's cache.
        bytes.extend_from_slice(&chunk);
        if want.is_none() && len > len_max {
            return refuse(&format_args!("longer than {len_max} bytes"));
        }
    }
    match want {
        Some(want) if len < want => refuse(&"the file is shorter than the manifest says"),
        Some(want) => Ok(bytes.freeze().slice(..want as usize)),
        None => Ok(bytes.freeze()),
    }
}

fn status(response: &HttpResponse) -> StatusCode {
    StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn other(path: &str, what: impl std::fmt::Display) -> FetchError {
    FetchError::Other(path.to_owned(), what.to_string().into())
}

const REQUESTS_MAX: usize = 16;
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// Memory reserved before a response arrives: the length of the largest request.
const RESERVED_LEN_MAX: u64 = 8 << 20;
/// Servers without range requests send the file from its start: bytes skipped at most.
const SKIPPED_LEN_MAX: u64 = 64 << 20;
