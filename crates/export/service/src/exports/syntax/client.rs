//! Machine names of exports(5).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vouch_nfs4_server::Flavour;

/// In the kernel's order of precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MachineName {
    Host(String),
    Network(IpAddr, u8),
    Netgroup(String),
    Pattern(String),
    Everyone,
}

impl MachineName {
    pub(crate) fn parse(
        text: &str,
    ) -> Result<(MachineName, Option<Flavour>), (String, &'static str)> {
        let flavour = match text {
            "gss/krb5" => Some(Flavour::Krb5),
            "gss/krb5i" => Some(Flavour::Krb5i),
            "gss/krb5p" => Some(Flavour::Krb5p),
            _ => None,
        };
        if flavour.is_some() || text == "*" {
            return Ok((MachineName::Everyone, flavour));
        }
        if let Some(group) = text.strip_prefix('@') {
            let fine = !group.is_empty() && !group.contains('\0');
            return if fine {
                Ok((MachineName::Netgroup(group.into()), None))
            } else {
                Err(("a netgroup has no name".into(), "write @group"))
            };
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let network = network(address, prefix).ok_or_else(|| {
                (
                    format!("{text} is not a network"),
                    "write 192.0.2.0/24, 192.0.2.0/255.255.255.0 or 2001:db8::/32",
                )
            })?;
            return Ok((network, None));
        }
        if let Ok(address) = bare(text).parse::<IpAddr>() {
            return Ok((MachineName::Host(address.to_canonical().to_string()), None));
        }
        let allowed = |c: char| {
            c.is_ascii_alphanumeric()
                || matches!(c, '.' | '-' | '_' | '*' | '?' | '[' | ']' | '!' | '^')
        };
        if text.is_empty() || text.len() > NAME_LEN_MAX || !text.chars().all(allowed) {
            return Err((
                format!("{text:?} is neither a host, a network nor a netgroup"),
                "see exports(5), Machine Name Formats",
            ));
        }
        if !classes_are_fine(text.as_bytes()) {
            return Err((
                format!("{text:?} has an unclosed class, or a class that begins with !"),
                "write [a-c], or [^a-c] to negate",
            ));
        }
        let name = text.to_ascii_lowercase();
        Ok((
            if name.contains(['*', '?', '[']) {
                MachineName::Pattern(name)
            } else {
                MachineName::Host(name)
            },
            None,
        ))
    }

    pub(crate) fn rank(&self) -> u8 {
        match self {
            MachineName::Host(_) => 0,
            MachineName::Network(..) => 1,
            MachineName::Netgroup(_) => 2,
            MachineName::Pattern(_) => 3,
            MachineName::Everyone => 4,
        }
    }

    pub(crate) fn needs_name(&self) -> bool {
        matches!(self, MachineName::Netgroup(_) | MachineName::Pattern(_))
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineName::Host(name) | MachineName::Pattern(name) => f.write_str(name),
            MachineName::Network(network, len) => write!(f, "{network}/{len}"),
            MachineName::Netgroup(group) => write!(f, "@{group}"),
            MachineName::Everyone => f.write_str("*"),
        }
    }
}

fn bare(address: &str) -> &str {
    address.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(address)
}

fn network(address: &str, prefix: &str) -> Option<MachineName> {
    let address: IpAddr = bare(address).parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let len = match prefix.parse::<u8>() {
        Ok(len) => len,
        Err(_) => {
            let mask = u32::from(prefix.parse::<Ipv4Addr>().ok().filter(|_| address.is_ipv4())?);
            (mask.leading_ones() + mask.trailing_zeros() >= 32)
                .then(|| u8::try_from(mask.leading_ones()).ok())??
        }
    };
    if len > bits {
        return None;
    }
    // A prefix of less than 96 bits would include more than IPv4.
    let (address, len) = match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => (IpAddr::V4(v4), len.checked_sub(96)?),
            None => (address, len),
        },
        IpAddr::V4(_) => (address, len),
    };
    Some(MachineName::Network(masked(address, len), len))
}

fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from(
            u32::from(v4) & u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0),
        )
        .into(),
        IpAddr::V6(v6) => Ipv6Addr::from(
            u128::from(v6) & u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0),
        )
        .into(),
    }
}

pub(crate) fn in_network(address: IpAddr, network: IpAddr, len: u8) -> bool {
    address.is_ipv4() == network.is_ipv4() && masked(address, len) == network
}

/// The host name has lower case. Wildcards match dots, as in nfs-utils.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    glob(pattern.as_bytes(), name.as_bytes())
}

fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            back = Some((p, n));
            p += 1;
            continue;
        }
        if n == name.len() && p == pattern.len() {
            return true;
        }
        if n < name.len()
            && let Some(len) = one(&pattern[p.min(pattern.len())..], name[n])
        {
            p += len;
            n += 1;
            continue;
        }
        match back {
            Some((star, from)) if from < name.len() => {
                back = Some((star, from + 1));
                (p, n) = (star + 1, from + 1);
            }
            _ => return false,
        }
    }
}

fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'*' => None,
        b'?' => Some(1),
        b'[' => {
            let (negated, set, len) = class(pattern)?;
            (in_set(set, byte) != negated).then_some(len)
        }
        literal => (literal == byte).then_some(1),
    }
}

fn class(pattern: &[u8]) -> Option<(bool, &[u8], usize)> {
    let start = if pattern.get(1) == Some(&b'^') { 2 } else { 1 };
    let end = start + 1 + pattern.get(start + 1..)?.iter().position(|&byte| byte == b']')?;
    Some((start == 2, &pattern[start..end], end + 1))
}

/// Classes must be closed. `!` is refused: shells negate by it, nfs-utils does not.
fn classes_are_fine(pattern: &[u8]) -> bool {
    let mut rest = pattern;
    while let Some((&first, tail)) = rest.split_first() {
        rest = match (first, class(rest)) {
            (b'[', Some((_, [b'!', ..], _)) | None) => return false,
            (b'[', Some((_, _, len))) => &rest[len..],
            _ => tail,
        };
    }
    true
}

fn in_set(mut set: &[u8], byte: u8) -> bool {
    while let Some((&first, rest)) = set.split_first() {
        if let [b'-', last, tail @ ..] = rest {
            if (first..=*last).contains(&byte) {
                return true;
            }
            set = tail;
        } else {
            if first == byte {
                return true;
            }
            set = rest;
        }
    }
    false
}

/// RFC 1035 §2.3.4.
const NAME_LEN_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn who(text: &str) -> MachineName {
        MachineName::parse(text).unwrap().0
    }

    #[test]
    fn parses_each_kind() {
        let network = |base: &str, len| MachineName::Network(base.parse().unwrap(), len);
        for (text, machine) in [
            ("Node7.Example.org", MachineName::Host("node7.example.org".into())),
            ("192.0.2.7", MachineName::Host("192.0.2.7".into())),
            ("[2001:db8::1]", MachineName::Host("2001:db8::1".into())),
            ("@cluster", MachineName::Netgroup("cluster".into())),
            ("192.0.2.9/24", network("192.0.2.0", 24)),
            ("192.0.2.9/255.255.255.0", network("192.0.2.0", 24)),
            ("0.0.0.0/0", network("0.0.0.0", 0)),
            ("2001:db8::/32", network("2001:db8::", 32)),
            ("::ffff:192.0.2.9/120", network("192.0.2.0", 24)),
            ("::ffff:0.0.0.0/96", network("0.0.0.0", 0)),
            ("*.example.org", MachineName::Pattern("*.example.org".into())),
        ] {
            assert_eq!(who(text), machine, "{text}");
        }
        assert_eq!(
            MachineName::parse("gss/krb5p").unwrap(),
            (MachineName::Everyone, Some(Flavour::Krb5p))
        );
        // No client would match the last one.
        for text in [
            "192.0.2.0/33",
            "192.0.2.0/255.0.255.0",
            "a/b",
            "@",
            "ho st",
            "2001:db8::/255.0.0.0",
            "",
            "::ffff:192.0.2.9/64",
        ] {
            assert!(MachineName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_contain_their_addresses() {
        let within = |address: &str, network: &str| match who(network) {
            MachineName::Network(base, len) => in_network(address.parse().unwrap(), base, len),
            other => panic!("{other:?}"),
        };
        assert!(within("192.0.2.200", "192.0.2.0/24") && !within("192.0.3.1", "192.0.2.0/24"));
        assert!(within("8.8.8.8", "0.0.0.0/0") && !within("::1", "0.0.0.0/0"));
        assert!(within("2001:db8:1::5", "2001:db8::/32") && !within("2001:db9::", "2001:db8::/32"));
    }

    // exports(5), Machine Name Formats.
    #[test]
    fn patterns_match_dots() {
        assert!(fits("*.example.org", "a.example.org"));
        assert!(fits("*.example.org", "a.b.example.org"));
        assert!(!fits("*.example.org", "example.org") && !fits("*.example.org", "badexample.org"));
        assert!(fits("proj*.local.domain", "proj.x.y.local.domain"));
        assert!(
            fits("node?[0-9].x", "nodea7.x")
                && fits("node?7.x", "node.7.x")
                && !fits("node?.x", "node.x")
        );
        assert!(fits("a[.-]b", "a.b") && fits("a[^x]b", "a.b") && !fits("a[^.]b", "a.b"));
        assert!(fits("*a*b*", "xaybz") && !fits("*a*b*", "xbya"));
    }

    #[test]
    fn classes_follow_nfs_utils() {
        assert!(fits("n[^a-c]de.*", "node.x") && !fits("n[^a-c]de.*", "nbde.x"));
        assert!(fits("[]a]", "]") && fits("[]a]", "a") && !fits("[^]a]", "a") && fits("[a-]", "-"));
        assert!(!fits("[", "a") && !fits("a[", "a"));
        assert_eq!(
            who("Node[A-C].x"),
            MachineName::Pattern("node[a-c].x".into()),
            "names are compared whatever their case"
        );
        for text in ["n[!a-c]de", "a[", "a[b", "[]", "[^]", "[^!a]"] {
            assert!(MachineName::parse(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn name_matches_itself_and_stars(labels in proptest::collection::vec("[a-z0-9-]{1,8}", 1..5)) {
            let name = labels.join(".");
            let stars = vec!["*"; labels.len()].join(".");
            proptest::prop_assert!(fits(&name, &name));
            proptest::prop_assert!(fits(&stars, &name) && fits("*", &name));
            let last = format!("*{}", labels[labels.len() - 1]);
            proptest::prop_assert!(fits(&last, &name));
            let more = format!("{stars}.*");
            proptest::prop_assert!(!fits(&more, &name));
        }

        #[test]
        fn garbage_never_panics(pattern in "[a*?\\[\\]!^.-]{0,12}", name in "[a.-]{0,12}") {
            fits(&pattern, &name);
            let _ = MachineName::parse(&pattern);
        }
    }
}
