//! Ed25519 keys. The root key names the tree and stays offline. It certifies signing keys until a
//! date. A client refuses serials below the highest that it has seen.

use ed25519_dalek::{Signer, SigningKey as Ed25519, VerifyingKey};
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::HostId;

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

/// RFC 8032.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Strict: refuses the encodings on which RFC 8032 lets implementations differ.
    pub fn verify(&self, purpose: Purpose, body: &[u8], signature: &[u8; 64]) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| {
            key.verify_strict(
                &purpose.message(body),
                &ed25519_dalek::Signature::from_bytes(signature),
            )
            .is_ok()
        })
    }

    /// The HOSTID of the tree, if this is its root key.
    pub fn hostid(&self) -> HostId {
        HostId::of_root_key(&self.0)
    }
}

impl Xdr for PublicKey {
    fn encode(&self, w: &mut Writer) {
        w.opaque_fixed(&self.0);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.opaque_fixed().map(Self)
    }
}

/// Zeroized on drop; has no `Debug`.
pub struct SecretKey(Ed25519);

impl SecretKey {
    /// The caller draws the seed from a secure random source and wipes it.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Ed25519::from_bytes(seed))
    }

    pub(crate) fn seed(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The key that verifies.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs `body` for one purpose.
    pub fn sign(&self, purpose: Purpose, body: &[u8]) -> [u8; 64] {
        self.0.sign(&purpose.message(body)).to_bytes()
    }
}

/// The root key's certificate of a signing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// The root key's signature over the fields above.
    pub signature: [u8; 64],
}

impl SigningCert {
    /// Signs a certificate. Times are seconds since 1970.
    pub fn issue(
        root: &SecretKey,
        signing: PublicKey,
        serial: u64,
        not_before: u64,
        not_after: u64,
    ) -> Self {
        let mut cert = Self {
            root: root.public(),
            signing,
            serial,
            not_before,
            not_after,
            signature: [0; 64],
        };
        cert.signature = root.sign(Purpose::Certificate, &cert.body());
        cert
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
        w.opaque_fixed(&self.signature);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            root: PublicKey::decode(r)?,
            signing: PublicKey::decode(r)?,
            serial: r.u64()?,
            not_before: r.u64()?,
            not_after: r.u64()?,
            signature: r.opaque_fixed()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_valid_for_its_root_only() {
        let root = SecretKey::from_seed(&[1; 32]);
        let cert = SigningCert::issue(&root, SecretKey::from_seed(&[2; 32]).public(), 1, 0, 100);
        assert!(cert.is_signed_by(&root.public().hostid()));
        assert!(!cert.is_signed_by(&SecretKey::from_seed(&[3; 32]).public().hostid()));
        assert!(!SigningCert { serial: 2, ..cert }.is_signed_by(&root.public().hostid()));
        assert_eq!(SigningCert::from_xdr(&cert.to_xdr()).unwrap(), cert);
    }

    #[test]
    fn signature_is_valid_for_one_purpose_only() {
        let key = SecretKey::from_seed(&[1; 32]);
        let signature = key.sign(Purpose::Fsinfo, b"x");
        assert!(key.public().verify(Purpose::Fsinfo, b"x", &signature));
        assert!(!key.public().verify(Purpose::Statement, b"x", &signature));
    }

    #[test]
    fn keys_match_rfc_8032_vectors() {
        // RFC 8032 §7.1, test 1.
        let hex = |s: &str| data_encoding::HEXLOWER.decode(s.as_bytes()).unwrap();
        let seed: [u8; 32] =
            hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
                .try_into()
                .unwrap();
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(SecretKey::from_seed(&seed).public().0.to_vec(), public);
    }
}
