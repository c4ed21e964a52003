//! Non-blocking reads, spans for sendfile, and writes with the opener's rights.

use std::any::Any;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{self, AtFlags, FallocateFlags, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use unbuffered::{DirectFile, read_uncached};
use vouch_vfs::rights::EXECUTE;
use vouch_vfs::{
    AccessOverride, Advice, Attributes, Blocking, Caller, Content, Error, FileSpan, FileType,
    OpenAccess, OpenFile, ReadInto, Result, SeekTarget, Stability, SystemId, Written, mutant,
};

use crate::attributes::stat;
use crate::errno::{OrError, error};
use crate::export::Inner;
use crate::ffi::ReadHow;
use crate::io_mode::IoMode;
use crate::names::access_flags;
use crate::node::Node;
use crate::read_order::ReadOrder;
use crate::{access, ffi, identity};

/// Below it, a copy is cheaper than a check of the page cache plus sendfile.
const SPAN_LEN_MIN: usize = 16 << 10;

/// By one call.
const COPY_LEN_MAX: u64 = 8 << 20;

const PAGE_LEN: u64 = 4096;

pub(crate) struct PosixOpen {
    inner: Arc<Inner>,
    pub(crate) node: Arc<Node>,
    pub(crate) file: Arc<File>,
    access: OpenAccess,
    caller: Caller,
    /// For a sync by this descriptor. The system reports lost data once for each descriptor, so
    /// concurrent syncs need their own.
    syncing: Mutex<()>,
    order: ReadOrder,
    direct: DirectFile,
}

enum SyncDescriptor<'a> {
    Shared(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>),
    Own(OwnedFd),
}

impl Inner {
    pub(crate) fn open_node(
        self: &Arc<Self>,
        caller: &Caller,
        node: &Arc<Node>,
        access: OpenAccess,
        access_override: AccessOverride,
        truncate: bool,
    ) -> Result<Arc<dyn OpenFile>> {
        match node.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            FileType::Symlink => return Err(Error::IsSymlink),
            _ => return Err(Error::WrongType),
        }
        if access.write || truncate {
            self.changeable()?;
        }
        let flags = access_flags(access) | if truncate { OFlags::TRUNC } else { OFlags::empty() };
        identity::assume(caller)?;
        let opened = match self.reopen(node.as_fd(), flags) {
            Err(Errno::ACCESS) if self.may_open(caller, node, access, access_override)? => {
                let _as_root = identity::assume_root()?;
                self.reopen(node.as_fd(), flags)
            }
            opened => opened,
        };
        if truncate {
            node.note_change();
        }
        Ok(PosixOpen::begin(self, Arc::clone(node), opened.or_error()?, access, caller))
    }

    fn may_open(
        &self,
        caller: &Caller,
        node: &Node,
        access: OpenAccess,
        access_override: AccessOverride,
    ) -> Result<bool> {
        Ok(access_override == AccessOverride::Proven
            || access_override == AccessOverride::Owner
                && stat(node.as_fd()).or_error()?.stx_uid == caller.uid
            || access_override >= AccessOverride::Execute
                && !access.write
                && access::may(node, EXECUTE)?)
    }
}

impl PosixOpen {
    pub(crate) fn begin(
        inner: &Arc<Inner>,
        node: Arc<Node>,
        fd: OwnedFd,
        access: OpenAccess,
        caller: &Caller,
    ) -> Arc<dyn OpenFile> {
        inner.nodes.opened(&node);
        Arc::new(PosixOpen {
            inner: Arc::clone(inner),
            node,
            file: Arc::new(fd.into()),
            access,
            caller: caller.clone(),
            syncing: Mutex::new(()),
            order: ReadOrder::default(),
            direct: DirectFile::default(),
        })
    }

    /// Direct and uncached only where nobody but the disk keeps the data.
    fn io_mode(&self) -> IoMode {
        let mount = &self.node.mount;
        if mount.in_memory || mount.is_remote {
            IoMode::Buffered
        } else {
            self.inner.options.io_mode
        }
    }

    fn direct_of(&self) -> (&Inner, &Node, OFlags) {
        (&self.inner, &self.node, access_flags(self.access))
    }

    fn require_local(&self, blocking: Blocking) -> Result<()> {
        if blocking == Blocking::Forbidden && self.node.mount.is_remote {
            Err(Error::WouldBlock)
        } else {
            Ok(())
        }
    }

    /// For an exclusive sync. A fresh descriptor reports only losses from now on; the other reports
    /// earlier ones.
    fn sync_descriptor(&self) -> Result<SyncDescriptor<'_>> {
        if let Some(turn) = self.syncing.try_lock() {
            return Ok(SyncDescriptor::Shared(turn));
        }
        let _as_root = identity::assume_root()?;
        Ok(match self.inner.reopen(self.node.as_fd(), access_flags(self.access)) {
            Ok(own) => SyncDescriptor::Own(own),
            // An ordinary user may be unable to reopen the file.
            Err(_) => SyncDescriptor::Shared(self.syncing.lock()),
        })
    }

    fn descriptor<'a>(&'a self, sync_descriptor: &'a SyncDescriptor<'_>) -> BorrowedFd<'a> {
        match sync_descriptor {
            SyncDescriptor::Shared(_) => self.file.as_fd(),
            SyncDescriptor::Own(own) => own.as_fd(),
        }
    }

    /// In the page cache, to send from there; none if short, empty or not cached.
    fn span(
        &self,
        offset: u64,
        len: usize,
        size: u64,
        blocking: Blocking,
    ) -> Result<Option<Content>> {
        let len = size.saturating_sub(offset).min(len as u64);
        if len < SPAN_LEN_MIN as u64 {
            return Ok(None);
        }
        if !self.node.mount.in_memory && !self.is_cached(offset, len)? {
            return if blocking == Blocking::Forbidden { Err(Error::WouldBlock) } else { Ok(None) };
        }
        let span = FileSpan { file: Arc::clone(&self.file), offset, len: len as usize };
        Ok(Some(Content::Span { span, eof: offset + len == size }))
    }

    fn is_cached(&self, offset: u64, len: u64) -> Result<bool> {
        let pages = (offset + len).div_ceil(PAGE_LEN) - offset / PAGE_LEN;
        let ask = || ffi::cached_pages(self.file.as_fd(), offset, len);
        let cached = match ask() {
            // The kernel answers only those who may write the file.
            Err(Errno::PERM) => {
                let _as_root = identity::assume_root()?;
                ask()
            }
            cached => cached,
        };
        match cached {
            Ok(cached) => Ok(cached >= pages),
            // An old kernel: check both ends.
            Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => {
                Ok(self.is_cached_at(offset) && self.is_cached_at(offset + len - 1))
            }
            Err(errno) => Err(error(errno)),
        }
    }

    fn is_cached_at(&self, offset: u64) -> bool {
        ffi::read_at(self.file.as_fd(), offset, 1, false, ReadHow::Now, &mut Vec::new())
            .is_ok_and(|read| read.0 == 1)
    }

    fn read_cached(&self, offset: u64, len: usize, bytes: &mut Vec<u8>) -> Result<Content> {
        let start = bytes.len();
        let (read, more) =
            match ffi::read_at(self.file.as_fd(), offset, len, true, ReadHow::Now, bytes) {
                Ok(read) => read,
                Err(Errno::OPNOTSUPP) => {
                    self.node.mount.may_read_cached.store(false, Ordering::Relaxed);
                    return self.read_blocking(offset, len, None, bytes);
                }
                Err(errno) => return Err(error(errno)),
            };
        if more {
            return Ok(Content::Bytes { len: read, eof: false });
        }
        // A short read: end of file, or an uncached page.
        let eof = offset + read as u64 >= stat(self.file.as_fd()).or_error()?.stx_size;
        if read < len && !eof {
            bytes.truncate(start);
            return Err(Error::WouldBlock);
        }
        Ok(Content::Bytes { len: read, eof })
    }

    /// On the thread of a connection, which must not wait for other machines. The known size may be
    /// old, so the end of the file shows only to a thread that may ask.
    fn read_resident(&self, offset: u64, len: usize, into: ReadInto<'_>) -> Result<Content> {
        if !self.node.mount.has_valid_pages || len == 0 {
            return Err(Error::WouldBlock);
        }
        let known = fs::statx(
            &self.file,
            c"",
            AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC,
            StatxFlags::SIZE,
        )
        .or_error()?;
        let (end, size) = (offset + len as u64, known.stx_size);
        let _as_root = identity::assume_root()?;
        if end >= size
            || !ffi::is_resident(self.file.as_fd(), offset, len).is_ok_and(|resident| resident)
        {
            return Err(Error::WouldBlock);
        }
        if into.span_allowed && len >= SPAN_LEN_MIN {
            let span = FileSpan { file: Arc::clone(&self.file), offset, len };
            return Ok(Content::Span { span, eof: false });
        }
        let start = into.bytes.len();
        if ffi::read_at(self.file.as_fd(), offset, len, false, ReadHow::Waiting, into.bytes)
            .or_error()?
            .0
            < len
        {
            into.bytes.truncate(start);
            return Err(Error::WouldBlock);
        }
        Ok(Content::Bytes { len, eof: false })
    }

    fn read_memory(&self, offset: u64, len: usize, bytes: &mut Vec<u8>) -> Result<Content> {
        let (len, more) =
            ffi::read_at(self.file.as_fd(), offset, len, true, ReadHow::Waiting, bytes)
                .or_error()?;
        Ok(Content::Bytes { len, eof: !more })
    }

    /// The end of the file shows by one byte more: the size would be another call to other machines.
    fn read_remote(&self, offset: u64, len: usize, bytes: &mut Vec<u8>) -> Result<Content> {
        let (read, more) =
            ffi::read_at(self.file.as_fd(), offset, len, true, ReadHow::Waiting, bytes)
                .or_error()?;
        if read == len {
            return Ok(Content::Bytes { len, eof: !more });
        }
        match self.read_blocking(offset + read as u64, len - read, None, bytes)? {
            Content::Bytes { len: rest, eof } => Ok(Content::Bytes { len: read + rest, eof }),
            span @ Content::Span { .. } => Ok(span),
        }
    }

    /// `size`: of the file a moment ago, if known.
    fn read_blocking(
        &self,
        offset: u64,
        len: usize,
        size: Option<u64>,
        bytes: &mut Vec<u8>,
    ) -> Result<Content> {
        let mut read = 0;
        while read < len {
            let (from, rest) = (offset + read as u64, len - read);
            let part = match self.io_mode() {
                IoMode::Buffered => {
                    ffi::read_at(self.file.as_fd(), from, rest, false, ReadHow::Waiting, bytes)
                }
                IoMode::Uncached | IoMode::Direct { .. } => {
                    read_uncached(&self.file, from, rest, bytes)
                }
            };
            match part.or_error()? {
                (0, _) => return Ok(Content::Bytes { len: read, eof: true }),
                (part, _) => read += part,
            }
        }
        let end = offset + read as u64;
        let size = match size.filter(|&size| end <= size) {
            Some(size) => size,
            None => stat(self.file.as_fd()).or_error()?.stx_size,
        };
        Ok(Content::Bytes { len: read, eof: end >= size })
    }
}

impl Drop for PosixOpen {
    fn drop(&mut self) {
        if self.inner.nodes.closed(&self.node.id) && self.node.is_unlinked() {
            self.node.count_removed();
            // The descriptor of a recently used file would keep its space.
            self.inner.nodes.forget(&self.node.id);
        }
    }
}

impl OpenFile for PosixOpen {
    fn access(&self) -> OpenAccess {
        self.access
    }

    fn attributes(&self) -> Result<Attributes> {
        self.node.attributes_of(&stat(self.file.as_fd()).or_error()?)
    }

    fn read(
        &self,
        offset: u64,
        len: usize,
        into: ReadInto<'_>,
        blocking: Blocking,
    ) -> Result<Content> {
        if !self.access.read {
            return Err(Error::Access);
        }
        let offset = if mutant("read-ignores-offset") { 0 } else { offset };
        if offset.checked_add(len as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Ok(Content::Bytes { len: 0, eof: true });
        }
        if blocking == Blocking::Forbidden && self.node.mount.is_remote {
            return self.read_resident(offset, len, into);
        }
        let mode = self.io_mode();
        if mode.is_direct(offset, len) {
            if blocking == Blocking::Forbidden {
                return Err(Error::WouldBlock);
            }
            if let Some(read) = self.direct.read(self.direct_of(), offset, len, into.bytes) {
                let read = read.or_error()?;
                let size = stat(self.file.as_fd()).or_error()?.stx_size;
                return Ok(Content::Bytes { len: read, eof: offset + read as u64 >= size });
            }
        }
        let mut size = None;
        // Pages that are sent from the cache stay there.
        if into.span_allowed && len >= SPAN_LEN_MIN && mode == IoMode::Buffered {
            let known = stat(self.file.as_fd()).or_error()?.stx_size;
            if let Some(span) = self.span(offset, len, known, blocking)? {
                return Ok(span);
            }
            size = Some(known);
        }
        if self.node.mount.in_memory {
            self.read_memory(offset, len, into.bytes)
        } else if blocking == Blocking::Forbidden && self.node.mount.may_read_cached() {
            self.read_cached(offset, len, into.bytes)
        } else if self.node.mount.is_remote && len < SPAN_LEN_MIN {
            self.read_remote(offset, len, into.bytes)
        } else {
            let _turn = self.node.mount.is_remote.then(|| self.order.turn(offset, len)).flatten();
            self.read_blocking(offset, len, size, into.bytes)
        }
    }

    fn write(
        &self,
        offset: u64,
        data: &[u8],
        stability: Stability,
        blocking: Blocking,
    ) -> Result<Written> {
        self.require_local(blocking)?;
        let waits = stability != Stability::Unstable && !self.node.mount.in_memory;
        if waits && blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        let pressure = (!self.node.mount.in_memory).then_some(&self.node.mount.pressure);
        let is_direct = self.io_mode().is_direct(offset, data.len());
        if blocking == Blocking::Forbidden && is_direct {
            return Err(Error::WouldBlock);
        }
        if blocking == Blocking::Forbidden
            && pressure.is_some_and(|pressure| pressure.is_on(mono_ms))
        {
            return Err(Error::WouldBlock);
        }
        let sync_descriptor = waits.then(|| self.sync_descriptor()).transpose()?;
        let reserved = self.reserve(offset, data.len() as u64)?;
        let _changing = self.writing()?;
        if data.is_empty() {
            return Ok(Written { len: 0, stability });
        }
        if i64::try_from(offset).is_err() {
            return Err(Error::TooLarge);
        }
        let data = &data[..reserved.len.min(data.len() as u64) as usize];
        let began = Instant::now();
        let len =
            self.write_at(offset, data, if waits { stability } else { Stability::Unstable }, {
                sync_descriptor.as_ref().map_or(self.file.as_fd(), |held| self.descriptor(held))
            });
        if !waits {
            pressure.iter().for_each(|pressure| pressure.note(began.elapsed(), mono_ms));
        }
        let len = self.inner.quota_result(data.len() as u64, len.or_error())?;
        if len == 0 {
            Err(Error::Io(std::io::ErrorKind::WriteZero.into()))
        } else {
            Ok(Written { len, stability })
        }
    }

    fn commit(&self, _offset: u64, _len: u64, blocking: Blocking) -> Result<()> {
        if self.node.mount.in_memory {
            return Ok(());
        }
        if blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        let sync_descriptor = self.sync_descriptor()?;
        fs::fdatasync(self.descriptor(&sync_descriptor)).or_error()
    }

    fn truncate(&self, size: u64) -> Result<()> {
        let _changing = self.writing()?;
        if i64::try_from(size).is_err() {
            return Err(Error::TooLarge);
        }
        fs::ftruncate(&self.file, size).or_error()
    }

    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        if i64::try_from(offset).is_err() {
            return Err(Error::NoSuchRegion);
        }
        // The descriptor's own offset, which nothing else uses.
        let to = if target == SeekTarget::Data {
            SeekFrom::Data(offset)
        } else {
            SeekFrom::Hole(offset)
        };
        fs::seek(&self.file, to)
            .map_err(|errno| if errno == Errno::NXIO { Error::NoSuchRegion } else { error(errno) })
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let _reserved = self.reserve_all(offset, len)?;
        let _changing = self.writing()?;
        let done = fs::fallocate(&self.file, FallocateFlags::empty(), offset, len).or_error();
        self.inner.quota_result(len, done)
    }

    fn deallocate(&self, offset: u64, len: u64) -> Result<()> {
        let _changing = self.writing()?;
        fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            len,
        )
        .or_error()
    }

    fn advise(&self, offset: u64, len: u64, advice: Advice) {
        let advice = match advice {
            Advice::Normal => fs::Advice::Normal,
            Advice::Sequential => fs::Advice::Sequential,
            Advice::Random => fs::Advice::Random,
            Advice::WillNeed => fs::Advice::WillNeed,
            Advice::DontNeed => fs::Advice::DontNeed,
        };
        let _ = fs::fadvise(&self.file, offset, NonZeroU64::new(len), advice);
    }

    fn copy_from(
        &self,
        from: &dyn OpenFile,
        from_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<u64> {
        let from = from.as_any().downcast_ref::<PosixOpen>().ok_or(Error::CrossesFileSystems)?;
        if !from.access.read {
            return Err(Error::Access);
        }
        let reserved = self.reserve(offset, len.min(COPY_LEN_MAX))?;
        let _changing = self.writing()?;
        let len = usize::try_from(reserved.len).unwrap_or(usize::MAX);
        let (mut from_offset, mut offset) = (from_offset, offset);
        let copied = fs::copy_file_range(
            &from.file,
            Some(&mut from_offset),
            &self.file,
            Some(&mut offset),
            len,
        )
        .or_error();
        Ok(self.inner.quota_result(len as u64, copied)? as u64)
    }

    fn clone_range(
        &self,
        from: &dyn OpenFile,
        from_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let from = from.as_any().downcast_ref::<PosixOpen>().ok_or(Error::CrossesFileSystems)?;
        if !from.access.read {
            return Err(Error::Access);
        }
        let size = stat(from.file.as_fd()).or_error()?.stx_size;
        let whole = if len == 0 { size.saturating_sub(from_offset) } else { len };
        let _reserved = self.reserve_all(offset, whole)?;
        let _changing = self.writing()?;
        let done = ffi::clone_range(from.file.as_fd(), from_offset, len, self.file.as_fd(), offset);
        self.inner.quota_result(whole, done.or_error())
    }

    fn frees_when_closed(&self) -> u64 {
        if !self.node.is_unlinked() {
            return 0;
        }
        stat(self.file.as_fd())
            .map_or(0, |stat| if stat.stx_nlink == 0 { stat.stx_size } else { 0 })
    }

    fn remote_system(&self) -> Option<SystemId> {
        self.node.mount.is_remote.then_some(self.node.mount.system)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(crate) fn mono_ms() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
mod unbuffered;
mod writing;
