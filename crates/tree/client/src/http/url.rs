use reqwest::Url;

use crate::{Error, Result};

pub(crate) fn is_url(location: &str) -> bool {
    location.starts_with("http://") || location.starts_with("https://")
}

/// For logs, status and errors: a URL may hold the password of a replica or a proxy.
pub fn without_userinfo(location: &str) -> String {
    let Some((scheme, rest)) = location.split_once("://") else { return location.to_owned() };
    let authority_len = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host_at = rest[..authority_len].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[host_at..])
}

pub(crate) fn check_url(url: &str) -> Result<String> {
    let parsed = parse(url).map_err(|why| Error::Path {
        path: format!("'{}'", without_userinfo(url)).into_bytes(),
        why,
    })?;
    Ok(parsed.to_string())
}

/// A URL of a directory, with a final slash.
pub(super) fn parse(url: &str) -> std::result::Result<Url, &'static str> {
    let mut url = Url::parse(url).map_err(
        |_| "not a URL; expected http:// or https://, a host and the path of a database",
    )?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL of a database has no query and no fragment");
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_of_a_location_is_not_shown() {
        let cases = [
            ("http://user:secret@host:1/db/", "http://host:1/db/"),
            ("https://us@er:sec@ret@host", "https://host"),
            ("pac:http://user:secret@host/p@c", "pac:http://host/p@c"),
            ("pac-strict:http://user:secret@host/p@c", "pac-strict:http://host/p@c"),
            ("socks5://user@[::1]:9?a@b", "socks5://[::1]:9?a@b"),
            ("http://host/a@b", "http://host/a@b"),
            ("host:4340", "host:4340"),
            ("DIRECT", "DIRECT"),
        ];
        for (location, shown) in cases {
            assert_eq!(without_userinfo(location), shown);
        }
        let error = check_url("http://user:secret@host/?query").expect_err("a query").to_string();
        assert!(error.contains("http://host/?query") && !error.contains("secret"), "{error}");
    }
}
