use reqwest::Url;

pub(crate) fn parse(text: &str) -> Vec<String> {
    text.split(';').filter_map(entry).take(ENTRIES_MAX).collect()
}

fn entry(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let kind = words.next()?.to_ascii_uppercase();
    let place = words.next();
    if words.next().is_some() {
        return None;
    }
    let (scheme, port) = match (kind.as_str(), place) {
        ("DIRECT", None) => return Some("DIRECT".into()),
        ("PROXY" | "HTTP", Some(_)) => ("http", 80),
        ("HTTPS", Some(_)) => ("https", 443),
        ("SOCKS" | "SOCKS4", Some(_)) => ("socks4", 1080),
        // The proxy resolves the host.
        ("SOCKS5", Some(_)) => ("socks5h", 1080),
        _ => return None,
    };
    // Only HOST or HOST:PORT: no user, no path.
    let place = place.filter(|place| !place.contains(['/', '@', '?', '#', '\\']))?;
    let parsed = Url::parse(&format!("vouch://{place}")).ok()?;
    let host = parsed.host_str().filter(|host| !host.is_empty())?;
    let url = format!("{scheme}://{host}:{}", parsed.port().unwrap_or(port));
    Url::parse(&url).ok().map(|_| url)
}

/// Longer lists are cut: each failure takes a part of the time limit.
const ENTRIES_MAX: usize = 16;

pub(crate) fn exercise(text: &str) {
    let found = parse(text);
    assert!(found.len() <= ENTRIES_MAX);
    for way in found.iter().filter(|way| *way != "DIRECT") {
        let url = Url::parse(way).expect("a URL");
        assert!(
            url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none(),
            "{way}"
        );
        assert!(
            matches!(url.path(), "" | "/")
                && matches!(url.scheme(), "http" | "https" | "socks4" | "socks5h"),
            "{way}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_all_kinds_are_read() {
        let cases: [(&str, &[&str]); 9] = [
            ("DIRECT", &["DIRECT"]),
            (
                "PROXY cache1:3128; PROXY cache2:8080; DIRECT",
                &["http://cache1:3128", "http://cache2:8080", "DIRECT"],
            ),
            ("proxy cache", &["http://cache:80"]),
            ("HTTPS p.example.org", &["https://p.example.org:443"]),
            (
                "SOCKS5 [2001:db8::1]:9050;SOCKS s",
                &["socks5h://[2001:db8::1]:9050", "socks4://s:1080"],
            ),
            ("PROXY", &[]),
            ("DIRECT now; PROXY a b; FTP x:1;;", &[]),
            ("PROXY user@host:1; PROXY host/path; PROXY host:99999; PROXY http://host:1", &[]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert_eq!(parse(&"PROXY a:1;".repeat(100)).len(), ENTRIES_MAX);
    }

    proptest! {
        #[test]
        fn any_text_gives_usable_ways_only(text in "((DIRECT|PROXY|HTTPS|SOCKS5?|x)?[ ;:a-z0-9@/\\[\\]\\.#?%-]{0,12}){0,8}") {
            exercise(&text);
        }

        #[test]
        fn arbitrary_text_is_no_panic(text in ".{0,80}") {
            exercise(&text);
        }
    }
}
