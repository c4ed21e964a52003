//! Identity of a file within its file system: opaque bytes that outlive restart, rename and eviction from every cache.

/// Longest [`FileId`], bytes: what an NFSv4 filehandle (128) leaves once the export's number and the authenticator are in it, with room to spare.
pub const FILE_ID_LEN_MAX: usize = 64;

/// A file's identity within one file system. Equal bytes are the same file for as long as it exists; no file ever gets the bytes of one that was
/// removed.
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

impl std::fmt::Debug for FileId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileId(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}
