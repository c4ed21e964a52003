//! Conditions of a rule, and their evaluation.

use std::net::IpAddr;

use vouch_nfs4::op::Effect;

use crate::operations::{effect, number::*};
use crate::record::access;
use crate::{Class, Flavour, Record};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Compare {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Compare::Equal => "=",
            Compare::Unequal => "!=",
            Compare::Less => "<",
            Compare::LessOrEqual => "<=",
            Compare::Greater => ">",
            Compare::GreaterOrEqual => ">=",
        }
    }

    pub(super) fn holds<T: PartialOrd>(self, left: T, right: T) -> bool {
        match self {
            Compare::Equal => left == right,
            Compare::Unequal => left != right,
            Compare::Less => left < right,
            Compare::LessOrEqual => left <= right,
            Compare::Greater => left > right,
            Compare::GreaterOrEqual => left >= right,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Path(Box<[u8]>),
    Dir(Box<[u8]>),
    Uid(Compare, u32),
    Login(Compare, u32),
    Gid(Compare, u32),
    Success(bool),
    Exit(Compare, i64),
    Perm(u8),
    /// Any of these bits of [`access`].
    Requested(u32),
    /// Any of these bits of the mode that is set.
    Mode(u32),
    Principal(bool, Box<[u8]>),
    Network(bool, IpAddr, u8),
    Client(bool, Box<[u8]>),
    Export(bool, Box<[u8]>),
    Flavour(bool, Flavour),
}

pub(super) const UNSET: u32 = u32::MAX;
pub(super) const PERM_READ: u8 = 1;
pub(super) const PERM_WRITE: u8 = 2;
pub(super) const PERM_EXECUTE: u8 = 4;
pub(super) const PERM_ATTRIBUTES: u8 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'r> {
    None,
    Known(&'r [u8]),
    /// A directory above the file, and the end of its path (possibly empty).
    Below(&'r [u8], &'r [u8]),
}

impl<'r> Name<'r> {
    fn of(record: &Record<'r>, path: &'r [u8], is_expected: bool) -> Name<'r> {
        match path {
            [] if is_expected && record.class == Class::Operation && !record.export.is_empty() => {
                // A published tree can be mounted at any path.
                Name::Below(if record.export.starts_with(b"/") { record.export } else { b"" }, b"")
            }
            [] => Name::None,
            _ => match gap(path) {
                Some(at) => Name::Below(&path[..at], &path[at + GAP.len() - 1..]),
                None => Name::Known(path),
            },
        }
    }

    fn is(self, path: &[u8], always: bool) -> bool {
        match self {
            Name::None => false,
            Name::Known(name) => name == path,
            Name::Below(above, end) => always && is_below(path, above) && path.ends_with(end),
        }
    }

    fn is_in(self, directory: &[u8], always: bool) -> bool {
        match self {
            Name::None => false,
            Name::Known(name) => is_below(name, directory),
            Name::Below(above, _) => {
                is_below(above, directory) || (always && is_below(directory, above))
            }
        }
    }

    fn is_above(self, path: &[u8]) -> bool {
        match self {
            Name::None => false,
            Name::Known(name) => name.len() < path.len() && is_below(path, name),
            Name::Below(above, end) => {
                is_below(path, above)
                    && (end.is_empty() || path.windows(end.len() + 1).any(|part| is_dir(part, end)))
            }
        }
    }
}

fn is_dir(part: &[u8], end: &[u8]) -> bool {
    part.strip_prefix(end) == Some(b"/")
}

const GAP: &[u8] = b"/.../";

pub(super) fn gap(path: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'.', path)
        .map(|dot| dot.wrapping_sub(1))
        .find(|at| path.get(*at..).is_some_and(|rest| rest.starts_with(GAP)))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'r> {
    pub(super) names: [Name<'r>; 2],
    pub(super) permissions: u8,
}

/// COPY and CLONE read one file and write another. A rule sees each file's own access.
pub(super) fn sides<'r>(record: &Record<'r>) -> (Side<'r>, Option<Side<'r>>) {
    let has_second_path = matches!(record.operation, RENAME | LINK | COPY | CLONE);
    let (first, second) =
        (Name::of(record, record.path, true), Name::of(record, record.path2, has_second_path));
    match record.operation {
        COPY | CLONE if record.class == Class::Operation => {
            let side = |name, permissions| Side { names: [name, Name::None], permissions };
            (side(first, PERM_READ), Some(side(second, PERM_WRITE)))
        }
        _ => (Side { names: [first, second], permissions: permissions(record) }, None),
    }
}

impl Condition {
    pub(super) fn holds(&self, record: &Record<'_>) -> bool {
        let (first, second) = sides(record);
        self.holds_of(record, &first, true)
            || second.is_some_and(|second| self.holds_of(record, &second, true))
    }

    pub(super) fn holds_of(&self, record: &Record<'_>, side: &Side<'_>, always: bool) -> bool {
        match self {
            Condition::Path(path) => {
                side.names.iter().any(|name| name.is(path, always))
                    || (always && moves_parent(record, side, path))
            }
            Condition::Dir(path) => {
                side.names.iter().any(|name| name.is_in(path, always))
                    || (always && moves_parent(record, side, path))
            }
            Condition::Login(compare, uid) => compare.holds(record.auid().unwrap_or(UNSET), *uid),
            Condition::Uid(compare, uid) => compare.holds(record.uid.unwrap_or(UNSET), *uid),
            Condition::Gid(compare, gid) => compare.holds(record.gid.unwrap_or(UNSET), *gid),
            Condition::Success(success) => {
                (record.status() == 0 && record.class != Class::Refusal) == *success
            }
            Condition::Exit(compare, exit) => {
                record.class != Class::Refusal && compare.holds(-i64::from(record.errno()), *exit)
            }
            Condition::Perm(wanted) => side.permissions & wanted != 0,
            Condition::Requested(wanted) => record.requested.unwrap_or(0) & wanted != 0,
            Condition::Mode(wanted) => record.mode.unwrap_or(0) & wanted != 0,
            Condition::Principal(equal, pattern) => matches(pattern, record.principal) == *equal,
            Condition::Network(equal, network, bits) => {
                record.address.is_some_and(|address| is_within(address, *network, *bits)) == *equal
            }
            Condition::Client(equal, pattern) => matches(pattern, record.client) == *equal,
            Condition::Export(equal, path) => (record.export == &**path) == *equal,
            Condition::Flavour(equal, flavour) => (record.flavour == *flavour) == *equal,
        }
    }
}

fn moves_parent(record: &Record<'_>, side: &Side<'_>, path: &[u8]) -> bool {
    moves_names(record) && side.names.iter().any(|name| name.is_above(path))
}

pub(super) fn moves_names(record: &Record<'_>) -> bool {
    record.class == Class::Operation && matches!(record.operation, RENAME | REMOVE | LINK)
}

/// As in the kernel, reads and writes through an open file do not count.
fn permissions(record: &Record<'_>) -> u8 {
    if record.class == Class::Refusal {
        return 0;
    }
    let requested = record.requested.unwrap_or(0);
    let if_requested =
        |bits: u32, permission: u8| if requested & bits != 0 { permission } else { 0 };
    match record.operation {
        OPEN => {
            let written = access::MODIFY | access::EXTEND | access::CREATE | access::TRUNCATE;
            if_requested(access::READ, PERM_READ)
                | if_requested(written, PERM_WRITE)
                | if_requested(access::EXECUTE, PERM_EXECUTE)
        }
        READ | READ_PLUS => if_requested(access::UNOPENED, PERM_READ),
        WRITE => if_requested(access::UNOPENED, PERM_WRITE),
        COPY | CLONE => 0,
        LINK => PERM_WRITE | PERM_ATTRIBUTES,
        SETATTR => PERM_ATTRIBUTES | if_requested(access::TRUNCATE, PERM_WRITE),
        // The client sends no further call after a denied ACCESS.
        ACCESS => {
            let denied = record.granted.map_or(0, |granted| requested & !granted);
            let when_denied =
                |bit: u32, permission: u8| if denied & bit != 0 { permission } else { 0 };
            if_requested(access::EXECUTE, PERM_EXECUTE)
                | when_denied(access::READ, PERM_READ)
                | when_denied(access::LOOKUP, PERM_EXECUTE)
        }
        other => match effect(other) {
            Some(Effect::Read) => PERM_READ,
            Some(Effect::Write) => PERM_WRITE,
            Some(Effect::Attributes) => PERM_ATTRIBUTES,
            Some(Effect::Look | Effect::State | Effect::Stateid | Effect::Protocol) | None => 0,
        },
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    match path.strip_prefix(directory) {
        Some(rest) => rest.is_empty() || rest.starts_with(b"/") || directory == b"/",
        None => false,
    }
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or(b"");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        if part.is_empty() {
            continue;
        }
        match memchr::memmem::find(rest, part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let number = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let ((address, width), (network, other)) = (number(address), number(network));
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    width == other && (address ^ network) & mask == 0
}
