//! POSIX ACLs (withdrawn 1003.1e draft 17, as in Linux). The NFS server maps them to NFSv4 ACLs.

/// Kind of ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PosixAclKind {
    Access,
    Default,
}

/// Subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PosixAclTag {
    UserObject,
    User(u32),
    GroupObject,
    Group(u32),
    Mask,
    Other,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PosixAclEntry {
    pub tag: PosixAclTag,
    pub permissions: u8,
}

/// An ACL with its entries in the order of their tags. Empty: there is only the mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixAcl {
    pub entries: Vec<PosixAclEntry>,
}
