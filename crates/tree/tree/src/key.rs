//! Root and signing keys: pairs of Ed25519 and ML-DSA-44, of which both must hold, or Ed25519 alone.
//! The root key names the tree and stays offline. It certifies signing keys until a date. A client
//! refuses serials below the highest that it has seen.

use std::sync::Arc;

use ed25519_dalek::{Signer, SigningKey as Ed25519, VerifyingKey};
use libcrux_ml_dsa::ml_dsa_44::{MLDSA44Signature, MLDSA44VerificationKey};
use ml_dsa::{Keypair as _, MlDsa44};
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};
use zeroize::Zeroizing;

use crate::HostId;

/// Bytes of an ML-DSA-44 public key (FIPS 204).
pub const ML_DSA_44_PUBLIC_LEN: usize = 1312;

/// Bytes of an ML-DSA-44 signature (FIPS 204).
pub const ML_DSA_44_SIGNATURE_LEN: usize = 2420;

/// Stands where an Ed25519 key alone has its bytes, and is the encoding of no point of the curve.
const PAIR_MARKER: &[u8; 32] = b"vouch Ed25519 and ML-DSA-44 v1\n\0";

/// A signature for one purpose never verifies for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Signed by a signing key.
    Fsinfo,
    /// Signed by the root key.
    Certificate,
    /// Signed by the root key.
    Statement,
    /// Certificate of the keys of a transparency log, signed by the root key.
    LogCertificate,
}

impl Purpose {
    const fn prefix(self) -> &'static [u8; 20] {
        match self {
            Self::Fsinfo => b"vouch fsinfo v1\0\0\0\0\0",
            Self::Certificate => b"vouch certificate v1",
            Self::Statement => b"vouch statement v1\0\0",
            Self::LogCertificate => b"vouch log cert v1\0\0\0",
        }
    }

    fn message(self, body: &[u8]) -> Vec<u8> {
        [self.prefix(), body].concat()
    }
}

/// A pair, or Ed25519 (RFC 8032) alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    ed25519: [u8; 32],
    ml_dsa_44: Option<Arc<[u8; ML_DSA_44_PUBLIC_LEN]>>,
}

impl PublicKey {
    /// True if both signatures must hold.
    pub const fn is_pair(&self) -> bool {
        self.ml_dsa_44.is_some()
    }

    /// Ed25519 comes first, as it is the cheaper one. Strict: refuses the encodings on which RFC
    /// 8032 lets implementations differ.
    pub fn verify(&self, purpose: Purpose, body: &[u8], signature: &Signature) -> bool {
        let message = purpose.message(body);
        let has_ed25519 = VerifyingKey::from_bytes(&self.ed25519).is_ok_and(|key| {
            let signature = ed25519_dalek::Signature::from_bytes(&signature.ed25519);
            key.verify_strict(&message, &signature).is_ok()
        });
        has_ed25519
            && match (&self.ml_dsa_44, &signature.ml_dsa_44) {
                (Some(key), Some(signature)) => verify_ml_dsa_44(key, &message, signature),
                (None, None) => true,
                _ => false,
            }
    }

    /// The HOSTID of the tree, if this is its root key.
    pub fn hostid(&self) -> HostId {
        match &self.ml_dsa_44 {
            Some(ml_dsa_44) => HostId::of_root_pair(&self.ed25519, ml_dsa_44),
            None => HostId::of_root_key(&self.ed25519),
        }
    }
}

impl Xdr for PublicKey {
    fn encode(&self, w: &mut Writer) {
        if self.is_pair() {
            w.opaque_fixed(PAIR_MARKER);
        }
        w.opaque_fixed(&self.ed25519);
        if let Some(ml_dsa_44) = &self.ml_dsa_44 {
            w.opaque_fixed(&**ml_dsa_44);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let ed25519: [u8; 32] = r.opaque_fixed()?;
        if ed25519 != *PAIR_MARKER {
            return Ok(Self { ed25519, ml_dsa_44: None });
        }
        Ok(Self { ed25519: r.opaque_fixed()?, ml_dsa_44: Some(Arc::new(r.opaque_fixed()?)) })
    }
}

/// True if it is a signature of ML-DSA-44 (FIPS 204, with an empty context).
pub fn verify_ml_dsa_44(
    key: &[u8; ML_DSA_44_PUBLIC_LEN],
    message: &[u8],
    signature: &[u8; ML_DSA_44_SIGNATURE_LEN],
) -> bool {
    let (key, signature) = (MLDSA44VerificationKey::new(*key), MLDSA44Signature::new(*signature));
    libcrux_ml_dsa::ml_dsa_44::verify(&key, message, &[], &signature).is_ok()
}

/// By a [`SecretKey`]: as many signatures as the key has parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    ed25519: [u8; 64],
    ml_dsa_44: Option<Box<[u8; ML_DSA_44_SIGNATURE_LEN]>>,
}

impl Signature {
    /// For structures whose fields are signed.
    pub const MISSING: Self = Self { ed25519: [0; 64], ml_dsa_44: None };

    /// Appends the signatures.
    pub fn encode(&self, w: &mut Writer) {
        w.opaque_fixed(&self.ed25519);
        if let Some(ml_dsa_44) = &self.ml_dsa_44 {
            w.opaque_fixed(&**ml_dsa_44);
        }
    }

    /// Reads the signatures of `key`, which tells how many there are.
    pub fn decode(r: &mut Reader<'_>, key: &PublicKey) -> Result<Self, XdrError> {
        let ed25519 = r.opaque_fixed()?;
        let ml_dsa_44 = if key.is_pair() { Some(Box::new(r.opaque_fixed()?)) } else { None };
        Ok(Self { ed25519, ml_dsa_44 })
    }
}

/// Zeroized on drop; has no `Debug`.
pub struct SecretKey {
    ed25519: Ed25519,
    ml_dsa_44: Option<Box<ml_dsa::SigningKey<MlDsa44>>>,
}

impl SecretKey {
    /// Ed25519 alone. The caller draws the seed from a secure random source and wipes it.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self { ed25519: Ed25519::from_bytes(seed), ml_dsa_44: None }
    }

    /// A pair. The caller draws two seeds from a secure random source and wipes them.
    pub fn from_seeds(ed25519: &[u8; 32], ml_dsa_44: &[u8; 32]) -> Self {
        let ml_dsa_44 = ml_dsa::SigningKey::from_seed(ml_dsa_44.into());
        Self { ed25519: Ed25519::from_bytes(ed25519), ml_dsa_44: Some(Box::new(ml_dsa_44)) }
    }

    /// 32 bytes, or 64 of a pair.
    pub(crate) fn seeds(&self) -> Zeroizing<Vec<u8>> {
        let mut seeds = Zeroizing::new(Vec::with_capacity(64));
        seeds.extend_from_slice(self.ed25519.as_bytes());
        if let Some(key) = &self.ml_dsa_44 {
            seeds.extend_from_slice(&key.as_seed()[..]);
        }
        seeds
    }

    /// The key that verifies.
    pub fn public(&self) -> PublicKey {
        let ml_dsa_44 =
            self.ml_dsa_44.as_ref().map(|key| Arc::new(key.verifying_key().encode().into()));
        PublicKey { ed25519: self.ed25519.verifying_key().to_bytes(), ml_dsa_44 }
    }

    /// Signs `body` for one purpose. Deterministic in both algorithms.
    pub fn sign(&self, purpose: Purpose, body: &[u8]) -> Signature {
        let message = purpose.message(body);
        let ml_dsa_44 = self.ml_dsa_44.as_ref().map(|key| {
            let signature = key
                .expanded_key()
                .sign_deterministic(&message, &[])
                .expect("each of 16,000 attempts succeeds with a probability of a quarter");
            Box::new(signature.encode().into())
        });
        Signature { ed25519: self.ed25519.sign(&message).to_bytes(), ml_dsa_44 }
    }
}

/// Stands before a certificate whose revisions need witnesses. It is text, so that nobody has a secret
/// key to it as a root key.
const WITNESSED_MARKER: &[u8; 32] = b"vouch believe only witnessed v1\xff";

/// Stands before the hash of a log's certificate.
const LOG_MARKER: &[u8; 32] = b"vouch log certificate hash v1\xff\xff\xff";

/// The root key's certificate of a signing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningCert {
    /// Its hash is the HOSTID.
    pub root: PublicKey,
    /// The key that signs revisions.
    pub signing: PublicKey,
    /// Higher than in all earlier certificates of the root key.
    pub serial: u64,
    /// Seconds since 1970. Earlier fsinfos are refused.
    pub not_before: u64,
    /// Seconds since 1970. Nothing is valid from then on.
    pub not_after: u64,
    /// Readers must believe no revision without cosignatures that a log certificate of this serial
    /// number or a higher one demands.
    pub is_witnessed: bool,
    /// SHA-256 of the certificate of the tree's log, which needs no signature of its own.
    pub log_cert: Option<[u8; 32]>,
    /// The root key's signature over the fields above.
    pub signature: Signature,
}

impl SigningCert {
    /// Signs a certificate. Times are seconds since 1970.
    ///
    /// # Panics
    /// One key is a pair and the other is not.
    pub fn issue(
        root: &SecretKey,
        signing: PublicKey,
        serial: u64,
        not_before: u64,
        not_after: u64,
    ) -> Self {
        let root_key = root.public();
        assert_eq!(root_key.is_pair(), signing.is_pair(), "both keys are of one kind");
        let mut cert = Self {
            root: root_key,
            signing,
            serial,
            not_before,
            not_after,
            is_witnessed: false,
            log_cert: None,
            signature: Signature::MISSING,
        };
        cert.signature = root.sign(Purpose::Certificate, &cert.body());
        cert
    }

    /// The same with [`Self::is_witnessed`].
    #[must_use]
    pub fn witnessed(mut self, root: &SecretKey) -> Self {
        self.is_witnessed = true;
        self.signature = root.sign(Purpose::Certificate, &self.body());
        self
    }

    /// The same with [`Self::log_cert`].
    #[must_use]
    pub fn with_log(mut self, root: &SecretKey, log_cert: [u8; 32]) -> Self {
        self.log_cert = Some(log_cert);
        self.signature = root.sign(Purpose::Certificate, &self.body());
        self
    }

    /// Does not check dates.
    pub fn is_signed_by(&self, hostid: &HostId) -> bool {
        self.root.hostid() == *hostid
            && self.root.verify(Purpose::Certificate, &self.body(), &self.signature)
    }

    fn body(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode_body(&mut w);
        w.into_bytes()
    }

    fn encode_body(&self, w: &mut Writer) {
        if self.is_witnessed {
            w.opaque_fixed(WITNESSED_MARKER);
        }
        if let Some(hash) = &self.log_cert {
            w.opaque_fixed(LOG_MARKER);
            w.opaque_fixed(hash);
        }
        self.root.encode(w);
        self.signing.encode(w);
        w.u64(self.serial);
        w.u64(self.not_before);
        w.u64(self.not_after);
    }
}

impl Xdr for SigningCert {
    fn encode(&self, w: &mut Writer) {
        self.encode_body(w);
        self.signature.encode(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let is_witnessed = r.rest().starts_with(WITNESSED_MARKER);
        if is_witnessed {
            r.take(WITNESSED_MARKER.len())?;
        }
        let log_cert = if r.rest().starts_with(LOG_MARKER) {
            r.take(LOG_MARKER.len())?;
            Some(r.opaque_fixed()?)
        } else {
            None
        };
        let (root, signing) = (PublicKey::decode(r)?, PublicKey::decode(r)?);
        // A pair is as strong as the keys that it certifies.
        if root.is_pair() != signing.is_pair() {
            return Err(XdrError::Invalid("certificate of a signing key of another kind"));
        }
        let (serial, not_before, not_after) = (r.u64()?, r.u64()?, r.u64()?);
        let signature = Signature::decode(r, &root)?;
        Ok(Self { root, signing, serial, not_before, not_after, is_witnessed, log_cert, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(n: u8) -> SecretKey {
        SecretKey::from_seeds(&[n; 32], &[n + 100; 32])
    }

    #[test]
    fn certificate_is_valid_for_its_root_only() {
        let classic = |n| SecretKey::from_seed(&[n; 32]);
        for [root, signing, other] in [[1, 2, 3].map(classic), [1, 2, 3].map(pair)] {
            let cert = SigningCert::issue(&root, signing.public(), 1, 0, 100);
            assert!(cert.is_signed_by(&root.public().hostid()));
            assert!(!cert.is_signed_by(&other.public().hostid()));
            assert_eq!(SigningCert::from_xdr(&cert.to_xdr()).unwrap(), cert);
            assert!(!SigningCert { serial: 2, ..cert }.is_signed_by(&root.public().hostid()));
        }
    }

    #[test]
    fn demand_for_witnesses_cannot_be_taken_off_a_certificate() {
        let root = SecretKey::from_seed(&[1; 32]);
        let plain = SigningCert::issue(&root, SecretKey::from_seed(&[2; 32]).public(), 1, 0, 100);
        let plain_bytes = plain.to_xdr();
        let cert = plain.witnessed(&root);
        let hostid = root.public().hostid();
        assert!(cert.is_signed_by(&hostid));
        let bytes = cert.to_xdr();
        assert_eq!(bytes.len(), plain_bytes.len() + 32);
        assert_eq!(SigningCert::from_xdr(&bytes).unwrap(), cert);
        let cut = SigningCert::from_xdr(&bytes[32..]).unwrap();
        assert!(!cut.is_witnessed && !cut.is_signed_by(&hostid));
        let added = [&bytes[..32], &plain_bytes].concat();
        assert!(!SigningCert::from_xdr(&added).unwrap().is_signed_by(&hostid));
        // Nor the hash of its log.
        let logged = cert.with_log(&root, [7; 32]);
        let bytes = logged.to_xdr();
        assert_eq!(SigningCert::from_xdr(&bytes).unwrap(), logged);
        assert!(logged.is_signed_by(&hostid));
        let cut = [&bytes[..32], &bytes[96..]].concat();
        assert_eq!(SigningCert::from_xdr(&cut).unwrap().log_cert, None);
        assert!(!SigningCert::from_xdr(&cut).unwrap().is_signed_by(&hostid));
    }

    #[test]
    fn signature_is_valid_for_one_purpose_only() {
        for key in [SecretKey::from_seed(&[1; 32]), pair(1)] {
            let signature = key.sign(Purpose::Fsinfo, b"x");
            assert!(key.public().verify(Purpose::Fsinfo, b"x", &signature));
            assert!(!key.public().verify(Purpose::Statement, b"x", &signature));
        }
    }

    #[test]
    fn pair_needs_both_signatures() {
        let (ours, forger) = (pair(1), pair(2));
        let [good, bad] = [&ours, &forger].map(|key| key.sign(Purpose::Fsinfo, b"x"));
        let mixed = [
            Signature { ed25519: good.ed25519, ml_dsa_44: bad.ml_dsa_44.clone() },
            Signature { ed25519: bad.ed25519, ml_dsa_44: good.ml_dsa_44.clone() },
            Signature { ed25519: good.ed25519, ml_dsa_44: None },
        ];
        for signature in mixed {
            assert!(!ours.public().verify(Purpose::Fsinfo, b"x", &signature));
        }
        // A key that lacks ML-DSA-44 takes no pair of signatures.
        let half = SecretKey::from_seed(&[1; 32]).public();
        assert!(!half.verify(Purpose::Fsinfo, b"x", &good));
        assert!(ours.public().verify(Purpose::Fsinfo, b"x", &good));
    }

    #[test]
    fn hostid_covers_both_keys_of_a_pair() {
        let hostids = [
            pair(1),
            SecretKey::from_seed(&[1; 32]),
            SecretKey::from_seeds(&[1; 32], &[9; 32]),
            SecretKey::from_seeds(&[9; 32], &[101; 32]),
        ]
        .map(|key| key.public().hostid().to_string());
        assert!(hostids.iter().all(|hostid| hostid.len() == 52));
        assert!(hostids[1..].iter().all(|hostid| *hostid != hostids[0]));
    }

    #[test]
    fn pair_certifies_pairs_only() {
        let (root, classic) = (pair(1), SecretKey::from_seed(&[2; 32]));
        let mut cert = SigningCert::issue(&root, pair(2).public(), 1, 0, 100);
        cert.signing = classic.public();
        cert.signature = root.sign(Purpose::Certificate, &cert.body());
        assert!(SigningCert::from_xdr(&cert.to_xdr()).is_err());
    }

    #[test]
    fn marker_of_pairs_is_no_ed25519_key() {
        assert!(VerifyingKey::from_bytes(PAIR_MARKER).is_err());
    }

    #[test]
    fn keys_match_published_vectors() {
        let hex = |s: &str| data_encoding::HEXLOWER.decode(s.as_bytes()).unwrap();
        // RFC 8032 §7.1, test 1.
        let ed25519: [u8; 32] =
            hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
                .try_into()
                .unwrap();
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(SecretKey::from_seed(&ed25519).public().ed25519.to_vec(), public);
    }
}
