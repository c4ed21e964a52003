//! Use of the page cache for file data, by the modes that the kernel's server has too.

use std::cell::RefCell;

use rustix::io::ReadWriteFlags;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IoMode {
    #[default]
    Buffered,
    /// Data leaves the page cache when it is sent or on disk.
    Uncached,
    /// Aligned reads and writes of at least this many bytes bypass the page cache. All others are
    /// uncached.
    Direct { len_min: u32 },
}

/// RWF_DONTCACHE of Linux 6.14, which rustix lacks.
pub(crate) const UNCACHED: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Of offset, length and memory: enough for all common disks.
const ALIGNMENT: usize = 4096;

thread_local! {
    /// Messages are not aligned.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl IoMode {
    pub(crate) fn is_direct(self, offset: u64, len: usize) -> bool {
        let is_aligned = offset.is_multiple_of(ALIGNMENT as u64) && len.is_multiple_of(ALIGNMENT);
        matches!(self, IoMode::Direct { len_min } if len >= len_min as usize) && is_aligned
    }
}

pub(crate) fn with_aligned<T>(len: usize, act: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len + ALIGNMENT {
            *buffer = vec![0; len + ALIGNMENT];
        }
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        act(&mut buffer[start..start + len])
    })
}
