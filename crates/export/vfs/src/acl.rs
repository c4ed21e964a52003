//! POSIX ACLs (withdrawn 1003.1e draft 17, as in Linux).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PosixAclKind {
    Access,
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PosixAclTag {
    UserObject,
    User(u32),
    GroupObject,
    Group(u32),
    Mask,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PosixAclEntry {
    pub tag: PosixAclTag,
    pub permissions: u8,
}

/// Sorted by tag. Empty if the file has only a mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixAcl {
    pub entries: Vec<PosixAclEntry>,
}
