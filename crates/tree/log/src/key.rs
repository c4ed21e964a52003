//! Keys of notes: Ed25519 of logs, and cosignatures with a time by Ed25519 and ML-DSA-44 (C2SP
//! signed-note, tlog-cosignature).

use data_encoding::{BASE64, HEXLOWER};
use ed25519_dalek::Signer as _;
use ml_dsa::{Keypair as _, MlDsa44};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::checkpoint::Checkpoint;
use crate::note::{NoteSignature, is_key_name};

/// Longest name of a key, in bytes: ML-DSA-44 cosignatures have one byte for its length.
pub const KEY_NAME_LEN_MAX: usize = 255;

/// Longest text of a key: that of ML-DSA-44 has 1,313 bytes in base64.
pub const KEY_TEXT_LEN_MAX: usize = 2300;

/// Bytes of an ML-DSA-44 public key (FIPS 204).
pub const ML_DSA_44_PUBLIC_LEN: usize = 1312;

const SECRET_PREFIX: &str = "PRIVATE+KEY+";

/// Signature types of C2SP signed-note that this crate knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// Over the note's text.
    Ed25519 = 1,
    /// A cosignature with a time over a checkpoint.
    CosignatureEd25519 = 4,
    /// A cosignature with a time over origin, size and root hash of a checkpoint.
    CosignatureMlDsa44 = 6,
}

impl Algorithm {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Ed25519),
            4 => Some(Self::CosignatureEd25519),
            6 => Some(Self::CosignatureMlDsa44),
            _ => None,
        }
    }
}

/// Why a text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum KeyError {
    #[error("a key's name is empty, too long, or has a space or a plus")]
    Name,
    #[error("a key is not of the form NAME+ID+BASE64")]
    Form,
    #[error("signature type {0} is not supported: use Ed25519 (1, 4) or ML-DSA-44 (6)")]
    Algorithm(u8),
    #[error("the key of {0} has a wrong length, or is no valid point")]
    Key(String),
    #[error("the ID of the key of {0} does not belong to it")]
    Id(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Public {
    Ed25519(ed25519_dalek::VerifyingKey),
    MlDsa44(Box<[u8; ML_DSA_44_PUBLIC_LEN]>),
}

/// A key that verifies signatures of notes.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifierKey {
    name: String,
    id: u32,
    algorithm: Algorithm,
    public: Public,
}

impl VerifierKey {
    /// `public`: 32 bytes, or 1,312 of ML-DSA-44.
    pub fn new(name: &str, algorithm: Algorithm, public: &[u8]) -> Result<Self, KeyError> {
        if name.len() > KEY_NAME_LEN_MAX || !is_key_name(name) {
            return Err(KeyError::Name);
        }
        let decoded = match algorithm {
            Algorithm::CosignatureMlDsa44 => {
                public.try_into().ok().map(|key| Public::MlDsa44(Box::new(key)))
            }
            Algorithm::Ed25519 | Algorithm::CosignatureEd25519 => public
                .try_into()
                .ok()
                .and_then(|bytes| ed25519_dalek::VerifyingKey::from_bytes(bytes).ok())
                .filter(|key| !key.is_weak())
                .map(Public::Ed25519),
        };
        let decoded = decoded.ok_or_else(|| KeyError::Key(name.to_owned()))?;
        let id = key_id(name, algorithm, public);
        Ok(Self { name: name.to_owned(), id, algorithm, public: decoded })
    }

    /// Reads a `vkey`: name, ID in hexadecimal, then type and key in base64.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let (name, id, bytes) = parse_key_text(text)?;
        let (&byte, public) = bytes.split_first().ok_or(KeyError::Form)?;
        let algorithm = Algorithm::from_byte(byte).ok_or(KeyError::Algorithm(byte))?;
        let key = Self::new(name, algorithm, public)?;
        if key.id == id { Ok(key) } else { Err(KeyError::Id(key.name)) }
    }

    /// The `vkey`.
    pub fn to_text(&self) -> String {
        key_text(&self.name, self.id, self.algorithm, &self.public_bytes())
    }

    /// The name that its signatures carry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The ID that its signatures carry.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The signature type.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The key alone, without name and type.
    pub fn public_bytes(&self) -> Vec<u8> {
        match &self.public {
            Public::Ed25519(key) => key.to_bytes().to_vec(),
            Public::MlDsa44(key) => key.to_vec(),
        }
    }

    /// True if name and ID say that this key has signed.
    pub(crate) fn matches(&self, signature: &NoteSignature) -> bool {
        self.id == signature.key_id && self.name == signature.name
    }

    /// `None` if the signature is false; the time if it is a cosignature.
    pub(crate) fn verify(&self, text: &str, signature: &[u8]) -> Option<Option<u64>> {
        if self.algorithm == Algorithm::Ed25519 {
            return self.verify_bytes(text.as_bytes(), signature).then_some(None);
        }
        let (time, signature) = signature.split_first_chunk::<8>()?;
        let time = u64::from_be_bytes(*time);
        let message = cosigned_message(self.algorithm, &self.name, time, text)?;
        self.verify_bytes(&message, signature).then_some(Some(time))
    }

    fn verify_bytes(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.public {
            Public::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
            Public::MlDsa44(key) => signature
                .try_into()
                .is_ok_and(|signature| vouch_tree::key::verify_ml_dsa_44(key, message, signature)),
        }
    }
}

enum Secret {
    Ed25519(Box<ed25519_dalek::SigningKey>),
    MlDsa44(Box<ml_dsa::SigningKey<MlDsa44>>),
}

/// Why a note cannot be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum SigningError {
    #[error("a cosignature needs a checkpoint and a time below 2^63")]
    NoCheckpoint,
    #[error("a note has no room for another signature")]
    TooManySignatures,
    #[error("ML-DSA-44 found no signature; sign at another time")]
    Exhausted,
}

/// A key that signs notes. Zeroized on drop; has no `Debug`.
pub struct Signer {
    verifier: VerifierKey,
    secret: Secret,
}

impl Signer {
    /// The caller draws the seed from a secure random source and wipes it. One seed serves one key.
    pub fn from_seed(name: &str, algorithm: Algorithm, seed: &[u8; 32]) -> Result<Self, KeyError> {
        let (secret, public) = match algorithm {
            Algorithm::CosignatureMlDsa44 => {
                let key = Box::new(ml_dsa::SigningKey::<MlDsa44>::from_seed(seed.into()));
                let public = key.verifying_key().encode().to_vec();
                (Secret::MlDsa44(key), public)
            }
            Algorithm::Ed25519 | Algorithm::CosignatureEd25519 => {
                let key = Box::new(ed25519_dalek::SigningKey::from_bytes(seed));
                let public = key.verifying_key().to_bytes().to_vec();
                (Secret::Ed25519(key), public)
            }
        };
        Ok(Self { verifier: VerifierKey::new(name, algorithm, &public)?, secret })
    }

    /// The key that verifies.
    pub const fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Reads what [`Self::to_text`] writes.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.strip_prefix(SECRET_PREFIX).ok_or(KeyError::Form)?;
        let (name, id, bytes) = parse_key_text(text)?;
        let bytes = Zeroizing::new(bytes);
        let (&byte, seed) = bytes.split_first().ok_or(KeyError::Form)?;
        let algorithm = Algorithm::from_byte(byte).ok_or(KeyError::Algorithm(byte))?;
        let seed: &[u8; 32] = seed.try_into().map_err(|_| KeyError::Key(name.to_owned()))?;
        let signer = Self::from_seed(name, algorithm, seed)?;
        if signer.verifier.id == id { Ok(signer) } else { Err(KeyError::Id(name.to_owned())) }
    }

    /// The form of Go's `note`: `PRIVATE+KEY+`, then a `vkey` with the seed as the key.
    pub fn to_text(&self) -> Zeroizing<String> {
        let seed = Zeroizing::new(match &self.secret {
            Secret::Ed25519(key) => *key.as_bytes(),
            Secret::MlDsa44(key) => (*key.as_seed()).into(),
        });
        let VerifierKey { name, id, algorithm, .. } = &self.verifier;
        let text = Zeroizing::new(key_text(name, *id, *algorithm, &seed[..]));
        Zeroizing::new(format!("{SECRET_PREFIX}{}", text.as_str()))
    }

    /// Signs a note's text. `time`: seconds since 1970; for cosignatures, and unused by others.
    pub fn sign(&self, text: &str, time: u64) -> Result<NoteSignature, SigningError> {
        let VerifierKey { name, id, algorithm, .. } = &self.verifier;
        let bytes = if *algorithm == Algorithm::Ed25519 {
            self.sign_bytes(text.as_bytes())?
        } else {
            let message =
                cosigned_message(*algorithm, name, time, text).ok_or(SigningError::NoCheckpoint)?;
            [time.to_be_bytes().to_vec(), self.sign_bytes(&message)?].concat()
        };
        Ok(NoteSignature { name: name.clone(), key_id: *id, bytes })
    }

    fn sign_bytes(&self, message: &[u8]) -> Result<Vec<u8>, SigningError> {
        match &self.secret {
            Secret::Ed25519(key) => Ok(key.sign(message).to_bytes().to_vec()),
            Secret::MlDsa44(key) => key
                .expanded_key()
                .sign_deterministic(message, &[])
                .map(|signature| signature.encode().to_vec())
                .map_err(|_| SigningError::Exhausted),
        }
    }
}

/// C2SP tlog-cosignature, "signed message". `None` if the text is no checkpoint, or the time has 64
/// bits.
fn cosigned_message(algorithm: Algorithm, name: &str, time: u64, text: &str) -> Option<Vec<u8>> {
    let checkpoint = Checkpoint::parse(text).ok().filter(|_| time <= i64::MAX as u64)?;
    if algorithm == Algorithm::CosignatureEd25519 {
        return Some(format!("cosignature/v1\ntime {time}\n{text}").into_bytes());
    }
    let mut message = b"subtree/v1\n\0".to_vec();
    message.push(u8::try_from(name.len()).ok()?);
    message.extend_from_slice(name.as_bytes());
    message.extend_from_slice(&time.to_be_bytes());
    message.push(u8::try_from(checkpoint.origin.len()).ok()?);
    message.extend_from_slice(checkpoint.origin.as_bytes());
    // The whole tree, from entry 0.
    message.extend_from_slice(&0u64.to_be_bytes());
    message.extend_from_slice(&checkpoint.size.to_be_bytes());
    message.extend_from_slice(&checkpoint.root.0);
    Some(message)
}

fn key_id(name: &str, algorithm: Algorithm, public: &[u8]) -> u32 {
    let hasher = Sha256::new().chain_update(name).chain_update([b'\n', algorithm as u8]);
    let hash: [u8; 32] = hasher.chain_update(public).finalize().into();
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

fn key_text(name: &str, id: u32, algorithm: Algorithm, key: &[u8]) -> String {
    let bytes = Zeroizing::new([&[algorithm as u8], key].concat());
    format!("{name}+{id:08x}+{}", Zeroizing::new(BASE64.encode(&bytes)).as_str())
}

fn parse_key_text(text: &str) -> Result<(&str, u32, Vec<u8>), KeyError> {
    if text.len() > KEY_TEXT_LEN_MAX {
        return Err(KeyError::Form);
    }
    let (name, rest) = text.split_once('+').ok_or(KeyError::Form)?;
    let (id, key) = rest.split_once('+').ok_or(KeyError::Form)?;
    let id = HEXLOWER.decode(id.as_bytes()).ok().and_then(|id| id.try_into().ok());
    let bytes = crate::base64::decode(key).ok_or(KeyError::Form)?;
    Ok((name, u32::from_be_bytes(id.ok_or(KeyError::Form)?), bytes))
}
