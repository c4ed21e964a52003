//! Mode bits and ACLs of the tree, for any caller. Nobody may write.

use vouch_tree::Inode;
use vouch_vfs::rights::{Protection, WRITE};
use vouch_vfs::{Access, Caller, Error, PosixAcl, Result};

pub(crate) use vouch_vfs::rights::{EXECUTE, READ};

pub(crate) fn check_access(
    caller: &Caller,
    inode: &Inode,
    acl: &PosixAcl,
    wanted: u8,
) -> Result<()> {
    let Inode { uid, gid, mode, .. } = *inode;
    let protection = Protection { uid, gid, mode, is_directory: inode.is_directory(), acl };
    let is_granted = wanted & WRITE == 0 && protection.grants(caller, wanted);
    if is_granted { Ok(()) } else { Err(Error::Access) }
}

pub(crate) fn access(caller: &Caller, inode: &Inode, acl: &PosixAcl, wanted: Access) -> Access {
    wanted.granted_by(inode.is_directory(), |bits| check_access(caller, inode, acl, bits).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vouch_tree::{Blob, Content};
    use vouch_vfs::{PosixAclEntry, PosixAclTag};

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
