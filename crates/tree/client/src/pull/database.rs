//! Opens, commits and unlocks the database of a pull.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use vouch_log::evidence::LogEvidence;
use vouch_tree_store::{
    Database, FrameSink, NewRevision, PutCounts, Retention, WriteOptions, Writer,
};

use super::PullOptions;
use crate::client::Client;
use crate::revision::Revision;
use crate::{Error, Result, Tree};

const RELEASE_MAX: Duration = Duration::from_secs(10);

/// Threads may still write after a failure, but the caller may retry at once.
pub(super) async fn release(writer: Arc<Writer>) {
    let end = Instant::now() + RELEASE_MAX;
    while Arc::strong_count(&writer) > 1 && Instant::now() < end {
        sleep(Duration::from_millis(5)).await;
    }
}

pub(super) async fn open_database(tree: &Tree, options: &PullOptions) -> Result<Arc<Writer>> {
    let (db, hostid, iv) = (options.db.clone(), *tree.hostid(), tree.iv());
    let (lock_wait, pack_len) = (options.lock_wait, options.pack_len);
    let disk = Arc::clone(&options.disk);
    let writer = blocking(tree.client(), move || {
        Database::ensure(&*disk, &db, hostid, iv, lock_wait)?;
        let options = WriteOptions { lock_wait, pack_len, disk, ..WriteOptions::default() };
        Ok(Database::open_write(&db, options)?)
    });
    let writer = writer.await?;
    if writer.hostid() != hostid {
        let what = "the database holds another tree; pull into an empty directory";
        let source = std::io::Error::new(std::io::ErrorKind::AlreadyExists, what);
        return Err(Error::local("pull into", &options.db, source));
    }
    if let Some(reason) = writer.revocation() {
        return Err(Error::Revoked { hostid, reason });
    }
    if writer.iv() != iv {
        return Err(Error::OtherIv { db: options.db.clone() });
    }
    Ok(Arc::new(writer))
}

pub(super) fn commit(
    writer: &Writer,
    revision: &Revision,
    keep: Option<Retention>,
    statements: Vec<Vec<u8>>,
    supersedes: bool,
    evidence: Option<LogEvidence>,
) -> Result<PutCounts> {
    writer.put(&revision.handle, &Revision::frame_of(&revision.signed))?;
    if writer.statements() != statements && !statements.is_empty() {
        writer.set_statements(statements)?;
    }
    let tag = Some(revision.fsinfo.tag.clone()).filter(|tag| !tag.is_empty());
    let counts = writer.commit(NewRevision {
        number: revision.number(),
        start: i64::try_from(revision.fsinfo.start).unwrap_or(i64::MAX),
        fsinfo: revision.handle,
        signed: revision.signed.to_vec(),
        tag,
        companions: vouch_tree_store::companions(writer, &revision.fsinfo.root)?,
        keep: keep.and_then(|policy| policy.only_last()),
        supersedes,
        evidence: evidence.map(Box::new),
    })?;
    if let Some(policy) = keep.filter(|policy| policy.only_last().is_none()) {
        writer.retain(policy)?;
    }
    Ok(counts)
}

pub(super) async fn blocking<T: Send + 'static>(
    client: &Client,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = client.run_blocking(work).await;
    done.unwrap_or_else(|e| {
        Err(Error::local("write", Path::new("the database"), std::io::Error::other(e)))
    })
}
