//! Locations of `refer=` and `replicas=`: `/PATH@HOST[+HOST][:/PATH@HOST[+HOST]]`.

use vouch_nfs4_server::Location;

/// `None`: not a list of locations, or longer than `fs_locations` may be.
pub(super) fn parse(list: &str) -> Option<Vec<Location>> {
    let list: Option<Vec<Location>> = split_outside_brackets(list).map(location).collect();
    list.filter(|list| list.len() <= LOCATIONS_MAX)
}

/// What [`parse`] reads.
pub(super) fn text(list: &[Location]) -> String {
    let server =
        |server: &String| if server.contains(':') { format!("[{server}]") } else { server.clone() };
    let location = |location: &Location| {
        let path: String = location
            .path
            .iter()
            .map(|name| format!("/{}", String::from_utf8_lossy(name)))
            .collect();
        let servers: Vec<String> = location.servers.iter().map(server).collect();
        format!("{}@{}", if path.is_empty() { "/" } else { &path }, servers.join("+"))
    };
    list.iter().map(location).collect::<Vec<_>>().join(":")
}

fn location(text: &str) -> Option<Location> {
    let (path, hosts) = text.rsplit_once('@')?;
    let names = path
        .strip_prefix('/')?
        .split('/')
        .filter(|name| !name.is_empty())
        .map(|name| name.as_bytes().to_vec());
    let path: Vec<Vec<u8>> = names.collect();
    let servers: Option<Vec<String>> = hosts.split('+').map(server).collect();
    let fits = path.iter().all(|name| vouch_vfs::Name::new(name).is_some())
        && path.len() <= PATH_COMPONENTS_MAX;
    Some(Location { servers: servers.filter(|servers| servers.len() <= SERVERS_MAX)?, path })
        .filter(|_| fits)
}

/// RFC 8881 §11.16: a host name or an address, without brackets.
fn server(host: &str) -> Option<String> {
    let bare = host.strip_prefix('[').map_or(Some(host), |host| host.strip_suffix(']'))?;
    let valid =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'%');
    (!bare.is_empty() && bare.len() <= SERVER_LEN_MAX && bare.bytes().all(valid))
        .then(|| bare.to_owned())
}

fn split_outside_brackets(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |character| {
        depth += i32::from(character == '[') - i32::from(character == ']');
        character == ':' && depth == 0
    })
}

/// Limits of `vouch_nfs4::attr::FsLocations`, which clients of ours decode.
/// The server's own addresses are one more.
const LOCATIONS_MAX: usize = 63;
const SERVERS_MAX: usize = 64;
const SERVER_LEN_MAX: usize = 1024;
const PATH_COMPONENTS_MAX: usize = 256;
