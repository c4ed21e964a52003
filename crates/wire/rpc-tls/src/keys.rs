//! Traffic keys, nonces and key updates.

use std::sync::Arc;

use parking_lot::Mutex;
use ring::aead::{
    AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use zeroize::Zeroizing;

use crate::TlsError;

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
    pub(crate) key: LessSafeKey,
    iv: [u8; 12],
    pub(crate) sequence: u64,
    secrets: ConnectionTrafficSecrets,
}

impl TrafficKey {
    pub(crate) fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, TlsError> {
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(TlsError::Ours("the cipher suite has no record protection here")),
        };
        let key = UnboundKey::new(algorithm, key.as_ref())
            .map_err(|_| TlsError::Ours("a traffic key has a wrong length"))?;
        let iv =
            iv.as_ref().try_into().map_err(|_| TlsError::Ours("a nonce has a wrong length"))?;
        Ok(TrafficKey { key: LessSafeKey::new(key), iv, sequence, secrets })
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

    /// RFC 8446 §5.3: record number combined with the write IV. Each is used once.
    pub(crate) fn next_nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        nonce[4..]
            .iter_mut()
            .zip(self.sequence.to_be_bytes())
            .for_each(|(byte, number)| *byte ^= number);
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

const TLS_1_3: u16 = 0x0304;
const CRYPTO_INFO_LEN_MAX: usize = 64;
