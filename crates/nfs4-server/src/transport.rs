//! Protection of a connection below RPC (RFC 9289), and the client's certificate.

use std::sync::Arc;

/// In order of strength: a stronger transport fits where a weaker one is demanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Transport {
    /// TCP alone.
    #[default]
    Clear,
    /// TLS with the server's certificate.
    Tls,
    /// TLS with certificates of both sides.
    MutualTls,
}

impl Transport {
    /// As in `xprtsec=` of exports(5).
    pub fn name(self) -> &'static str {
        match self {
            Transport::Clear => "none",
            Transport::Tls => "tls",
            Transport::MutualTls => "mtls",
        }
    }
}

/// The TLS session of a connection.
#[derive(Clone, Debug, Default)]
pub struct TlsPeer {
    pub certificate: Option<ClientCertificate>,
    pub cipher_suite: String,
}

/// A verified certificate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// SHA-256.
    pub fingerprint: [u8; 32],
    pub name: String,
    /// Local user of the certificate: all calls of the connection without Kerberos act as this user.
    pub user: Option<Arc<str>>,
}
