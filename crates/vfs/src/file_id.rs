//! Identity of a file within its file system: opaque bytes that outlive restart, rename and
//! eviction from every cache.

/// Longest [`FileId`], bytes: what an NFSv4 filehandle (128) leaves once the export's number and
/// the authenticator are in it, with room to spare.
pub const FILE_ID_LEN_MAX: usize = 64;

/// A file's identity within one file system. Equal bytes are the same file for as long as it
/// exists; no file ever gets the bytes of one that was removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    len: u8,
    bytes: [u8; FILE_ID_LEN_MAX],
}

impl FileId {
    /// The identity with these bytes; none if there are more than [`FILE_ID_LEN_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut id = FileId { len: u8::try_from(bytes.len()).ok()?, bytes: [0; FILE_ID_LEN_MAX] };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A file system of this machine, as long as anything of it is open: two that are exported apart
/// and are one have one number, and no others have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SystemId(u64);

impl SystemId {
    /// The kernel's file system with this device number.
    pub fn of_device(major: u32, minor: u32) -> Self {
        // Majors have twelve bits: the highest ones tell the kinds apart.
        SystemId((u64::from(major) << 32 | u64::from(minor)) & (KIND - 1))
    }

    /// A published tree, by a hash of what identifies it.
    pub fn of_tree(hash: u64) -> Self {
        SystemId(hash & (KIND - 1) | KIND << 1)
    }

    /// One that could not be found.
    pub const UNKNOWN: SystemId = SystemId(u64::MAX);

    /// Another part of a file system, whose identities are of another kind than the rest.
    pub fn apart(self) -> Self {
        SystemId(self.0 | KIND)
    }

    /// One in memory, by its number in this process.
    pub(crate) fn of_memory(number: u64) -> Self {
        SystemId(number | KIND << 1 | KIND)
    }
}

/// The second highest bit; the highest is above it.
const KIND: u64 = 1 << 62;

/// Where a file lies, by whatever export it is reached: two identities, of the same
/// [`FileSystem`](crate::FileSystem) or of different ones, are of one file if the systems are equal
/// and so are the bytes from `own_from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The file system.
    pub system: SystemId,
    /// How many leading bytes of the identity only say how the file was reached.
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
