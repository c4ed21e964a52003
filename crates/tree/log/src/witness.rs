//! Messages to and from witnesses (C2SP tlog-witness). The caller speaks HTTP.

use sha2::{Digest, Sha256};

use crate::checkpoint::{CheckpointError, SignedCheckpoint, parse_decimal};
use crate::key::{Algorithm, VerifierKey};
use crate::merkle::{Hash, PROOF_LEN_MAX};
use crate::note::{NOTE_LEN_MAX, NoteError, NoteSignature};
use crate::proof::parse_hash_lines;

/// Appended to a witness's submission prefix for the request.
pub const ADD_CHECKPOINT_PATH: &str = "/add-checkpoint";

/// Longest request, in bytes. litewitness refuses 10 KiB: see [`AddCheckpoint::new`].
pub const REQUEST_LEN_MAX: usize = NOTE_LEN_MAX + 64 * 64;

/// Longest reply that is read, in bytes: cosignatures of some keys, or an error page.
pub const REPLY_LEN_MAX: usize = 64 * 1024;

/// Content type of the reply with status 409.
pub const SIZE_CONTENT_TYPE: &str = "text/x.tlog.size";

/// Path of the newest checkpoint that a witness has cosigned, below its monitoring prefix.
pub fn monitor_path(origin: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(origin).into();
    format!("/{}/checkpoint", data_encoding::HEXLOWER.encode(&hash))
}

/// The body of a request for cosignatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddCheckpoint {
    /// Size of the last checkpoint that the witness has cosigned.
    pub old_size: u64,
    /// From there to the checkpoint; empty if that size is 0 or the checkpoint's.
    pub proof: Vec<Hash>,
    /// The checkpoint to cosign.
    pub checkpoint: SignedCheckpoint,
}

/// Why bytes are no request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum RequestError {
    #[error("a request to a witness is longer than {REQUEST_LEN_MAX} bytes, or not text")]
    Text,
    #[error("a request to a witness lacks its line `old SIZE`")]
    OldSize,
    #[error("a hash of a request is not 32 bytes in base64, or there are over {PROOF_LEN_MAX}")]
    Hash,
    #[error("the checkpoint of a request: {0}")]
    Checkpoint(#[from] CheckpointError),
}

impl AddCheckpoint {
    /// Leaves in the checkpoint only signatures of `log_keys`: those that witnesses know. Others
    /// only cost: litewitness refuses bodies over 10 KiB, and sigsum-witness a second Ed25519
    /// signature of the log's name. So name one Ed25519 key at a time, also during a rotation.
    pub fn new(
        old_size: u64,
        proof: Vec<Hash>,
        checkpoint: &SignedCheckpoint,
        log_keys: &[VerifierKey],
    ) -> Self {
        Self { old_size, proof, checkpoint: checkpoint.with_signatures_of(log_keys) }
    }

    /// The body.
    pub fn to_text(&self) -> String {
        let mut text = format!("old {}\n", self.old_size);
        for hash in &self.proof {
            text += &format!("{hash}\n");
        }
        text + "\n" + &self.checkpoint.to_text()
    }

    /// As a witness reads it. Takes exactly what [`Self::to_text`] writes. Verifies nothing.
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= REQUEST_LEN_MAX);
        let (old_size, rest) = text
            .ok_or(RequestError::Text)?
            .strip_prefix("old ")
            .and_then(|rest| rest.split_once('\n'))
            .and_then(|(size, rest)| Some((parse_decimal(size)?, rest)))
            .ok_or(RequestError::OldSize)?;
        let (proof, rest) = parse_hash_lines(rest).ok_or(RequestError::Hash)?;
        let checkpoint = SignedCheckpoint::parse(rest.as_bytes())?;
        Ok(Self { old_size, proof, checkpoint })
    }
}

/// A witness's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// 200: cosignatures, not verified. See [`verify_cosignatures`].
    Cosignatures(Vec<NoteSignature>),
    /// 409: the witness has cosigned this size last. Ask again with a proof from there.
    Conflict {
        /// Entries. More than the checkpoint's: another publisher was faster, or there is a fork.
        size: u64,
    },
    /// 404: the witness does not know the log's origin.
    UnknownLog,
    /// 403: the witness does not know the log's key, or the signature is false.
    UnknownKey,
    /// 422: the proof is wrong. The witness has seen another history of this log.
    ProofRefused,
    /// 400: the witness cannot read the request.
    BadRequest,
    /// 408, 429 and 5xx: ask again later.
    Busy(u16),
    /// A status that the protocol does not have.
    Unexpected(u16),
}

/// Why a reply cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum ReplyError {
    #[error("the witness's reply is longer than {REPLY_LEN_MAX} bytes, or not text")]
    Text,
    #[error("the witness's conflict reply is no size as {SIZE_CONTENT_TYPE}")]
    Size,
    #[error("the witness's reply: {0}")]
    Note(#[from] NoteError),
    #[error("the cosignature of {name} has no time")]
    NoTime { name: String },
}

impl Reply {
    /// Reads a reply's status, content type and body.
    pub fn parse(status: u16, content_type: &str, body: &[u8]) -> Result<Self, ReplyError> {
        Ok(match status {
            200 => Self::Cosignatures(NoteSignature::parse_lines(text(body)?)?),
            409 => {
                let is_size = content_type.trim() == SIZE_CONTENT_TYPE;
                let size = text(body)?.strip_suffix('\n').and_then(parse_decimal);
                let size = size.filter(|_| is_size).ok_or(ReplyError::Size)?;
                Self::Conflict { size }
            }
            404 => Self::UnknownLog,
            403 => Self::UnknownKey,
            422 => Self::ProofRefused,
            400 => Self::BadRequest,
            408 | 429 | 500..=599 => Self::Busy(status),
            _ => Self::Unexpected(status),
        })
    }
}

fn text(body: &[u8]) -> Result<&str, ReplyError> {
    std::str::from_utf8(body)
        .ok()
        .filter(|text| text.len() <= REPLY_LEN_MAX && !text.bytes().any(|b| b < b' ' && b != b'\n'))
        .ok_or(ReplyError::Text)
}

/// The cosignatures of `keys` in a reply. Refuses a false one, one without a time, and a reply
/// without any; ignores unknown keys.
pub fn verify_cosignatures(
    checkpoint: &SignedCheckpoint,
    cosignatures: Vec<NoteSignature>,
    keys: &[VerifierKey],
) -> Result<Vec<NoteSignature>, ReplyError> {
    let mut good = Vec::new();
    for cosignature in cosignatures {
        let is_cosigner =
            |key: &&VerifierKey| key.algorithm() != Algorithm::Ed25519 && key.matches(&cosignature);
        let Some(key) = keys.iter().find(is_cosigner) else { continue };
        match key.verify(checkpoint.note().text(), &cosignature.bytes) {
            Some(Some(time)) if time != 0 => good.push(cosignature),
            Some(_) => return Err(ReplyError::NoTime { name: cosignature.name }),
            None => return Err(NoteError::False { name: cosignature.name }.into()),
        }
    }
    if good.is_empty() { Err(NoteError::Unsigned.into()) } else { Ok(good) }
}
