//! The options in force, as `exportfs -v` writes them. Its output is valid in a list.

use vouch_nfs4_server::{ClientAccess, FlavourAccess, SquashWho, Transport};
use vouch_vfs_posix::IoMode;

use super::super::duplicate::flavour_name;
use super::{Fsid, NOBODY, Options};

impl Options {
    /// `self`: what all clients of the path have in common. `access`: the rights of one of them.
    pub(crate) fn effective(&self, access: &ClientAccess) -> String {
        let mut list = vec![if self.sync { "sync" } else { "async" }.to_owned(), "wdelay".into()];
        list.push(if self.cross_mounts { "crossmnt" } else { "hide" }.into());
        list.push("no_subtree_check".into());
        if let Some(point) = &self.mount_point {
            let point = String::from_utf8_lossy(point);
            list.push(if point.is_empty() {
                "mountpoint".into()
            } else {
                format!("mountpoint={point}")
            });
        }
        list.extend(self.fsid.map(|fsid| match fsid {
            Fsid::Root => "fsid=0".into(),
            Fsid::Number(number) => format!("fsid={number}"),
            Fsid::Uuid(uuid) => format!("fsid={}", data_encoding::HEXLOWER.encode(&uuid)),
        }));
        if let Some(servers) = &self.data_servers {
            list.push(format!(
                "pnfs={}",
                servers.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
            ));
        }
        if let Some(locations) = &self.locations {
            list.push(
                if locations.is_referral { "refer" } else { "replicas" }.to_owned()
                    + "="
                    + &super::locations::text(&locations.list),
            );
        }
        for (is_set, name) in [
            (self.no_delegations, "no_delegations"),
            (self.no_acl, "no_acl"),
            (self.no_xattr, "no_xattr"),
            (self.labels, "security_label"),
            (self.uncacheable, "uncacheable"),
        ] {
            list.extend(is_set.then(|| name.into()));
        }
        list.extend(self.quota.map(|quota| format!("quota={quota}")));
        list.extend(self.io_mode.map(|mode| match mode {
            IoMode::Buffered => "io=buffered".into(),
            IoMode::Uncached => "io=uncached".into(),
            IoMode::Direct { len_min } => format!("io=direct:{len_min}"),
        }));
        list.extend(self.snapshots.as_ref().map(|pattern| match pattern {
            Some(pattern) => format!("snapshots={}", pattern.text()),
            None => "snapshots".into(),
        }));
        list.extend(
            self.snapshots_visible
                .map(|visible| if visible { "snapdir=visible" } else { "snapdir=hidden" }.into()),
        );
        let mut rest = &access.flavours[..];
        while let Some(first) = rest.first() {
            let equal = rest
                .iter()
                .take_while(|other| FlavourAccess { flavour: first.flavour, ..**other } == *first)
                .count();
            let names: Vec<&str> =
                rest[..equal].iter().map(|access| flavour_name(access.flavour)).collect();
            list.push(format!("sec={}", names.join(":")));
            list.extend(rights(first));
            rest = &rest[equal..];
        }
        list.extend(access.qos.map(|qos| format!("qos={}", super::qos::text(&qos))));
        list.join(",")
    }
}

fn rights(access: &FlavourAccess) -> Vec<String> {
    let mut list: Vec<String> = vec![if access.read_only { "ro" } else { "rw" }.into()];
    list.push(if access.secure_port { "secure" } else { "insecure" }.into());
    list.push(
        if access.squash.who == SquashWho::Nobody { "no_root_squash" } else { "root_squash" }
            .into(),
    );
    list.push(
        if access.squash.who == SquashWho::All { "all_squash" } else { "no_all_squash" }.into(),
    );
    for (name, id) in
        [("anonuid", access.squash.anonymous_uid), ("anongid", access.squash.anonymous_gid)]
    {
        list.extend((id != NOBODY).then(|| format!("{name}={id}")));
    }
    match access.transport_min {
        Transport::Clear => {}
        Transport::Tls => list.push("xprtsec=tls:mtls".into()),
        Transport::MutualTls => list.push("xprtsec=mtls".into()),
    }
    list.extend(access.machine_writes.then(|| "machine_writes".into()));
    list
}
