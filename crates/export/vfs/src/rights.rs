//! Rights by mode and ACL, for file systems that decide themselves.

use crate::{Access, Caller, PosixAcl, PosixAclTag};

pub const READ: u8 = 4;
pub const WRITE: u8 = 2;
pub const EXECUTE: u8 = 1;

/// What decides on the rights to a file.
#[derive(Clone, Copy, Debug)]
pub struct Protection<'a> {
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub is_directory: bool,
    pub acl: &'a PosixAcl,
}

impl Protection<'_> {
    /// True if the caller has all these bits.
    pub fn grants(&self, caller: &Caller, wanted: u8) -> bool {
        let granted = if caller.uid == 0 {
            let is_executable = self.is_directory || self.mode & 0o111 != 0;
            READ | WRITE | if is_executable { EXECUTE } else { 0 }
        } else {
            self.granted(caller, wanted)
        };
        granted & wanted == wanted
    }

    fn granted(&self, caller: &Caller, wanted: u8) -> u8 {
        let bits = |shift: u16| ((self.mode >> shift) & 7) as u8;
        if caller.uid == self.uid {
            return bits(6);
        }
        if !self.acl.entries.is_empty() {
            return self.granted_by_acl(caller, wanted);
        }
        if caller.is_in(self.gid) { bits(3) } else { bits(0) }
    }

    /// acl(5), for others than the owner.
    fn granted_by_acl(&self, caller: &Caller, wanted: u8) -> u8 {
        let find = |tag: PosixAclTag| {
            self.acl.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
        };
        let mask = find(PosixAclTag::Mask).unwrap_or(7);
        if let Some(permissions) = find(PosixAclTag::User(caller.uid)) {
            return permissions & mask;
        }
        let mut in_group = false;
        for entry in &self.acl.entries {
            let mine = match entry.tag {
                PosixAclTag::GroupObject => caller.is_in(self.gid),
                PosixAclTag::Group(gid) => caller.is_in(gid),
                _ => false,
            };
            if mine {
                in_group = true;
                if entry.permissions & mask & wanted == wanted {
                    return entry.permissions & mask;
                }
            }
        }
        if in_group { 0 } else { find(PosixAclTag::Other).unwrap_or(0) }
    }
}

impl Access {
    /// Each right, and the bits that it needs.
    pub fn rules(is_directory: bool) -> &'static [(Access, u8)] {
        if is_directory { &OF_DIRECTORIES } else { &OF_OTHERS }
    }

    /// Those of the rights whose bits the caller has.
    pub fn granted_by(self, is_directory: bool, has: impl Fn(u8) -> bool) -> Access {
        let rules = Access::rules(is_directory).iter();
        rules
            .filter(|(right, bits)| self.has(*right) && has(*bits))
            .fold(Access::default(), |granted, (right, _)| granted | *right)
    }
}

const OF_DIRECTORIES: [(Access, u8); 8] = [
    (Access::READ, READ),
    (Access::LOOKUP, EXECUTE),
    (Access::MODIFY, WRITE | EXECUTE),
    (Access::EXTEND, WRITE | EXECUTE),
    (Access::DELETE, WRITE | EXECUTE),
    (Access::XATTR_READ, READ),
    (Access::XATTR_WRITE, WRITE),
    (Access::XATTR_LIST, READ),
];

const OF_OTHERS: [(Access, u8); 7] = [
    (Access::READ, READ),
    (Access::MODIFY, WRITE),
    (Access::EXTEND, WRITE),
    (Access::EXECUTE, EXECUTE),
    (Access::XATTR_READ, READ),
    (Access::XATTR_WRITE, WRITE),
    (Access::XATTR_LIST, READ),
];
