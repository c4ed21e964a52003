use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;
use std::{fmt, io};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(super) protocol: Protocol,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) subject: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    SyslogTcp,
    SyslogTls,
    SyslogUdp,
    Nats,
    NatsTls,
}

impl Protocol {
    pub(super) fn is_tls(self) -> bool {
        matches!(self, Protocol::SyslogTls | Protocol::NatsTls)
    }

    pub(super) fn is_nats(self) -> bool {
        matches!(self, Protocol::Nats | Protocol::NatsTls)
    }
}

const SCHEMES: [(&str, Protocol, Option<u16>); 5] = [
    // RFC 5425 §4.1: port 6514. The other protocols have no common port.
    ("syslog+tls://", Protocol::SyslogTls, Some(6514)),
    ("syslog+tcp://", Protocol::SyslogTcp, None),
    ("syslog+udp://", Protocol::SyslogUdp, None),
    ("nats+tls://", Protocol::NatsTls, Some(4222)),
    ("nats://", Protocol::Nats, Some(4222)),
];

impl Target {
    pub fn parse(text: &str) -> Result<Target, String> {
        let known = SCHEMES.iter().find_map(|(scheme, protocol, port)| {
            Some((text.strip_prefix(scheme)?, *protocol, *port))
        });
        let Some((rest, protocol, default_port)) = known else {
            return Err("write syslog+tls://HOST[:PORT], syslog+tcp://HOST:PORT, syslog+udp://HOST:PORT, nats://HOST[:PORT]/SUBJECT or nats+tls://HOST[:PORT]/SUBJECT".into());
        };
        let (rest, subject) = match rest.split_once('/') {
            Some((rest, subject)) if protocol.is_nats() => (rest, subject),
            None if !protocol.is_nats() => (rest, ""),
            Some(_) => {
                return Err("syslog has no subjects: remove everything after the port".into());
            }
            None => return Err("the subject is missing".into()),
        };
        let is_token = |token: &str| {
            !token.is_empty()
                && token.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '*' | '>' | '/'))
        };
        if protocol.is_nats() && !subject.split('.').all(is_token) {
            return Err(format!("{subject:?} is not a valid subject for publishing"));
        }
        let (host, port) = match rest.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, after))) => (
                host,
                after.strip_prefix(':').or(if after.is_empty() { None } else { Some(after) }),
            ),
            Some(None) => return Err("a bracket is missing".into()),
            None => rest.rsplit_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| format!("{port:?} is not a port"))?,
            None => default_port.ok_or("the port is missing")?,
        };
        if host.is_empty()
            || host.contains(['/', '@', ' '])
            || (host.contains(':') && !rest.starts_with('['))
        {
            return Err(format!("{host:?} is not a host"));
        }
        Ok(Target { protocol, host: host.to_owned(), port, subject: subject.to_owned() })
    }

    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(super) fn connect(&self, stall: Duration) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in (&*self.host, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, stall) {
                Ok(stream) => {
                    stream.set_write_timeout(Some(stall))?;
                    stream.set_read_timeout(Some(stall))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = SCHEMES
            .iter()
            .find(|(_, protocol, _)| *protocol == self.protocol)
            .map_or("", |(scheme, ..)| scheme);
        write!(f, "{scheme}{}", self.authority())?;
        if self.subject.is_empty() { Ok(()) } else { write!(f, "/{}", self.subject) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_urls_are_parsed() {
        for (text, host, port, shown) in [
            (
                "syslog+tls://log.example.org",
                "log.example.org",
                6514,
                "syslog+tls://log.example.org:6514",
            ),
            ("syslog+tls://192.0.2.7:10514", "192.0.2.7", 10514, "syslog+tls://192.0.2.7:10514"),
            ("syslog+tls://[2001:db8::7]", "2001:db8::7", 6514, "syslog+tls://[2001:db8::7]:6514"),
            ("syslog+tcp://[::1]:601", "::1", 601, "syslog+tcp://[::1]:601"),
            ("syslog+udp://localhost:514", "localhost", 514, "syslog+udp://localhost:514"),
            ("nats://localhost/audit.nfs1", "localhost", 4222, "nats://localhost:4222/audit.nfs1"),
            ("nats+tls://[::1]:4333/audit", "::1", 4333, "nats+tls://[::1]:4333/audit"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((&*target.host, target.port, &*target.to_string()), (host, port, shown));
        }
        for text in [
            "log.example.org",
            "syslog+tcp://log",
            "syslog+tls://",
            "syslog+tls://:6514",
            "syslog+tls://h:70000",
            "syslog+tls://::1",
            "syslog+tls://[::1",
            "syslog+tls://[::1]x",
            "syslog+tcp://h:1/a",
            "nats://h",
            "nats://h/",
            "nats://h/a..b",
            "nats://h/a.*",
            "nats://h/a b",
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
