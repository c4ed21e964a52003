use vouch_nfs4::{AceFlags, AceType, Status};
use vouch_vfs::{PosixAcl, PosixAclEntry, PosixAclTag};

use super::{EXECUTE, Entry, INHERIT, READ, WRITE, Who, check};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Posix {
    pub(crate) access: Option<PosixAcl>,
    pub(crate) default: Option<PosixAcl>,
}

pub(crate) fn from_nfs(entries: &[Entry], directory: bool) -> Result<Posix, Status> {
    let (mut access, mut default) = (Classes::default(), Classes::default());
    for entry in entries {
        check(entry, directory)?;
        if entry
            .flags
            .intersects(AceFlags(AceFlags::FILE_INHERIT.0 | AceFlags::DIRECTORY_INHERIT.0))
        {
            default.take(entry);
        }
        if entry.flags.0 & INHERIT == 0 || !entry.flags.contains(AceFlags::INHERIT_ONLY) {
            access.take(entry);
        }
    }
    if default.seen {
        if !default.owner_seen {
            default.owner = access.owner;
        }
        if !default.group_seen {
            default.group = access.group;
        }
        if !default.other_seen {
            default.other = access.other;
        }
    }
    Ok(Posix {
        access: access.seen.then(|| access.posix()),
        default: default.seen.then(|| default.posix()),
    })
}

/// The first entry that names a bit decides it.
#[derive(Clone, Copy, Default)]
struct Bits {
    allowed: u32,
    denied: u32,
}

#[derive(Default)]
struct Classes {
    owner: Bits,
    group: Bits,
    other: Bits,
    /// Start values of a name that appears later.
    everyone: Bits,
    users: Vec<(u32, Bits)>,
    groups: Vec<(u32, Bits)>,
    seen: bool,
    owner_seen: bool,
    group_seen: bool,
    other_seen: bool,
}

impl Bits {
    fn allow(&mut self, mask: u32) {
        self.allowed |= mask & !self.denied;
    }

    fn deny(&mut self, mask: u32) {
        self.denied |= mask & !self.allowed;
    }

    fn permissions(self) -> u8 {
        let has = |bits: u32, value: u8| if self.allowed & bits == bits { value } else { 0 };
        has(READ, 4) | has(WRITE, 2) | has(EXECUTE, 1)
    }
}

impl Classes {
    fn take(&mut self, entry: &Entry) {
        let (mask, allows) = (entry.mask.0, entry.kind == AceType::ALLOW);
        self.seen = true;
        match entry.who {
            Who::Owner => {
                self.owner_seen = true;
                if allows { self.owner.allow(mask) } else { self.owner.deny(mask) }
            }
            Who::User(id) => {
                let user = named(&mut self.users, id, self.everyone);
                if allows {
                    user.allow(mask);
                } else {
                    user.deny(mask);
                    // The owner may be this user.
                    let denied = user.denied;
                    self.owner.deny(denied);
                }
            }
            Who::Group => {
                self.group_seen = true;
                if allows {
                    self.group.allow(mask);
                } else {
                    self.group.deny(mask);
                    // Any user may be in the group.
                    let denied = self.group.denied;
                    self.owner.deny(denied);
                    self.everyone.deny(denied);
                    self.all_named(|bits| bits.deny(denied));
                }
            }
            Who::NamedGroup(id) => {
                let group = named(&mut self.groups, id, self.everyone);
                if allows {
                    group.allow(mask);
                } else {
                    group.deny(mask);
                    let denied = group.denied;
                    self.owner.deny(denied);
                    self.group.deny(denied);
                    self.everyone.deny(denied);
                    self.all_named(|bits| bits.deny(denied));
                }
            }
            Who::Everyone => {
                self.other_seen = true;
                let decide =
                    |bits: &mut Bits| if allows { bits.allow(mask) } else { bits.deny(mask) };
                decide(&mut self.owner);
                decide(&mut self.group);
                decide(&mut self.other);
                decide(&mut self.everyone);
                self.all_named(decide);
            }
        }
    }

    fn all_named(&mut self, mut each: impl FnMut(&mut Bits)) {
        self.users.iter_mut().chain(&mut self.groups).for_each(|(_, bits)| each(bits));
    }

    fn posix(&self) -> PosixAcl {
        let entry = |tag, bits: Bits| PosixAclEntry { tag, permissions: bits.permissions() };
        let mut entries = vec![entry(PosixAclTag::UserObject, self.owner)];
        entries.extend(self.users.iter().map(|&(id, bits)| entry(PosixAclTag::User(id), bits)));
        entries.push(entry(PosixAclTag::GroupObject, self.group));
        entries.extend(self.groups.iter().map(|&(id, bits)| entry(PosixAclTag::Group(id), bits)));
        if !self.users.is_empty() || !self.groups.is_empty() {
            let all = entries[1..].iter().fold(0, |all, entry| all | entry.permissions);
            entries.push(PosixAclEntry { tag: PosixAclTag::Mask, permissions: all });
        }
        entries.push(entry(PosixAclTag::Other, self.other));
        entries.sort();
        PosixAcl { entries }
    }
}

fn named(list: &mut Vec<(u32, Bits)>, id: u32, start: Bits) -> &mut Bits {
    let at = match list.iter().position(|&(known, _)| known == id) {
        Some(at) => at,
        None => {
            list.push((id, start));
            list.len() - 1
        }
    };
    &mut list[at].1
}
