//! PROXY protocol, version 2: a balancer's first bytes say who connected to it
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>, section 2.2).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::exports::syntax::{MachineName, in_network};

/// Balancers whose connections begin with a header, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balancers {
    network: IpAddr,
    prefix_len: u8,
}

impl Balancers {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        in_network(address, self.network, self.prefix_len)
    }
}

impl FromStr for Balancers {
    type Err = String;

    /// An address, or a network as in exports(5).
    fn from_str(text: &str) -> Result<Self, String> {
        let whole = match text.parse::<IpAddr>() {
            Ok(address) => format!("{text}/{}", if address.is_ipv4() { 32 } else { 128 }),
            Err(_) => text.to_owned(),
        };
        match MachineName::parse(&whole) {
            Ok((MachineName::Network(network, prefix_len), _)) => Ok(Self { network, prefix_len }),
            _ => Err("write an address or a network, such as 192.0.2.7 or 192.0.2.0/28".into()),
        }
    }
}

/// The header at the start of `bytes`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// More bytes are needed.
    Incomplete,
    /// Header length, and the client; `None` for a check by the balancer itself, or for a client
    /// without an address.
    Complete(usize, Option<SocketAddr>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotProxy(&'static str);

impl fmt::Display for NotProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Header {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NotProxy> {
        let known = bytes.len().min(SIGNATURE.len());
        if bytes[..known] != SIGNATURE[..known] {
            return Err(NotProxy("no signature of version 2"));
        }
        let Some(&[command, family, len_high, len_low]) = bytes[known..].first_chunk() else {
            return Ok(Self::Incomplete);
        };
        let body_len = usize::from(u16::from_be_bytes([len_high, len_low]));
        if body_len > BODY_LEN_MAX {
            return Err(NotProxy("too long"));
        }
        let Some(body) = bytes[FIXED_LEN..].get(..body_len) else { return Ok(Self::Incomplete) };
        let client = match (command, family) {
            (LOCAL, _) | (PROXY, UNSPECIFIED) => None,
            (PROXY, TCP_IPV4) => Some(client::<4>(body)?),
            (PROXY, TCP_IPV6) => Some(client::<16>(body)?),
            (PROXY, _) => return Err(NotProxy("another protocol than TCP")),
            _ => return Err(NotProxy("an unknown version or command")),
        };
        Ok(Self::Complete(FIXED_LEN + body_len, client))
    }
}

/// Addresses of client and server, then their ports. What follows is of no use here.
fn client<const N: usize>(body: &[u8]) -> Result<SocketAddr, NotProxy>
where
    IpAddr: From<[u8; N]>,
{
    let short = NotProxy("too short for its addresses");
    let (Some(address), Some(&[high, low])) = (body.first_chunk::<N>(), body.get(2 * N..2 * N + 2))
    else {
        return Err(short);
    };
    if body.len() < 2 * N + 4 {
        return Err(short);
    }
    let address = IpAddr::from(*address).to_canonical();
    Ok(SocketAddr::new(address, u16::from_be_bytes([high, low])))
}

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

const FIXED_LEN: usize = SIGNATURE.len() + 4;

/// Balancers add a certificate's names and a checksum: some hundred bytes.
const BODY_LEN_MAX: usize = 4096;

pub(crate) const HEADER_LEN_MAX: usize = FIXED_LEN + BODY_LEN_MAX;

const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const TCP_IPV4: u8 = 0x11;
const TCP_IPV6: u8 = 0x21;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, body].concat()
    }

    #[test]
    fn client_is_read_from_complete_headers_only() {
        let v4 = [&[192, 0, 2, 7][..], &[10, 0, 0, 1], &[3, 0xe7], &[8, 1]].concat();
        let with_extras = [&v4[..], &[0x04, 0, 2, 0, 0]].concat();
        let mut v6 = vec![0; 36];
        v6[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        v6[15] = 9;
        v6[33] = 80;
        let mut mapped = vec![0; 36];
        mapped[10..16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 7]);
        for (bytes, expected) in [
            (header(PROXY, TCP_IPV4, &v4), Some("192.0.2.7:999")),
            (header(PROXY, TCP_IPV4, &with_extras), Some("192.0.2.7:999")),
            (header(PROXY, TCP_IPV6, &v6), Some("[2001:db8::9]:80")),
            (header(PROXY, TCP_IPV6, &mapped), Some("192.0.2.7:0")),
            (header(LOCAL, UNSPECIFIED, &[]), None),
            (header(LOCAL, TCP_IPV4, &v4), None),
            (header(PROXY, UNSPECIFIED, &[1, 2]), None),
        ] {
            let followed = [&bytes[..], b"call"].concat();
            let client = expected.map(|text| text.parse().unwrap());
            assert_eq!(Header::parse(&followed), Ok(Header::Complete(bytes.len(), client)));
            for len in 0..bytes.len() {
                assert_eq!(Header::parse(&bytes[..len]), Ok(Header::Incomplete), "{len}");
            }
        }
    }

    #[test]
    fn other_bytes_are_refused_at_once() {
        let call = [0x80, 0, 0, 40, 0, 0, 0, 1];
        let version_1 = b"PROXY TCP4 192.0.2.7 10.0.0.1 999 2049\r\n";
        for bytes in [
            call.to_vec(),
            version_1.to_vec(),
            header(PROXY, TCP_IPV4, &[0; 11]),
            header(PROXY, TCP_IPV6, &[0; 35]),
            header(PROXY, 0x12, &[0; 12]),
            header(0x31, TCP_IPV4, &[0; 12]),
            header(PROXY, TCP_IPV4, &[0; BODY_LEN_MAX + 1]),
        ] {
            assert!(Header::parse(&bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn balancers_are_an_address_or_a_network() {
        let has = |text: &str, address: &str| {
            text.parse::<Balancers>().unwrap().has(address.parse().unwrap())
        };
        assert!(has("192.0.2.7", "192.0.2.7") && !has("192.0.2.7", "192.0.2.8"));
        assert!(has("192.0.2.0/28", "192.0.2.8") && !has("192.0.2.0/28", "192.0.2.16"));
        assert!(has("2001:db8::/32", "2001:db8::9") && !has("2001:db8::/32", "192.0.2.7"));
        for wrong in ["*", "host", "@group", "192.0.2.0/33", ""] {
            assert!(wrong.parse::<Balancers>().is_err(), "{wrong}");
        }
    }
}
