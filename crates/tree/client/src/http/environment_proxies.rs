//! Proxies of the environment: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, as curl(1)
//! documents them. Unlike curl, `no_proxy` also takes ports.

use std::net::IpAddr;

use reqwest::Url;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EnvironmentProxies {
    http: Option<Url>,
    https: Option<Url>,
    exceptions: Vec<Exception>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Exception {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    All,
    /// The name and all names below it.
    Domain(String),
    Network(IpAddr, u32),
}

impl EnvironmentProxies {
    pub(super) fn of_process() -> Self {
        // There, HTTP_PROXY comes from a request's header `Proxy`.
        if std::env::var_os("REQUEST_METHOD").is_some() {
            return Self::default();
        }
        Self::new(|name| std::env::var(name).ok())
    }

    fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| {
            variable(name).or_else(|| variable(&name.to_uppercase())).unwrap_or_default()
        };
        let all = proxy_url(&value("all_proxy"));
        let of_scheme = |name| proxy_url(&value(name)).or_else(|| all.clone());
        let exceptions = value("no_proxy").split([',', ' ']).filter_map(Exception::parse).collect();
        Self { http: of_scheme("http_proxy"), https: of_scheme("https_proxy"), exceptions }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    pub(super) fn proxy_of(&self, url: &Url) -> Option<Url> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        proxy.clone().filter(|_| !self.exceptions.iter().any(|exception| exception.covers(url)))
    }
}

impl Exception {
    /// `*`, NAME, ADDRESS or ADDRESS/BITS, and a port after the first three.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(network) = parse_network(text) {
            return Some(Self { hosts: network, port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (text, None),
        };
        let name = host.strip_prefix("*.").or_else(|| host.strip_prefix('.')).unwrap_or(host);
        let hosts = match parse_network(host) {
            Some(network) => network,
            None if host == "*" => Hosts::All,
            None if name.is_empty() => return None,
            None => Hosts::Domain(name.trim_end_matches('.').to_ascii_lowercase()),
        };
        Some(Self { hosts, port })
    }

    fn covers(&self, url: &Url) -> bool {
        if self.port.is_some_and(|port| url.port_or_known_default() != Some(port)) {
            return false;
        }
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        match &self.hosts {
            Hosts::All => true,
            Hosts::Domain(name) => host
                .strip_suffix(name.as_str())
                .is_some_and(|before| before.is_empty() || before.ends_with('.')),
            Hosts::Network(network, bits) => {
                parse_address(host).is_some_and(|address| is_in(address, *network, *bits))
            }
        }
    }
}

fn proxy_url(text: &str) -> Option<Url> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    Url::parse(&text).ok().filter(Url::has_host)
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok()
}

fn parse_network(text: &str) -> Option<Hosts> {
    let (address, bits) =
        text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address = parse_address(address)?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let bits =
        bits.map_or(Some(bits_max), |bits| bits.parse().ok().filter(|bits| *bits <= bits_max))?;
    Some(Hosts::Network(address, bits))
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 4),
        IpAddr::V6(address) => (u128::from(address), 6),
    };
    let ((address, family), (network, of_network)) = (number(address), number(network));
    family == of_network && (bits == 0 || (address ^ network) >> (128 - bits) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_of(variables: &[(&str, &str)], url: &str) -> Option<String> {
        let value = |name: &str| {
            variables.iter().find(|(found, _)| *found == name).map(|(_, value)| (*value).to_owned())
        };
        EnvironmentProxies::new(value)
            .proxy_of(&Url::parse(url).unwrap())
            .map(|proxy| proxy.to_string())
    }

    #[test]
    fn proxy_is_chosen_by_scheme() {
        let variables = [
            ("http_proxy", "cache:3128"),
            ("ALL_PROXY", "socks5h://all"),
            ("HTTP_PROXY", "http://upper"),
        ];
        assert_eq!(proxy_of(&variables, "http://a/").as_deref(), Some("http://cache:3128/"));
        assert_eq!(proxy_of(&variables, "https://a/").as_deref(), Some("socks5h://all"));
        assert_eq!(proxy_of(&variables[2..], "http://a/").as_deref(), Some("http://upper/"));
        assert_eq!(proxy_of(&[("http_proxy", "")], "http://a/"), None);
        assert_eq!(proxy_of(&[("http_proxy", "http://")], "http://a/"), None);
    }

    #[test]
    fn no_proxy_takes_what_curl_documents_and_ports() {
        let cases = [
            ("*", "http://127.0.0.1:8080/", true),
            ("*", "http://name/", true),
            ("a, *", "http://[::1]/", true),
            ("example.com", "http://example.com/", true),
            ("example.com", "http://WWW.example.com:99/", true),
            (".example.com", "http://example.com./", true),
            ("*.example.com", "http://www.example.com/", true),
            ("example.com", "http://notexample.com/", false),
            ("127.0.0.1", "http://127.0.0.1:99/", true),
            ("127.0.0.1", "http://127.0.0.11/", false),
            ("10.0.0.0/8 localhost", "http://10.9.8.7/", true),
            ("10.0.0.0/8 localhost", "http://localhost/", true),
            ("10.0.0.0/8", "http://11.0.0.1/", false),
            ("0.0.0.0/0", "http://11.0.0.1/", true),
            ("0.0.0.0/0", "http://[::1]/", false),
            ("::1", "http://[::1]:7/", true),
            ("2001:db8::/32", "http://[2001:db8:1::2]/", true),
            ("2001:db8::/32", "http://[2001:db9::2]/", false),
            ("a:8080", "http://a:8080/", true),
            ("a:8080", "http://a:8081/", false),
            ("a:80", "http://b.a/", true),
            ("a:443", "http://a/", false),
            ("127.0.0.1:99", "http://127.0.0.1:99/", true),
            ("[::1]:99", "http://[::1]:99/", true),
            ("[::1]:99", "http://[::1]:98/", false),
            ("*:99", "http://any:99/", true),
            (" , ,:,/8,a:b,10.0.0.0/40", "http://a/", false),
        ];
        for (list, url, is_direct) in cases {
            let found = proxy_of(&[("http_proxy", "http://cache"), ("no_proxy", list)], url);
            assert_eq!(found.is_none(), is_direct, "{list}: {url}");
        }
    }
}
