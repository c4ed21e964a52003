//! A segment in memory: bytes that are not durable yet and must be rewritten if a sync fails.

use std::path::Path;

use super::{LogError, WithPath as _};
use crate::merkle::Frontier;
use crate::trail::{Disk, DiskFile, SegmentFile};

pub(super) struct SegmentBuffer {
    pub(super) number: u64,
    pub(super) file: Option<Box<dyn DiskFile>>,
    /// The name may not be durable, or the file has unsynced bytes.
    pub(super) is_name_unsynced: bool,
    pub(super) is_dirty: bool,
    pub(super) pending_offset: u64,
    /// Bytes that may not be durable, and how many of them are written.
    pub(super) pending: Vec<u8>,
    pub(super) written: usize,
    pub(super) tree: Frontier,
    pub(super) begun_ns: u64,
    /// Time of the first unsealed record.
    pub(super) unsealed_ns: Option<u64>,
    pub(super) is_closed: bool,
}

impl SegmentBuffer {
    pub(super) fn len(&self) -> u64 {
        self.pending_offset + self.pending.len() as u64
    }

    pub(super) fn write(&mut self, disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
        if self.written == self.pending.len() {
            return Ok(());
        }
        let path = SegmentFile::open(directory, self.number).path;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(disk.create(&path, false).with_path(&path)?),
        };
        if self.is_name_unsynced {
            disk.sync_dir(directory).with_path(directory)?;
            self.is_name_unsynced = false;
        }
        self.is_dirty = true;
        file.write_at(&self.pending[self.written..], self.pending_offset + self.written as u64)
            .with_path(&path)?;
        self.written = self.pending.len();
        Ok(())
    }

    pub(super) fn sync(&mut self, disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
        self.write(disk, directory)?;
        if let Some(file) = self.file.as_ref().filter(|_| self.is_dirty)
            && let Err(source) = file.sync()
        {
            self.written = 0;
            return Err(LogError::Io {
                path: SegmentFile::open(directory, self.number).path,
                source,
            });
        }
        self.is_dirty = false;
        self.discard_durable();
        Ok(())
    }

    fn discard_durable(&mut self) {
        self.pending_offset += self.written as u64;
        if self.written == self.pending.len() {
            self.pending.clear();
        } else {
            self.pending.drain(..self.written);
        }
        self.written = 0;
    }
}
