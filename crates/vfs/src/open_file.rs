//! An open file: its data.

use std::any::Any;
use std::fs::File;
use std::sync::Arc;

use crate::{Attributes, Patience, Result};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenAccess {
    /// Data may be read.
    pub read: bool,
    /// Data may be written.
    pub write: bool,
}

/// How durable a write is before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// In memory.
    Unstable,
    /// Data, and what is needed to find it again, on disk.
    DataSync,
    /// Data and all attributes on disk.
    FileSync,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes written, from the start of what was given; at least 1 of 1 or more.
    pub len: usize,
    /// How durable they are: at least what was asked.
    pub stability: Stability,
}

/// A range of a local file that can be sent from the kernel's page cache without a copy. The file
/// stays open as long as the span lives.
#[derive(Clone, Debug)]
pub struct FileSpan {
    /// The file.
    pub file: Arc<File>,
    /// First byte.
    pub offset: u64,
    /// Bytes; all lay within the file when the span was made.
    pub len: usize,
}

/// Where a read may put its data.
pub struct ReadInto<'a> {
    /// The data is appended here, unless a span is returned. Capacity that is there is used; more
    /// is reserved as needed.
    pub bytes: &'a mut Vec<u8>,
    /// Whether a [`FileSpan`] may be returned instead: the data goes to the network as it is.
    pub span_allowed: bool,
}

/// What a read found.
#[derive(Debug)]
pub enum Content {
    /// So many bytes were appended to [`ReadInto::bytes`].
    Bytes {
        /// Bytes appended.
        len: usize,
        /// Whether the file ends with them.
        eof: bool,
    },
    /// The data is this range of a file.
    Span {
        /// The range.
        span: FileSpan,
        /// Whether the file ends with it.
        eof: bool,
    },
}

/// What SEEK looks for (RFC 7862, section 15.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// Data.
    Data,
    /// A hole; the end of the file counts as one.
    Hole,
}

/// Hints of RFC 7862, section 15.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No special pattern.
    Normal,
    /// From start to end.
    Sequential,
    /// Without order.
    Random,
    /// Soon.
    WillNeed,
    /// Not soon.
    DontNeed,
}

/// An open regular file. Rights were checked when it was opened; its methods act with those of the
/// opening, whoever calls. Closed on drop.
pub trait OpenFile: Send + Sync + Any {
    /// For what it is open.
    fn access(&self) -> OpenAccess;

    /// Attributes now. As `fstat`: costs no walk and no rights.
    fn attributes(&self) -> Result<Attributes>;

    /// Reads up to `len` bytes from `offset`; fewer only at the end of the file. At or past the
    /// end: no bytes, `eof`.
    fn read(&self, offset: u64, len: usize, into: ReadInto<'_>, patience: Patience) -> Result<Content>;

    /// Writes `data` at `offset`, durable as `stability` asks before it returns.
    fn write(&self, offset: u64, data: &[u8], stability: Stability, patience: Patience) -> Result<Written>;

    /// Makes what was written to the range durable; `len` 0 means to the end. A failure of the disk
    /// since the last call is returned once to each open file.
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) at [`Patience::None`] unless nothing has to
    /// be waited for.
    fn commit(&self, offset: u64, len: u64, patience: Patience) -> Result<()>;

    /// Sets the size.
    fn truncate(&self, size: u64) -> Result<()>;

    /// Where the next data or hole at or after `offset` starts.
    /// [`Error::NoSuchRegion`](crate::Error::NoSuchRegion) past the end.
    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64>;

    /// Reserves space for the range, and extends the file to hold it.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Makes the range a hole; the size stays.
    fn deallocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Takes a hint. Never fails.
    fn advise(&self, offset: u64, len: u64, advice: Advice);

    /// Copies up to `len` bytes of `from` (an open file of the same file system) here, and returns
    /// how many; 0 only at the end of `from`. May stop early, to let the caller look round: it
    /// is called again.
    fn copy_from(&self, from: &dyn OpenFile, from_offset: u64, offset: u64, len: u64) -> Result<u64>;

    /// Shares the blocks of `from` (of the same file system) with this file; `len` 0 means to its
    /// end. Atomic.
    fn clone_range(&self, from: &dyn OpenFile, from_offset: u64, offset: u64, len: u64) -> Result<()>;

    /// Bytes that go with the file when this is closed, if it has no name any more. Costs next to
    /// nothing for one that has; a name that others took away may be noticed late.
    fn frees_when_closed(&self) -> u64 {
        0
    }

    /// For a file system to know its own open files again.
    fn as_any(&self) -> &dyn Any;
}
