//! Frames on disk (soon).

use std::path::PathBuf;

use bytes::Bytes;
use vouch_tree::BlockHandle;

/// Where frames are kept on disk, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// The directory; made when missing. Several processes may share it.
    pub dir: PathBuf,
    /// The most that its files may occupy.
    pub quota_bytes: u64,
}

pub(crate) struct DiskCache {}

impl DiskCache {
    pub(crate) fn open(_: &DiskCacheOptions) -> std::io::Result<Self> {
        Ok(Self {})
    }
    pub(crate) fn get(&self, _: &BlockHandle) -> Option<Vec<u8>> {
        None
    }
    pub(crate) fn contains(&self, _: &BlockHandle) -> bool {
        false
    }
    pub(crate) fn put(&self, _: &BlockHandle, _: Bytes) {}
    pub(crate) fn forget(&self, _: &BlockHandle) {}
    pub(crate) async fn flush(&self) {}
    pub(crate) fn used_bytes(&self) -> u64 {
        0
    }
    pub(crate) fn quota_bytes(&self) -> u64 {
        0
    }
}
