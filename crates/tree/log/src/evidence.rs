//! Evidence about a revision, which travels beside it: the certificate of the log, and the proof
//! that the revision is in the log.

use vouch_tree::key::SigningCert;
use vouch_tree::statement::OFFERED_LEN_MAX;
use vouch_tree::{HostId, SignedFsinfo};
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::merkle::{Hash, ProofError, verify_inclusion};
use crate::policy::{CLOCK_SKEW_S_MAX, Policy, PolicyShortfall};
use crate::proof::TlogProof;
use crate::revision::{LogCert, origin, revision_entry};

const MAGIC: &[u8; 20] = b"vouch log proof v2\n\0";

/// Of evidence with the text of the proof, which has a third more bytes.
const TEXT_MAGIC: &[u8; 20] = b"vouch log proof v1\n\0";

const WITHOUT_REVISION: XdrError = XdrError::Invalid("evidence of a log without its revision");

/// Longest evidence, in bytes: a statement beside a revision, and the certificate that stands there.
pub const EVIDENCE_LEN_MAX: usize = OFFERED_LEN_MAX + (8 << 10);

/// Nothing in it is verified.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEvidence {
    /// The root key's certificate for the log.
    pub cert: LogCert,
    /// The proof that the log has the revision.
    pub proof: TlogProof,
}

/// Why evidence does not show that a revision is in the log of its tree, and witnessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum EvidenceError {
    #[error("the root key of this tree has not certified the log")]
    Uncertified,
    #[error("the certificate of the log's key is not valid now")]
    CertificateTime,
    #[error("the checkpoint is of another log, {0:?}")]
    OtherLog(String),
    #[error("the log's proof is not about this revision: {0}")]
    Proof(#[from] ProofError),
    #[error("{whose} policy is not met: {error}")]
    PolicyShortfall { whose: &'static str, error: PolicyShortfall },
}

/// The cosignatures that the policies count. Times are seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Witnessing {
    /// Witnesses that the policies name.
    pub witnesses: usize,
    /// Those of them that have cosigned.
    pub cosigned: usize,
    /// Of the oldest cosignature that counts.
    pub oldest: Option<u64>,
    /// Of the newest one.
    pub newest: Option<u64>,
    /// The quorum of the strictest policy had seen no larger tree by then. `None`: none is demanded.
    pub quorum_time: Option<u64>,
}

impl LogEvidence {
    /// Verifies everything: the certificate, the log's signatures, the proof, and the quorums of
    /// the tree's own policy and of `policies`, the reader's: all must hold. `signed_fsinfo`: the
    /// XDR of the revision. `now`: seconds since 1970.
    pub fn verify(
        &self,
        hostid: &HostId,
        signed_fsinfo: &[u8],
        policies: &[Policy],
        now: u64,
    ) -> Result<Witnessing, EvidenceError> {
        if !self.cert.is_certified(hostid, None) {
            return Err(EvidenceError::Uncertified);
        }
        self.verify_certified(signed_fsinfo, policies, now)
    }

    /// As [`Self::verify`], after [`LogCert::is_certified`].
    pub fn verify_certified(
        &self,
        signed_fsinfo: &[u8],
        policies: &[Policy],
        now: u64,
    ) -> Result<Witnessing, EvidenceError> {
        // A certificate may be as new as a revision.
        let is_valid = |time| self.cert.is_valid_at(time);
        if !is_valid(now) && !is_valid(now.saturating_add(CLOCK_SKEW_S_MAX)) {
            return Err(EvidenceError::CertificateTime);
        }
        let head = self.proof.checkpoint.checkpoint();
        if head.origin != origin(self.cert.log()) {
            return Err(EvidenceError::OtherLog(head.origin.clone()));
        }
        let leaf = Hash::leaf(&revision_entry(signed_fsinfo));
        verify_inclusion(leaf, self.proof.index, head.size, &self.proof.hashes, head.root)?;
        let (keys, none) = (self.cert.keys().all(), Policy::without_witnesses());
        let of_tree = self.cert.policy().map(|demanded| (demanded.policy(), "the tree's"));
        let of_reader = policies.iter().map(|policy| (policy, "the reader's"));
        let mut all: Vec<_> = of_tree.into_iter().chain(of_reader).collect();
        if all.is_empty() {
            all.push((&none, "the log's"));
        }
        // A policy may name witnesses of another one.
        let (mut witnesses, mut quorum_times) = (Vec::new(), Vec::new());
        for (policy, whose) in all {
            let belief = policy
                .check(&self.proof.checkpoint, &keys, now)
                .map_err(|error| EvidenceError::PolicyShortfall { whose, error })?;
            quorum_times.extend(belief.quorum_time);
            for (number, witness) in policy.witnesses().iter().enumerate() {
                if witnesses.iter().all(|(key, _)| *key != &witness.key) {
                    let found = belief.cosigned.iter().find(|found| found.witness == number);
                    witnesses.push((&witness.key, found.map(|found| found.time)));
                }
            }
        }
        let times: Vec<_> = witnesses.iter().filter_map(|(_, time)| *time).collect();
        Ok(Witnessing {
            witnesses: witnesses.len(),
            cosigned: times.len(),
            oldest: times.iter().copied().min(),
            newest: times.iter().copied().max(),
            quorum_time: quorum_times.into_iter().min(),
        })
    }
}

/// True if a statement beside a revision is evidence, and no key statement.
pub fn is_evidence(statement: &[u8]) -> bool {
    statement.starts_with(MAGIC) || statement.starts_with(TEXT_MAGIC)
}

impl LogEvidence {
    /// For a place beside the revision, which may have the certificate already. `signed_fsinfo`: the
    /// XDR of the revision.
    pub fn to_statement(&self, signed_fsinfo: &[u8]) -> Vec<u8> {
        let beside = SignedFsinfo::from_xdr(signed_fsinfo).ok();
        let mut w = Writer::new();
        self.encode_beside(&mut w, beside.as_ref().map(SignedFsinfo::cert));
        w.into_bytes()
    }

    /// Reads what [`Self::to_statement`] has made for the same revision.
    pub fn from_statement(bytes: &[u8], signed_fsinfo: &[u8]) -> Result<Self, XdrError> {
        Self::read_beside(bytes, || Ok(SignedFsinfo::from_xdr(signed_fsinfo)?.into_cert()))
    }

    /// The same. `cert`: the certificate of the revision, if that can be read.
    pub fn from_statement_beside(
        bytes: &[u8],
        cert: Option<&SigningCert>,
    ) -> Result<Self, XdrError> {
        Self::read_beside(bytes, || cert.cloned().ok_or(WITHOUT_REVISION))
    }

    fn read_beside(
        bytes: &[u8],
        beside: impl FnOnce() -> Result<SigningCert, XdrError>,
    ) -> Result<Self, XdrError> {
        let mut r = Reader::new(bytes);
        let evidence = Self::decode_beside(&mut r, beside)?;
        r.finish()?;
        Ok(evidence)
    }

    fn encode_beside(&self, w: &mut Writer, beside: Option<&SigningCert>) {
        w.opaque_fixed(MAGIC);
        self.cert.encode_beside(w, beside);
        self.proof.encode(w);
    }

    fn decode_beside(
        r: &mut Reader<'_>,
        beside: impl FnOnce() -> Result<SigningCert, XdrError>,
    ) -> Result<Self, XdrError> {
        let magic = r.opaque_fixed::<20>()?;
        if magic != *MAGIC && magic != *TEXT_MAGIC {
            return Err(XdrError::Invalid("evidence of a log"));
        }
        let cert = LogCert::decode_beside(r, beside)?;
        if magic == *MAGIC {
            return Ok(Self { cert, proof: TlogProof::decode(r)? });
        }
        let proof = TlogProof::parse(r.opaque(OFFERED_LEN_MAX)?)
            .map_err(|_| XdrError::Invalid("proof in the evidence of a log"))?;
        Ok(Self { cert, proof })
    }
}

/// With all that it needs.
impl Xdr for LogEvidence {
    fn encode(&self, w: &mut Writer) {
        self.encode_beside(w, None);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Self::decode_beside(r, || Err(WITHOUT_REVISION))
    }
}
