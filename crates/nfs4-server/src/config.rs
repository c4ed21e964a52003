//! What the administrator decides about the server as a whole.

use crate::Limits;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a client may be silent before its state is at risk, milliseconds.
    pub lease_ms: u64,
    /// How long after a start only reclaims are let in, milliseconds. 0 if the recovery record is
    /// empty.
    pub grace_ms: u64,
    /// Lowest and highest minor version that is spoken.
    pub minor_versions: std::ops::RangeInclusive<u32>,
    /// Whether delegations are given.
    pub delegations: bool,
    /// Domain of owner strings (RFC 8881, section 5.9).
    pub domain: String,
    /// Whether owners under AUTH_SYS are sent as plain numbers (RFC 8881, section 5.9: a practice
    /// that Linux has by default).
    pub numeric_owners: bool,
    /// Identity of this server for trunking (RFC 8881, section 2.10.5): `so_major_id` and
    /// `eir_server_scope`. The same after a restart, different on every server.
    pub server_owner: Vec<u8>,
    /// Differs at each start: the write verifier (RFC 8881, section 18.32.3) and part of client ids
    /// and stateids.
    pub boot: u64,
    /// Key of the filehandles' authenticators. The same after a restart, kept secret.
    pub filehandle_key: [u8; 32],
    /// Domain and name of `eir_server_impl_id`.
    pub implementation: Option<(String, String)>,
    /// Limits.
    pub limits: Limits,
}
