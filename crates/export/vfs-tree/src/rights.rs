//! Mode bits and ACLs of the tree, for any caller. Nobody may write.

use vouch_tree::Inode;
use vouch_vfs::{Access, Caller, Error, PosixAcl, PosixAclTag, Result};

pub(crate) const READ: u8 = 4;
pub(crate) const EXECUTE: u8 = 1;

pub(crate) fn check_access(
    caller: &Caller,
    inode: &Inode,
    acl: &PosixAcl,
    wanted: u8,
) -> Result<()> {
    let granted = if caller.uid == 0 {
        let executable = inode.is_directory() || inode.mode & 0o111 != 0;
        READ | if executable { EXECUTE } else { 0 }
    } else {
        granted(caller, inode, acl, wanted)
    };
    if granted & wanted == wanted { Ok(()) } else { Err(Error::Access) }
}

pub(crate) fn access(caller: &Caller, inode: &Inode, acl: &PosixAcl, wanted: Access) -> Access {
    let rules: &[(Access, u8)] = if inode.is_directory() {
        &[
            (Access::READ, READ),
            (Access::LOOKUP, EXECUTE),
            (Access::XATTR_READ, READ),
            (Access::XATTR_LIST, READ),
        ]
    } else {
        &[
            (Access::READ, READ),
            (Access::EXECUTE, EXECUTE),
            (Access::XATTR_READ, READ),
            (Access::XATTR_LIST, READ),
        ]
    };
    let has = |&&(right, bits): &&(Access, u8)| {
        wanted.has(right) && check_access(caller, inode, acl, bits).is_ok()
    };
    rules.iter().filter(has).fold(Access::default(), |all, &(right, _)| all | right)
}

fn granted(caller: &Caller, inode: &Inode, acl: &PosixAcl, wanted: u8) -> u8 {
    let bits = |shift: u16| ((inode.mode >> shift) & 7) as u8;
    if caller.uid == inode.uid {
        return bits(6);
    }
    if !acl.entries.is_empty() {
        return granted_by_acl(caller, inode, acl, wanted);
    }
    if caller.is_in(inode.gid) { bits(3) } else { bits(0) }
}

/// acl(5), for others than the owner.
fn granted_by_acl(caller: &Caller, inode: &Inode, acl: &PosixAcl, wanted: u8) -> u8 {
    let find = |tag: PosixAclTag| {
        acl.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    };
    let mask = find(PosixAclTag::Mask).unwrap_or(7);
    if let Some(permissions) = find(PosixAclTag::User(caller.uid)) {
        return permissions & mask;
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
    if in_group { 0 } else { find(PosixAclTag::Other).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vouch_tree::{Blob, Content};
    use vouch_vfs::PosixAclEntry;

    fn file(mode: u16) -> Inode {
        let content = Content::Regular { blob: Blob::empty(), space: 0 };
        Inode { uid: 10, gid: 20, ..Inode::new(mode, content) }
    }

    #[test]
    fn first_matching_class_decides() {
        let none = PosixAcl::default();
        let inode = file(0o047);
        for (caller, expected) in [
            (Caller::new(10, 20, []), Access::default()),
            (Caller::new(11, 20, []), Access::READ),
            (Caller::new(11, 21, [20]), Access::READ),
            (Caller::new(11, 21, []), Access::READ | Access::EXECUTE),
            (Caller::root(), Access::READ | Access::EXECUTE),
        ] {
            let requested =
                Access::READ | Access::EXECUTE | Access::MODIFY | Access::EXTEND | Access::DELETE;
            assert_eq!(access(&caller, &inode, &none, requested), expected, "{caller:?}");
        }
        assert!(check_access(&Caller::root(), &file(0o600), &none, EXECUTE).is_err());
    }

    #[test]
    fn named_users_and_groups_are_limited_by_mask() {
        let entry = |tag, permissions| PosixAclEntry { tag, permissions };
        let acl = PosixAcl {
            entries: vec![
                entry(PosixAclTag::UserObject, 7),
                entry(PosixAclTag::User(11), 7),
                entry(PosixAclTag::User(12), 0),
                entry(PosixAclTag::GroupObject, 0),
                entry(PosixAclTag::Group(30), 5),
                entry(PosixAclTag::Mask, 4),
                entry(PosixAclTag::Other, 5),
            ],
        };
        let inode = file(0o745);
        let may = |uid, gid, wanted| {
            check_access(&Caller::new(uid, gid, []), &inode, &acl, wanted).is_ok()
        };
        assert!(may(11, 1, READ) && !may(11, 1, EXECUTE));
        assert!(!may(12, 30, READ));
        assert!(may(13, 30, READ) && !may(13, 30, EXECUTE) && !may(13, 20, READ));
        assert!(may(13, 1, READ | EXECUTE));
    }
}
