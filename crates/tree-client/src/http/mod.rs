//! Databases behind web servers or in buckets as replicas: reads their files
//! (docs/formats/store.md). Each frame is verified like one from a replica.

mod database;
mod fetch;
mod files;
pub(crate) mod proxy_script;
mod slice_ahead;
mod slices;
mod transfer;
mod transport;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::connector::{self, Connector, Link, TcpConnector};
use crate::replica_tls::{self, ReplicaTls, Sessions};
use crate::{Error, Result};
use database::HttpDatabase;
use fetch::Fetcher;
pub use files::DatabaseFiles;
pub use transport::{HttpRequest, HttpResponse, HttpTransport};

#[derive(Clone)]
pub struct HttpOptions {
    /// Proxies in the order of preference, as URLs, `DIRECT`, or `pac:` and the URL or file of a proxy
    /// auto-configuration script. Empty: `http_proxy`, `https_proxy` and `no_proxy` of the environment.
    pub proxies: Vec<String>,
    /// Longest pause within a response. Routes share it for their connection attempts, 1 s each at
    /// least.
    pub timeout: Duration,
    pub tls: ReplicaTls,
    pub clock: Arc<dyn Clock>,
    /// Called for each of `proxies`, or for `environment`, with the limit of a connection attempt.
    /// `None`: TCP.
    pub transport: Option<Arc<MakeTransport>>,
}

pub type MakeTransport = dyn Fn(&str, Duration) -> Arc<dyn HttpTransport> + Send + Sync;

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            proxies: Vec::new(),
            timeout: Duration::from_secs(10),
            tls: ReplicaTls::default(),
            clock: Arc::new(SystemClock),
            transport: None,
        }
    }
}

/// Connects to databases by URL, and to replicas by TCP or, for `tls://HOST`, by TLS.
pub struct HttpConnector {
    options: HttpOptions,
    sessions: Sessions,
    databases: Mutex<HashMap<String, Weak<HttpDatabase>>>,
}

impl HttpConnector {
    /// Requests need a tokio runtime.
    ///
    /// # Errors
    /// A proxy is not a URL, or the authorities of servers cannot be read.
    pub fn new(options: HttpOptions) -> Result<Self> {
        // Without proxies nothing is checked: replicas work without certificate authorities.
        if !options.proxies.is_empty() {
            Fetcher::new("https://localhost/", &options)?;
        }
        let sessions = Sessions::new(options.tls.clone())?;
        Ok(Self { options, sessions, databases: Mutex::default() })
    }

    /// Connections to one URL share its database.
    fn database(&self, url: &str) -> Result<Arc<HttpDatabase>> {
        let mut databases = self.databases.lock();
        if let Some(database) = databases.get(url).and_then(Weak::upgrade) {
            return Ok(database);
        }
        let database = Arc::new(HttpDatabase::new(Fetcher::new(url, &self.options)?, Arc::clone(&self.options.clock)));
        databases.retain(|_, database| database.strong_count() > 0);
        databases.insert(url.to_owned(), Arc::downgrade(&database));
        Ok(database)
    }
}

impl Connector for HttpConnector {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        if is_url(host) {
            // Placeholder: the HTTP client or its proxy resolves the host at each connection.
            return ready(Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)])).boxed();
        }
        TcpConnector.resolve(replica_tls::host_of(host).unwrap_or(host), port)
    }

    fn connect<'a>(&'a self, host: &'a str, address: SocketAddr) -> BoxFuture<'a, io::Result<Link>> {
        if !is_url(host) {
            return match replica_tls::host_of(host) {
                None if !self.sessions.is_required() => TcpConnector.connect(host, address),
                name => {
                    async move { self.sessions.open(name.unwrap_or(host), connector::tcp(address).await?).await.map(Link::Stream) }.boxed()
                }
            };
        }
        async move {
            let database = self.database(host).map_err(io::Error::other)?;
            database.connect().await.map_err(io::Error::other)?;
            Ok(Link::Local(database))
        }
        .boxed()
    }
}

pub(crate) fn is_url(location: &str) -> bool {
    location.starts_with("http://") || location.starts_with("https://")
}

pub(crate) fn check_url(url: &str) -> Result<String> {
    let parsed = fetch::parse(url).map_err(|why| Error::Path { path: format!("'{url}'").into_bytes(), why })?;
    Ok(parsed.to_string())
}
