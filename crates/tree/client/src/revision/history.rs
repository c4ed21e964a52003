//! Older revisions: the chain of signed fsinfos, newest first.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use vouch_tree::{BlockHandle, FrameKind, SignedFsinfo};
use vouch_xdr::Xdr;

use crate::frame::Frame;
use crate::replica::Priority;
use crate::revision::Revision;
use crate::{Error, Result, Tree};

const LEN_EXPECTED: usize = 1024;

/// Revisions from the newest back to the first.
pub struct History {
    tree: Arc<Tree>,
    next: Next,
}

enum Next {
    Newest,
    Older(BlockHandle, u64),
    End,
}

impl Tree {
    /// Begins with the newest revision, even if it has expired.
    pub fn history(self: &Arc<Self>) -> History {
        History { tree: Arc::clone(self), next: Next::Newest }
    }

    /// `None` if it never existed.
    pub async fn revision_at(self: &Arc<Self>, number: u64) -> Result<Option<Arc<Revision>>> {
        let mut history = self.history();
        while let Some(revision) = history.next().await {
            let revision = revision?;
            if revision.number() <= number {
                return Ok((revision.number() == number).then_some(revision));
            }
        }
        Ok(None)
    }

    /// The newest one; `None` if none has the tag. O(newer revisions).
    pub async fn revision_with_tag(self: &Arc<Self>, tag: &str) -> Result<Option<Arc<Revision>>> {
        let mut history = self.history();
        while let Some(revision) = history.next().await {
            match revision {
                Ok(revision) if revision.fsinfo.tag == tag => return Ok(Some(revision)),
                Ok(_) => {}
                Err(Error::Missing { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// `signed`: kept by the caller. Verifies the signature again, not the validity in time.
    pub fn kept_revision(&self, signed: &[u8]) -> Result<Arc<Revision>> {
        let newest = self.newest();
        if newest.signed == signed {
            return Ok(newest);
        }
        let damaged =
            |what: String| Error::Damaged { what: format!("the revision that was shown: {what}") };
        let decoded = SignedFsinfo::from_xdr(signed).map_err(|error| damaged(error.to_string()))?;
        let fsinfo = decoded.open(self.hostid()).map_err(|error| damaged(error.to_string()))?;
        if fsinfo.iv != self.iv() {
            return Err(damaged("its handles are of another kind".into()));
        }
        let cert = decoded.cert();
        let expires = fsinfo.end().min(cert.not_after);
        Ok(Arc::new(Revision::new(fsinfo, Bytes::copy_from_slice(signed), cert.serial, expires)))
    }

    async fn older(&self, handle: BlockHandle, than: u64) -> Result<Arc<Revision>> {
        let deadline = Instant::now() + self.operation_max();
        let Frame::Fsinfo(signed) = self
            .frame_by(FrameKind::Fsinfo, &handle, LEN_EXPECTED, Priority::Foreground, deadline)
            .await?
        else {
            return Err(Error::Damaged { what: format!("frame {handle} is not an fsinfo") });
        };
        let decoded = SignedFsinfo::from_xdr(&signed).map_err(|e| Error::malformed(&handle, e))?;
        let fsinfo = decoded
            .open(self.hostid())
            .map_err(|e| Error::Damaged { what: format!("the revision before {than}: {e}") })?;
        if fsinfo.revision.checked_add(1) != Some(than) {
            return Err(Error::Damaged {
                what: format!("the revision before {than} has number {}", fsinfo.revision),
            });
        }
        let cert = decoded.cert();
        let expires = fsinfo.end().min(cert.not_after);
        Ok(Arc::new(Revision::old(fsinfo, Bytes::clone(&signed), cert.serial, expires, handle)))
    }
}

impl History {
    /// The next older revision. Verifies signature and chain, not validity in time. Ends after an
    /// error; [`Error::Missing`]: replicas keep no older revision.
    pub async fn next(&mut self) -> Option<Result<Arc<Revision>>> {
        let found = match std::mem::replace(&mut self.next, Next::End) {
            Next::Newest => Ok(self.tree.newest()),
            Next::Older(handle, than) => self.tree.older(handle, than).await,
            Next::End => return None,
        };
        if let Ok(revision) = &found
            && let Some(previous) = revision.fsinfo.previous
        {
            self.next = Next::Older(previous, revision.number());
        }
        Some(found)
    }
}
