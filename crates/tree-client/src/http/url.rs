use reqwest::Url;

use crate::{Error, Result};

pub(crate) fn is_url(location: &str) -> bool {
    location.starts_with("http://") || location.starts_with("https://")
}

pub(crate) fn check_url(url: &str) -> Result<String> {
    let parsed = parse(url).map_err(|why| Error::Path { path: format!("'{url}'").into_bytes(), why })?;
    Ok(parsed.to_string())
}

/// A URL of a directory, with a final slash.
pub(super) fn parse(url: &str) -> std::result::Result<Url, &'static str> {
    let mut url = Url::parse(url).map_err(|_| "not a URL; expected http:// or https://, a host and the path of a database")?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL of a database has no query and no fragment");
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}
