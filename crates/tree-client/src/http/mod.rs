//! A database behind any web server, or in a bucket, as a replica: the client reads the files of the
//! database itself (docs/formats/store.md). Nothing there is trusted: each frame is verified like
//! one from a replica.

mod database;
mod fetch;
mod files;
mod slices;
mod transport;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::clock::{Clock, SystemClock};
use crate::connector::{Connector, Stream, TcpConnector};
use crate::{Error, Result, pipe};
use database::HttpDatabase;
use fetch::{FetchError, Fetcher};
pub use files::DatabaseFiles;
pub use transport::{HttpRequest, HttpResponse, HttpTransport};

/// Options of requests to web servers.
#[derive(Clone)]
pub struct HttpOptions {
    /// Proxies in the order of preference, as URLs, or `DIRECT`. Empty: `http_proxy`, `https_proxy`
    /// and `no_proxy` of the environment.
    pub proxies: Vec<String>,
    /// Longest pause within a response. Connection attempts share it: each proxy has an equal part,
    /// but at least a second.
    pub timeout: Duration,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Makes the way through each of `proxies`, or `environment` if there are none; `None`: the
    /// network's.
    pub transport: Option<Arc<MakeTransport>>,
}

/// Makes the way through a proxy, with the longest time of one connection attempt.
pub type MakeTransport = dyn Fn(&str, Duration) -> Arc<dyn HttpTransport> + Send + Sync;

impl Default for HttpOptions {
    fn default() -> Self {
        Self { proxies: Vec::new(), timeout: Duration::from_secs(10), clock: Arc::new(SystemClock), transport: None }
    }
}

/// The network with web servers: a location that is a URL is the directory of a database, any other
/// a replica over TCP.
pub struct HttpConnector {
    options: HttpOptions,
    databases: Mutex<HashMap<String, Weak<HttpDatabase>>>,
}

impl HttpConnector {
    /// Creates a connector. Requests need a tokio runtime.
    ///
    /// # Errors
    /// A proxy is not a URL.
    pub fn new(options: HttpOptions) -> Result<Self> {
        // Without a proxy there is nothing to check: a machine without certificate authorities reads
        // from replicas all the same.
        if !options.proxies.is_empty() {
            Fetcher::new("http://localhost/", &options)?;
        }
        Ok(Self { options, databases: Mutex::default() })
    }

    /// The database of a URL, shared by its connections and dropped with the last of them.
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
            // Its host is resolved at each connection, by a proxy if there is one.
            return ready(Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)])).boxed();
        }
        TcpConnector.resolve(host, port)
    }

    fn connect<'a>(&'a self, host: &'a str, address: SocketAddr) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        if !is_url(host) {
            return TcpConnector.connect(host, address);
        }
        async move {
            let database = self.database(host).map_err(io::Error::other)?;
            database.connect().await.map_err(io::Error::other)?;
            pipe::open(move |procedure, args| {
                let database = Arc::clone(&database);
                async move { database.answer(procedure, &args).await }.boxed()
            })
        }
        .boxed()
    }
}

/// The result of a request that a task of its own makes.
async fn spawned(task: JoinHandle<std::result::Result<Bytes, FetchError>>) -> std::result::Result<Bytes, FetchError> {
    task.await.unwrap_or_else(|error| Err(FetchError::Other("request".into(), error.to_string().into())))
}

pub(crate) fn is_url(location: &str) -> bool {
    location.starts_with("http://") || location.starts_with("https://")
}

/// Room for four million packs and revisions.
const MANIFEST_LEN_MAX: u64 = 128 << 20;

/// The URL with a final slash.
pub(crate) fn check_url(url: &str) -> Result<String> {
    let parsed = fetch::parse(url).map_err(|why| Error::Path { path: format!("'{url}'").into_bytes(), why })?;
    Ok(parsed.to_string())
}
