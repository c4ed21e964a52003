//! Requests to web servers as a parameter, so that a simulation runs the client's own decisions over
//! a network of its own.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Client, Proxy, Url};

use crate::Error;

/// A GET request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// The whole URL.
    pub url: Url,
    /// Bytes of the file, as in a `Range` header.
    pub range: Option<Range<u64>>,
}

/// A response whose header has arrived.
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// First byte by `Content-Range`, if there is one.
    pub range_start: Option<u64>,
    /// The body. An error is text for a log.
    pub body: BoxStream<'static, Result<Bytes, String>>,
}

/// A way to web servers: directly or through one proxy. The transport limits the time of each
/// connection attempt and of each pause within a response.
pub trait HttpTransport: Send + Sync + 'static {
    /// Sends a request and waits for the header of its response. An error is text for a log.
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, String>>;
}

/// HTTP/1.1 and HTTP/2 over TCP and TLS.
pub(super) struct Network {
    client: Client,
    /// Whether a proxy resolves the host of a URL.
    is_proxied: bool,
    /// Whether the environment names a proxy.
    may_be_proxied: bool,
}

impl Network {
    /// `proxy`: `environment`, `DIRECT` or the URL of a proxy. `timeout` limits pauses.
    pub(super) fn new(proxy: &str, connect_timeout: Duration, timeout: Duration) -> crate::Result<Self> {
        // The process may have chosen a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .connect_timeout(connect_timeout)
            .read_timeout(timeout)
            .redirect(Policy::limited(REDIRECTS_MAX))
            .tcp_nodelay(true)
            .user_agent(concat!("vouch/", env!("CARGO_PKG_VERSION")));
        let builder = match proxy {
            "environment" => builder,
            "DIRECT" => builder.no_proxy(),
            url => {
                let why = "not a proxy; expected http://HOST:PORT, socks5://HOST:PORT or DIRECT";
                let proxy = parse_proxy(url).ok_or_else(|| Error::Path { path: format!("'{url}'").into_bytes(), why })?;
                builder.no_proxy().proxy(proxy)
            }
        };
        let is_proxied = !matches!(proxy, "environment" | "DIRECT");
        let may_be_proxied = proxy == "environment" && PROXY_VARIABLES.iter().any(|name| std::env::var_os(name).is_some());
        builder
            .build()
            .map(|client| Self { client, is_proxied, may_be_proxied })
            .map_err(|error| Error::Damaged { what: format!("HTTP client: {}", chain(&error)) })
    }
}

impl Network {
    /// A name that does not resolve is no fault of the web server.
    fn explain(&self, host: &str, error: &reqwest::Error) -> String {
        let text = chain(error);
        match text.split_once(RESOLVER_ERROR) {
            Some((_, why)) if self.is_proxied => format!("the name of the proxy does not resolve: {why}"),
            Some((_, why)) if self.may_be_proxied => {
                format!("the name {host}, or that of the proxy in the environment, does not resolve: {why}")
            }
            Some((_, why)) => format!("the name {host} does not resolve: {why}"),
            None => text,
        }
    }
}

impl HttpTransport for Network {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, String>> {
        async move {
            let host = request.url.host_str().unwrap_or_default().to_owned();
            let mut builder = self.client.get(request.url);
            if let Some(range) = request.range {
                builder = builder.header(RANGE, format!("bytes={}-{}", range.start, range.end - 1));
            }
            let response = builder.send().await.map_err(|error| self.explain(&host, &error))?;
            let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
            Ok(HttpResponse {
                status: response.status().as_u16(),
                range_start: range.and_then(|text| text.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()),
                body: try_unfold(response, |mut response| async move {
                    let chunk = response.chunk().await.map_err(|error| chain(&error))?;
                    Ok(chunk.map(|chunk| (chunk, response)))
                })
                .boxed(),
            })
        }
        .boxed()
    }
}

fn parse_proxy(url: &str) -> Option<Proxy> {
    let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") && url.has_host())?;
    Proxy::all(parsed).ok()
}

/// An error with its causes; the first alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

const PROXY_VARIABLES: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// How the HTTP client begins an error of the resolver.
const RESOLVER_ERROR: &str = "dns error: ";

const REDIRECTS_MAX: usize = 4;
