//! System calls that rustix lacks, behind safe functions: the only `unsafe` code of the crate.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

type Result<T> = std::result::Result<T, Errno>;

/// MAX_HANDLE_SZ, bytes.
const HANDLE_LEN_MAX: usize = 128;

#[derive(Clone, Copy)]
pub(crate) struct KernelHandle {
    pub(crate) kind: i32,
    len: usize,
    bytes: [u8; HANDLE_LEN_MAX],
}

impl KernelHandle {
    pub(crate) fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut handle = KernelHandle { kind, len: bytes.len(), bytes: [0; HANDLE_LEN_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[repr(C)]
struct RawHandle {
    handle_bytes: libc::c_uint,
    handle_type: libc::c_int,
    f_handle: [u8; HANDLE_LEN_MAX],
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn check(result: libc::c_long) -> Result<usize> {
    usize::try_from(result).map_err(|_| last())
}

/// Of `name` in `directory` (symbolic links are not followed), or of `directory` itself if `name`
/// is empty.
pub(crate) fn name_to_handle(
    directory: BorrowedFd<'_>,
    name: &CStr,
) -> Result<(KernelHandle, i32)> {
    let mut raw = RawHandle {
        handle_bytes: HANDLE_LEN_MAX as libc::c_uint,
        handle_type: 0,
        f_handle: [0; HANDLE_LEN_MAX],
    };
    let mut mount = 0;
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: `raw` begins as `struct file_handle` does, and `handle_bytes` tells the kernel how
    // many bytes follow; `name` ends in NUL.
    let result = unsafe {
        libc::name_to_handle_at(
            directory.as_raw_fd(),
            name.as_ptr(),
            (&raw mut raw).cast::<libc::file_handle>(),
            &raw mut mount,
            flags,
        )
    };
    check(result.into())?;
    let bytes = raw.f_handle.get(..raw.handle_bytes as usize).ok_or(Errno::OVERFLOW)?;
    Ok((KernelHandle::new(raw.handle_type, bytes).ok_or(Errno::OVERFLOW)?, mount))
}

/// Opens (O_PATH) on the file system of `mount`. Needs CAP_DAC_READ_SEARCH.
pub(crate) fn open_by_handle(mount: BorrowedFd<'_>, handle: &KernelHandle) -> Result<OwnedFd> {
    let mut opened = try_open_by_handle(mount, handle);
    for _ in 0..HANDLE_ATTEMPTS_MAX {
        if !matches!(opened, Err(Errno::NOMEM)) {
            break;
        }
        std::thread::yield_now();
        opened = try_open_by_handle(mount, handle);
    }
    opened
}

/// ext4 says ENOMEM while the inode number of a removed file is being given to another one, and then
/// ESTALE (seen with Linux 6.18).
const HANDLE_ATTEMPTS_MAX: u32 = 100;

fn try_open_by_handle(mount: BorrowedFd<'_>, handle: &KernelHandle) -> Result<OwnedFd> {
    let mut raw = RawHandle {
        handle_bytes: handle.len as libc::c_uint,
        handle_type: handle.kind,
        f_handle: handle.bytes,
    };
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `raw` begins as `struct file_handle` does, and `handle_bytes` bytes of it are set.
    let fd = unsafe {
        libc::open_by_handle_at(
            mount.as_raw_fd(),
            (&raw mut raw).cast::<libc::file_handle>(),
            flags,
        )
    };
    check(fd.into())?;
    // SAFETY: the call has just returned this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// For [`mark_directory`]. Needs no capability: events have handles, and another process's number
/// is 0.
pub(crate) fn new_mark_group() -> Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_FID | libc::FAN_CLOEXEC;
    // SAFETY: takes and returns numbers.
    let fd = unsafe { libc::fanotify_init(flags | libc::FAN_NONBLOCK, 0) };
    check(fd.into())?;
    // SAFETY: the call has just returned this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Changes of its names and attributes become events, or no longer.
pub(crate) fn mark_directory(
    group: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    is_marked: bool,
) -> Result<()> {
    let names = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
    let action = if is_marked { libc::FAN_MARK_ADD } else { libc::FAN_MARK_REMOVE };
    // SAFETY: the path is a constant that ends in NUL.
    let result = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            action | libc::FAN_MARK_ONLYDIR,
            names | libc::FAN_ATTRIB | libc::FAN_ONDIR,
            directory.as_raw_fd(),
            c".".as_ptr(),
        )
    };
    check(result.into()).map(drop)
}

/// The thread's user for file access. Returns the previous user; `u32::MAX` changes nothing.
pub(crate) fn set_fs_uid(uid: u32) -> u32 {
    // SAFETY: takes and returns numbers; changes this thread alone.
    unsafe { libc::syscall(libc::SYS_setfsuid, libc::c_ulong::from(uid)) as u32 }
}

/// The thread's group for file access. Returns the previous group; `u32::MAX` changes nothing.
pub(crate) fn set_fs_gid(gid: u32) -> u32 {
    // SAFETY: takes and returns numbers; changes this thread alone.
    unsafe { libc::syscall(libc::SYS_setfsgid, libc::c_ulong::from(gid)) as u32 }
}

pub(crate) fn unshare_fs() -> Result<()> {
    // SAFETY: changes this thread alone; descriptors stay shared.
    check(unsafe { libc::unshare(libc::CLONE_FS) }.into()).map(drop)
}

/// R_OK 4, W_OK 2, X_OK 1.
pub(crate) fn may(fd: BorrowedFd<'_>, mode: u8) -> Result<()> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    // SAFETY: the path is a constant that ends in NUL.
    let result = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::c_int::from(mode),
            flags,
        )
    };
    check(result).map(drop)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadHow {
    Waiting,
    /// EAGAIN or a short read instead of waiting for a disk.
    Now,
    /// Pages that were not cached before leave the cache.
    Uncached,
}

/// Appends up to `len` bytes to `into`. Returns the number read and, if `probe`, a flag that more
/// follow.
pub(crate) fn read_at(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    probe: bool,
    how: ReadHow,
    into: &mut Vec<u8>,
) -> Result<(usize, bool)> {
    into.try_reserve(len).map_err(|_| Errno::NOMEM)?;
    let mut one = 0u8;
    let parts = [
        libc::iovec { iov_base: into.spare_capacity_mut().as_mut_ptr().cast(), iov_len: len },
        libc::iovec { iov_base: (&raw mut one).cast(), iov_len: 1 },
    ];
    let count = if probe { 2 } else { 1 };
    const RWF_DONTCACHE: libc::c_int = 0x80;
    let flags = match how {
        ReadHow::Waiting => 0,
        ReadHow::Now => libc::RWF_NOWAIT,
        ReadHow::Uncached => RWF_DONTCACHE,
    };
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: the first part is spare capacity of at least `len` bytes, reserved above; the second
    // is one byte on the stack.
    let result = unsafe { libc::preadv2(fd.as_raw_fd(), parts.as_ptr(), count, offset, flags) };
    let read = check(result as libc::c_long)?;
    let kept = read.min(len);
    // SAFETY: the kernel has written the first `kept` bytes of the spare capacity.
    unsafe { into.set_len(into.len() + kept) };
    Ok((kept, read > len))
}

pub(crate) fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, len];
    let mut stat = [0u64; 5];
    // SAFETY: `struct cachestat_range` is two, `struct cachestat` five 64-bit numbers.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0)
    };
    check(result)?;
    Ok(stat[0])
}

/// All of it is in the page cache and up to date. The kernel answers truthfully only to the file's
/// owner and to root.
pub(crate) fn is_resident(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<bool> {
    let page_len = rustix::param::page_size();
    let skipped = offset as usize % page_len;
    let len = skipped + len;
    let start = libc::off_t::try_from(offset - skipped as u64).map_err(|_| Errno::INVAL)?;
    // SAFETY: a new mapping, which nothing reads, and which ends below.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            start,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(last());
    }
    let mut pages = vec![0u8; len.div_ceil(page_len)];
    // SAFETY: the mapping has `len` bytes, and `pages` a byte for each of its pages.
    let answered = check(unsafe { libc::mincore(map, len, pages.as_mut_ptr()) }.into());
    // SAFETY: the mapping of above.
    unsafe { libc::munmap(map, len) };
    answered.map(|_| pages.iter().all(|page| page & 1 == 1))
}

/// FICLONERANGE.
pub(crate) fn clone_range(
    from: BorrowedFd<'_>,
    from_offset: u64,
    len: u64,
    to: BorrowedFd<'_>,
    offset: u64,
) -> Result<()> {
    /// `_IOW(0x94, 13, struct file_clone_range)`.
    const FICLONERANGE: libc::Ioctl = 0x4020_940d;
    let descriptor = u64::try_from(from.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let range = [descriptor, from_offset, len, offset];
    // SAFETY: the request takes a pointer to a `struct file_clone_range`, four 64-bit numbers,
    // which it only reads.
    check(unsafe { libc::ioctl(to.as_raw_fd(), FICLONERANGE, range.as_ptr()) }.into()).map(drop)
}

#[derive(Clone, Copy)]
pub(crate) enum QuotaKind {
    User = 0,
    Project = 2,
}

/// `struct if_dqblk`: eight 64-bit numbers and one of 32 bits. Limits are in blocks of 1 KiB.
#[repr(C)]
#[derive(Default)]
pub(crate) struct QuotaRecord {
    hard: u64,
    soft: u64,
    pub(crate) used: u64,
    files: [u64; 3],
    times: [u64; 2],
    valid: u32,
}

impl QuotaRecord {
    /// Bytes; 0 without a limit.
    pub(crate) fn hard(&self) -> u64 {
        self.hard.saturating_mul(1024)
    }

    pub(crate) fn soft(&self) -> u64 {
        self.soft.saturating_mul(1024)
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.hard == 0 && self.soft == 0 && self.used == 0 && self.files == [0; 3]
    }
}

fn quota_call<T>(
    fd: BorrowedFd<'_>,
    command: libc::c_uint,
    kind: QuotaKind,
    id: u32,
    record: &mut T,
) -> Result<()> {
    let command = command << 8 | kind as libc::c_uint;
    // SAFETY: each command takes a pointer to the structure that its caller passes.
    let result = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, fd.as_raw_fd(), command, id, &raw mut *record)
    };
    check(result).map(drop)
}

/// XFS has no record of a user or project without limit and files.
pub(crate) fn quota_of(fd: BorrowedFd<'_>, kind: QuotaKind, id: u32) -> Result<QuotaRecord> {
    const Q_GETQUOTA: libc::c_uint = 0x80_0007;
    let mut record = QuotaRecord::default();
    match quota_call(fd, Q_GETQUOTA, kind, id, &mut record) {
        Err(Errno::SRCH | Errno::NOENT) => Ok(QuotaRecord::default()),
        done => done.map(|()| record),
    }
}

/// Bytes; 0 ends the limit.
pub(crate) fn set_project_limit(fd: BorrowedFd<'_>, project: u32, limit: u64) -> Result<()> {
    const Q_SETQUOTA: libc::c_uint = 0x80_0008;
    const QIF_BLIMITS: u32 = 1;
    let hard = limit.div_ceil(1024);
    let mut record = QuotaRecord { hard, valid: QIF_BLIMITS, ..QuotaRecord::default() };
    quota_call(fd, Q_SETQUOTA, QuotaKind::Project, project, &mut record)
}

/// The file system refuses to exceed limits of projects.
pub(crate) fn enforces_projects(fd: BorrowedFd<'_>) -> bool {
    const Q_XGETQSTAT: libc::c_uint = 0x5805;
    const FS_QUOTA_PDQ_ENFD: u16 = 1 << 5;
    /// `struct fs_quota_stat` begins with a version, a byte of padding, and flags.
    #[repr(C, align(8))]
    struct State {
        version: u16,
        flags: u16,
        rest: [u8; 124],
    }
    let mut state = State { version: 0, flags: 0, rest: [0; 124] };
    quota_call(fd, Q_XGETQSTAT, QuotaKind::Project, 0, &mut state).is_ok()
        && state.flags & FS_QUOTA_PDQ_ENFD != 0
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ProjectOf {
    flags: u32,
    extents: [u32; 2],
    pub(crate) number: u32,
    rest: [u32; 3],
}

impl ProjectOf {
    /// FS_XFLAG_PROJINHERIT: new files have the number of their directory.
    const INHERIT: u32 = 0x200;

    pub(crate) fn set(&mut self, number: u32, is_directory: bool) {
        self.number = number;
        self.flags |= if is_directory { Self::INHERIT } else { 0 };
    }
}

/// Not of O_PATH descriptors.
pub(crate) fn project_of(fd: BorrowedFd<'_>) -> Result<ProjectOf> {
    const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
    let mut project = ProjectOf::default();
    // SAFETY: the request writes a `struct fsxattr`, whose layout `ProjectOf` has.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FSGETXATTR as _, &raw mut project) }.into())?;
    Ok(project)
}

pub(crate) fn set_project(fd: BorrowedFd<'_>, project: &ProjectOf) -> Result<()> {
    const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;
    // SAFETY: the request reads a `struct fsxattr`, whose layout `ProjectOf` has.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const *project) };
    check(result.into()).map(drop)
}
