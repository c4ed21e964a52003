//! `fs_locations` and `fs_locations_info` (RFC 8881, sections 11.16 and 11.17).

use vouch_nfs4::attr::{
    Attr, FsLocation, FsLocations, FsLocationsInfo, FsLocationsItem, FsLocationsServer,
};
use vouch_nfs4::{Bytes, List, Name, Pathname, Wire as _};
use vouch_xdr::Writer;

use super::View;
use crate::config::Config;

type ServersAndPath<'a> = (&'a [String], &'a [Vec<u8>]);

/// The server's own addresses come first: a client finds those to which it may connect too
/// (section 11.5.2).
pub(super) fn encode(view: &View, attr: Attr, config: &Config, out: &mut Writer) {
    let export = view.site.as_ref().map(|site| &site.export);
    let path = export.map_or(&[][..], |export| &export.pseudo_path);
    let is_absent = export.is_some_and(|export| export.locations.is_referral);
    let here: Option<ServersAndPath<'_>> =
        (!is_absent && !config.addresses.is_empty()).then_some((&config.addresses, path));
    let elsewhere = export
        .into_iter()
        .flat_map(|export| &export.locations.list)
        .map(|at| -> ServersAndPath<'_> { (&at.servers, &at.path) });
    if attr == Attr::FS_LOCATIONS {
        let locations = List(here.into_iter().chain(elsewhere).map(location).collect());
        return FsLocations { root: pathname(path), locations }.encode(out);
    }
    let own = info(if view.traits.read_only { 0 } else { FSLI4GF_WRITABLE }, 0);
    // Nothing is known of other servers, so each has a class of its own.
    let others: Vec<Info> = (1..=u8::MAX).map(|class| info(0, class)).collect();
    let mut classes = others.iter().chain(std::iter::repeat(&others[others.len() - 1]));
    let mut items: Vec<_> =
        here.map(|place| item(place, &mut std::iter::repeat(&own))).into_iter().collect();
    items.extend(elsewhere.map(|place| item(place, &mut classes)));
    let valid_for_s = i32::try_from(config.lease_ms / 1000).unwrap_or(i32::MAX);
    FsLocationsInfo { flags: 0, valid_for_s, root: pathname(path), items: List(items) }.encode(out);
}

fn location<'a>((servers, path): ServersAndPath<'a>) -> FsLocation<'a> {
    FsLocation {
        servers: List(servers.iter().map(|server| Bytes(server.as_bytes())).collect()),
        root: pathname(path),
    }
}

fn item<'a>(
    (servers, path): ServersAndPath<'a>,
    infos: &mut dyn Iterator<Item = &'a Info>,
) -> FsLocationsItem<'a> {
    let server = |(server, info): (&'a String, &'a Info)| FsLocationsServer {
        currency_s: CURRENCY_UNKNOWN,
        info: Bytes(info),
        server: Bytes(server.as_bytes()),
    };
    FsLocationsItem {
        servers: List(servers.iter().zip(infos).map(server).collect()),
        root: pathname(path),
    }
}

fn pathname(path: &[Vec<u8>]) -> Pathname<'_> {
    List(path.iter().map(|name| Name(name)).collect())
}

/// General flags, transport flags, six classes (simultaneous use, handle, file identity, write
/// verifier, change attribute, cookies), ranks and orders of reads and writes. Section 11.17.1.
type Info = [u8; 12];

fn info(flags: u8, class: u8) -> Info {
    [flags, 0, class, class, class, class, class, class, class, class, 0, 0]
}

const FSLI4GF_WRITABLE: u8 = 1;
const CURRENCY_UNKNOWN: i32 = -1;
