//! Evidence about a revision, which travels beside it: the certificate of the log, and the proof
//! that the revision is in the log.

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::proof::TlogProof;
use crate::revision::LogCert;

const MAGIC: &[u8; 20] = b"vouch log proof v1\n\0";

/// Longest evidence, in bytes.
pub const EVIDENCE_LEN_MAX: usize = 32 << 10;

/// Nothing in it is verified.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEvidence {
    /// The root key's certificate for the log.
    pub cert: LogCert,
    /// The proof that the log has the revision.
    pub proof: TlogProof,
}

/// True if a statement beside a revision is evidence, and no key statement.
pub fn is_evidence(statement: &[u8]) -> bool {
    statement.starts_with(MAGIC)
}

impl Xdr for LogEvidence {
    fn encode(&self, w: &mut Writer) {
        w.opaque_fixed(MAGIC);
        self.cert.encode(w);
        w.opaque(self.proof.to_text().as_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        if r.opaque_fixed::<20>()? != *MAGIC {
            return Err(XdrError::Invalid("evidence of a log"));
        }
        let cert = LogCert::decode(r)?;
        let proof = TlogProof::parse(r.opaque(EVIDENCE_LEN_MAX)?)
            .map_err(|_| XdrError::Invalid("proof in the evidence of a log"))?;
        Ok(Self { cert, proof })
    }
}
