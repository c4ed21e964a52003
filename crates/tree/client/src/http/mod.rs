//! Databases behind web servers as replicas (docs/formats/store.md). Each frame is verified like
//! one from a replica.

mod connector;
mod database;
mod environment_proxies;
mod fetch;
mod files;
mod options;
pub(crate) mod proxy_script;
mod slice_ahead;
mod slices;
mod transfer;
mod transport;
pub(crate) mod url;

pub(crate) use transport::{chain, plain_client};

pub use connector::HttpConnector;
pub use files::{DatabaseFiles, RemoteLog};
pub use options::{HttpOptions, MakeTransport};
pub use transport::{HttpRequest, HttpResponse, HttpTransport};
