//! Unverified files of a database behind a web server, for caches with the same layout.

use std::io;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use vouch_log::reader::TileSource;
use vouch_log::tile::TileId;
use vouch_tree::{HostId, TreeName};
use vouch_tree_store::{LOG_DIR, RemoteFile, RemoteView};

use super::fetch::{FetchError, Fetcher, RangeRequest};
use super::options::HttpOptions;
use super::url::is_url;
use crate::mirrors::NOT_A_REPLICA;
use crate::{Error, ReplicaTls, Result, replica_tls};

/// One database behind a web server.
pub struct DatabaseFiles {
    fetcher: Fetcher,
}

impl DatabaseFiles {
    /// `location`: a URL, or `HOST[:PORT]` or `tls://HOST[:PORT]` of a replica.
    pub fn new(location: &str, hostid: &HostId, options: &HttpOptions) -> Result<Self> {
        Ok(Self { fetcher: Fetcher::new(&database_url(location, hostid, &options.tls)?, options)? })
    }

    /// With a slash at the end, without a password.
    pub fn url(&self) -> String {
        super::url::without_userinfo(self.fetcher.url().as_str())
    }

    /// At most 128 MiB. Shares requests with clients.
    pub async fn manifest(&self) -> Result<(Bytes, RemoteView)> {
        self.fetcher.manifest().await.map_err(|error| self.unreachable(&error))
    }

    /// Bytes `range` of a file. [`Error::Unreachable`] also for another length. `is_anew`: past all
    /// caches, after wrong bytes.
    pub async fn read(
        &self,
        file: &RemoteFile,
        range: &Range<u64>,
        is_anew: bool,
    ) -> Result<Bytes> {
        self.fetcher
            .get(RangeRequest::part(file, range, is_anew))
            .await
            .map_err(|error| self.unreachable(&error))
    }

    /// A whole file of the log of revisions.
    pub async fn log_file(&self, id: &TileId) -> Result<Bytes> {
        let path = format!("{LOG_DIR}/{}", id.path());
        let wanted = RangeRequest::whole(&path, id.len_max() as u64);
        self.fetcher.get(wanted).await.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &FetchError) -> Error {
        Error::Unreachable { attempts: format!("{}: {error}", self.url()) }
    }
}

/// The log of a replica, for [`vouch_log::reader::LogReader`]. Blocks: call it from a thread that may
/// block, within a runtime.
pub struct RemoteLog<'a> {
    /// Where the log is.
    pub files: &'a DatabaseFiles,
    /// For each file.
    pub time_max: Duration,
}

impl TileSource for RemoteLog<'_> {
    fn read(&self, path: &str, _: usize) -> io::Result<Vec<u8>> {
        let id = TileId::parse(path).ok_or(io::ErrorKind::InvalidInput)?;
        let path = format!("{LOG_DIR}/{path}");
        let wanted = RangeRequest::whole(&path, id.len_max() as u64);
        let fetch = tokio::time::timeout(self.time_max, self.files.fetcher.get(wanted));
        match tokio::runtime::Handle::current().block_on(fetch) {
            Ok(Ok(bytes)) => Ok(bytes.to_vec()),
            Ok(Err(FetchError::NotFound(..))) => Err(io::ErrorKind::NotFound.into()),
            Ok(Err(error)) => Err(io::Error::other(self.files.unreachable(&error))),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

pub(super) fn database_url(location: &str, hostid: &HostId, tls: &ReplicaTls) -> Result<String> {
    if is_url(location) {
        return Ok(location.to_owned());
    }
    let over_tls = replica_tls::host_of(location);
    let parsed = TreeName::new(over_tls.unwrap_or(location), *hostid).map_err(|_| Error::Path {
        path: format!("'{location}'").into_bytes(),
        why: NOT_A_REPLICA,
    })?;
    let scheme = if over_tls.is_some() || tls.is_required() { "https" } else { "http" };
    let host = if parsed.host().contains(':') {
        format!("[{}]", parsed.host())
    } else {
        parsed.host().to_owned()
    };
    Ok(format!("{scheme}://{host}:{}/{hostid}/", parsed.port()))
}
