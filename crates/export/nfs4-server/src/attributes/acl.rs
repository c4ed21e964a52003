//! draft-ietf-nfsv4-acl-mapping-05, as Linux implements it. Each POSIX ACL has an NFSv4 form. The
//! other direction never grants more, and refuses entries without a POSIX form.

use vouch_nfs4::{AceFlags, AceMask, AceType, Status};
use vouch_vfs::{PosixAcl, PosixAclEntry, PosixAclTag};

mod from_nfs;

pub(crate) use from_nfs::from_nfs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Owner,
    Group,
    Everyone,
    User(u32),
    NamedGroup(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: AceType,
    pub(crate) flags: AceFlags,
    pub(crate) mask: AceMask,
    pub(crate) who: Who,
}

const ANYONE: u32 = AceMask::READ_ATTRIBUTES.0 | AceMask::READ_ACL.0 | AceMask::SYNCHRONIZE.0;
const OWNER: u32 = AceMask::WRITE_ATTRIBUTES.0 | AceMask::WRITE_ACL.0;
const READ: u32 = AceMask::READ_DATA.0;
const WRITE: u32 = AceMask::WRITE_DATA.0 | AceMask::APPEND_DATA.0;
const EXECUTE: u32 = AceMask::EXECUTE.0;
const INHERIT: u32 =
    AceFlags::FILE_INHERIT.0 | AceFlags::DIRECTORY_INHERIT.0 | AceFlags::INHERIT_ONLY.0;

pub(crate) fn from_mode(mode: u16) -> PosixAcl {
    let entry = |tag, shift: u16| PosixAclEntry { tag, permissions: ((mode >> shift) & 7) as u8 };
    PosixAcl {
        entries: vec![
            entry(PosixAclTag::UserObject, 6),
            entry(PosixAclTag::GroupObject, 3),
            entry(PosixAclTag::Other, 0),
        ],
    }
}

pub(crate) fn to_nfs(acl: &PosixAcl, directory: bool, default: bool, out: &mut Vec<Entry>) {
    let flags = if default { INHERIT } else { 0 };
    let (mut owner, mut group, mut other, mut mask) = (0u8, 0u8, 0u8, 7u8);
    for entry in &acl.entries {
        match entry.tag {
            PosixAclTag::UserObject => owner = entry.permissions,
            PosixAclTag::GroupObject => group = entry.permissions,
            PosixAclTag::Mask => mask = entry.permissions,
            PosixAclTag::Other => other = entry.permissions,
            PosixAclTag::User(_) | PosixAclTag::Group(_) => {}
        }
    }
    let named = |groups: bool| {
        acl.entries.iter().filter_map(move |entry| match entry.tag {
            PosixAclTag::User(id) if !groups => Some((Who::User(id), entry.permissions & mask)),
            PosixAclTag::Group(id) if groups => {
                Some((Who::NamedGroup(id), entry.permissions & mask))
            }
            _ => None,
        })
    };
    let (all_users, all_groups) =
        (named(false).fold(0, |all, (_, p)| all | p), named(true).fold(0, |all, (_, p)| all | p));
    let group = group & mask;
    let mut push = |kind: AceType, who: Who, bits: u32| {
        // RFC 8881 §6.2.1.5: "When encoding entries with these special identifiers, the
        // ACE4_IDENTIFIER_GROUP flag SHOULD be set to zero."
        let flags = flags
            | if matches!(who, Who::NamedGroup(_)) { AceFlags::IDENTIFIER_GROUP.0 } else { 0 };
        out.push(Entry { kind, flags: AceFlags(flags), mask: AceMask(bits), who });
    };
    let allow = |permissions: u8| ANYONE | bits(permissions, directory);
    // POSIX stops at the first matching class. NFSv4 continues, so each class is first denied what
    // a later entry would grant.
    let denied = |permissions: u8, later: u8| bits(!permissions & later, directory);

    let deny = denied(owner, all_users | group | all_groups | other);
    if deny != 0 {
        push(AceType::DENY, Who::Owner, deny);
    }
    push(AceType::ALLOW, Who::Owner, allow(owner) | OWNER);
    for (who, permissions) in named(false) {
        let deny = denied(permissions, group | all_groups | other);
        if deny != 0 {
            push(AceType::DENY, who, deny);
        }
        push(AceType::ALLOW, who, allow(permissions));
    }
    // A member of several groups gets the access of each, so all groups are allowed before any is
    // denied.
    push(AceType::ALLOW, Who::Group, allow(group));
    for (who, permissions) in named(true) {
        push(AceType::ALLOW, who, allow(permissions));
    }
    let deny = denied(group, other);
    if deny != 0 {
        push(AceType::DENY, Who::Group, deny);
    }
    for (who, permissions) in named(true) {
        let deny = denied(permissions, other);
        if deny != 0 {
            push(AceType::DENY, who, deny);
        }
    }
    push(AceType::ALLOW, Who::Everyone, allow(other));
}

fn bits(permissions: u8, directory: bool) -> u32 {
    let mut mask = 0;
    if permissions & 4 != 0 {
        mask |= READ;
    }
    if permissions & 2 != 0 {
        mask |= WRITE;
        if directory {
            mask |= AceMask::DELETE_CHILD.0;
        }
    }
    if permissions & 1 != 0 {
        mask |= EXECUTE;
    }
    mask
}

/// RFC 8881 §6.2.1.2 and 6.2.1.4.
fn check(entry: &Entry, directory: bool) -> Result<(), Status> {
    // §6.2.1.2.
    if entry.kind != AceType::ALLOW && entry.kind != AceType::DENY {
        return Err(Status::ATTRNOTSUPP);
    }
    let known = INHERIT | AceFlags::IDENTIFIER_GROUP.0 | AceFlags::INHERITED.0;
    if entry.flags.0 & !known != 0 {
        return Err(Status::ATTRNOTSUPP);
    }
    // §6.2.1.4.1.
    if entry.flags.0 & INHERIT != 0 && !directory {
        return Err(Status::INVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::from_nfs::Posix;
    use super::*;

    fn posix(entries: &[(PosixAclTag, u8)]) -> PosixAcl {
        PosixAcl {
            entries: entries
                .iter()
                .map(|&(tag, permissions)| PosixAclEntry { tag, permissions })
                .collect(),
        }
    }

    fn round_trip(access: &PosixAcl, default: Option<&PosixAcl>) -> Posix {
        let directory = default.is_some();
        let mut entries = Vec::new();
        to_nfs(access, directory, false, &mut entries);
        if let Some(default) = default {
            to_nfs(default, directory, true, &mut entries);
        }
        from_nfs(&entries, directory).unwrap()
    }

    // draft-ietf-nfsv4-acl-mapping-05 §5.
    #[test]
    fn every_mode_survives_the_round_trip() {
        for mode in 0..0o1000 {
            let acl = from_mode(mode);
            assert_eq!(round_trip(&acl, None).access, Some(acl), "{mode:o}");
        }
    }

    #[test]
    fn named_entries_survive_the_round_trip() {
        use PosixAclTag::*;
        let acl = posix(&[
            (UserObject, 6),
            (User(5), 7),
            (User(9), 0),
            (GroupObject, 4),
            (Group(7), 6),
            (Mask, 7),
            (Other, 1),
        ]);
        assert_eq!(round_trip(&acl, None).access, Some(acl.clone()));
        let default =
            posix(&[(UserObject, 7), (User(5), 5), (GroupObject, 5), (Mask, 5), (Other, 0)]);
        let back = round_trip(&acl, Some(&default));
        assert_eq!((back.access, back.default), (Some(acl), Some(default)));
    }

    // RFC 8881 §6.2.1.5.
    #[test]
    fn only_named_groups_have_the_group_flag() {
        use PosixAclTag::*;
        let acl = posix(&[
            (UserObject, 6),
            (User(5), 7),
            (GroupObject, 4),
            (Group(7), 6),
            (Mask, 7),
            (Other, 1),
        ]);
        let mut entries = Vec::new();
        to_nfs(&acl, true, true, &mut entries);
        for entry in &entries {
            let is_named_group = matches!(entry.who, Who::NamedGroup(_));
            assert_eq!(
                entry.flags.contains(AceFlags::IDENTIFIER_GROUP),
                is_named_group,
                "{entry:?}"
            );
        }
        // "The ACE4_IDENTIFIER_GROUP flag MUST be ignored on entries with these special identifiers."
        let mut flagged = Vec::new();
        to_nfs(&acl, true, false, &mut flagged);
        let back = from_nfs(&flagged, true).unwrap();
        flagged
            .iter_mut()
            .filter(|entry| entry.who == Who::Group)
            .for_each(|entry| entry.flags.0 |= AceFlags::IDENTIFIER_GROUP.0);
        assert_eq!(from_nfs(&flagged, true).unwrap(), back);
    }

    #[test]
    fn entry_without_posix_form_is_refused() {
        let entry = |kind, flags| Entry {
            kind,
            flags: AceFlags(flags),
            mask: AceMask(READ),
            who: Who::Everyone,
        };
        assert_eq!(from_nfs(&[entry(AceType::AUDIT, 0)], false), Err(Status::ATTRNOTSUPP));
        assert_eq!(
            from_nfs(&[entry(AceType::ALLOW, AceFlags::NO_PROPAGATE_INHERIT.0 | 3)], true),
            Err(Status::ATTRNOTSUPP)
        );
        assert_eq!(
            from_nfs(&[entry(AceType::ALLOW, AceFlags::FILE_INHERIT.0)], false),
            Err(Status::INVAL)
        );
    }

    // RFC 8881 §6.2.1.
    #[test]
    fn earlier_denial_wins() {
        let everyone = |kind, mask| Entry {
            kind,
            flags: AceFlags(0),
            mask: AceMask(mask),
            who: Who::Everyone,
        };
        let acl = from_nfs(
            &[everyone(AceType::DENY, WRITE), everyone(AceType::ALLOW, READ | WRITE)],
            false,
        )
        .unwrap()
        .access
        .unwrap();
        assert!(acl.entries.iter().all(|entry| entry.permissions == 4), "{acl:?}");
        let user = Entry {
            kind: AceType::DENY,
            flags: AceFlags(0),
            mask: AceMask(READ),
            who: Who::User(8),
        };
        let acl = from_nfs(&[user, everyone(AceType::ALLOW, READ)], false).unwrap().access.unwrap();
        let of = |tag| acl.entries.iter().find(|entry| entry.tag == tag).unwrap().permissions;
        assert_eq!(
            (of(PosixAclTag::User(8)), of(PosixAclTag::UserObject), of(PosixAclTag::Other)),
            (0, 0, 4)
        );
    }
}
