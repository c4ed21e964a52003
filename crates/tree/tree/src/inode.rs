//! Metadata as in stat(2), without ctime: it depends on the copy, so equal trees would have
//! different handles.

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::Blob;
use crate::directory::PageRef;

/// PATH_MAX of Linux without the NUL.
pub const SYMLINK_LEN_MAX: usize = 4095;

pub(crate) const MODE_MASK: u16 = 0o7777;

/// Seconds since 1970 (negative before).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub s: i64,
    /// 0 to 999,999,999, after that second.
    pub ns: u32,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are POSIX's own")]
pub enum FileType {
    Regular = 1,
    Directory = 2,
    Symlink = 3,
    Fifo = 4,
    Socket = 5,
    CharDevice = 6,
    BlockDevice = 7,
}

/// A file's attributes, and its content or the way there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Within `07777`.
    pub mode: u16,
    /// Of the publisher's machine.
    pub uid: u32,
    /// Of the publisher's machine.
    pub gid: u32,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Links in the publisher's file system.
    pub nlink: u32,
    /// Shared by the hard links of one file; 0: a single name.
    pub link_group: u64,
    /// An encoded [`crate::xattr::Xattrs`]; empty if there are none.
    pub xattrs: Blob,
    /// By file type.
    pub content: Content,
}

/// Content by file type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A regular file.
    Regular {
        /// Its bytes.
        blob: Blob,
        /// st_blocks × 512, rounded to leaves.
        space: u64,
    },
    /// A directory.
    Directory {
        /// Names in it, without `.` and `..`.
        entries: u64,
        /// Names of directories among them.
        subdirs: u32,
        /// Readdir shows only names that were looked up (SFSRO paper, §3.2).
        opaque: bool,
        /// `None` if the directory is empty.
        top: Option<PageRef>,
    },
    /// The target: any bytes but NUL.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket of the local domain.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

/// The number of a device, in two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are POSIX's own")]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl Inode {
    /// Of root and of 1970, with one name and without xattrs.
    pub fn new(mode: u16, content: Content) -> Self {
        let nlink = if matches!(content, Content::Directory { .. }) { 2 } else { 1 };
        let mtime = Timestamp { s: 0, ns: 0 };
        Self { mode, uid: 0, gid: 0, mtime, nlink, link_group: 0, xattrs: Blob::empty(), content }
    }

    /// Follows from the content.
    pub const fn file_type(&self) -> FileType {
        match self.content {
            Content::Regular { .. } => FileType::Regular,
            Content::Directory { .. } => FileType::Directory,
            Content::Symlink(_) => FileType::Symlink,
            Content::Fifo => FileType::Fifo,
            Content::Socket => FileType::Socket,
            Content::CharDevice(_) => FileType::CharDevice,
            Content::BlockDevice(_) => FileType::BlockDevice,
        }
    }

    /// BLAKE3 of the encoding: the same for an equal inode on every machine.
    pub fn digest(&self) -> [u8; 32] {
        *blake3::hash(&self.to_xdr()).as_bytes()
    }

    /// True of a directory.
    pub const fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory { .. })
    }

    /// st_size. The number of entries of a directory.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Regular { blob, .. } => blob.size,
            Content::Directory { entries, .. } => *entries,
            Content::Symlink(target) => target.len() as u64,
            _ => 0,
        }
    }
}

impl Xdr for Timestamp {
    fn encode(&self, w: &mut Writer) {
        w.i64(self.s);
        w.u32(self.ns);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let (s, ns) = (r.i64()?, r.u32()?);
        if ns >= 1_000_000_000 { Err(XdrError::Invalid("nanoseconds")) } else { Ok(Self { s, ns }) }
    }
}

impl Xdr for Inode {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.file_type() as u32);
        w.u32(self.mode.into());
        w.u32(self.uid);
        w.u32(self.gid);
        self.mtime.encode(w);
        w.u32(self.nlink);
        w.u64(self.link_group);
        w.optional((self.xattrs.size > 0).then_some(&self.xattrs), |w, blob| blob.encode(w));
        match &self.content {
            Content::Regular { blob, space } => {
                blob.encode(w);
                w.u64(*space);
            }
            Content::Directory { entries, subdirs, opaque, top } => {
                w.u64(*entries);
                w.u32(*subdirs);
                w.bool(*opaque);
                w.optional(top.as_ref(), |w, top| top.encode(w));
            }
            Content::Symlink(target) => w.opaque(target),
            Content::Fifo | Content::Socket => {}
            Content::CharDevice(number) | Content::BlockDevice(number) => {
                w.u32(number.major);
                w.u32(number.minor);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let file_type = r.u32()?;
        let mode = u16::try_from(r.u32()?)
            .ok()
            .filter(|m| m & !MODE_MASK == 0)
            .ok_or(XdrError::Invalid("mode"))?;
        let (uid, gid) = (r.u32()?, r.u32()?);
        let mtime = Timestamp::decode(r)?;
        let (nlink, link_group) = (r.u32()?, r.u64()?);
        let xattrs = match r.optional(Blob::decode)? {
            Some(blob) if blob.size == 0 => return Err(XdrError::Invalid("empty xattrs")),
            Some(blob) => blob,
            None => const { Blob::empty() },
        };
        let device = |r: &mut Reader<'_>| {
            Ok::<_, XdrError>(DeviceNumber { major: r.u32()?, minor: r.u32()? })
        };
        let content = match file_type {
            1 => Content::Regular { blob: Blob::decode(r)?, space: r.u64()? },
            2 => Content::Directory {
                entries: r.u64()?,
                subdirs: r.u32()?,
                opaque: r.bool()?,
                top: r.optional(PageRef::decode)?,
            },
            3 => {
                let target = r.opaque(SYMLINK_LEN_MAX)?;
                if target.is_empty() || target.contains(&0) {
                    return Err(XdrError::Invalid("symlink target"));
                }
                Content::Symlink(target.to_vec())
            }
            4 => Content::Fifo,
            5 => Content::Socket,
            6 => Content::CharDevice(device(r)?),
            7 => Content::BlockDevice(device(r)?),
            value => return Err(XdrError::Unknown { what: "file type", value }),
        };
        if let Content::Directory { entries, top, .. } = &content
            && (*entries == 0) != top.is_none()
        {
            return Err(XdrError::Invalid("directory without its page"));
        }
        Ok(Self { mode, uid, gid, mtime, nlink, link_group, xattrs, content })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_handle() -> impl Strategy<Value = crate::BlockHandle> {
        any::<[u8; 32]>().prop_map(crate::BlockHandle::from_bytes)
    }

    fn any_blob() -> impl Strategy<Value = Blob> {
        use crate::blob::{BlobBody, depth_for};
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..=40)
                .prop_map(|b| Blob { size: b.len() as u64, body: BlobBody::Inline(b) }),
            (1025u64..=i64::MAX as u64).prop_map(|size| Blob { size, body: BlobBody::Hole }),
            (1025u64..=1 << 60, any_handle()).prop_map(|(size, top)| match depth_for(size) {
                0 => Blob { size, body: BlobBody::Leaf(top) },
                depth => Blob { size, body: BlobBody::Tree { depth, top } },
            }),
        ]
    }

    pub(crate) fn any_inode() -> impl Strategy<Value = Inode> {
        let content = prop_oneof![
            (any_blob(), any::<u64>()).prop_map(|(blob, space)| Content::Regular { blob, space }),
            (1u64.., any::<u32>(), any::<bool>(), any_handle()).prop_map(
                |(entries, subdirs, opaque, handle)| Content::Directory {
                    entries,
                    subdirs,
                    opaque,
                    top: Some(PageRef { height: 0, handle })
                }
            ),
            Just(Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None }),
            proptest::collection::vec(1u8.., 1..100).prop_map(Content::Symlink),
            Just(Content::Fifo),
            Just(Content::Socket),
            any::<[u32; 2]>()
                .prop_map(|[major, minor]| Content::BlockDevice(DeviceNumber { major, minor })),
        ];
        (
            0u16..=MODE_MASK,
            any::<[u32; 3]>(),
            any::<i64>(),
            0u32..1_000_000_000,
            any::<u64>(),
            any_blob(),
            content,
        )
            .prop_map(|(mode, [uid, gid, nlink], s, ns, link_group, xattrs, content)| {
                Inode {
                    mode,
                    uid,
                    gid,
                    mtime: Timestamp { s, ns },
                    nlink,
                    link_group,
                    xattrs,
                    content,
                }
            })
    }

    #[test]
    fn refuses_explicit_empty_xattrs() {
        let inode = Inode::new(0o644, Content::Fifo);
        let mut bytes = inode.to_xdr();
        // Skips the presence flag of the xattrs: an empty inline blob is 16 zero bytes.
        let end = bytes.len();
        bytes[end - 1] = 1;
        bytes.extend([0; 16]);
        assert_eq!(Inode::from_xdr(&bytes), Err(XdrError::Invalid("empty xattrs")));
    }

    proptest! {
        #[test]
        fn round_trips_inodes(inode in any_inode()) {
            prop_assert_eq!(Inode::from_xdr(&inode.to_xdr()).unwrap(), inode);
        }
    }
}
