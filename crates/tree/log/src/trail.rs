//! Logs of audit trails: the origin, the entry of a seal, and the log's keys.
//!
//! A log holds the seals of one trail, or of several of a site: a seal names its trail. It is named
//! by its first pair of keys, since a trail has no root key. Its origin differs from that of every
//! log of revisions, so that no head of one is a head of the other.

use vouch_tree::HostId;
use vouch_tree::key::SecretKey;
use zeroize::Zeroizing;

use crate::key::{Algorithm, KeyError, Signer, VerifierKey};

const ENTRY_MAGIC: &[u8; 16] = b"vouch seal v1\n\0\0";

/// Length of the signed fields of a seal (docs/formats/audit.md), in bytes.
pub const SEAL_FIELDS_LEN: usize = 184;

const ORIGIN_PREFIX: &str = "vouch/v1/trails/";

/// Longest file of secret keys, in bytes.
pub const TRAIL_KEY_LEN_MAX: usize = 4096;

/// Origin of a log of trails: its first line, and the name of its keys.
pub fn trail_origin(log: &HostId) -> String {
    format!("{ORIGIN_PREFIX}{log}")
}

/// The HOSTID in an origin of ours.
pub fn parse_trail_origin(text: &str) -> Option<HostId> {
    let log: HostId = text.strip_prefix(ORIGIN_PREFIX)?.parse().ok()?;
    (trail_origin(&log) == text).then_some(log)
}

/// The entry for the signed fields of a seal.
pub fn seal_entry(fields: &[u8; SEAL_FIELDS_LEN]) -> Vec<u8> {
    [&ENTRY_MAGIC[..], fields].concat()
}

/// The fields of a seal. `None` for entries of other kinds.
pub fn parse_seal_entry(entry: &[u8]) -> Option<&[u8; SEAL_FIELDS_LEN]> {
    entry.strip_prefix(ENTRY_MAGIC)?.try_into().ok()
}

/// The secret keys of a log of trails: both sign each head. Zeroized on drop; has no `Debug`.
pub struct TrailSigners {
    ed25519: Signer,
    ml_dsa_44: Signer,
}

impl TrailSigners {
    /// A new log. The caller draws both seeds from a secure random source and wipes them.
    pub fn from_seeds(ed25519: &[u8; 32], ml_dsa_44: &[u8; 32]) -> Result<Self, KeyError> {
        let name = trail_origin(&SecretKey::from_seeds(ed25519, ml_dsa_44).public().hostid());
        Ok(Self {
            ed25519: Signer::from_seed(&name, Algorithm::Ed25519, ed25519)?,
            ml_dsa_44: Signer::from_seed(&name, Algorithm::CosignatureMlDsa44, ml_dsa_44)?,
        })
    }

    /// The content of a key file: two secret keys of Go's `note`, one a line.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        for signer in self.all() {
            text.push_str(&signer.to_text());
            text.push('\n');
        }
        text
    }

    /// Takes what [`Self::to_text`] writes. `None` if the keys are not of one log of trails.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(Signer::parse);
        let (ed25519, ml_dsa_44) = (lines.next()?.ok()?, lines.next()?.ok()?);
        let name = ed25519.verifier().name();
        let is_whole = lines.next().is_none()
            && parse_trail_origin(name).is_some()
            && ml_dsa_44.verifier().name() == name
            && ed25519.verifier().algorithm() == Algorithm::Ed25519
            && ml_dsa_44.verifier().algorithm() == Algorithm::CosignatureMlDsa44;
        is_whole.then_some(Self { ed25519, ml_dsa_44 })
    }

    /// Origin of the log.
    pub fn origin(&self) -> &str {
        self.ed25519.verifier().name()
    }

    /// The keys that verify.
    pub fn keys(&self) -> Vec<VerifierKey> {
        self.all().map(|signer| signer.verifier().clone()).collect()
    }

    /// The keys, to sign a head with each.
    pub fn all(&self) -> impl Iterator<Item = &Signer> {
        [&self.ed25519, &self.ml_dsa_44].into_iter()
    }
}
