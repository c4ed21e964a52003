//! Server-wide configuration.

use crate::Limits;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    pub lease_ms: u64,
    /// Grace period after a start, milliseconds; 0 if there are no recovery records.
    pub grace_ms: u64,
    pub minor_versions: std::ops::RangeInclusive<u32>,
    pub delegations: bool,
    /// Domain of owner strings (RFC 8881, section 5.9).
    pub domain: String,
    /// Whether owners under AUTH_SYS are sent as numbers (RFC 8881, section 5.9). Linux does so by
    /// default.
    pub numeric_owners: bool,
    /// Server owner and scope for trunking (RFC 8881, section 2.10.5). Stable over restarts, unique
    /// for each server.
    pub server_owner: Vec<u8>,
    /// A number that differs at each start, for the write verifier (RFC 8881, section 18.32.3),
    /// client ids and stateids.
    pub boot: u64,
    pub filehandle_key: [u8; 32],
    pub implementation: Option<(String, String)>,
    pub limits: Limits,
}
