//! Logs of published trees: the origin, the entry of a revision, and the certificate of the keys.
//!
//! A log is named by the HOSTID of a root key: a tree's own, or that of a site, which makes one log
//! of many trees. An entry names its tree itself, and a tree certifies the log that has its
//! revisions.

use sha2::{Digest as _, Sha256};
use vouch_tree::fsinfo::SIGNED_LEN_MAX;
use vouch_tree::key::{PublicKey, Purpose, SecretKey, Signature, SigningCert};
use vouch_tree::{HostId, SignedFsinfo};
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::key::{Algorithm, KeyError, ML_DSA_44_PUBLIC_LEN, Signer, VerifierKey};
use crate::policy::{Policy, PolicyError};

/// An entry begins with its kind and version.
const ENTRY_MAGIC: &[u8; 16] = b"vouch entry v1\n\0";

/// Longest entry of a revision, in bytes.
pub const REVISION_ENTRY_LEN_MAX: usize = ENTRY_MAGIC.len() + SIGNED_LEN_MAX;

/// Longest policy in a certificate, in bytes: it travels with each revision.
pub const CERT_POLICY_LEN_MAX: usize = 8 << 10;

/// Longest certificate, in bytes.
pub const LOG_CERT_LEN_MAX: usize = (8 << 10) + CERT_POLICY_LEN_MAX;

const ORIGIN_PREFIX: &str = "vouch/v1/log/";

/// Signed by the root key.
const SIGNED_CERT_VERSION: u32 = 1;

/// Named by the certificate of the signing key.
const NAMED_CERT_VERSION: u32 = 2;

/// Origin of the log of a root key: its first line, and the name of its keys.
pub fn origin(log: &HostId) -> String {
    format!("{ORIGIN_PREFIX}{log}")
}

/// The HOSTID in an origin of ours.
pub fn parse_origin(text: &str) -> Option<HostId> {
    let log: HostId = text.strip_prefix(ORIGIN_PREFIX)?.parse().ok()?;
    // One spelling: HOSTIDs are read in upper case too.
    (origin(&log) == text).then_some(log)
}

/// The entry for a revision: `signed_fsinfo` is the XDR of a [`SignedFsinfo`].
pub fn revision_entry(signed_fsinfo: &[u8]) -> Vec<u8> {
    [ENTRY_MAGIC, signed_fsinfo].concat()
}

/// The signed fsinfo of an entry, and its XDR. Verifies no signature.
pub fn parse_revision_entry(entry: &[u8]) -> Result<(SignedFsinfo, &[u8]), XdrError> {
    let bytes = entry
        .strip_prefix(ENTRY_MAGIC)
        .ok_or(XdrError::Invalid("entry of a log is no revision of version 1"))?;
    if bytes.len() > SIGNED_LEN_MAX {
        return Err(XdrError::Invalid("revision in a log is too long"));
    }
    Ok((SignedFsinfo::from_xdr(bytes)?, bytes))
}

/// The keys that sign a log's checkpoints: both sign each.
#[derive(Debug, Clone, PartialEq)]
pub struct LogKeys {
    ed25519: VerifierKey,
    ml_dsa_44: Option<VerifierKey>,
}

impl LogKeys {
    /// `ml_dsa_44`: 1,312 bytes; `None` for a log that does without.
    pub fn new(
        log: &HostId,
        ed25519: &[u8; 32],
        ml_dsa_44: Option<&[u8]>,
    ) -> Result<Self, KeyError> {
        let name = origin(log);
        let lattice = |key| VerifierKey::new(&name, Algorithm::CosignatureMlDsa44, key);
        Ok(Self {
            ed25519: VerifierKey::new(&name, Algorithm::Ed25519, ed25519)?,
            ml_dsa_44: ml_dsa_44.map(lattice).transpose()?,
        })
    }

    /// Witnesses and stock tools know the log by this key.
    pub const fn ed25519(&self) -> &VerifierKey {
        &self.ed25519
    }

    /// All keys, for [`crate::policy::Policy::check`].
    pub fn all(&self) -> Vec<VerifierKey> {
        std::iter::once(&self.ed25519).chain(&self.ml_dsa_44).cloned().collect()
    }
}

/// The secret keys of a log. Zeroized on drop; has no `Debug`.
pub struct LogSigners {
    ed25519: Signer,
    ml_dsa_44: Option<Signer>,
}

impl LogSigners {
    /// The caller draws two seeds from a secure random source and wipes them.
    pub fn from_seeds(
        log: &HostId,
        ed25519: &[u8; 32],
        ml_dsa_44: Option<&[u8; 32]>,
    ) -> Result<Self, KeyError> {
        let name = origin(log);
        let lattice = |seed| Signer::from_seed(&name, Algorithm::CosignatureMlDsa44, seed);
        Ok(Self {
            ed25519: Signer::from_seed(&name, Algorithm::Ed25519, ed25519)?,
            ml_dsa_44: ml_dsa_44.map(lattice).transpose()?,
        })
    }

    /// `None` if the keys are named after another log.
    pub fn from_signers(log: &HostId, ed25519: Signer, ml_dsa_44: Option<Signer>) -> Option<Self> {
        let signers = Self { ed25519, ml_dsa_44 };
        let name = origin(log);
        let are_named = signers.all().all(|signer| signer.verifier().name() == name);
        are_named.then_some(signers)
    }

    /// The keys that verify.
    pub fn keys(&self) -> LogKeys {
        LogKeys {
            ed25519: self.ed25519.verifier().clone(),
            ml_dsa_44: self.ml_dsa_44.as_ref().map(|signer| signer.verifier().clone()),
        }
    }

    /// The keys, to sign a note with each.
    pub fn all(&self) -> impl Iterator<Item = &Signer> {
        std::iter::once(&self.ed25519).chain(&self.ml_dsa_44)
    }
}

/// A policy that a certificate can carry.
#[derive(Debug, Clone, PartialEq)]
pub struct CertPolicy {
    text: String,
    policy: Policy,
}

/// Why a certificate cannot carry a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum CertPolicyError {
    #[error("a certificate carries policies of up to {CERT_POLICY_LEN_MAX} bytes of UTF-8")]
    Text,
    #[error("{0}")]
    Policy(#[from] PolicyError),
}

impl CertPolicy {
    /// Takes a file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, CertPolicyError> {
        let text = std::str::from_utf8(bytes).ok();
        let text = text.filter(|text| text.len() <= CERT_POLICY_LEN_MAX);
        let text = text.ok_or(CertPolicyError::Text)?.to_owned();
        Ok(Self { policy: Policy::parse(bytes)?, text })
    }

    /// As it was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The rules.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }
}

/// A root key's statement: revisions of my tree are in this log, these are its keys, and readers
/// must believe no revision without this policy's quorum.
#[derive(Debug, Clone, PartialEq)]
pub struct LogCert {
    log: HostId,
    keys: LogKeys,
    policy: Option<CertPolicy>,
    basis: Basis,
}

/// What makes it the root key's.
#[derive(Debug, Clone, PartialEq)]
enum Basis {
    /// Of earlier versions.
    Signature(Box<SignedBasis>),
    /// This certificate has its hash, and its serial number and dates hold for both. It costs
    /// readers neither another signature nor its bytes.
    SigningCert(Box<SigningCert>),
}

#[derive(Debug, Clone, PartialEq)]
struct SignedBasis {
    root: PublicKey,
    serial: u64,
    not_before: u64,
    not_after: u64,
    signature: Signature,
}

impl LogCert {
    /// `log`: the HOSTID of the tree itself, or of the site whose log has its revisions. `policy`:
    /// the tree's demand; readers may add their own. `signing`: the certificate that the root key
    /// makes in the same step. Returns it with the hash of this one.
    ///
    /// # Panics
    /// The keys belong to another log.
    pub fn issue(
        root: &SecretKey,
        signing: SigningCert,
        log: HostId,
        keys: LogKeys,
        policy: Option<CertPolicy>,
    ) -> (Self, SigningCert) {
        assert_eq!(keys.ed25519.name(), origin(&log), "the keys are named after the log");
        let basis = Basis::SigningCert(Box::new(signing));
        let mut cert = Self { log, keys, policy, basis };
        let Basis::SigningCert(signing) = &mut cert.basis else { unreachable!("made above") };
        let hash = hash_of(&cert.log, &cert.keys, cert.policy.as_ref());
        **signing = signing.as_ref().clone().with_log(root, hash);
        let signing = signing.as_ref().clone();
        (cert, signing)
    }

    /// `known`: a certificate of a signing key that the caller has verified; another one is
    /// verified. Does not check dates.
    pub fn is_certified(&self, hostid: &HostId, known: Option<&SigningCert>) -> bool {
        match &self.basis {
            Basis::Signature(basis) => {
                basis.root.hostid() == *hostid
                    && basis.root.verify(
                        Purpose::LogCertificate,
                        &self.signed_body(basis),
                        &basis.signature,
                    )
            }
            Basis::SigningCert(signing) => {
                signing.log_cert == Some(hash_of(&self.log, &self.keys, self.policy.as_ref()))
                    && (known == Some(&**signing) || signing.is_signed_by(hostid))
            }
        }
    }

    /// The certificate that names this one, unless it has a signature of its own. Not verified.
    pub fn signing_cert(&self) -> Option<&SigningCert> {
        match &self.basis {
            Basis::Signature(_) => None,
            Basis::SigningCert(signing) => Some(signing),
        }
    }

    /// True from the first second to the one before the last date.
    pub fn is_valid_at(&self, time: u64) -> bool {
        let (not_before, not_after) = match &self.basis {
            Basis::Signature(basis) => (basis.not_before, basis.not_after),
            Basis::SigningCert(signing) => (signing.not_before, signing.not_after),
        };
        not_before <= time && time < not_after
    }

    /// The log. Not verified.
    pub const fn log(&self) -> &HostId {
        &self.log
    }

    /// Its keys. Not verified.
    pub const fn keys(&self) -> &LogKeys {
        &self.keys
    }

    /// A reader refuses serials below the highest that it has seen. Not verified.
    pub fn serial(&self) -> u64 {
        match &self.basis {
            Basis::Signature(basis) => basis.serial,
            Basis::SigningCert(signing) => signing.serial,
        }
    }

    /// The tree's demand. Not verified.
    pub const fn policy(&self) -> Option<&CertPolicy> {
        self.policy.as_ref()
    }

    fn signed_body(&self, basis: &SignedBasis) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode_signed(&mut w, basis);
        w.into_bytes()
    }

    fn encode_signed(&self, w: &mut Writer, basis: &SignedBasis) {
        w.u32(SIGNED_CERT_VERSION);
        basis.root.encode(w);
        encode_keys(w, &self.log, &self.keys);
        w.u64(basis.serial);
        w.u64(basis.not_before);
        w.u64(basis.not_after);
        encode_policy(w, self.policy.as_ref());
    }

    /// Leaves out a certificate of a signing key that stands beside it.
    pub(crate) fn encode_beside(&self, w: &mut Writer, beside: Option<&SigningCert>) {
        match &self.basis {
            Basis::Signature(basis) => {
                self.encode_signed(w, basis);
                basis.signature.encode(w);
            }
            Basis::SigningCert(signing) => {
                encode_named(w, &self.log, &self.keys, self.policy.as_ref());
                let apart = Some(&**signing).filter(|signing| beside != Some(signing));
                w.optional(apart, |w, signing| signing.encode(w));
            }
        }
    }

    /// `beside` is called for a certificate that was left out.
    pub(crate) fn decode_beside(
        r: &mut Reader<'_>,
        beside: impl FnOnce() -> Result<SigningCert, XdrError>,
    ) -> Result<Self, XdrError> {
        match r.u32()? {
            SIGNED_CERT_VERSION => {
                let root = PublicKey::decode(r)?;
                let (log, keys) = decode_keys(r)?;
                let (serial, not_before, not_after) = (r.u64()?, r.u64()?, r.u64()?);
                let policy = decode_policy(r)?;
                let signature = Signature::decode(r, &root)?;
                let basis = SignedBasis { root, serial, not_before, not_after, signature };
                Ok(Self { log, keys, policy, basis: Basis::Signature(Box::new(basis)) })
            }
            NAMED_CERT_VERSION => {
                let (log, keys) = decode_keys(r)?;
                let policy = decode_policy(r)?;
                let signing = match r.optional(SigningCert::decode)? {
                    Some(signing) => signing,
                    None => beside()?,
                };
                Ok(Self { log, keys, policy, basis: Basis::SigningCert(Box::new(signing)) })
            }
            value => Err(XdrError::Unknown { what: "log certificate version", value }),
        }
    }
}

fn encode_keys(w: &mut Writer, log: &HostId, keys: &LogKeys) {
    log.encode(w);
    w.opaque_fixed(&keys.ed25519.public_bytes());
    w.opaque(&keys.ml_dsa_44.as_ref().map(VerifierKey::public_bytes).unwrap_or_default());
}

fn decode_keys(r: &mut Reader<'_>) -> Result<(HostId, LogKeys), XdrError> {
    let log = HostId::decode(r)?;
    let ed25519 = r.opaque_fixed()?;
    let ml_dsa_44 = Some(r.opaque(ML_DSA_44_PUBLIC_LEN)?).filter(|key| !key.is_empty());
    let keys = LogKeys::new(&log, &ed25519, ml_dsa_44)
        .map_err(|_| XdrError::Invalid("key of a log certificate"))?;
    Ok((log, keys))
}

fn encode_policy(w: &mut Writer, policy: Option<&CertPolicy>) {
    w.opaque(policy.map_or(&[], |policy| policy.text.as_bytes()));
}

fn decode_policy(r: &mut Reader<'_>) -> Result<Option<CertPolicy>, XdrError> {
    match r.opaque(CERT_POLICY_LEN_MAX)? {
        [] => Ok(None),
        text => CertPolicy::parse(text)
            .map(Some)
            .map_err(|_| XdrError::Invalid("policy of a log certificate")),
    }
}

fn encode_named(w: &mut Writer, log: &HostId, keys: &LogKeys, policy: Option<&CertPolicy>) {
    w.u32(NAMED_CERT_VERSION);
    encode_keys(w, log, keys);
    encode_policy(w, policy);
}

fn hash_of(log: &HostId, keys: &LogKeys, policy: Option<&CertPolicy>) -> [u8; 32] {
    let mut w = Writer::new();
    encode_named(&mut w, log, keys, policy);
    Sha256::digest(w.into_bytes()).into()
}

/// With all that it needs.
impl Xdr for LogCert {
    fn encode(&self, w: &mut Writer) {
        self.encode_beside(w, None);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Self::decode_beside(r, || Err(XdrError::Invalid("log certificate without a signing key's")))
    }
}
