//! acl(5).

use super::rights;
use super::state::Inode;
use crate::{Caller, Error, FileType, PosixAcl, PosixAclKind, PosixAclTag, Result};

pub(super) fn set(
    caller: &Caller,
    inode: &mut Inode,
    kind: PosixAclKind,
    acl: &PosixAcl,
) -> Result<()> {
    match (kind, inode.file_type()) {
        (_, FileType::Symlink) => return Err(Error::NotSupported),
        (PosixAclKind::Default, FileType::Directory) => inode.default_acl = acl.clone(),
        (PosixAclKind::Default, _) if acl.entries.is_empty() => {}
        (PosixAclKind::Default, _) => return Err(Error::Access),
        (PosixAclKind::Access, _) => {
            inode.acl = acl.clone();
            if !acl.entries.is_empty() {
                inode.mode = inode.mode & !0o777 | mode_of(acl);
            }
            if acl.entries.len() <= 3 {
                inode.acl.entries.clear();
            }
            if caller.uid != 0 && !caller.is_in(inode.gid) {
                inode.mode &= !rights::SET_GID;
            }
        }
    }
    Ok(())
}

pub(super) fn validate(acl: &PosixAcl) -> Result<()> {
    let sorted = acl.entries.windows(2).all(|pair| pair[0].tag < pair[1].tag);
    let count =
        |wanted: PosixAclTag| acl.entries.iter().filter(|entry| entry.tag == wanted).count();
    let named = acl
        .entries
        .iter()
        .any(|entry| matches!(entry.tag, PosixAclTag::User(_) | PosixAclTag::Group(_)));
    let whole = count(PosixAclTag::UserObject) == 1
        && count(PosixAclTag::GroupObject) == 1
        && count(PosixAclTag::Other) == 1;
    let masked = count(PosixAclTag::Mask) == 1 || !named;
    let plain = acl.entries.iter().all(|entry| entry.permissions <= 7);
    if sorted && whole && masked && plain { Ok(()) } else { Err(Error::Invalid) }
}

pub(super) fn mode_of(acl: &PosixAcl) -> u16 {
    let find = |tag| {
        acl.entries.iter().find(|entry| entry.tag == tag).map(|entry| u16::from(entry.permissions))
    };
    let group = find(PosixAclTag::Mask).or_else(|| find(PosixAclTag::GroupObject)).unwrap_or(0);
    find(PosixAclTag::UserObject).unwrap_or(0) << 6
        | group << 3
        | find(PosixAclTag::Other).unwrap_or(0)
}

pub(super) fn set_mode(acl: &mut PosixAcl, mode: u16) {
    let masked = acl.entries.iter().any(|entry| entry.tag == PosixAclTag::Mask);
    for entry in &mut acl.entries {
        match entry.tag {
            PosixAclTag::UserObject => entry.permissions = (mode >> 6 & 7) as u8,
            PosixAclTag::Mask => entry.permissions = (mode >> 3 & 7) as u8,
            PosixAclTag::GroupObject if !masked => entry.permissions = (mode >> 3 & 7) as u8,
            PosixAclTag::Other => entry.permissions = (mode & 7) as u8,
            _ => {}
        }
    }
}

pub(super) fn inherit(directory: &Inode, mode: u16) -> (PosixAcl, u16) {
    let mut acl = directory.default_acl.clone();
    let mode = mode & (mode_of(&acl) | !0o777);
    set_mode(&mut acl, mode);
    if acl.entries.len() <= 3 {
        acl.entries.clear();
    }
    (acl, mode)
}
