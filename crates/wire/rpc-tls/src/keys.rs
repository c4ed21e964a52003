//! Traffic keys, nonces and key updates.

use std::sync::Arc;

use parking_lot::Mutex;
use ring::aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305};
use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use zeroize::Zeroizing;

use crate::record_cipher::RecordCipher;
use crate::{HEADER_LEN, TlsError};

/// Derives the next keys after a key update (RFC 8446 §7.2).
pub(crate) enum KeySource {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

pub(crate) type SharedKeySource = Arc<Mutex<KeySource>>;

impl KeySource {
    pub(crate) fn next_to_send(&mut self) -> Result<TrafficKey, TlsError> {
        TrafficKey::new(match self {
            KeySource::Server(connection) => connection.update_tx_secret(),
            KeySource::Client(connection) => connection.update_tx_secret(),
        }?)
    }

    pub(crate) fn next_to_receive(&mut self) -> Result<TrafficKey, TlsError> {
        TrafficKey::new(match self {
            KeySource::Server(connection) => connection.update_rx_secret(),
            KeySource::Client(connection) => connection.update_rx_secret(),
        }?)
    }
}

/// Key of one direction with the number of its next record.
pub(crate) struct TrafficKey {
    cipher: RecordCipher,
    iv: [u8; 12],
    pub(crate) sequence: u64,
    secrets: ConnectionTrafficSecrets,
}

impl TrafficKey {
    pub(crate) fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, TlsError> {
        let (algorithm, key, iv) = parts(&secrets)
            .ok_or(TlsError::Ours("the cipher suite has no record protection here"))?;
        let iv =
            iv.as_ref().try_into().map_err(|_| TlsError::Ours("a nonce has a wrong length"))?;
        let cipher = RecordCipher::new(algorithm, key.as_ref())?;
        Ok(TrafficKey { cipher, iv, sequence, secrets })
    }

    /// `struct tls12_crypto_info_…` of linux/tls.h.
    pub(crate) fn crypto_info(&self) -> Zeroizing<Vec<u8>> {
        let (cipher, key, salt_len) = match &self.secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, .. } => (51_u16, key, 4),
            ConnectionTrafficSecrets::Aes256Gcm { key, .. } => (52, key, 4),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, .. } => (54, key, 0),
            _ => unreachable!("TrafficKey::new has refused it"),
        };
        let (salt, iv) = self.iv.split_at(salt_len);
        let mut info = Zeroizing::new(Vec::with_capacity(CRYPTO_INFO_LEN_MAX));
        for part in [
            &TLS_1_3.to_ne_bytes()[..],
            &cipher.to_ne_bytes(),
            iv,
            key.as_ref(),
            salt,
            &self.sequence.to_be_bytes(),
        ] {
            info.extend_from_slice(part);
        }
        info
    }

    /// Seals `inner` and writes its tag behind it.
    pub(crate) fn seal(
        &mut self,
        header: [u8; HEADER_LEN],
        inner: &mut [u8],
        tag: &mut [u8; 16],
    ) -> Result<(), TlsError> {
        let nonce = self.next_nonce();
        self.cipher.seal(key_of(&self.secrets), nonce, header, inner, tag)
    }

    /// Opens `space[cipher_at..]` and moves the plaintext to the front of `space`. Returns its
    /// length.
    pub(crate) fn open(
        &mut self,
        header: [u8; HEADER_LEN],
        space: &mut [u8],
        cipher_at: usize,
    ) -> Result<usize, TlsError> {
        let nonce = self.next_nonce();
        self.cipher.open(key_of(&self.secrets), nonce, header, space, cipher_at)
    }

    /// RFC 8446 §5.3: record number combined with the write IV. Each is used once.
    fn next_nonce(&mut self) -> [u8; 12] {
        let mut nonce = self.iv;
        nonce[4..]
            .iter_mut()
            .zip(self.sequence.to_be_bytes())
            .for_each(|(byte, number)| *byte ^= number);
        self.sequence += 1;
        nonce
    }
}

fn parts(secrets: &ConnectionTrafficSecrets) -> Option<(&'static Algorithm, &AeadKey, &Iv)> {
    Some(match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
        _ => return None,
    })
}

fn key_of(secrets: &ConnectionTrafficSecrets) -> &[u8] {
    parts(secrets).map_or(&[], |(_, key, _)| key.as_ref())
}

const TLS_1_3: u16 = 0x0304;
const CRYPTO_INFO_LEN_MAX: usize = 64;
