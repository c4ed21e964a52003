use std::net::IpAddr;

/// The part of an address that one host has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    V4([u8; 4]),
    /// A host chooses the second half of an IPv6 address freely (RFC 4291 §2.5.1).
    V6([u8; 8]),
}

impl Network {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Network::V4(address.octets()),
            IpAddr::V6(address) => {
                Network::V6(*address.octets().first_chunk().expect("an address has 16 bytes"))
            }
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Network::V4(address) => write!(f, "{}", std::net::Ipv4Addr::from(*address)),
            Network::V6(half) => {
                let mut address = [0; 16];
                address[..8].copy_from_slice(half);
                write!(f, "{}/64", std::net::Ipv6Addr::from(address))
            }
        }
    }
}
