/// Reason for the end of a session. All but [`TlsError::Ours`] are the peer's or the network's
/// fault.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer sent no TLS record.
    #[error("the peer sent no TLS record; it may have sent clear text")]
    NotTls,
    /// A record is longer than TLS allows.
    #[error("a TLS record is longer than the standard allows")]
    TooLong,
    /// The handshake is longer than this crate accepts.
    #[error("the TLS handshake is longer than {max} bytes")]
    HandshakeTooLong {
        /// In bytes.
        max: usize,
    },
    /// A record was altered, cut, repeated or reordered.
    #[error("a TLS record is forged or damaged")]
    Forged,
    /// A decrypted record has no valid content.
    #[error("a TLS record has {0}")]
    Malformed(&'static str),
    /// The peer ended the session with a fatal alert.
    #[error("the peer sent the TLS alert {0}")]
    Alert(String),
    /// Too many records without data.
    #[error("the peer sent {max} TLS records without data in a row")]
    Flood {
        /// Limit.
        max: u32,
    },
    /// The peer negotiated another protocol by ALPN.
    #[error("the peer does not offer the protocol sunrpc (ALPN)")]
    Alpn,
    /// The handshake failed.
    #[error("{0}")]
    Handshake(#[from] rustls::Error),
    /// A certificate cannot be read.
    #[error("the peer's certificate cannot be read: {0}")]
    Certificate(&'static str),
    /// The system or this program failed.
    #[error("{0}")]
    Ours(&'static str),
}
