use std::any::Any;
use std::fs::File;
use std::sync::Arc;

use crate::{Attributes, Blocking, Result, SystemId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenAccess {
    pub read: bool,
    pub write: bool,
}

/// Required durability of a write before its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    Unstable,
    /// Data, and the metadata needed to read it.
    DataSync,
    /// Data and all attributes.
    FileSync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes; at least 1 unless the data is empty.
    pub len: usize,
    pub stability: Stability,
}

/// A part of a local file that the kernel can send from its page cache without a copy.
#[derive(Clone, Debug)]
pub struct FileSpan {
    pub file: Arc<File>,
    pub offset: u64,
    pub len: usize,
}

pub struct ReadInto<'a> {
    /// Data is appended here unless a span is returned. Capacity is reserved as needed.
    pub bytes: &'a mut Vec<u8>,
    /// The data is sent unmodified, so a [`FileSpan`] may be returned.
    pub span_allowed: bool,
}

#[derive(Debug)]
pub enum Content {
    Bytes { len: usize, eof: bool },
    Span { span: FileSpan, eof: bool },
}

/// RFC 7862 §15.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    Data,
    Hole,
}

/// RFC 7862 §15.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    Normal,
    Sequential,
    Random,
    WillNeed,
    DontNeed,
}

/// An open regular file. Methods use the opener's rights, checked at opening. Closed on drop.
pub trait OpenFile: Send + Sync + Any {
    fn access(&self) -> OpenAccess;

    /// Like `fstat`: no look-up and no rights needed.
    fn attributes(&self) -> Result<Attributes>;

    /// Fewer than `len` bytes only at the end of the file. At or past it: no bytes, `eof`.
    fn read(
        &self,
        offset: u64,
        len: usize,
        into: ReadInto<'_>,
        blocking: Blocking,
    ) -> Result<Content>;

    fn write(
        &self,
        offset: u64,
        data: &[u8],
        stability: Stability,
        blocking: Blocking,
    ) -> Result<Written>;

    /// Makes writes to the range durable; `len` 0 means to the end. A disk error since the last
    /// call is returned once to each open file. [`Error::WouldBlock`](crate::Error::WouldBlock) at
    /// [`Blocking::Forbidden`] unless nothing has to be written.
    fn commit(&self, offset: u64, len: u64, blocking: Blocking) -> Result<()>;

    fn truncate(&self, size: u64) -> Result<()>;

    /// Next data or hole at or after `offset`. [`Error::NoSuchRegion`](crate::Error::NoSuchRegion)
    /// past the end.
    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64>;

    fn allocate(&self, offset: u64, len: u64) -> Result<()>;

    fn deallocate(&self, offset: u64, len: u64) -> Result<()>;

    fn advise(&self, offset: u64, len: u64, advice: Advice);

    /// `from`: an open file of the same file system. Returns 0 only at the end of `from`. May stop
    /// early; the caller repeats the call.
    fn copy_from(
        &self,
        from: &dyn OpenFile,
        from_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<u64>;

    /// Shares the blocks of `from` (in the same file system); `len` 0 means to its end. Atomic.
    fn clone_range(
        &self,
        from: &dyn OpenFile,
        from_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<()>;

    /// Bytes that a close frees if the file has no name. May notice late that others removed the
    /// name.
    fn frees_when_closed(&self) -> u64 {
        0
    }

    /// See [`FileSystem::remote_system`](crate::FileSystem::remote_system). A close may wait too.
    fn remote_system(&self) -> Option<SystemId> {
        None
    }

    fn as_any(&self) -> &dyn Any;
}
