use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

use futures_util::future::{BoxFuture, FutureExt, ready};
use parking_lot::Mutex;
use vouch_tree::HostId;

use super::database::HttpDatabase;
use super::fetch::Fetcher;
use super::files::database_url;
use super::options::HttpOptions;
use super::url::is_url;
use crate::Result;
use crate::connector::{self, Connector, Link, TcpConnector};
use crate::replica_tls::{self, Sessions};

/// Connects to databases by URL, and to replicas by TCP or, for `tls://HOST`, by TLS.
pub struct HttpConnector {
    options: HttpOptions,
    sessions: Sessions,
    databases: Mutex<HashMap<String, Weak<HttpDatabase>>>,
}

impl HttpConnector {
    /// Requests need a tokio runtime.
    pub fn new(options: HttpOptions) -> Result<Self> {
        // Without proxies nothing is checked: replicas work without certificate authorities.
        if !options.proxies.is_empty() {
            Fetcher::new("https://localhost/", &options)?;
        }
        let sessions = Sessions::new(options.tls.clone())?;
        Ok(Self { options, sessions, databases: Mutex::default() })
    }

    /// The clock of a replica or web server, in seconds since 1970, as its HTTP responses tell it. It
    /// is unverified. `None`: the server tells none.
    pub async fn server_time(&self, location: &str, hostid: &HostId) -> Option<u64> {
        let url = database_url(location, hostid, &self.options.tls).ok()?;
        let mut options = self.options.clone();
        if !is_url(location) {
            options.proxies = vec!["DIRECT".to_owned()];
        }
        // A cache in between must not answer with an old date.
        let now = u64::try_from(options.clock.now()).unwrap_or(0);
        Fetcher::new(&url, &options).ok()?.server_time(now).await
    }

    /// Connections to one URL share its database.
    fn database(&self, url: &str) -> Result<Arc<HttpDatabase>> {
        let mut databases = self.databases.lock();
        if let Some(database) = databases.get(url).and_then(Weak::upgrade) {
            return Ok(database);
        }
        let database = Arc::new(HttpDatabase::new(Fetcher::new(url, &self.options)?));
        databases.retain(|_, database| database.strong_count() > 0);
        databases.insert(url.to_owned(), Arc::downgrade(&database));
        Ok(database)
    }
}

impl Connector for HttpConnector {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        if is_url(host) {
            // Placeholder: the HTTP client or its proxy resolves the host at each connection.
            return ready(Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)]))
                .boxed();
        }
        TcpConnector.resolve(replica_tls::host_of(host).unwrap_or(host), port)
    }

    fn connect<'a>(
        &'a self,
        host: &'a str,
        address: SocketAddr,
    ) -> BoxFuture<'a, io::Result<Link>> {
        if !is_url(host) {
            return match replica_tls::host_of(host) {
                None if !self.sessions.is_required() => TcpConnector.connect(host, address),
                name => async move {
                    self.sessions
                        .open(name.unwrap_or(host), connector::tcp(address).await?)
                        .await
                        .map(Link::Stream)
                }
                .boxed(),
            };
        }
        async move {
            let database = self.database(host).map_err(io::Error::other)?;
            // A wrong answer is no outage, which would end by itself.
            database.connect().await.map_err(|error| match error.is_wrong_object() {
                true => io::Error::new(io::ErrorKind::InvalidData, error),
                false => io::Error::other(error),
            })?;
            Ok(Link::Local(database))
        }
        .boxed()
    }
}
