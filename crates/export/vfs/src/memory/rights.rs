use super::state::Inode;
use crate::{Caller, Error, FileType, PosixAcl, PosixAclTag, Result};

pub(super) const READ: u8 = 4;
pub(super) const WRITE: u8 = 2;
pub(super) const EXECUTE: u8 = 1;

pub(super) const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
pub(super) const STICKY: u16 = 0o1000;

pub(super) fn check_access(caller: &Caller, inode: &Inode, wanted: u8) -> Result<()> {
    let granted = if caller.uid == 0 {
        let executable = inode.file_type() == FileType::Directory || inode.mode & 0o111 != 0;
        READ | WRITE | if executable { EXECUTE } else { 0 }
    } else {
        granted(caller, inode, wanted)
    };
    if granted & wanted == wanted { Ok(()) } else { Err(Error::Access) }
}

fn granted(caller: &Caller, inode: &Inode, wanted: u8) -> u8 {
    let bits = |shift: u16| ((inode.mode >> shift) & 7) as u8;
    if caller.uid == inode.uid {
        return bits(6);
    }
    if !inode.acl.entries.is_empty() {
        return granted_by_acl(caller, inode, &inode.acl, wanted);
    }
    if caller.is_in(inode.gid) { bits(3) } else { bits(0) }
}

/// acl(5), for others than the owner.
fn granted_by_acl(caller: &Caller, inode: &Inode, acl: &PosixAcl, wanted: u8) -> u8 {
    let mask = acl
        .entries
        .iter()
        .find(|entry| entry.tag == PosixAclTag::Mask)
        .map_or(7, |entry| entry.permissions);
    if let Some(entry) = acl.entries.iter().find(|entry| entry.tag == PosixAclTag::User(caller.uid))
    {
        return entry.permissions & mask;
    }
    let mut in_group = false;
    for entry in &acl.entries {
        let mine = match entry.tag {
            PosixAclTag::GroupObject => caller.is_in(inode.gid),
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
    if in_group {
        return 0;
    }
    acl.entries
        .iter()
        .find(|entry| entry.tag == PosixAclTag::Other)
        .map_or(0, |entry| entry.permissions)
}

pub(super) fn may_remove(caller: &Caller, directory: &Inode, inode: &Inode) -> Result<()> {
    check_access(caller, directory, WRITE | EXECUTE)?;
    let free = directory.mode & STICKY == 0
        || caller.uid == 0
        || caller.uid == inode.uid
        || caller.uid == directory.uid;
    if free { Ok(()) } else { Err(Error::Permission) }
}

pub(super) fn own(caller: &Caller, inode: &Inode) -> Result<()> {
    if caller.uid == 0 || caller.uid == inode.uid { Ok(()) } else { Err(Error::Permission) }
}
