use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::transport::HttpTransport;
use crate::clock::{Clock, SystemClock};
use crate::replica_tls::ReplicaTls;

/// How web servers are reached.
#[derive(Clone)]
pub struct HttpOptions {
    /// In order of preference: URLs, `DIRECT`, or `pac:` or `pac-strict:` and the URL or file of a
    /// proxy auto-configuration script. Empty: `http_proxy`, `https_proxy` and `no_proxy` of the
    /// environment.
    pub proxies: Vec<String>,
    /// Longest pause within a response. Routes share it for connection attempts, 1 s each at least.
    pub timeout: Duration,
    /// Trusted authorities, and whether TLS is required.
    pub tls: ReplicaTls,
    /// For URLs that change each minute.
    pub clock: Arc<dyn Clock>,
    /// Called for each of `proxies`, or for `environment`, with the limit of a connection attempt.
    /// `None`: TCP.
    pub transport: Option<Arc<MakeTransport>>,
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions").field("proxies", &self.proxies).finish_non_exhaustive()
    }
}

/// Makes the transport of one proxy.
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
