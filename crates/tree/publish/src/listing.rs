use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{RawDir, SeekFrom};

use crate::error::FileError;

#[derive(Debug, Default)]
pub(crate) struct Listing {
    bytes: Vec<u8>,
    /// Offset << 8 | length, in order.
    names: Vec<u64>,
}

impl Listing {
    pub(crate) fn read(dir: BorrowedFd<'_>) -> Result<Self, FileError> {
        let mut listing = Self::default();
        rustix::fs::seek(dir, SeekFrom::Start(0))
            .map_err(FileError::system("list the directory"))?;
        BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            buffer.reserve_exact(BUFFER_LEN);
            let mut entries = RawDir::new(dir, spare(buffer));
            while let Some(entry) = entries.next() {
                let entry = entry.map_err(FileError::system("list the directory"))?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    listing.push(name)?;
                }
            }
            Ok::<_, FileError>(())
        })?;
        let bytes = &listing.bytes;
        listing.names.sort_unstable_by(|a, b| name(bytes, *a).cmp(name(bytes, *b)));
        // Some file systems list a name twice during changes.
        listing.names.dedup_by(|a, b| name(bytes, *a) == name(bytes, *b));
        listing.bytes.shrink_to_fit();
        listing.names.shrink_to_fit();
        Ok(listing)
    }

    fn push(&mut self, name: &[u8]) -> Result<(), FileError> {
        if name.is_empty()
            || name.len() > vouch_tree::name::FILE_NAME_LEN_MAX
            || name.contains(&b'/')
        {
            return Err(FileError::Unsupported(
                "holds a name that is longer than 255 bytes or has a '/'",
            ));
        }
        self.names.push((self.bytes.len() as u64) << 8 | name.len() as u64);
        self.bytes.extend_from_slice(name);
        Ok(())
    }

    pub(crate) fn retain(&mut self, is_kept: impl Fn(&[u8]) -> bool) {
        let bytes = &self.bytes;
        self.names.retain(|at| is_kept(name(bytes, *at)));
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, index: usize) -> &[u8] {
        name(&self.bytes, self.names[index])
    }

    pub(crate) fn contains(&self, wanted: &[u8]) -> bool {
        self.names.binary_search_by(|at| name(&self.bytes, *at).cmp(wanted)).is_ok()
    }
}

fn name(bytes: &[u8], at: u64) -> &[u8] {
    let start = (at >> 8) as usize;
    &bytes[start..start + (at & 0xff) as usize]
}

fn spare(buffer: &mut Vec<u8>) -> &mut [MaybeUninit<u8>] {
    buffer.spare_capacity_mut()
}

/// One system call returns some thousand names.
const BUFFER_LEN: usize = 128 * 1024;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
