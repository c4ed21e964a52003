use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use vouch_tree::proof::{Finding, ProofHeader, Walk};
use vouch_tree::{BlockHandle, FrameKind, frame};

use crate::replica::{FrameRequest, Priority};
use crate::tree::PAGE_LEN_EXPECTED;
use crate::{Error, Result, Revision, Tree};

/// Frames of a [`vouch_tree::proof`], one in memory.
pub struct Proof {
    tree: Arc<Tree>,
    header: ProofHeader,
    walk: Walk,
}

impl Tree {
    /// `path`: names joined by `/`. Does not follow symbolic links.
    pub fn prove(self: &Arc<Self>, revision: &Revision, path: &[u8]) -> Result<Proof> {
        let walk = Walk::begin(self.iv(), revision.root(), path, &mut |_| {});
        let walk = walk.map_err(|_| Error::Path {
            path: path.to_vec(),
            why: "a proof needs names joined by '/', without '..'",
        })?;
        let path: Vec<&[u8]> = walk.names().iter().map(|name| name.as_bytes()).collect();
        let header =
            ProofHeader { signed_fsinfo: revision.signed.to_vec(), path: path.join(&b'/') };
        Ok(Proof { tree: Arc::clone(self), header, walk })
    }

    async fn stored_frame(&self, kind: FrameKind, handle: &BlockHandle) -> Result<Bytes> {
        let cached = self.client().disk.as_ref().and_then(|disk| disk.get(handle));
        if let Some(stored) =
            cached.filter(|stored| frame::verify(&self.iv(), handle, stored).is_ok())
        {
            return Ok(stored.into());
        }
        let deadline = Instant::now() + self.operation_max();
        let len_expected =
            if kind.is_metadata() { PAGE_LEN_EXPECTED } else { vouch_tree::LEAF_LEN_MAX };
        let request = FrameRequest {
            handle: *handle,
            iv: self.iv(),
            decode: None,
            len_expected,
            priority: Priority::Foreground,
        };
        Ok(self.replicas_set().fetch(request, deadline, self.operation_max()).await?.stored)
    }
}

impl Proof {
    /// Begins the proof file.
    pub const fn header(&self) -> &ProofHeader {
        &self.header
    }

    /// `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        let (kind, handle) = self.walk.needed()?;
        let stored = match self.tree.stored_frame(kind, &handle).await {
            Ok(stored) => stored,
            Err(error) => return Some(Err(error)),
        };
        let advanced = self.walk.feed(&stored, &mut |_| {});
        Some(advanced.map(|()| stored).map_err(|error| Error::Damaged { what: error.to_string() }))
    }

    /// `None` until enough frames have been read.
    pub const fn finding(&self) -> Option<&Finding> {
        self.walk.finding()
    }
}
