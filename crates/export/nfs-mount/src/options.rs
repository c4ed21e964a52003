use std::net::SocketAddr;
use std::time::Duration;

use vouch_nfs4_client::TlsClient;
use vouch_rpcsec_gss::Service;

/// An export, and how it is mounted.
#[derive(Clone)]
pub struct MountOptions {
    /// Host and path, as in mount(8)'s tables.
    pub source: String,
    /// All addresses are of one server.
    pub address: SocketAddr,
    /// From the root of the exports.
    pub path: Vec<u8>,
    pub security: Security,
    pub tls: Option<TlsClient>,
    /// Connections of the session.
    pub connections: usize,
    /// Processes of other users. Under AUTH_SYS each call then names its user.
    pub allow_other: bool,
    /// The kernel checks modes and owners, and the server sees the mounting user. Idmapped mounts
    /// need it.
    pub checks_locally: bool,
    pub read_only: bool,
    pub suid: bool,
    pub dev: bool,
    pub exec: bool,
    pub times: CacheTimes,
    /// System calls fail after this time without an answer. `None`: they wait.
    pub timeout: Option<Duration>,
    /// Bytes of one READ or WRITE.
    pub io_len_max: u32,
    pub read_ahead_bytes: u32,
    /// Bytes of written data that no COMMIT covers yet.
    pub dirty_max: u32,
}

/// Security flavour of the calls.
#[derive(Debug, Clone)]
pub enum Security {
    Sys,
    /// With the tickets of the mounting user.
    Kerberos {
        service: Service,
        /// `nfs@HOST`, or a principal with a slash.
        principal: String,
    },
}

/// Times for which attributes are used without asking the server, as in nfs(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTimes {
    pub file: (Duration, Duration),
    pub directory: (Duration, Duration),
}

impl Default for CacheTimes {
    /// acregmin, acregmax, acdirmin and acdirmax.
    fn default() -> Self {
        let seconds = |min, max| (Duration::from_secs(min), Duration::from_secs(max));
        Self { file: seconds(3, 60), directory: seconds(30, 60) }
    }
}

impl CacheTimes {
    /// `noac`.
    pub const NONE: Self = Self {
        file: (Duration::ZERO, Duration::ZERO),
        directory: (Duration::ZERO, Duration::ZERO),
    };

    pub(crate) const fn of(&self, is_directory: bool) -> (Duration, Duration) {
        match is_directory {
            true => self.directory,
            false => self.file,
        }
    }
}
