//! Checkpoints (C2SP tlog-checkpoint): the signed head of a log.

use crate::merkle::{Hash, TREE_SIZE_MAX};
use crate::note::{NoteError, SignedNote};

/// Longest origin, in bytes: ML-DSA-44 cosignatures have one byte for its length.
pub const ORIGIN_LEN_MAX: usize = 255;

/// The head of a log: which log, how many entries, and their root hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Identity of the log.
    pub origin: String,
    /// Entries.
    pub size: u64,
    /// Root hash of the entries.
    pub root: Hash,
    /// Extension lines, each with its newline. Our logs have none, and no key vouches for them.
    pub extensions: String,
}

/// Why bytes are no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum CheckpointError {
    #[error("{0}")]
    Note(#[from] NoteError),
    #[error("a checkpoint's origin is empty or longer than {ORIGIN_LEN_MAX} bytes")]
    Origin,
    #[error("a checkpoint's size is no decimal number up to {TREE_SIZE_MAX}")]
    Size,
    #[error("a checkpoint's root hash is not 32 bytes in base64, or not that of an empty tree")]
    Root,
    #[error("a checkpoint has an empty line, or ends within a line")]
    Lines,
}

impl Checkpoint {
    /// A checkpoint without extension lines.
    pub fn new(origin: &str, size: u64, root: Hash) -> Self {
        Self { origin: origin.to_owned(), size, root, extensions: String::new() }
    }

    /// The text that is signed.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n{}", self.origin, self.size, self.root, self.extensions)
    }

    /// Takes exactly what [`Self::text`] writes.
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let (origin, rest) = text.split_once('\n').ok_or(CheckpointError::Lines)?;
        let (size, rest) = rest.split_once('\n').ok_or(CheckpointError::Lines)?;
        let (root, extensions) = rest.split_once('\n').ok_or(CheckpointError::Lines)?;
        if origin.is_empty() || origin.len() > ORIGIN_LEN_MAX {
            return Err(CheckpointError::Origin);
        }
        let size = parse_decimal(size).ok_or(CheckpointError::Size)?;
        let root = Hash::from_base64(root).ok_or(CheckpointError::Root)?;
        // RFC 6962 §2.1: the tree without entries has one root hash.
        if size == 0 && root != Hash::EMPTY_TREE {
            return Err(CheckpointError::Root);
        }
        let is_whole = extensions.is_empty() || extensions.ends_with('\n');
        if !is_whole || extensions.starts_with('\n') || extensions.contains("\n\n") {
            return Err(CheckpointError::Lines);
        }
        let (origin, extensions) = (origin.to_owned(), extensions.to_owned());
        Ok(Self { origin, size, root, extensions })
    }
}

/// A checkpoint in its note. The signatures are not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    note: SignedNote,
    checkpoint: Checkpoint,
}

impl SignedCheckpoint {
    /// A checkpoint that is to be signed.
    pub fn unsigned(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let note = SignedNote::unsigned(checkpoint.text())?;
        let checkpoint = Checkpoint::parse(note.text())?;
        Ok(Self { note, checkpoint })
    }

    /// Verifies nothing.
    pub fn parse(bytes: &[u8]) -> Result<Self, CheckpointError> {
        Self::from_note(SignedNote::parse(bytes)?)
    }

    /// Verifies nothing.
    pub fn from_note(note: SignedNote) -> Result<Self, CheckpointError> {
        let checkpoint = Checkpoint::parse(note.text())?;
        Ok(Self { note, checkpoint })
    }

    /// Not verified: see [`SignedNote::verify`] and [`crate::policy::Policy::check`].
    pub const fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The note, for its signatures.
    pub const fn note(&self) -> &SignedNote {
        &self.note
    }

    /// The note, to add signatures.
    pub const fn note_mut(&mut self) -> &mut SignedNote {
        &mut self.note
    }

    /// The text with all signatures.
    pub fn to_text(&self) -> String {
        self.note.to_text()
    }

    /// A copy with the signatures of these keys alone.
    pub fn with_signatures_of(&self, keys: &[crate::key::VerifierKey]) -> Self {
        Self { note: self.note.with_signatures_of(keys), checkpoint: self.checkpoint.clone() }
    }
}

/// A number as C2SP writes it: digits alone, no zeros in front, 63 bits.
pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    let is_plain = text == "0" || !text.starts_with('0');
    (is_plain && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok().filter(|&number| number <= TREE_SIZE_MAX))?
}
