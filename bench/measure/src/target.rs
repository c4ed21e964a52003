//! Targets as written on the command line: `nfs://HOST[:PORT]/PATH`, `scp://[HOST]`, `http://…`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vouch_rpcsec_gss::Service;

use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sec {
    Sys,
    Krb5,
    Krb5i,
    Krb5p,
    /// AUTH_SYS over TLS with the server's certificate.
    SysTls,
    /// AUTH_SYS over TLS with certificates of both sides.
    SysMtls,
    /// Kerberos authentication over TLS.
    Krb5Tls,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFiles {
    pub authorities: PathBuf,
    pub certificate: Option<(PathBuf, PathBuf)>,
    pub name: Option<String>,
}

impl Sec {
    pub const ALL: [Self; 7] = [
        Self::Sys,
        Self::Krb5,
        Self::Krb5i,
        Self::Krb5p,
        Self::SysTls,
        Self::SysMtls,
        Self::Krb5Tls,
    ];

    pub const fn uses_tls(self) -> bool {
        matches!(self, Self::SysTls | Self::SysMtls | Self::Krb5Tls)
    }

    pub const fn service(self) -> Option<Service> {
        match self {
            Self::Sys | Self::SysTls | Self::SysMtls => None,
            Self::Krb5 | Self::Krb5Tls => Some(Service::None),
            Self::Krb5i => Some(Service::Integrity),
            Self::Krb5p => Some(Service::Privacy),
        }
    }
}

impl fmt::Display for Sec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
            Self::SysTls => "sys+tls",
            Self::SysMtls => "sys+mtls",
            Self::Krb5Tls => "krb5+tls",
        })
    }
}

impl FromStr for Sec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|sec| sec.to_string() == text).ok_or_else(|| {
            format!("{text}: not one of sys, krb5, krb5i, krb5p, sys+tls, sys+mtls, krb5+tls")
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfsTarget {
    pub host: String,
    pub port: u16,
    pub path: Vec<String>,
}

impl NfsTarget {
    pub fn address(&self) -> Result<SocketAddr, Error> {
        resolve(&self.host, self.port)
    }

    pub fn service(&self) -> String {
        let host = if self.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
            "localhost"
        } else {
            &self.host
        };
        format!("nfs@{host}")
    }
}

impl fmt::Display for NfsTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let port = if self.port == NFS_PORT { String::new() } else { format!(":{}", self.port) };
        write!(f, "nfs://{host}{port}/{}", self.path.join("/"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Nfs(NfsTarget),
    /// None starts a private sshd on this machine.
    Scp(Option<String>),
    Http {
        tls: bool,
        host: String,
        port: u16,
        path: String,
    },
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            format!("{text}: write nfs://HOST/EXPORT, scp://[HOST] or http://HOST/PATH")
        })?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        match scheme {
            "nfs" => {
                let (host, port) = host_port(authority, NFS_PORT)?;
                let path: Vec<String> =
                    path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                match path.iter().any(|name| name == "." || name == "..") {
                    true => Err(format!("{text}: the path must not contain . or ..")),
                    false => Ok(Self::Nfs(NfsTarget { host, port, path })),
                }
            }
            "scp" if path.is_empty() => {
                Ok(Self::Scp((!authority.is_empty()).then(|| authority.to_owned())))
            }
            "scp" => Err(format!(
                "{text}: write scp://HOST without a path; the run makes its own directory"
            )),
            "http" | "https" => {
                let tls = scheme == "https";
                let (host, port) = host_port(authority, if tls { 443 } else { 80 })?;
                Ok(Self::Http { tls, host, port, path: format!("/{path}") })
            }
            other => Err(format!("{other}: not one of nfs, scp, http, https")),
        }
    }
}

pub fn resolve(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|error| Error::NotFound(format!("{host}: {error}")))?;
    // Local servers listen on IPv4 more often than on IPv6.
    let mut all: Vec<SocketAddr> = found.collect();
    all.sort_by_key(SocketAddr::is_ipv6);
    all.into_iter().next().ok_or_else(|| Error::NotFound(format!("{host}: no address")))
}

fn host_port(authority: &str, port: u16) -> Result<(String, u16), String> {
    let (host, given) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => {
            authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        }
    };
    let port =
        given.map_or(Ok(port), |text| text.parse().map_err(|_| format!("{text}: not a port")))?;
    if host.is_empty() { Err("the host is missing".into()) } else { Ok((host.to_owned(), port)) }
}

const NFS_PORT: u16 = 2049;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_targets() {
        for text in ["nfs://host/a/b", "nfs://host:99/", "nfs://[::1]:99/x"] {
            let Ok(Target::Nfs(nfs)) = text.parse::<Target>() else { panic!("{text}") };
            assert_eq!(nfs.to_string(), text);
        }
        assert_eq!("scp://".parse(), Ok(Target::Scp(None)));
        assert_eq!("scp://me@there".parse(), Ok(Target::Scp(Some("me@there".into()))));
        let http = Target::Http { tls: true, host: "h".into(), port: 443, path: "/a/b".into() };
        assert_eq!("https://h/a/b".parse(), Ok(http));
        for text in ["host:/a", "nfs:///a", "nfs://h:x/a", "nfs://h/../a", "ftp://h/", "scp://h/a"]
        {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_address_has_service_name_localhost() {
        let Ok(Target::Nfs(nfs)) = "nfs://127.0.0.1/x".parse() else { panic!("a target") };
        assert_eq!(nfs.service(), "nfs@localhost");
    }
}
