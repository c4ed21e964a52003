use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub groups: Arc<[u32]>,
}

impl Caller {
    pub fn new(uid: u32, gid: u32, groups: impl IntoIterator<Item = u32>) -> Self {
        let mut groups: Vec<u32> = groups.into_iter().collect();
        groups.sort_unstable();
        groups.dedup();
        Caller { uid, gid, groups: groups.into() }
    }

    pub fn root() -> Self {
        Caller::new(0, 0, [])
    }

    /// O(log n) in supplementary groups.
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
    }
}

/// Numbered as in RFC 8881 §18.1, and RFC 8276 §8.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    pub const READ: Access = Access(0x01);
    pub const LOOKUP: Access = Access(0x02);
    /// Rewrite data, or change a directory's entries.
    pub const MODIFY: Access = Access(0x04);
    pub const EXTEND: Access = Access(0x08);
    pub const DELETE: Access = Access(0x10);
    pub const EXECUTE: Access = Access(0x20);
    pub const XATTR_READ: Access = Access(0x40);
    pub const XATTR_WRITE: Access = Access(0x80);
    pub const XATTR_LIST: Access = Access(0x100);

    pub fn has(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Access {
    type Output = Access;
    fn bitand(self, other: Access) -> Access {
        Access(self.0 & other.0)
    }
}
