use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use pyo3::prelude::*;
use vouch_tree::{BlobBody, Content, FileType, Inode};

/// Attributes of a file, as `lstat` shows them.
#[pyclass(frozen, get_all, module = "vouch")]
pub(crate) struct Stat {
    /// From the root of the tree, without a leading slash; the root is empty.
    path: OsString,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `character device` or `block device`.
    r#type: &'static str,
    /// Permission bits and the bits of the type, as `st_mode`.
    mode: u32,
    /// Bytes of a file; number of names in a directory.
    size: u64,
    /// Nanoseconds since 1970.
    mtime_ns: i128,
    uid: u32,
    gid: u32,
    nlink: u32,
    /// Of a symbolic link.
    target: Option<OsString>,
    /// Equal for equal content of one tree; `None` unless it is a regular file.
    content_id: Option<String>,
}

#[pymethods]
impl Stat {
    /// The last part of the path.
    #[getter]
    fn name(&self) -> OsString {
        let bytes = self.path.as_bytes();
        text_of(bytes.rsplit(|&b| b == b'/').next().unwrap_or(bytes))
    }

    fn __repr__(&self) -> String {
        format!("<vouch.Stat {:?} {} {} bytes>", self.path, self.r#type, self.size)
    }
}

impl Stat {
    pub(crate) fn new(path: &[u8], inode: &Inode) -> Self {
        let (name, bits) = match inode.file_type() {
            FileType::Regular => ("file", 0o100_000),
            FileType::Directory => ("directory", 0o040_000),
            FileType::Symlink => ("symlink", 0o120_000),
            FileType::Fifo => ("fifo", 0o010_000),
            FileType::Socket => ("socket", 0o140_000),
            FileType::CharDevice => ("character device", 0o020_000),
            FileType::BlockDevice => ("block device", 0o060_000),
        };
        let target = match &inode.content {
            Content::Symlink(target) => Some(text_of(target)),
            _ => None,
        };
        let content_id = match &inode.content {
            Content::Regular { blob, .. } => Some(match &blob.body {
                BlobBody::Inline(bytes) => format!("inline-{}", hex(bytes)),
                BlobBody::Hole => format!("hole-{}", blob.size),
                BlobBody::Leaf(handle) => handle.to_string(),
                BlobBody::Tree { top, .. } => top.to_string(),
            }),
            _ => None,
        };
        Self {
            path: text_of(path),
            r#type: name,
            mode: bits | u32::from(inode.mode),
            size: inode.size(),
            mtime_ns: i128::from(inode.mtime.s) * 1_000_000_000 + i128::from(inode.mtime.ns),
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            target,
            content_id,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A str with surrogate escapes, as those of `os.fsdecode`.
pub(crate) fn text_of(path: &[u8]) -> OsString {
    OsString::from_vec(path.to_vec())
}

/// A leading slash is the root of the tree.
pub(crate) fn bytes_of(path: PathBuf) -> Vec<u8> {
    path.into_os_string().into_vec()
}
