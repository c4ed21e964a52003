//! POSIX ACLs (withdrawn 1003.1e draft 17, as Linux has them), in values; how NFSv4 ACLs map to
//! them is the server's matter.

/// Which of a file's two ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PosixAclKind {
    /// Decides on access.
    Access,
    /// Inherited by what is made in the directory.
    Default,
}

/// Whom an entry is about.
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
    /// Everybody else.
    Other,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PosixAclEntry {
    /// Whom it is about.
    pub tag: PosixAclTag,
    /// Read 4, write 2, execute 1.
    pub permissions: u8,
}

/// An ACL: its entries in the order of their tags. Empty means that there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixAcl {
    /// Entries, sorted.
    pub entries: Vec<PosixAclEntry>,
}
