//! Opaque bytes that survive restart, rename and cache eviction.

/// An NFSv4 filehandle (128) less export number and authenticator, with a reserve.
pub const FILE_ID_LEN_MAX: usize = 64;

/// Equal bytes mean the same file; bytes of removed files are never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    len: u8,
    bytes: [u8; FILE_ID_LEN_MAX],
}

impl FileId {
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut id = FileId { len: u8::try_from(bytes.len()).ok()?, bytes: [0; FILE_ID_LEN_MAX] };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Unique on this machine, while the file system is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SystemId(u64);

impl SystemId {
    /// The kernel's file system with this device number.
    pub fn of_device(major: u32, minor: u32) -> Self {
        // Device majors have twelve bits; the highest bits distinguish kinds.
        SystemId((u64::from(major) << 32 | u64::from(minor)) & (KIND - 1))
    }

    /// Major and minor number, if it is the kernel's.
    pub fn device(self) -> Option<(u32, u32)> {
        (self.0 & !(KIND - 1) == 0).then_some(((self.0 >> 32) as u32, self.0 as u32))
    }

    pub fn of_tree(hash: u64) -> Self {
        SystemId(hash & (KIND - 1) | KIND << 1)
    }

    /// The number of a published tree: the same on every server, and its files are never written.
    pub fn tree_number(self) -> Option<u64> {
        (self.0 & !(KIND - 1) == KIND << 1).then_some(self.0 & (KIND - 1))
    }

    pub const UNKNOWN: SystemId = SystemId(u64::MAX);

    pub fn of_covered_directory(self) -> Self {
        SystemId(self.0 | KIND)
    }

    pub fn is_of_covered_directory(self) -> bool {
        self.0 & !(KIND - 1) == KIND
    }

    pub(crate) fn of_memory(number: u64) -> Self {
        SystemId(number | KIND << 1 | KIND)
    }
}

/// The second highest bit; the highest one is set too.
const KIND: u64 = 1 << 62;

/// Two identities denote one file if their systems and their bytes from `own_from` on are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    pub system: SystemId,
    pub own_from: usize,
}

impl std::fmt::Debug for FileId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileId(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trees_have_tree_numbers() {
        assert_eq!(SystemId::of_tree(u64::MAX).tree_number(), Some(KIND - 1));
        assert_eq!(SystemId::of_tree(7).tree_number(), Some(7));
        let device = SystemId::of_device(u32::MAX, u32::MAX);
        for other in
            [device, device.of_covered_directory(), SystemId::of_memory(7), SystemId::UNKNOWN]
        {
            assert_eq!(other.tree_number(), None);
            assert_eq!(other.is_of_covered_directory(), other == device.of_covered_directory());
        }
        assert_eq!(SystemId::of_tree(7).of_covered_directory().tree_number(), None);
    }
}
