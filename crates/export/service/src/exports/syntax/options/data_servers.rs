//! Servers of `pnfs=`: `ADDRESS[:PORT][+ADDRESS[:PORT]]`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// `None`: not a list of addresses, too long, or with an address twice.
pub(super) fn parse(list: &str) -> Option<Vec<SocketAddr>> {
    let servers: Vec<SocketAddr> = list.split('+').map(server).collect::<Option<_>>()?;
    let is_unique = (1..servers.len()).all(|at| !servers[..at].contains(&servers[at]));
    Some(servers).filter(|servers| is_unique && servers.len() <= SERVERS_MAX)
}

/// Clients get addresses, not names: they must not depend on a name service.
fn server(text: &str) -> Option<SocketAddr> {
    let bare = |ip: IpAddr| SocketAddr::new(ip, NFS_PORT);
    let in_brackets =
        || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::from);
    let address = text
        .parse()
        .ok()
        .or_else(|| text.parse().ok().map(bare))
        .or_else(|| in_brackets().map(bare))?;
    Some(address).filter(|address| !address.ip().is_unspecified() && address.port() > 0)
}

const NFS_PORT: u16 = 2049;
/// More than a site has heads of one tree.
const SERVERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_optional_ports() {
        let parsed =
            parse("192.0.2.1+192.0.2.1:2050+2001:db8::1+[2001:db8::2]+[2001:db8::3]:7").unwrap();
        let expected = [
            "192.0.2.1:2049",
            "192.0.2.1:2050",
            "[2001:db8::1]:2049",
            "[2001:db8::2]:2049",
            "[2001:db8::3]:7",
        ];
        assert_eq!(parsed.iter().map(SocketAddr::to_string).collect::<Vec<_>>(), expected);
        let long = vec!["192.0.2.1"; SERVERS_MAX + 1].join("+");
        for wrong in [
            "",
            "host",
            "192.0.2.1+",
            "192.0.2.1:0",
            "0.0.0.0",
            "[::]",
            "192.0.2.1+192.0.2.1:2049",
            "[192.0.2.1]",
            &long,
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
