//! Key files: a header line, then XDR in base64; a passphrase may encrypt a private key.

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use data_encoding::BASE64;
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};
use zeroize::Zeroizing;

use crate::key::{SecretKey, SigningCert};

/// The key that a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Kept offline.
    Root,
    /// On the publishing machine.
    Signing,
}

impl Role {
    const fn header(self) -> &'static str {
        match self {
            Self::Root => "vouch root key v1",
            Self::Signing => "vouch signing key v1",
        }
    }
}

const CERT_HEADER: &str = "vouch signing certificate v1";

/// Longest key file, in bytes.
pub const FILE_LEN_MAX: usize = 8192;

/// Second recommended option of RFC 9106 §4.
const ARGON2_KIB: u32 = 64 * 1024;
const ARGON2_PASSES: u32 = 3;
const ARGON2_LANES: u32 = 4;

/// The seeds of a pair, and the tag of 16 bytes.
const SEALED_LEN_MAX: usize = 80;

/// A malicious file cannot exhaust memory or time.
const ARGON2_KIB_MAX: u32 = 1024 * 1024;
const ARGON2_PASSES_MAX: u32 = 16;
const ARGON2_LANES_MAX: u32 = 16;

/// Encryption of a secret key.
pub struct Sealing<'a> {
    /// Wiped by the caller.
    pub passphrase: &'a [u8],
    /// Salt of Argon2id, random.
    pub salt: [u8; 16],
    /// Nonce of XChaCha20-Poly1305.
    pub nonce: [u8; 24],
}

/// Why a key file cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("not a file of the kind '{0}'")]
    Header(&'static str),
    #[error("the key file is damaged: {0}")]
    Malformed(#[from] XdrError),
    #[error("the key file is encrypted with a passphrase")]
    PassphraseNeeded,
    #[error("wrong passphrase, or the key file is damaged")]
    WrongPassphrase,
    #[error("the key file's parameters are outside the limits")]
    Parameters,
}

/// The text of a key file; with `sealing`, encrypted, which takes 64 MiB and a moment.
pub fn write_secret(
    role: Role,
    key: &SecretKey,
    sealing: Option<&Sealing<'_>>,
) -> Result<Zeroizing<String>, Error> {
    let mut w = Writer::new();
    let seeds = key.seeds();
    let form = |is_sealed| Form { is_sealed, is_pair: key.public().is_pair() }.to_number();
    match sealing {
        None => {
            w.u32(form(false));
            w.opaque_fixed(&seeds);
        }
        Some(sealing) => {
            w.u32(form(true));
            for n in [ARGON2_KIB, ARGON2_PASSES, ARGON2_LANES] {
                w.u32(n);
            }
            w.opaque_fixed(&sealing.salt);
            w.opaque_fixed(&sealing.nonce);
            let cipher = cipher(
                sealing.passphrase,
                &sealing.salt,
                [ARGON2_KIB, ARGON2_PASSES, ARGON2_LANES],
            )?;
            let payload = Payload { msg: &seeds, aad: role.header().as_bytes() };
            let sealed = cipher
                .encrypt(&XNonce::from(sealing.nonce), payload)
                .map_err(|_| Error::Parameters)?;
            w.opaque(&sealed);
        }
    }
    let bytes = Zeroizing::new(w.into_bytes());
    Ok(Zeroizing::new(armour(role.header(), &bytes)))
}

/// Uses `passphrase` only if the file is encrypted.
pub fn read_secret(role: Role, text: &[u8], passphrase: Option<&[u8]>) -> Result<SecretKey, Error> {
    let bytes = Zeroizing::new(unarmour(role.header(), text)?);
    let mut r = Reader::new(&bytes);
    let form = Form::decode(&mut r)?;
    let seeds = if form.is_sealed {
        let parameters = [r.u32()?, r.u32()?, r.u32()?];
        let (salt, nonce) = (r.opaque_fixed::<16>()?, r.opaque_fixed::<24>()?);
        let sealed = r.opaque(SEALED_LEN_MAX)?;
        let cipher = cipher(passphrase.ok_or(Error::PassphraseNeeded)?, &salt, parameters)?;
        let payload = Payload { msg: sealed, aad: role.header().as_bytes() };
        let opened = cipher.decrypt(&XNonce::from(nonce), payload);
        Zeroizing::new(opened.map_err(|_| Error::WrongPassphrase)?)
    } else if form.is_pair {
        Zeroizing::new(Zeroizing::new(r.opaque_fixed::<64>()?).to_vec())
    } else {
        Zeroizing::new(Zeroizing::new(r.opaque_fixed::<32>()?).to_vec())
    };
    r.finish()?;
    let (ed25519, ml_dsa_44) = seeds.split_first_chunk::<32>().ok_or(Error::WrongPassphrase)?;
    match (form.is_pair, <&[u8; 32]>::try_from(ml_dsa_44)) {
        (true, Ok(ml_dsa_44)) => Ok(SecretKey::from_seeds(ed25519, ml_dsa_44)),
        (false, Err(_)) if ml_dsa_44.is_empty() => Ok(SecretKey::from_seed(ed25519)),
        _ => Err(Error::WrongPassphrase),
    }
}

/// The first number of a key file.
struct Form {
    is_sealed: bool,
    is_pair: bool,
}

impl Form {
    const fn to_number(&self) -> u32 {
        self.is_sealed as u32 | (self.is_pair as u32) << 1
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        match r.u32()? {
            number @ 0..=3 => Ok(Self { is_sealed: number & 1 != 0, is_pair: number & 2 != 0 }),
            value => Err(XdrError::Unknown { what: "key file sealing", value }),
        }
    }
}

/// True if [`read_secret`] needs a passphrase.
pub fn is_sealed(role: Role, text: &[u8]) -> Result<bool, Error> {
    let bytes = Zeroizing::new(unarmour(role.header(), text)?);
    Ok(Form::decode(&mut Reader::new(&bytes))?.is_sealed)
}

/// The text of a certificate file.
pub fn write_cert(cert: &SigningCert) -> String {
    armour(CERT_HEADER, &cert.to_xdr())
}

/// Does not verify the certificate.
pub fn read_cert(text: &[u8]) -> Result<SigningCert, Error> {
    Ok(SigningCert::from_xdr(&unarmour(CERT_HEADER, text)?)?)
}

fn cipher(
    passphrase: &[u8],
    salt: &[u8; 16],
    [kib, passes, lanes]: [u32; 3],
) -> Result<XChaCha20Poly1305, Error> {
    if kib > ARGON2_KIB_MAX || passes > ARGON2_PASSES_MAX || lanes > ARGON2_LANES_MAX {
        return Err(Error::Parameters);
    }
    let parameters = Params::new(kib, passes, lanes, Some(32)).map_err(|_| Error::Parameters)?;
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
        .hash_password_into(passphrase, salt, key.as_mut())
        .map_err(|_| Error::Parameters)?;
    XChaCha20Poly1305::new_from_slice(key.as_ref()).map_err(|_| Error::Parameters)
}

fn armour(header: &str, bytes: &[u8]) -> String {
    format!("{header}\n{}\n", Zeroizing::new(BASE64.encode(bytes)).as_str())
}

fn unarmour(header: &'static str, text: &[u8]) -> Result<Vec<u8>, Error> {
    if text.len() > FILE_LEN_MAX {
        return Err(Error::Header(header));
    }
    let rest = text
        .strip_prefix(header.as_bytes())
        .filter(|rest| rest.first() == Some(&b'\n'))
        .ok_or(Error::Header(header))?;
    let body = Zeroizing::new(
        rest.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect::<Vec<u8>>(),
    );
    BASE64.decode(&body).map_err(|_| XdrError::Invalid("base64").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SecretKey {
        SecretKey::from_seed(&[42; 32])
    }

    #[test]
    fn round_trips_plain_and_encrypted_keys() {
        for key in [key(), SecretKey::from_seeds(&[42; 32], &[43; 32])] {
            round_trip(&key);
        }
    }

    fn round_trip(key: &SecretKey) {
        let plain = write_secret(Role::Signing, key, None).unwrap();
        assert!(!is_sealed(Role::Signing, plain.as_bytes()).unwrap());
        assert_eq!(
            read_secret(Role::Signing, plain.as_bytes(), None).ok().unwrap().public(),
            key.public()
        );

        let sealing = Sealing { passphrase: b"correct horse", salt: [1; 16], nonce: [2; 24] };
        let sealed = write_secret(Role::Root, key, Some(&sealing)).unwrap();
        assert!(is_sealed(Role::Root, sealed.as_bytes()).unwrap());
        assert_eq!(
            read_secret(Role::Root, sealed.as_bytes(), Some(b"correct horse"))
                .ok()
                .unwrap()
                .public(),
            key.public()
        );
        assert_eq!(
            read_secret(Role::Root, sealed.as_bytes(), Some(b"battery")).err(),
            Some(Error::WrongPassphrase)
        );
        assert_eq!(
            read_secret(Role::Root, sealed.as_bytes(), None).err(),
            Some(Error::PassphraseNeeded)
        );
    }

    #[test]
    fn refuses_key_of_another_role() {
        let plain = write_secret(Role::Signing, &key(), None).unwrap();
        assert_eq!(
            read_secret(Role::Root, plain.as_bytes(), None).err(),
            Some(Error::Header("vouch root key v1"))
        );
    }

    #[test]
    fn refuses_excessive_argon2_parameters() {
        let mut w = Writer::new();
        for n in [1, u32::MAX, 3, 4] {
            w.u32(n);
        }
        w.opaque_fixed(&[0; 16]);
        w.opaque_fixed(&[0; 24]);
        w.opaque(&[0; 48]);
        let text = armour(Role::Root.header(), w.as_bytes());
        assert_eq!(
            read_secret(Role::Root, text.as_bytes(), Some(b"x")).err(),
            Some(Error::Parameters)
        );
    }
}
