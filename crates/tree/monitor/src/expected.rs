//! The publisher's own database, which knows each revision that its owner has published.

use std::path::{Path, PathBuf};

use vouch_log::checkpoint::Checkpoint;
use vouch_log::merkle::Hash;
use vouch_log::reader::LogReader;
use vouch_log::revision::revision_entry;
use vouch_tree::{FrameKind, HostId, SignedFsinfo, frame};
use vouch_tree_store::{Database, FrameSource as _, LogFiles, Snapshot, open_log};
use vouch_xdr::Xdr as _;

use crate::head::contains_leaf;
use crate::{Error, Result};

/// Read after the replicas: a revision is in the publisher's database before it is in any replica.
pub(crate) struct Expected {
    path: PathBuf,
    snapshot: Snapshot,
    pub(crate) log: Option<LogReader<LogFiles>>,
}

impl Expected {
    pub(crate) fn open(path: &Path, hostid: &HostId) -> Result<Self> {
        let failed = |what: String| Error::Expected { path: path.to_owned(), what };
        let snapshot = Database::open_read(path).map_err(|error| failed(error.to_string()))?;
        if snapshot.hostid() != *hostid {
            return Err(failed("is the database of another tree".to_owned()));
        }
        let evidence = snapshot.evidence();
        let log = evidence.map(|found| open_log(snapshot.log_files(), &found.proof.checkpoint));
        let log = log.transpose().map_err(|error| failed(error.to_string()))?;
        Ok(Self { path: path.to_owned(), snapshot, log })
    }

    /// True if the publisher's log has begun with this tree.
    pub(crate) fn has_head(&mut self, size: u64, root: Hash) -> Result<bool> {
        let path = &self.path;
        let failed = |error: &dyn std::fmt::Display| Error::Expected {
            path: path.clone(),
            what: error.to_string(),
        };
        match &mut self.log {
            Some(log) if size <= log.size() => {
                Ok(log.root_at(size).map_err(|error| failed(&error))? == root)
            }
            _ => Ok(size == 0),
        }
    }

    /// True if the publisher's log, with a revision that waits for witnesses, has so many entries and
    /// begins with the root hash, if that is known.
    pub(crate) fn has_shown(&mut self, size: u64, root: Option<Hash>) -> Result<bool> {
        let path = &self.path;
        let failed = |error: &dyn std::fmt::Display| Error::Expected {
            path: path.clone(),
            what: error.to_string(),
        };
        let pending = self.snapshot.pending_head().map_err(|error| failed(&error))?;
        let is_pending =
            |head: &Checkpoint| size == head.size && root.is_none_or(|root| root == head.root);
        if pending.as_ref().is_some_and(is_pending) {
            return Ok(true);
        }
        match root {
            Some(root) => self.has_head(size, root),
            None => Ok(self.log.as_ref().is_some_and(|log| size <= log.size())),
        }
    }

    /// True if this revision was published. `signed`: the XDR of its signed fsinfo.
    pub(crate) fn knows(&mut self, signed: &[u8]) -> Result<bool> {
        let path = &self.path;
        let failed = |error: &dyn std::fmt::Display| Error::Expected {
            path: path.clone(),
            what: error.to_string(),
        };
        if let Some(log) = &mut self.log {
            let leaf = Hash::leaf(&revision_entry(signed));
            if contains_leaf(log, leaf).map_err(|error| failed(&error))? {
                return Ok(true);
            }
        }
        // A tree without a log, or a log that lacks its last revisions.
        let Ok(parsed) = SignedFsinfo::from_xdr(signed).and_then(|signed| signed.unverified())
        else {
            return Ok(false);
        };
        let revisions = self.snapshot.revisions();
        let Some(found) = revisions.iter().find(|found| found.number == parsed.revision) else {
            return Ok(false);
        };
        let stored = self.snapshot.get(&found.fsinfo).map_err(|error| failed(&error))?;
        let iv = self.snapshot.iv();
        Ok(stored.is_some_and(|stored| {
            frame::open(&iv, &found.fsinfo, FrameKind::Fsinfo, &stored)
                .is_ok_and(|payload| payload[..] == *signed)
        }))
    }
}
