//! Clients learn of new mirrors from the signed tree, without configuration.

use vouch_tree::{Content, HostId, TreeName};

use crate::http::url;
use crate::replica::Location;
use crate::{Error, Result, Tree, replica_tls};

/// One replica a line: `HOST[:PORT]`, `tls://HOST[:PORT]` or a URL. Empty lines and `#` lines are
/// skipped.
pub(crate) const MIRRORS_FILE: &str = ".vouch-mirrors";

const FILE_LEN_MAX: usize = 64 << 10;
const MIRRORS_MAX: usize = 64;

impl Tree {
    /// Without a readable list, nothing changes. `is_first`: only a list that came with the fsinfo.
    pub(crate) async fn learn_mirrors(&self, is_first: bool) {
        if !self.follows_mirrors() {
            return;
        }
        match self.read_mirrors(is_first).await {
            Ok(locations) => self.replicas_set().add_locations(locations).await,
            Err(error) => tracing::info!(tree = %self.name(), "{MIRRORS_FILE}: {error}"),
        }
    }

    async fn read_mirrors(&self, is_first: bool) -> Result<Vec<Location>> {
        let revision = self.revision()?;
        let found = match self.try_lookup(revision.root(), MIRRORS_FILE.as_bytes()) {
            Some(found) => found?,
            None if is_first => None,
            None => self.lookup(revision.root(), MIRRORS_FILE.as_bytes()).await?,
        };
        let Some(entry) = found else { return Ok(Vec::new()) };
        let Content::Regular { blob, .. } = &entry.inode.content else { return Ok(Vec::new()) };
        let bytes = self.read(blob, 0, FILE_LEN_MAX).await?;
        Ok(parse(
            &String::from_utf8_lossy(&bytes),
            self.hostid(),
            |error| tracing::warn!(tree = %self.name(), "{MIRRORS_FILE}: {error}"),
        ))
    }
}

fn parse(text: &str, hostid: &HostId, mut warn: impl FnMut(Error)) -> Vec<Location> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .take(MIRRORS_MAX);
    lines.filter_map(|line| location(line, hostid).map_err(&mut warn).ok()).collect()
}

/// The HOST of a name. Ports 80 and 443 mean a web server with the database at `/HOSTID/`.
pub fn location_of_name(name: &TreeName) -> String {
    let (host, hostid) = (
        if name.host().contains(':') {
            format!("[{}]", name.host())
        } else {
            name.host().to_owned()
        },
        name.hostid(),
    );
    match name.port() {
        80 => format!("http://{host}/{hostid}/"),
        443 => format!("https://{host}/{hostid}/"),
        _ => name.location(),
    }
}

/// A replica as on the command line.
pub(crate) fn location(text: &str, hostid: &HostId) -> Result<Location> {
    if url::is_url(text) {
        return Ok(Location { host: url::check_url(text)?, port: 0 });
    }
    let over_tls = replica_tls::host_of(text);
    let parsed = TreeName::new(over_tls.unwrap_or(text), *hostid)
        .map_err(|_| Error::Path { path: format!("'{text}'").into_bytes(), why: NOT_A_REPLICA })?;
    let host = if over_tls.is_some() {
        replica_tls::location_of(parsed.host())
    } else {
        parsed.host().to_owned()
    };
    Ok(Location { host, port: parsed.port() })
}

pub(crate) const NOT_A_REPLICA: &str = "not a replica; expected HOST[:PORT], tls://HOST[:PORT], or http:// or https:// and the path of a database";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_web_servers_lead_to_their_urls() {
        let hostid = HostId::from_bytes([1; 32]);
        let at = |location| location_of_name(&TreeName::new(location, hostid).unwrap());
        assert_eq!(at("cdn.example:443"), format!("https://cdn.example/{hostid}/"));
        assert_eq!(at("[::1]:80"), format!("http://[::1]/{hostid}/"));
        assert_eq!([at("h"), at("h:4340"), at("[::1]:8443")], ["h", "h:4340", "[::1]:8443"]);
        assert!(location(&at("[::1]:443"), &hostid).is_ok());
    }

    #[test]
    fn list_skips_comments_and_bad_lines() {
        let text = "# mirrors\n\n mirror.example:99 \r\nhttps://cdn.example/tools\n two words\nhttp://\n[::1]:7\ntls://s.example\ntls://[::1]:9\ntls://\n";
        let mut bad = 0;
        let found = parse(text, &HostId::from_bytes([1; 32]), |_| bad += 1);
        let hosts: Vec<_> =
            found.iter().map(|location| (location.host.as_str(), location.port)).collect();
        assert_eq!(
            hosts,
            [
                ("mirror.example", 99),
                ("https://cdn.example/tools/", 0),
                ("::1", 7),
                ("tls://s.example", 4340),
                ("tls://::1", 9)
            ]
        );
        assert_eq!(bad, 3);
        assert_eq!(
            parse(&"h\n".repeat(1000), &HostId::from_bytes([1; 32]), |_| ()).len(),
            MIRRORS_MAX
        );
    }
}
