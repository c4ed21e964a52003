//! Proofs that can be checked offline (C2SP tlog-proof): a checkpoint with its cosignatures, and
//! the way from an entry to its root hash.

use data_encoding::BASE64;
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::checkpoint::{CheckpointError, SignedCheckpoint, parse_decimal};
use crate::key::VerifierKey;
use crate::merkle::{Hash, PROOF_LEN_MAX, ProofError, TREE_SIZE_MAX, verify_inclusion};
use crate::note::{NOTE_LEN_MAX, NoteSignature, SIGNATURES_MAX, SignedNote};
use crate::policy::{Belief, Policy, PolicyShortfall};

/// Longest extra data, in bytes: Go's `formats` reads lines up to 64 KiB.
pub const EXTRA_LEN_MAX: usize = 32 * 1024;

/// Longest proof, in bytes.
pub const TLOG_PROOF_LEN_MAX: usize = NOTE_LEN_MAX + EXTRA_LEN_MAX / 3 * 4 + 64 * 64;

const HEADER: &str = "c2sp.org/tlog-proof@v1";

/// A proof. Nothing in it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlogProof {
    /// Data of the application, which nobody vouches for.
    pub extra: Option<Vec<u8>>,
    /// Number of the entry.
    pub index: u64,
    /// From the leaf's sibling to the root's child.
    pub hashes: Vec<Hash>,
    /// The head of the log.
    pub checkpoint: SignedCheckpoint,
}

/// Why bytes are no proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum FormatError {
    #[error("a proof is longer than {TLOG_PROOF_LEN_MAX} bytes")]
    TooLong,
    #[error("not a proof: the first line is not {HEADER}")]
    Header,
    #[error("the extra data of a proof is no base64 of up to {EXTRA_LEN_MAX} bytes")]
    Extra,
    #[error("a proof lacks its index line")]
    Index,
    #[error("a hash of a proof is not 32 bytes in base64, or there are over {PROOF_LEN_MAX}")]
    Hash,
    #[error("the checkpoint of a proof: {0}")]
    Checkpoint(#[from] CheckpointError),
}

/// Why a proof does not show what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum VerifyError {
    #[error("{0}")]
    PolicyShortfall(#[from] PolicyShortfall),
    #[error("{0}")]
    Proof(#[from] ProofError),
}

/// Shorter than its text.
impl Xdr for TlogProof {
    fn encode(&self, w: &mut Writer) {
        w.optional(self.extra.as_ref(), |w, extra| w.opaque(extra));
        w.u64(self.index);
        w.count(self.hashes.len());
        self.hashes.iter().for_each(|hash| w.opaque_fixed(&hash.0));
        let note = self.checkpoint.note();
        w.opaque(note.text().as_bytes());
        w.count(note.signatures().len());
        for signature in note.signatures() {
            w.opaque(signature.name.as_bytes());
            w.u32(signature.key_id);
            w.opaque(&signature.bytes);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let extra = r.optional(|r| Ok(r.opaque(EXTRA_LEN_MAX)?.to_vec()))?;
        let index = r.u64()?;
        if index > TREE_SIZE_MAX {
            return Err(XdrError::Invalid("number of a log's entry"));
        }
        let mut hashes = Vec::new();
        for _ in 0..r.count(PROOF_LEN_MAX)? {
            hashes.push(Hash(r.opaque_fixed()?));
        }
        let text = r.string(NOTE_LEN_MAX)?.to_owned();
        let mut signatures = Vec::new();
        for _ in 0..r.count(SIGNATURES_MAX)? {
            let name = r.string(NOTE_LEN_MAX)?.to_owned();
            let (key_id, bytes) = (r.u32()?, r.opaque(NOTE_LEN_MAX)?.to_vec());
            signatures.push(NoteSignature { name, key_id, bytes });
        }
        let checkpoint = SignedNote::from_parts(text, signatures)
            .map_err(CheckpointError::from)
            .and_then(SignedCheckpoint::from_note)
            .map_err(|_| XdrError::Invalid("checkpoint in a log's proof"))?;
        Ok(Self { extra, index, hashes, checkpoint })
    }
}

impl TlogProof {
    /// The text of a `.tlog-proof` file.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        if let Some(extra) = &self.extra {
            text += &format!("extra {}\n", BASE64.encode(extra));
        }
        text += &format!("index {}\n", self.index);
        for hash in &self.hashes {
            text += &format!("{hash}\n");
        }
        text + "\n" + &self.checkpoint.to_text()
    }

    /// Takes exactly what [`Self::to_text`] writes. Verifies nothing.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() > TLOG_PROOF_LEN_MAX {
            return Err(FormatError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| FormatError::Header)?;
        let rest = text.strip_prefix(HEADER).and_then(|rest| rest.strip_prefix('\n'));
        let mut rest = rest.ok_or(FormatError::Header)?;
        let mut extra = None;
        if let Some(after) = rest.strip_prefix("extra ") {
            let (data, after) = after.split_once('\n').ok_or(FormatError::Extra)?;
            let data = crate::base64::decode(data);
            extra = Some(data.filter(|x| x.len() <= EXTRA_LEN_MAX).ok_or(FormatError::Extra)?);
            rest = after;
        }
        let (index, rest) = rest
            .strip_prefix("index ")
            .and_then(|rest| rest.split_once('\n'))
            .and_then(|(index, rest)| Some((parse_decimal(index)?, rest)))
            .ok_or(FormatError::Index)?;
        let (hashes, rest) = parse_hash_lines(rest).ok_or(FormatError::Hash)?;
        let checkpoint = SignedCheckpoint::parse(rest.as_bytes())?;
        Ok(Self { extra, index, hashes, checkpoint })
    }

    /// Verifies everything: signatures and quorum by `policy` and `log_keys` (see
    /// [`Policy::check`]), then that `leaf` is the entry. `now`: seconds since 1970.
    pub fn verify(
        &self,
        leaf: Hash,
        policy: &Policy,
        log_keys: &[VerifierKey],
        now: u64,
    ) -> Result<Belief, VerifyError> {
        // Hashes are cheaper than signatures.
        let head = self.checkpoint.checkpoint();
        verify_inclusion(leaf, self.index, head.size, &self.hashes, head.root)?;
        Ok(policy.check(&self.checkpoint, log_keys, now)?)
    }
}

/// Hashes in base64, one a line, up to the first empty line; and what follows that line.
pub(crate) fn parse_hash_lines(mut text: &str) -> Option<(Vec<Hash>, &str)> {
    let mut hashes = Vec::new();
    loop {
        let (line, rest) = text.split_once('\n')?;
        if line.is_empty() {
            return Some((hashes, rest));
        }
        if hashes.len() == PROOF_LEN_MAX {
            return None;
        }
        hashes.push(Hash::from_base64(line)?);
        text = rest;
    }
}
