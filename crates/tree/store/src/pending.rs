//! A revision that is durable and not visible yet: witnesses may have seen its log's checkpoint, so
//! no other revision can take its place.
//!
//! Its frames and the log's files are committed before. In a bucket, the object is never deleted: a
//! writer that has lost the lock could delete that of another. One that the manifest's log covers
//! has no effect.

use std::io;

use vouch_log::checkpoint::Checkpoint;
use vouch_log::evidence::LogEvidence;
use vouch_tree::BlockHandle;
use vouch_xdr::{Error as XdrError, Reader, Writer as XdrWriter, Xdr};

use crate::layout::{Layout, PENDING};
use crate::log::read_file;
use crate::manifest::{
    COMPANION_COUNT_MAX, HEAD_LEN_MAX, Manifest, Revision, STATEMENT_LEN_MAX, TAG_LEN_MAX,
};
use crate::writer::{NewRevision, Writer};
use crate::{Error, PutCounts, Result, Snapshot};

const MAGIC: &[u8; 16] = b"vouch pending 1\n";

const LEN_MAX: usize = HEAD_LEN_MAX + STATEMENT_LEN_MAX + 8192;

/// A revision that waits for its commit.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Has evidence.
    pub revision: NewRevision,
    /// Comes with it.
    pub earlier: Option<Revision>,
}

impl Pending {
    /// Entries of the log with this revision.
    fn log_size(&self) -> u64 {
        let evidence = self.revision.evidence.as_ref();
        evidence.map_or(0, |evidence| evidence.proof.checkpoint.checkpoint().size)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let body = self.to_xdr();
        [MAGIC, &blake3::hash(&body).as_bytes()[..], &body].concat()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (hash, body) = bytes.strip_prefix(MAGIC)?.split_at_checked(32)?;
        (blake3::hash(body).as_bytes() == hash).then(|| Self::from_xdr(body).ok())?
    }

    /// `None` if there is none; a torn one was shown to nobody.
    fn read(layout: &Layout) -> Result<Option<Self>> {
        let read = match layout.bucket() {
            Some(bucket) => bucket.read_object(PENDING, LEN_MAX as u64),
            None => match read_file(&layout.pending(), LEN_MAX) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                read => read.map(Some),
            },
        };
        let bytes = read.map_err(Error::io("read", &layout.pending()))?;
        Ok(bytes.and_then(|bytes| Self::parse(&bytes)))
    }

    /// One that the manifest's log has is committed.
    pub(crate) fn waiting(layout: &Layout, manifest: &Manifest) -> Result<Option<Self>> {
        let found = Self::read(layout)?;
        Ok(found.filter(|pending| pending.log_size() > manifest.log_size()))
    }
}

impl Xdr for Pending {
    fn encode(&self, w: &mut XdrWriter) {
        let Self { revision, earlier } = self;
        w.u64(revision.number);
        w.i64(revision.start);
        w.opaque_fixed(revision.fsinfo.as_bytes());
        w.opaque(&revision.signed);
        w.optional(revision.tag.as_ref(), |w, tag| w.opaque(tag.as_bytes()));
        w.count(revision.companions.len());
        revision.companions.iter().for_each(|handle| w.opaque_fixed(handle.as_bytes()));
        w.optional(revision.keep.as_ref(), |w, keep| w.u64(*keep as u64));
        w.bool(revision.supersedes);
        w.optional(revision.evidence.as_ref(), |w, evidence| w.opaque(&evidence.to_xdr()));
        w.optional(earlier.as_ref(), |w, earlier| {
            w.u64(earlier.number);
            w.i64(earlier.start);
            w.opaque_fixed(earlier.fsinfo.as_bytes());
            w.optional(earlier.tag.as_ref(), |w, tag| w.opaque(tag.as_bytes()));
        });
    }

    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, XdrError> {
        let handle = |r: &mut Reader<'_>| r.opaque_fixed().map(BlockHandle::from_bytes);
        let tag = |r: &mut Reader<'_>| r.optional(|r| r.string(TAG_LEN_MAX).map(str::to_owned));
        let revision = NewRevision {
            number: r.u64()?,
            start: r.i64()?,
            fsinfo: handle(r)?,
            signed: r.opaque(HEAD_LEN_MAX)?.to_vec(),
            tag: tag(r)?,
            companions: {
                let count = r.count(COMPANION_COUNT_MAX)?;
                (0..count).map(|_| handle(r)).collect::<std::result::Result<_, _>>()?
            },
            keep: r.optional(|r| r.u64())?.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX)),
            supersedes: r.bool()?,
            evidence: r
                .optional(|r| LogEvidence::from_xdr(r.opaque(STATEMENT_LEN_MAX)?))?
                .map(Box::new),
        };
        let earlier = r.optional(|r| {
            Ok(Revision { number: r.u64()?, start: r.i64()?, fsinfo: handle(r)?, tag: tag(r)? })
        })?;
        Ok(Self { revision, earlier })
    }
}

impl Snapshot {
    /// Head of the log with the revision that waits for its commit, if there is one. Witnesses may
    /// have seen it.
    pub fn pending_head(&self) -> Result<Option<Checkpoint>> {
        let waiting = Pending::waiting(self.layout(), self.view().manifest())?;
        let evidence = waiting.and_then(|pending| pending.revision.evidence);
        Ok(evidence.map(|evidence| evidence.proof.checkpoint.checkpoint().clone()))
    }
}

impl Writer {
    /// Durable on return, and visible to no reader. Replaces an earlier state of the same revision.
    pub fn hold(&self, pending: &Pending) -> Result<()> {
        // Frames and log files first.
        self.checkpoint()?;
        self.break_on_error(self.write_pending(pending))
    }

    fn write_pending(&self, pending: &Pending) -> Result<()> {
        let (layout, disk) = (&self.file_factory.layout, &self.file_factory.disk);
        let (path, next) = (layout.pending(), layout.pending_next());
        if next.exists() {
            disk.remove(&next).map_err(Error::io("remove", &next))?;
        }
        let file = disk.create(&next).map_err(Error::io("create", &next))?;
        file.append(&[&pending.to_bytes()]).map_err(Error::io("write", &next))?;
        file.sync().map_err(Error::io("sync", &next))?;
        disk.rename(&next, &path).map_err(Error::io("replace", &path))?;
        disk.sync_dir(layout.root()).map_err(Error::io("sync", layout.root()))
    }

    /// The revision that waits for its commit: of a killed writer, or for witnesses.
    pub fn pending(&self) -> Result<Option<Pending>> {
        Pending::waiting(&self.file_factory.layout, &self.committed.lock())
    }

    /// Makes it visible.
    pub fn commit_pending(&self, pending: Pending) -> Result<PutCounts> {
        let counts = match pending.earlier {
            Some(earlier) => self.commit_after(earlier, pending.revision)?,
            None => self.commit(pending.revision)?,
        };
        let layout = &self.file_factory.layout;
        if layout.bucket().is_none() && layout.pending().exists() {
            // Without effect from now on.
            let _ = self.file_factory.disk.remove(&layout.pending());
        }
        Ok(counts)
    }
}
