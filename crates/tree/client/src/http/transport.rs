//! The transport as a parameter: a simulation runs the real client over its own network.

use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use reqwest::header::{CACHE_CONTROL, CONTENT_RANGE, DATE, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Proxy, Url};

use super::environment_proxies::EnvironmentProxies;
use crate::connector::TransportError;
use crate::{Error, ReplicaTls};

/// A GET request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// Absolute.
    pub url: Url,
    /// Byte range for the `Range` header.
    pub range: Option<Range<u64>>,
    /// Asks caches to fetch anew (`Cache-Control: no-cache`).
    pub is_anew: bool,
}

/// The header of a response, and its body as it arrives.
pub struct HttpResponse {
    /// 200, 206, 404 and so on.
    pub status: u16,
    /// First byte, from `Content-Range`.
    pub range_start: Option<u64>,
    /// The server's clock in seconds since 1970, from `Date`.
    pub date: Option<u64>,
    /// Ends with its first error.
    pub body: BoxStream<'static, Result<Bytes, TransportError>>,
}

/// Sends requests by one route: directly or through one proxy.
pub trait HttpTransport: Send + Sync + 'static {
    /// Ends when the header has arrived. Limits connection attempts and pauses.
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>>;
}

/// HTTP/1.1 and HTTP/2 over TCP and TLS.
pub(super) struct Network {
    client: Client,
    /// True if the proxy resolves host names.
    is_proxied: bool,
    may_be_proxied: bool,
    /// False on small systems: then only plain HTTP works.
    has_authorities: bool,
}

impl Network {
    /// `proxy`: `environment`, `DIRECT` or the URL of a proxy. `timeout` limits pauses.
    pub(super) fn new(
        proxy: &str,
        connect_timeout: Duration,
        timeout: Duration,
        tls: &ReplicaTls,
    ) -> crate::Result<Self> {
        vouch_tls::install_provider();
        let named = match proxy {
            "environment" | "DIRECT" => None,
            url => {
                let why = "not a proxy; expected http://HOST:PORT, socks5://HOST:PORT, DIRECT, or pac: or pac-strict: and the URL or file of a script";
                Some(parse_proxy(url).ok_or_else(|| Error::Path {
                    path: format!("'{}'", super::url::without_userinfo(url)).into_bytes(),
                    why,
                })?)
            }
        };
        let builder = || {
            let builder = Client::builder()
                .connect_timeout(connect_timeout)
                .read_timeout(timeout)
                .redirect(Policy::limited(REDIRECTS_MAX))
                .tcp_nodelay(true)
                // Redirections too.
                .https_only(tls.is_required())
                .user_agent(USER_AGENT);
            let builder = match tls.authorities() {
                None => builder,
                Some(found) => builder.tls_certs_only(
                    found.iter().filter_map(|one| reqwest::Certificate::from_der(one).ok()),
                ),
            };
            match &named {
                Some(proxy) => builder.no_proxy().proxy(proxy.clone()),
                None if proxy == "DIRECT" => builder.no_proxy(),
                None => with_environment_proxies(builder),
            }
        };
        let (client, has_authorities) = build(builder, tls.authorities().is_some())
            .map_err(|error| Error::Authorities { what: chain(&error) })?;
        let is_proxied = named.is_some();
        let may_be_proxied = proxy == "environment" && !EnvironmentProxies::of_process().is_empty();
        Ok(Self { client, is_proxied, may_be_proxied, has_authorities })
    }
}

/// False: the system has no authorities' certificates, so the client trusts no server's.
fn build(
    builder: impl Fn() -> ClientBuilder,
    has_own_authorities: bool,
) -> reqwest::Result<(Client, bool)> {
    match builder().build() {
        Err(_) if !has_own_authorities => {
            builder().tls_certs_only([]).build().map(|client| (client, false))
        }
        built => built.map(|client| (client, true)),
    }
}

/// For few requests of another protocol. Follows no redirection.
pub(crate) fn plain_client(connect_timeout: Duration) -> Result<Client, String> {
    vouch_tls::install_provider();
    let builder = || {
        let builder = Client::builder()
            .connect_timeout(connect_timeout)
            .redirect(Policy::none())
            .tcp_nodelay(true)
            .user_agent(USER_AGENT);
        with_environment_proxies(builder)
    };
    build(builder, false).map(|(client, _)| client).map_err(|error| chain(&error))
}

fn with_environment_proxies(builder: ClientBuilder) -> ClientBuilder {
    match EnvironmentProxies::of_process() {
        proxies if proxies.is_empty() => builder.no_proxy(),
        proxies => builder.no_proxy().proxy(Proxy::custom(move |url| proxies.proxy_of(url))),
    }
}

impl Network {
    fn explain(&self, host: &str, error: &reqwest::Error) -> String {
        let text = chain(error);
        match text.split_once(RESOLVER_ERROR) {
            Some((_, why)) if self.is_proxied => {
                format!("the name of the proxy does not resolve: {why}")
            }
            Some((_, why)) if self.may_be_proxied => {
                format!(
                    "the name {host}, or that of the proxy in the environment, does not resolve: {why}"
                )
            }
            Some((_, why)) => format!("the name {host} does not resolve: {why}"),
            None if !self.has_authorities && text.contains("UnknownIssuer") => format!(
                "{text}; this system has no certificates of authorities: install the package ca-certificates, or name a file of them"
            ),
            None => text,
        }
    }
}

impl HttpTransport for Network {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let host = request.url.host_str().unwrap_or_default().to_owned();
            let mut builder = self.client.get(request.url);
            if let Some(range) = request.range {
                builder = builder.header(RANGE, format!("bytes={}-{}", range.start, range.end - 1));
            }
            if request.is_anew {
                builder = builder.header(CACHE_CONTROL, "no-cache");
            }
            let response = builder.send().await.map_err(|error| self.explain(&host, &error))?;
            let field = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            let (range, date) = (
                field(CONTENT_RANGE),
                field(DATE).and_then(|text| httpdate::parse_http_date(text).ok()),
            );
            Ok(HttpResponse {
                status: response.status().as_u16(),
                range_start: range
                    .and_then(|text| text.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()),
                date: date.and_then(|date| Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())),
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
    let parsed = Url::parse(url).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https" | "socks4" | "socks5" | "socks5h") && url.has_host()
    })?;
    Proxy::all(parsed).ok()
}

/// The outermost message alone says little.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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

const USER_AGENT: &str = concat!("vouch/", env!("CARGO_PKG_VERSION"));

const RESOLVER_ERROR: &str = "dns error: ";

const REDIRECTS_MAX: usize = 4;
