//! POSIX ACLs (withdrawn 1003.1e draft 17, as in Linux). The NFS server maps them to NFSv4 ACLs.

/// Kind of ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PosixAclKind {
    /// Access ACL.
    Access,
    /// Default ACL, inherited by new files.
    Default,
}

/// Subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PosixAclTag {
    /// The file's owner.
    UserObject,
    /// A named user.
    User(u32),
    /// The file's group.
    GroupObject,
    /// A named group.
    Group(u32),
    /// Upper bound for all but owner and others.
    Mask,
    /// All others.
    Other,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PosixAclEntry {
    /// Subject.
    pub tag: PosixAclTag,
    /// Read 4, write 2, execute 1.
    pub permissions: u8,
}

/// An ACL with its entries in the order of their tags. Empty: there is only the mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixAcl {
    /// Entries, sorted.
    pub entries: Vec<PosixAclEntry>,
}
