//! Addresses as text (RFC 5665), and locations of servers.

use std::net::SocketAddr;

use crate::Bytes;
use crate::macros::{wire_copy, wire_union};

/// A host name has at most 255 bytes; the limit leaves room for URLs.
pub(crate) const NET_NAME_LEN_MAX: usize = 1024;

wire_copy! {
    /// `netaddr4`, `clientaddr4`: such as `tcp` and `192.0.2.1.8.1`.
    pub struct NetAddr<'a> {
        pub netid: Bytes<'a, NET_NAME_LEN_MAX>,
        pub address: Bytes<'a, NET_NAME_LEN_MAX>,
    }
}

wire_union! {
    #[derive(Copy)]
    pub enum NetLoc<'a> = "netloc_type4" {
        1 => Name(name: Bytes<'a, NET_NAME_LEN_MAX>),
        2 => Url(url: Bytes<'a, NET_NAME_LEN_MAX>),
        3 => Address(address: NetAddr<'a>),
    }
}

/// Network identifier and universal address (RFC 5665, section 5.2.3).
pub fn universal_address(address: SocketAddr) -> (&'static str, String) {
    let netid = if address.is_ipv4() { "tcp" } else { "tcp6" };
    (netid, format!("{}.{}.{}", address.ip(), address.port() >> 8, address.port() & 0xff))
}
