//! The manifest defines the database. Replacing it by a rename is the commit.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use vouch_log::checkpoint::SignedCheckpoint;
use vouch_log::evidence::{LogEvidence, is_evidence};
use vouch_tree::{BlockHandle, HostId, Iv};
use vouch_xdr::{Reader, Writer, Xdr};

use crate::disk::Disk;
use crate::layout::{Layout, PackClass, pack_path, segment_path};
use crate::pack::PACK_LEN_LIMIT;
use crate::{Error, Result};

/// Committed and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub number: u64,
    /// Seconds since 1970.
    pub start: i64,
    /// Signed fsinfo, the root of all its data.
    pub fsinfo: BlockHandle,
    pub tag: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackMeta {
    pub(crate) id: u32,
    pub(crate) class: PackClass,
    pub(crate) len: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentMeta {
    pub(crate) id: u32,
    pub(crate) count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) hostid: HostId,
    pub(crate) iv: Iv,
    pub(crate) generation: u64,
    pub(crate) next_pack: u32,
    pub(crate) next_segment: u32,
    pub(crate) packs: Vec<PackMeta>,
    pub(crate) segments: Vec<SegmentMeta>,
    pub(crate) head: Option<Arc<[u8]>>,
    pub(crate) revisions: Vec<Revision>,
    pub(crate) statements: Vec<Vec<u8>>,
    pub(crate) companions: Vec<BlockHandle>,
    pub(crate) evidence: DecodedEvidence,
}

/// Of the statements, decoded once: its keys take 0.1 ms.
#[derive(Debug, Clone, Default)]
pub(crate) struct DecodedEvidence(OnceLock<Option<Arc<LogEvidence>>>);

/// The statements decide.
impl PartialEq for DecodedEvidence {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for DecodedEvidence {}

impl Manifest {
    /// About the head: its checkpoint is the log's.
    pub(crate) fn evidence(&self) -> Option<&Arc<LogEvidence>> {
        let decode = || {
            let head = self.head.as_deref().unwrap_or_default();
            LogEvidence::from_statement(self.evidence_bytes()?, head).ok().map(Arc::new)
        };
        self.evidence.0.get_or_init(decode).as_ref()
    }

    pub(crate) fn evidence_bytes(&self) -> Option<&Vec<u8>> {
        self.statements.iter().find(|statement| is_evidence(statement))
    }

    /// After the head.
    pub(crate) fn set_evidence(&mut self, evidence: &LogEvidence) {
        self.statements.retain(|statement| !is_evidence(statement));
        self.statements.push(evidence.to_statement(self.head.as_deref().unwrap_or_default()));
        self.evidence = DecodedEvidence(OnceLock::from(Some(Arc::new(evidence.clone()))));
    }

    /// Replaces all but the evidence.
    pub(crate) fn set_key_statements(&mut self, statements: Vec<Vec<u8>>) {
        let evidence = self.evidence_bytes().cloned();
        self.statements = statements;
        self.statements.retain(|statement| !is_evidence(statement));
        self.statements.extend(evidence);
    }

    pub(crate) fn checkpoint(&self) -> Option<&SignedCheckpoint> {
        self.evidence().map(|evidence| &evidence.proof.checkpoint)
    }

    /// There must be one of its number, whatever becomes of its writer.
    pub(crate) fn is_signed_after(&self, before: &Self) -> bool {
        self.head != before.head || self.log_size() > before.log_size()
    }

    pub(crate) fn log_size(&self) -> u64 {
        self.checkpoint().map_or(0, |found| found.checkpoint().size)
    }

    pub(crate) fn new(hostid: HostId, iv: Iv) -> Self {
        Self {
            hostid,
            iv,
            generation: GENERATION_OF_NEW,
            next_pack: 1,
            next_segment: 1,
            packs: Vec::new(),
            segments: Vec::new(),
            head: None,
            revisions: Vec::new(),
            statements: Vec::new(),
            companions: Vec::new(),
            evidence: DecodedEvidence::default(),
        }
    }

    /// Of packs and segments, below the database.
    pub(crate) fn paths(&self) -> HashSet<String> {
        let packs = self.packs.iter().map(|pack| pack_path(pack.class, pack.id));
        packs.chain(self.segments.iter().map(|segment| segment_path(segment.id))).collect()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let body = self.to_xdr();
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(blake3::hash(&body).as_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self> {
        if bytes.len() < HEADER_LEN || bytes[..8] != MAGIC {
            return Err(Error::damaged(path, "not a manifest"));
        }
        let (header, body) = bytes.split_at(HEADER_LEN);
        let version = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            return Err(Error::Version { path: path.to_owned(), found: version });
        }
        if header[12..] != blake3::hash(body).as_bytes()[..] {
            return Err(Error::damaged(path, "the manifest does not match its checksum"));
        }
        Self::from_xdr(body).map_err(|error| Error::damaged(path, error.to_string()))
    }

    /// Durable on return. The rename is the commit. `is_final`: a later writer finds the next
    /// manifest before any reader does, so that no power cut takes back what one has seen.
    pub(crate) fn write(&self, layout: &Layout, disk: &dyn Disk, is_final: bool) -> Result<()> {
        let (next, path) = (layout.manifest_next(), layout.manifest());
        if next.exists() {
            disk.remove(&next).map_err(Error::io("remove", &next))?;
        }
        let file = disk.create(&next).map_err(Error::io("create", &next))?;
        file.append(&[&self.to_bytes()]).map_err(Error::io("write", &next))?;
        file.sync().map_err(Error::io("sync", &next))?;
        if is_final {
            disk.sync_dir(layout.root()).map_err(Error::io("sync", layout.root()))?;
        }
        disk.rename(&next, &path).map_err(Error::io("replace", &path))?;
        disk.sync_dir(layout.root()).map_err(Error::io("sync", layout.root()))
    }
}

impl Xdr for Manifest {
    fn encode(&self, w: &mut Writer) {
        w.opaque_fixed(self.hostid.as_bytes());
        w.opaque_fixed(self.iv.as_bytes());
        w.u64(self.generation);
        w.u32(self.next_pack);
        w.u32(self.next_segment);
        w.count(self.packs.len());
        for pack in &self.packs {
            w.u32(pack.id);
            w.u32(pack.class.number());
            w.u64(pack.len);
        }
        w.count(self.segments.len());
        for segment in &self.segments {
            w.u32(segment.id);
            w.u64(segment.count);
        }
        w.optional(self.head.as_ref(), |w, head| w.opaque(head));
        w.count(self.revisions.len());
        for revision in &self.revisions {
            w.u64(revision.number);
            w.i64(revision.start);
            w.opaque_fixed(revision.fsinfo.as_bytes());
            w.optional(revision.tag.as_ref(), |w, tag| w.opaque(tag.as_bytes()));
        }
        w.count(self.statements.len());
        self.statements.iter().for_each(|statement| w.opaque(statement));
        w.count(self.companions.len());
        self.companions.iter().for_each(|handle| w.opaque_fixed(handle.as_bytes()));
    }

    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, vouch_xdr::Error> {
        Ok(Self {
            hostid: HostId::from_bytes(r.opaque_fixed()?),
            iv: Iv::from_bytes(r.opaque_fixed()?),
            generation: r.u64()?,
            next_pack: r.u32()?,
            next_segment: r.u32()?,
            packs: list(r, PACK_COUNT_MAX, |r| {
                let (id, class, len) = (r.u32()?, r.u32()?, r.u64()?);
                let class = PackClass::from_number(class)
                    .ok_or(vouch_xdr::Error::Unknown { what: "pack class", value: class })?;
                if len > PACK_LEN_LIMIT {
                    return Err(vouch_xdr::Error::Invalid("pack length"));
                }
                Ok(PackMeta { id, class, len })
            })?,
            segments: list(r, SEGMENT_COUNT_MAX, |r| {
                Ok(SegmentMeta { id: r.u32()?, count: r.u64()? })
            })?,
            head: r.optional(|r| r.opaque(HEAD_LEN_MAX).map(Arc::from))?,
            revisions: list(r, REVISION_COUNT_MAX, |r| {
                Ok(Revision {
                    number: r.u64()?,
                    start: r.i64()?,
                    fsinfo: BlockHandle::from_bytes(r.opaque_fixed()?),
                    tag: r.optional(|r| r.string(TAG_LEN_MAX).map(str::to_owned))?,
                })
            })?,
            statements: list(r, STATEMENT_COUNT_MAX, |r| {
                r.opaque(STATEMENT_LEN_MAX).map(<[u8]>::to_vec)
            })?,
            companions: list(r, COMPANION_COUNT_MAX, |r| {
                r.opaque_fixed().map(BlockHandle::from_bytes)
            })?,
            evidence: DecodedEvidence::default(),
        })
    }
}

/// Memory grows with the data, not the count.
fn list<'a, T>(
    r: &mut Reader<'a>,
    count_max: usize,
    mut read: impl FnMut(&mut Reader<'a>) -> std::result::Result<T, vouch_xdr::Error>,
) -> std::result::Result<Vec<T>, vouch_xdr::Error> {
    let count = r.count(count_max)?;
    (0..count).map(|_| read(r)).collect()
}

pub(crate) const MAGIC: [u8; 8] = *b"VOUCHDB\n";
const VERSION: u32 = 1;
/// Before the first commit.
pub(crate) const GENERATION_OF_NEW: u64 = 1;
const HEADER_LEN: usize = 8 + 4 + 32;

pub(crate) const PACK_COUNT_MAX: usize = 4 << 20;
pub(crate) const SEGMENT_COUNT_MAX: usize = 4096;
/// A signed fsinfo has some hundred bytes, or a few KiB with inline xattrs of the root.
pub(crate) const HEAD_LEN_MAX: usize = 1 << 20;
/// One a minute for two years.
pub(crate) const REVISION_COUNT_MAX: usize = 1 << 20;
pub(crate) const TAG_LEN_MAX: usize = 255;
pub(crate) const STATEMENT_COUNT_MAX: usize = 64;
pub(crate) const STATEMENT_LEN_MAX: usize = 64 << 10;
pub(crate) const COMPANION_COUNT_MAX: usize = 64;
