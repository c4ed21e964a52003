//! RPC-with-TLS (RFC 9289): TLS 1.3 below RPC records. rustls does the handshake ([`Handshake`]).
//! [`Sealer`] and [`Opener`] then protect records in place. The two directions share only key
//! updates, so they need no common lock.
//!
//! The crate does no I/O but reading configured files ([`credentials`]), and reads no clock.

#![warn(missing_docs)]

mod certificate;
pub mod credentials;
mod der;
mod error;
mod handshake;
mod keys;
mod open;
mod record_cipher;
mod seal;
mod stream;
mod subject;

pub use certificate::{PeerCertificate, alternative_name};
pub use error::TlsError;
pub use handshake::{Handshake, Session, Step};
pub use open::{Opened, Opener};
pub use rustls::pki_types::{CertificateDer, ServerName};
pub use rustls::{ClientConfig, ServerConfig};
pub use seal::{KEY_UPDATE_MESSAGE, Sealer};
pub use stream::TlsStream;
pub use subject::SubjectKey;

/// Verifier of the reply to an AUTH_TLS probe if the server is ready (RFC 9289 §4.1).
pub const STARTTLS: &[u8; 8] = b"STARTTLS";

/// Protocol in ALPN (RFC 9289 §8.2).
pub(crate) const ALPN: &[u8] = b"sunrpc";

/// HTTP/2 in ALPN (RFC 9113 §3.1).
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";

/// Longest plaintext of a record (RFC 8446 §5.1).
pub const PLAIN_LEN_MAX: usize = 1 << 14;
/// Record header (RFC 8446 §5.2).
pub const HEADER_LEN: usize = 5;
/// Content type, and the 16-byte tag of every TLS 1.3 cipher.
pub const TAIL_LEN: usize = 1 + 16;
/// Longest ciphertext of a record (RFC 8446 §5.2).
pub(crate) const CIPHER_LEN_MAX: usize = PLAIN_LEN_MAX + 256;
/// Includes the header.
pub const RECORD_LEN_MAX: usize = HEADER_LEN + CIPHER_LEN_MAX;

/// Types of records (RFC 8446 §5.1).
pub(crate) mod content {
    pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const APPLICATION_DATA: u8 = 23;
}

#[cfg(test)]
mod tests;
