use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::fs::{self, SeekFrom};
use rustix::io::{self, Errno, ReadWriteFlags};
use vouch_vfs::{Error, Result, Stability};

use super::PosixOpen;
use crate::identity;
use crate::io_mode::{IoMode, UNCACHED};
use crate::node::Changing;
use crate::quota::usage::Reserved;

impl PosixOpen {
    /// The opener's privilege level decides on quotas, reserved blocks and set-id bits.
    pub(super) fn writing(&self) -> Result<Changing<'_>> {
        if !self.access.write {
            return Err(Error::Access);
        }
        self.inner.changeable()?;
        identity::assume_privileges(&self.caller)?;
        Ok(self.node.changing())
    }

    pub(super) fn write_at(
        &self,
        offset: u64,
        data: &[u8],
        stability: Stability,
        file: BorrowedFd<'_>,
    ) -> std::result::Result<usize, Errno> {
        let flags = match stability {
            Stability::Unstable => ReadWriteFlags::empty(),
            Stability::DataSync => ReadWriteFlags::DSYNC,
            Stability::FileSync => ReadWriteFlags::DSYNC | ReadWriteFlags::SYNC,
        };
        let mode = self.io_mode();
        if mode.is_direct(offset, data.len())
            && let Some(written) = self.direct.write(self.direct_of(), offset, data, flags)
        {
            return written;
        }
        let parts = [IoSlice::new(data)];
        if mode != IoMode::Buffered {
            match io::pwritev2(file, &parts, offset, flags | UNCACHED) {
                // The file system lacks uncached writes.
                Err(Errno::OPNOTSUPP) => {}
                written => return written,
            }
        }
        io::pwritev2(file, &parts, offset, flags)
    }

    /// Of a quota that the server counts: as much as is left, unless the range has its space
    /// already. Make it before [`Self::writing`], so that it ends after the change is counted.
    pub(super) fn reserve(&self, offset: u64, len: u64) -> Result<Reserved<'_>> {
        let reserved = self.node.mount.usage.reserve(len);
        if reserved.len == len {
            return Ok(reserved);
        }
        let hole = fs::seek(&self.file, SeekFrom::Hole(offset));
        if hole.is_ok_and(|hole| hole - offset >= len) {
            return Ok(Reserved::nothing(len));
        }
        if reserved.len == 0 { Err(Error::Quota) } else { Ok(reserved) }
    }

    pub(super) fn reserve_all(&self, offset: u64, len: u64) -> Result<Reserved<'_>> {
        let reserved = self.reserve(offset, len)?;
        if reserved.len < len { Err(Error::Quota) } else { Ok(reserved) }
    }
}
