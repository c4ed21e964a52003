mod data_servers;
mod effective;
mod locations;
mod qos;
mod size;
mod table;

use std::net::SocketAddr;

use table::How;
pub use table::option_forms;
use vouch_nfs4_server::{Flavour, FlavourAccess, Locations, Qos, Squash, SquashWho, Transport};
use vouch_vfs_posix::{IoMode, SnapshotOptions, SnapshotPattern};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsid {
    Root,
    Number(u32),
    Uuid([u8; 16]),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) read_only: bool,
    /// Replies wait until changes of names and attributes are durable.
    pub(crate) sync: bool,
    pub(crate) squash: Squash,
    flavours: Vec<FlavourRights>,
    /// Flavours of the last `sec=`; `None` is all.
    group: Option<Vec<Flavour>>,
    pub(crate) secure: bool,
    pub(crate) fsid: Option<Fsid>,
    pub(crate) cross_mounts: bool,
    pub(crate) mount_point: Option<Vec<u8>>,
    /// The client's machine credential may write data of its users.
    pub(crate) machine_writes: bool,
    pub(crate) locations: Option<Locations>,
    /// `pnfs=`, an extension: servers of the same tree that clients read in parallel.
    pub(crate) data_servers: Option<Vec<SocketAddr>>,
    /// `no_delegations`, an extension.
    pub(crate) no_delegations: bool,
    /// `no_acl`: clients see no ACLs, so they need not ask for them.
    pub(crate) no_acl: bool,
    /// `no_xattr`, an extension.
    pub(crate) no_xattr: bool,
    /// `security_label`.
    pub(crate) labels: bool,
    /// `uncacheable`, an extension.
    pub(crate) uncacheable: bool,
    /// `qos=`, an extension.
    pub(crate) qos: Option<Qos>,
    /// `io=`, an extension.
    pub(crate) io_mode: Option<IoMode>,
    /// `quota=`, an extension: bytes.
    pub(crate) quota: Option<u64>,
    /// Weakest transport that `xprtsec=` lists.
    pub(crate) transport_min: Transport,
    /// `snapshots`: where they are; `Some(None)`: where the file system itself shows them.
    snapshots: Option<Option<SnapshotPattern>>,
    /// `snapdir=visible`.
    snapshots_visible: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlavourRights {
    flavour: Flavour,
    read_only: Option<bool>,
    squash: Option<SquashWho>,
}

impl FlavourRights {
    fn new(flavour: Flavour) -> Self {
        FlavourRights { flavour, read_only: None, squash: None }
    }
}

/// An option as a list has it.
#[derive(Clone, Copy)]
struct Written<'a> {
    option: &'a str,
    name: &'a str,
    value: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum OptionIssue {
    Warning(String),
    Error(String, &'static str),
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: true,
            sync: true,
            flavours: Vec::new(),
            group: None,
            squash: Squash { who: SquashWho::Root, anonymous_uid: NOBODY, anonymous_gid: NOBODY },
            secure: true,
            fsid: None,
            cross_mounts: false,
            mount_point: None,
            machine_writes: false,
            locations: None,
            data_servers: None,
            no_delegations: false,
            no_acl: false,
            no_xattr: false,
            labels: false,
            uncacheable: false,
            qos: None,
            io_mode: None,
            quota: None,
            transport_min: Transport::Clear,
            snapshots: None,
            snapshots_visible: None,
        }
    }
}

impl Options {
    /// Options before the first `sec=` apply to all flavours.
    pub(super) fn take(&mut self, list: &str, issues: &mut Vec<OptionIssue>) {
        self.group = None;
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            if let Err(issue) = self.take_one(option) {
                issues.push(issue);
            }
        }
    }

    fn take_one(&mut self, option: &str) -> Result<(), OptionIssue> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let written = Written { option, name, value: value.unwrap_or_default() };
        match (table::OPTIONS.iter().find(|taken| taken.name == name).map(|taken| taken.how), value)
        {
            (Some(How::Flag(set)), None) => set(self),
            (Some(How::Valued(_, take)), Some(_)) | (Some(How::Optional(_, take)), _) => {
                take(self, written)?
            }
            _ => return Err(unsupported(option, name, value)),
        }
        Ok(())
    }

    pub(crate) fn snapshots(&self) -> Option<SnapshotOptions> {
        let pattern = self.snapshots.clone()?;
        Some(SnapshotOptions { pattern, is_visible: self.snapshots_visible.unwrap_or(false) })
    }

    /// Clients of one export share its snapshots: what one line leaves out, another may say.
    pub(crate) fn share_snapshots(&mut self, other: &Options) {
        self.snapshots = self.snapshots.take().or_else(|| other.snapshots.clone());
        self.snapshots_visible = self.snapshots_visible.or(other.snapshots_visible);
    }

    pub(crate) fn differs_in_snapshots(&self, shared: &Options) -> bool {
        self.snapshots.is_some() && self.snapshots != shared.snapshots
            || self.snapshots_visible.is_some()
                && self.snapshots_visible != shared.snapshots_visible
    }

    fn set_read_only(&mut self, read_only: bool) {
        if self.group.is_none() {
            self.read_only = read_only;
        }
        self.of_group().for_each(|rights| rights.read_only = Some(read_only));
    }

    fn set_squash(&mut self, change: impl Fn(SquashWho) -> SquashWho) {
        let all = self.squash.who;
        if self.group.is_none() {
            self.squash.who = change(all);
        }
        self.of_group()
            .for_each(|rights| rights.squash = Some(change(rights.squash.unwrap_or(all))));
    }

    /// exports(5): rights after `sec=` apply to its flavours, earlier rights to all.
    fn of_group(&mut self) -> impl Iterator<Item = &mut FlavourRights> {
        let group = &self.group;
        self.flavours
            .iter_mut()
            .filter(|rights| group.as_ref().is_none_or(|group| group.contains(&rights.flavour)))
    }

    fn take_flavours(&mut self, list: &str) -> Result<(), OptionIssue> {
        let mut group = Vec::new();
        for name in list.split(':') {
            let flavour = match name {
                "sys" | "unix" => Flavour::Sys,
                "null" | "none" => Flavour::None,
                "krb5" => Flavour::Krb5,
                "krb5i" => Flavour::Krb5i,
                "krb5p" => Flavour::Krb5p,
                _ => {
                    return Err(option_error(
                        &format!("sec={name}"),
                        "is not a security flavour",
                        "write sys, krb5, krb5i or krb5p, separated by colons",
                    ));
                }
            };
            group.push(flavour);
            if !self.flavours.iter().any(|rights| rights.flavour == flavour) {
                self.flavours.push(FlavourRights::new(flavour));
            }
        }
        self.group = Some(group);
        Ok(())
    }

    pub(crate) fn access(&self) -> Vec<FlavourAccess> {
        let default = [FlavourRights::new(Flavour::Sys)];
        let named = if self.flavours.is_empty() { &default[..] } else { &self.flavours[..] };
        let access = |rights: &FlavourRights| FlavourAccess {
            flavour: rights.flavour,
            read_only: rights.read_only.unwrap_or(self.read_only),
            squash: Squash { who: rights.squash.unwrap_or(self.squash.who), ..self.squash },
            secure_port: self.secure,
            machine_writes: self.machine_writes,
            transport_min: self.transport_min,
        };
        named.iter().map(access).collect()
    }

    pub(super) fn same_flavours(&self, other: &Options) -> bool {
        self.flavours
            .iter()
            .map(|rights| rights.flavour)
            .eq(other.flavours.iter().map(|rights| rights.flavour))
    }

    /// exportfs(8) applies rights of one group to flavours of later groups, unlike exports(5).
    pub(super) fn differences(&self) -> Option<OptionIssue> {
        let handed_on = |at: usize| {
            let (rights, before) = (&self.flavours[at], &self.flavours[..at]);
            let read_only = before
                .iter()
                .filter_map(|other| other.read_only)
                .next_back()
                .unwrap_or(self.read_only);
            let squash = before
                .iter()
                .filter_map(|other| other.squash)
                .next_back()
                .unwrap_or(self.squash.who);
            (rights.read_only.is_none() && read_only != self.read_only)
                || (rights.squash.is_none() && squash != self.squash.who)
        };
        let at = (1..self.flavours.len()).find(|&at| handed_on(at))?;
        Some(OptionIssue::Warning(format!(
            "a flavour without rights of its own gets those before the first sec= ({}), but exportfs gives it those of the previous flavour; write its rights after its own sec=",
            if self.flavours[at].read_only.unwrap_or(self.read_only) { "ro" } else { "rw" },
        )))
    }

    pub(super) fn set_flavour(&mut self, flavour: Flavour) {
        self.flavours = vec![FlavourRights::new(flavour)];
    }
}

/// Options of exports(5) that have no effect here, or that cannot be had.
fn unsupported(option: &str, name: &str, value: Option<&str>) -> OptionIssue {
    match (name, value) {
        ("no_wdelay", None) => warning(option, "writes are never delayed; remove it"),
        ("subtree_check", None) => warning(
            option,
            "not supported: a file that is moved out of the export stays accessible by its old filehandle; \
                     export a separate file system if that matters, and write no_subtree_check",
        ),
        ("nohide", None) => warning(option, "nested exports are always visible; remove it"),
        ("insecure_locks" | "secure_locks" | "auth_nlm" | "no_auth_nlm", None) => warning(
            option,
            "it applies to the NFSv3 lock manager only; NFSv4 locks are authenticated; remove it",
        ),
        ("rdirplus" | "nordirplus", None) => {
            warning(option, "it applies to NFSv3 only; an NFSv4 client chooses; remove it")
        }
        ("reexport", Some(_)) => warning(
            option,
            "an export without fsid= has a stable identifier from its path; remove it",
        ),
        ("pnfs", None) => warning(
            option,
            "directories have no layouts; write pnfs=ADDRESS[+ADDRESS] for a published tree with several servers, or remove it",
        ),
        ("squash_uids" | "squash_gids", Some(_)) => warning(
            option,
            "the kernel's server ignores it too; write all_squash, or take away the rights of these users",
        ),
        _ if table::OPTIONS.iter().any(|taken| taken.name == name) => option_error(
            option,
            if value.is_some() { "has a value" } else { "lacks its value" },
            "see vouch-export(1) for its form",
        ),
        _ => option_error(
            option,
            "is not an option of exports(5)",
            "see vouch-export(1) for the supported options",
        ),
    }
}

fn warning(option: &str, why: &str) -> OptionIssue {
    OptionIssue::Warning(format!("option {option} is ignored: {why}"))
}

fn option_error(option: &str, what: &str, cure: &'static str) -> OptionIssue {
    OptionIssue::Error(format!("option {option} {what}"), cure)
}

const NOBODY: u32 = 65_534;

#[cfg(test)]
mod tests;
