//! Protection below RPC (RFC 9289), and the client's certificate.

use std::sync::Arc;

/// In order of strength: a stronger transport satisfies a weaker demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Transport {
    #[default]
    Clear,
    Tls,
    MutualTls,
}

impl Transport {
    pub fn name(self) -> &'static str {
        match self {
            Transport::Clear => "none",
            Transport::Tls => "tls",
            Transport::MutualTls => "mtls",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct TlsPeer {
    pub certificate: Option<ClientCertificate>,
    pub cipher_suite: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    pub fingerprint: [u8; 32],
    pub name: String,
    /// All calls of the connection without Kerberos act as this local user.
    pub user: Option<Arc<str>>,
}
