use std::fmt;
use std::net::SocketAddr;

use vouch_audit::Record;
use vouch_rpc_tls::PeerCertificate;

use crate::tls::ParseHolder;

/// The sender of an order.
#[derive(Clone, Debug)]
pub(crate) enum Administrator {
    /// A process of this machine, by its user id.
    Process(u32),
    /// The holder of a client certificate.
    Holder { certificate: Box<PeerCertificate>, peer: SocketAddr },
}

impl Administrator {
    /// The fields of audit records that name the sender.
    pub(crate) fn record(&self) -> Record<'_> {
        match self {
            Administrator::Process(uid) => Record { uid: Some(*uid), ..Record::default() },
            Administrator::Holder { certificate, peer } => Record {
                address: Some(peer.ip()),
                port: Some(peer.port()),
                ..certified(certificate)
            },
        }
    }
}

/// Of a session with this client certificate.
pub(super) fn certified(certificate: &PeerCertificate) -> Record<'_> {
    Record {
        transport: Some(2),
        fingerprint: &certificate.fingerprint,
        certificate: certificate.name.as_bytes(),
        ..Record::default()
    }
}

/// For the log.
impl fmt::Display for Administrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Administrator::Process(uid) => write!(f, "{uid}"),
            Administrator::Holder { certificate, peer } => {
                write!(f, "{} at {peer}", certificate.name)
            }
        }
    }
}

/// What the holder of a certificate may do. Each role may do what the role before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Lists, status and checks.
    Read,
    /// Changes of exports.
    Exports,
    /// All orders.
    All,
}

impl ParseHolder for Role {
    fn parse(word: &str) -> Result<Self, String> {
        match word {
            "read" => Ok(Role::Read),
            "exports" => Ok(Role::Exports),
            "all" => Ok(Role::All),
            _ => Err(format!("{word} is no role; write read, exports or all")),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Read => "read",
            Role::Exports => "exports",
            Role::All => "all",
        })
    }
}
