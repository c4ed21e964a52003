//! Signed notes (C2SP signed-note): a text and the signatures of several keys.

use data_encoding::BASE64;

use crate::key::{Signer, SigningError, VerifierKey};

/// Longest signed note, in bytes. C2SP signed-note: post-quantum signatures have nearly 5 kB, and
/// 16 must be accepted.
pub const NOTE_LEN_MAX: usize = 512 * 1024;

/// Signatures of a note at most, as in Go's `note`.
pub const SIGNATURES_MAX: usize = 100;

const SIGNATURE_PREFIX: &str = "\u{2014} ";

/// One signature line. Says nothing until it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// Name of the key.
    pub name: String,
    /// ID of the key, which is not unique without the name.
    pub key_id: u32,
    /// The bytes after the ID.
    pub bytes: Vec<u8>,
}

impl NoteSignature {
    /// The line, with its newline.
    pub fn line(&self) -> String {
        let bytes = [&self.key_id.to_be_bytes()[..], &self.bytes].concat();
        format!("{SIGNATURE_PREFIX}{} {}\n", self.name, BASE64.encode(&bytes))
    }

    fn parse(line: &str) -> Option<Self> {
        let (name, signature) = line.strip_prefix(SIGNATURE_PREFIX)?.split_once(' ')?;
        let signature = crate::base64::decode(signature)?;
        let (id, bytes) = signature.split_first_chunk::<4>()?;
        (is_key_name(name) && !bytes.is_empty()).then(|| Self {
            name: name.to_owned(),
            key_id: u32::from_be_bytes(*id),
            bytes: bytes.to_vec(),
        })
    }

    /// Lines of signatures and nothing else, as witnesses answer them.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, NoteError> {
        let lines = text.strip_suffix('\n').ok_or(NoteError::Signature { line: 1 })?;
        let mut signatures = Vec::new();
        for (number, line) in (1..).zip(lines.split('\n')) {
            if number > SIGNATURES_MAX {
                return Err(NoteError::TooManySignatures);
            }
            signatures.push(Self::parse(line).ok_or(NoteError::Signature { line: number })?);
        }
        Ok(signatures)
    }
}

/// C2SP signed-note: not empty, no Unicode spaces, no plus.
pub(crate) fn is_key_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c == '+' || c.is_whitespace() || c < ' ')
}

/// A text with signatures, none of them verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

/// Why bytes are no note, or why it must not be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum NoteError {
    #[error("a signed note is longer than {NOTE_LEN_MAX} bytes")]
    TooLong,
    #[error("a signed note has more than {SIGNATURES_MAX} signatures")]
    TooManySignatures,
    #[error("a signed note is not UTF-8 text without control characters")]
    Characters,
    #[error("a signed note lacks the empty line before its signatures, or ends within a line")]
    Structure,
    #[error("signature line {line} of a note is malformed")]
    Signature { line: usize },
    #[error("the signature of {name} on the note is false")]
    False { name: String },
    #[error("the note has no signature of a known key")]
    Unsigned,
}

/// A signature that holds.
#[derive(Debug, Clone, Copy)]
pub struct Verified<'k> {
    /// The key that signed.
    pub key: &'k VerifierKey,
    /// Time of a cosignature, seconds since 1970; 0 where it makes no statement about time.
    pub time: Option<u64>,
}

impl SignedNote {
    /// A note that is to be signed. `text` ends with a newline.
    pub fn unsigned(text: String) -> Result<Self, NoteError> {
        if text.len() > NOTE_LEN_MAX {
            return Err(NoteError::TooLong);
        }
        if has_control_characters(&text) {
            return Err(NoteError::Characters);
        }
        if !text.ends_with('\n') {
            return Err(NoteError::Structure);
        }
        Ok(Self { text, signatures: Vec::new() })
    }

    /// Verifies nothing. Accepts exactly what [`Self::to_text`] writes of a signed note.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteError> {
        if bytes.len() > NOTE_LEN_MAX {
            return Err(NoteError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| NoteError::Characters)?;
        if has_control_characters(text) {
            return Err(NoteError::Characters);
        }
        let end = text.rfind("\n\n").ok_or(NoteError::Structure)? + 1;
        let signatures = &text[end + 1..];
        if !signatures.ends_with('\n') {
            return Err(NoteError::Structure);
        }
        let signatures = NoteSignature::parse_lines(signatures)?;
        Ok(Self { text: text[..end].to_owned(), signatures })
    }

    /// Verifies nothing. Accepts what [`Self::parse`] would of the text of both.
    pub fn from_parts(text: String, signatures: Vec<NoteSignature>) -> Result<Self, NoteError> {
        let unsigned = Self::unsigned(text)?;
        let is_sound =
            |signature: &NoteSignature| is_key_name(&signature.name) && !signature.bytes.is_empty();
        match signatures.iter().position(|signature| !is_sound(signature)) {
            Some(number) => Err(NoteError::Signature { line: number + 1 }),
            None if signatures.is_empty() => Err(NoteError::Structure),
            None if signatures.len() > SIGNATURES_MAX => Err(NoteError::TooManySignatures),
            None => Ok(Self { signatures, ..unsigned }),
        }
    }

    /// The note with its signatures.
    pub fn to_text(&self) -> String {
        let lines = self.signatures.iter().map(NoteSignature::line);
        [self.text.clone(), "\n".to_owned()].into_iter().chain(lines).collect()
    }

    /// The signed text, not verified.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Not verified.
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// Adds a signature. One of the same key is replaced: a later cosignature is worth more.
    pub fn add(&mut self, signature: NoteSignature) -> Result<(), NoteError> {
        let same = |other: &NoteSignature| {
            (&other.name, other.key_id) == (&signature.name, signature.key_id)
        };
        if let Some(place) = self.signatures.iter().position(same) {
            self.signatures[place] = signature;
        } else if self.signatures.len() < SIGNATURES_MAX {
            self.signatures.push(signature);
        } else {
            return Err(NoteError::TooManySignatures);
        }
        Ok(())
    }

    /// Signs the text. `time`: seconds since 1970, used by cosignatures.
    pub fn sign(&mut self, signer: &Signer, time: u64) -> Result<(), SigningError> {
        let signature = signer.sign(&self.text, time)?;
        self.add(signature).map_err(|_| SigningError::TooManySignatures)
    }

    /// A copy with the signatures of these keys alone.
    pub fn with_signatures_of(&self, keys: &[VerifierKey]) -> Self {
        let known = |signature: &&NoteSignature| keys.iter().any(|key| key.matches(signature));
        let signatures = self.signatures.iter().filter(known).cloned().collect();
        Self { text: self.text.clone(), signatures }
    }

    /// C2SP signed-note, "Signatures": ignores unknown keys, and refuses the note if a known key's
    /// signature is false or if no known key has signed.
    pub fn verify<'k>(&self, keys: &[&'k VerifierKey]) -> Result<Vec<Verified<'k>>, NoteError> {
        let mut verified = Vec::new();
        for signature in &self.signatures {
            let Some(key) = keys.iter().copied().find(|key| key.matches(signature)) else {
                continue;
            };
            match key.verify(&self.text, &signature.bytes) {
                Some(time) => verified.push(Verified { key, time }),
                None => return Err(NoteError::False { name: signature.name.clone() }),
            }
        }
        if verified.is_empty() { Err(NoteError::Unsigned) } else { Ok(verified) }
    }
}

fn has_control_characters(text: &str) -> bool {
    text.bytes().any(|byte| byte < b' ' && byte != b'\n')
}
