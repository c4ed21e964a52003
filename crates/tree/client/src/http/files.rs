//! Unverified files of a database behind a web server, for caches with the same layout.

use std::ops::Range;

use bytes::Bytes;
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
