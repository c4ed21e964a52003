use crate::Limits;

#[derive(Clone, Debug)]
pub struct Config {
    pub lease_ms: u64,
    pub grace_ms: u64,
    pub minor_versions: std::ops::RangeInclusive<u32>,
    pub delegations: bool,
    /// Of owner strings (RFC 8881 §5.9).
    pub domain: String,
    /// Under AUTH_SYS, as Linux does by default (RFC 8881 §5.9).
    pub numeric_owners: bool,
    /// For trunking (RFC 8881 §2.10.5). Stable over restarts, unique for each server.
    pub server_owner: Vec<u8>,
    /// Servers of one scope accept each other's filehandles (RFC 8881, section 2.10.4).
    pub server_scope: Vec<u8>,
    /// Host names or addresses of this server that a client may use at the same time. Reported by
    /// `fs_locations` (RFC 8881, section 11.5.2).
    pub addresses: Vec<String>,
    /// Differs at each start. For the write verifier (RFC 8881, section 18.32.3), client ids and
    /// stateids.
    pub boot: u64,
    pub filehandle_key: [u8; 32],
    pub implementation: Option<(String, String)>,
    pub limits: Limits,
}
