//! The way to a replica: name resolution and the port.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::finding::{Fault, Finding, Findings};

/// Where a replica should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaAddress {
    /// As the user or the name gives it: `HOST[:PORT]` or a URL.
    pub(crate) replica: String,
    host: String,
    port: u16,
}

impl ReplicaAddress {
    pub(crate) fn parse(replica: &str) -> Self {
        let of_url = |rest: &str, port| {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
            split_port(authority.rsplit('@').next().unwrap_or(authority), port)
        };
        let (host, port) = match (replica.strip_prefix("http://"), replica.strip_prefix("https://"))
        {
            (Some(rest), _) => of_url(rest, 80),
            (_, Some(rest)) => of_url(rest, 443),
            _ => split_port(
                replica.strip_prefix("tls://").unwrap_or(replica),
                vouch_tree::PORT_DEFAULT,
            ),
        };
        Self { replica: replica.to_owned(), host, port }
    }

    pub(crate) fn is_url(&self) -> bool {
        self.replica.contains("://") && !self.replica.starts_with("tls://")
    }

    /// Whether a connection can be made. Blocks for `timeout` for each address.
    pub(crate) fn check(&self, timeout: Duration, findings: &mut Findings) -> bool {
        let addresses: Vec<SocketAddr> = match (&*self.host, self.port).to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(error) => {
                findings.add(
                    Finding::problem(Fault::NameUnresolved, &self.host, format_args!("the name does not resolve: {error}"))
                        .cure("correct the name; check /etc/hosts and the name servers in /etc/resolv.conf (`getent hosts NAME`); --replica takes an address instead"),
                );
                return false;
            }
        };
        let tried: Vec<_> = addresses
            .iter()
            .map(|address| (address, TcpStream::connect_timeout(address, timeout)))
            .collect();
        let has_way = tried.iter().any(|(_, tried)| tried.is_ok());
        for (address, tried) in tried {
            match tried {
                Ok(_) => findings
                    .add(Finding::ok(&self.replica, format_args!("{address} accepts connections"))),
                // Hosts often have addresses of a family that has no way to them.
                Err(error) if has_way => findings.add(Finding::note(
                    Fault::AddressUnreachable,
                    &self.replica,
                    format_args!("{address}: {error}"),
                )),
                Err(error) => findings.add(unreachable(&self.replica, *address, &error, timeout)),
            }
        }
        has_way
    }
}

fn unreachable(
    replica: &str,
    address: SocketAddr,
    error: &io::Error,
    timeout: Duration,
) -> Finding {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Finding::problem(
            Fault::PortBlocked,
            replica,
            format_args!(
                "{address} gives no answer within {} s: a firewall drops packets to port {port}, or the host is down",
                timeout.as_secs()
            ),
        )
        .cure(format_args!("allow TCP port {port} to this host in the firewalls of both machines and between them (`nft list ruleset`)")),
        io::ErrorKind::ConnectionRefused => Finding::problem(
            Fault::PortClosed,
            replica,
            format_args!("{address} refuses connections: no server listens on port {port}, or a firewall rejects them"),
        )
        .cure("start the replica (`vouch serve`), or correct the port in the name or in --replica"),
        _ => Finding::problem(Fault::PortBlocked, replica, format_args!("{address} cannot be reached: {error}"))
            .cure(format_args!("check routes (`ip route get {}`), and firewalls that reject TCP port {port}", address.ip())),
    }
}

fn split_port(text: &str, default_port: u16) -> (String, u16) {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.ip().to_string(), address.port());
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return (bare.to_owned(), default_port);
    }
    match text.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)))
    {
        Some(place) => place,
        None => (text.to_owned(), default_port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_host_and_port() {
        let cases = [
            ("mirror.example", "mirror.example", 4340),
            ("mirror.example:1", "mirror.example", 1),
            ("192.0.2.1", "192.0.2.1", 4340),
            ("[2001:db8::1]:7", "2001:db8::1", 7),
            ("2001:db8::1", "2001:db8::1", 4340),
            ("tls://mirror.example", "mirror.example", 4340),
            ("http://h/db", "h", 80),
            ("https://user:secret@h:8443/db?x@y", "h", 8443),
            ("https://[2001:db8::1]/db", "2001:db8::1", 443),
        ];
        for (text, host, port) in cases {
            let place = ReplicaAddress::parse(text);
            assert_eq!((&*place.host, place.port), (host, port), "{text}");
        }
    }
}
