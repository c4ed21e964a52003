use super::state::Inode;
use crate::rights::Protection;
use crate::{Caller, Error, FileType, Result};

pub(super) use crate::rights::{EXECUTE, READ, WRITE};

pub(super) const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
pub(super) const STICKY: u16 = 0o1000;

pub(super) fn check_access(caller: &Caller, inode: &Inode, wanted: u8) -> Result<()> {
    let protection = Protection {
        uid: inode.uid,
        gid: inode.gid,
        mode: inode.mode,
        is_directory: inode.file_type() == FileType::Directory,
        acl: &inode.acl,
    };
    if protection.grants(caller, wanted) { Ok(()) } else { Err(Error::Access) }
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
