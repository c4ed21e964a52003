//! Network addresses as text (RFC 5665), and places of servers.

use crate::Bytes;
use crate::macros::{wire_struct, wire_union};

/// Longest network identifier, address or server name. Names of hosts have at most 255 bytes, URLs
/// of servers not much more.
pub const NET_NAME_LEN_MAX: usize = 1024;

wire_struct! {
    /// An address (`netaddr4`, `clientaddr4`): `tcp` and `192.0.2.1.8.1`.
    #[derive(Copy)]
    pub struct NetAddr<'a> {
        /// The network.
        pub netid: Bytes<'a, NET_NAME_LEN_MAX>,
        /// The universal address.
        pub address: Bytes<'a, NET_NAME_LEN_MAX>,
    }
}

wire_union! {
    /// Where a server is (`netloc4`).
    #[derive(Copy)]
    pub enum NetLoc<'a> = "netloc_type4" {
        /// By name.
        1 => Name(name: Bytes<'a, NET_NAME_LEN_MAX>),
        /// By URL.
        2 => Url(url: Bytes<'a, NET_NAME_LEN_MAX>),
        /// By address.
        3 => Address(address: NetAddr<'a>),
    }
}
