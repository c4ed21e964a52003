//! The FUSE face: the kernel's requests, handed to [`Core`] and answered.
//!
//! A request's future is polled once where it arrived, on a FUSE thread. If the client holds all that is needed, that is
//! the whole of it; if not, the future moves to the runtime with its reply, and the thread takes the next request. So a
//! slow replica delays only who waits for it.
//!
//! Files and directories are never opened as far as this side is concerned (ENOSYS to the first open and opendir), but
//! for files where passthrough is on (see [`crate::opens`]): the kernel then opens without asking, keeps pages and listings until told otherwise, and addresses nodes, which are
//! followed by path from revision to revision. Nothing here decides anything.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, Filesystem, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags,
    PollEvents, PollNotifier, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyPoll, ReplyStatfs, ReplyXattr, Request,
};
use vouch_tree_client::Seek;

use crate::core::{Core, Found, Shape};
use crate::error::OpError;
use crate::listing::Sink;
use crate::number::NodeId;
use crate::opens::NO_OPEN;

/// A mount as fuser sees it.
pub(crate) struct Face {
    core: Arc<Core>,
}

impl Face {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Answers now if nothing must be fetched, else later. The future owns the reply; when it is dropped at the
    /// deadline, the reply says EIO by itself.
    fn run(&self, operation: &'static str, id: INodeNo, request: impl Future<Output = ()> + Send + 'static) {
        let mut request: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(request);
        let _runtime = self.core.runtime.enter();
        if request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            let core = self.core.clone();
            self.core.runtime.spawn(async move {
                let deadline = core.options.deadline;
                if tokio::time::timeout(deadline, request).await.is_err() {
                    core.complain(operation, NodeId(id.0), &OpError::TooLate(deadline));
                }
            });
        }
    }
}

impl Core {
    /// Logs a failure where that is due; returns its errno.
    fn complain(&self, operation: &'static str, id: NodeId, error: &OpError) -> Errno {
        match (error.is_worth_a_line(), self.volume_of(id)) {
            (true, Some(volume)) => self.complaints.note(operation, volume.label(), error),
            (true, None) => self.complaints.note(operation, "", error),
            (false, _) => error.errno(),
        }
    }
}

impl Filesystem for Face {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each is an improvement where the kernel has it, and none is needed.
        for wish in [
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            // Without this a plain listing of 200,000 names takes four times as long, and `ls -l` is no faster.
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            let _ = config.add_capabilities(wish);
        }
        // Access lists are checked by the kernel, and cached, if any file can have one.
        if !self.core.without_xattrs {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        if self.core.wants_passthrough
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok()
        {
            self.core.opens.turn_on();
        }
        // The largest that the kernel offers; more is set from outside, see `point`.
        if let Err(most) = config.set_max_readahead(self.core.options.read_ahead_bytes.max(4096)) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (core, name) = (self.core.clone(), name.as_bytes().to_vec());
        self.run("lookup", parent, async move {
            match core.lookup(NodeId(parent.0), &name).await {
                Ok(Found::File(attr, left)) => reply.entry(&left, &attr, Generation(0)),
                // Number 0 is an entry that may be remembered as missing.
                Ok(Found::Nothing(left)) => reply.entry(&left, &NOTHING, Generation(0)),
                Err(error) => reply.error(core.complain("lookup", NodeId(parent.0), &error)),
            }
        });
    }

    fn forget(&self, _request: &Request, id: INodeNo, count: u64) {
        self.core.table.forget(NodeId(id.0), count);
    }

    fn getattr(&self, _request: &Request, id: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let core = self.core.clone();
        self.run("getattr", id, async move {
            match core.attributes(NodeId(id.0)).await {
                Ok((attr, left)) => reply.attr(&left, &attr),
                Err(error) => reply.error(core.complain("getattr", NodeId(id.0), &error)),
            }
        });
    }

    fn readlink(&self, _request: &Request, id: INodeNo, reply: ReplyData) {
        let core = self.core.clone();
        self.run("readlink", id, async move {
            match core.link_target(NodeId(id.0)).await {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(core.complain("readlink", NodeId(id.0), &error)),
            }
        });
    }

    fn open(&self, _request: &Request, id: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if !self.core.opens.is_on() {
            return reply.error(NO_OPEN);
        }
        let core = self.core.clone();
        self.run("open", id, async move {
            if let Err((reply, error)) = core.open(NodeId(id.0), reply).await {
                reply.error(core.complain("open", NodeId(id.0), &error));
            }
        });
    }

    fn release(
        &self,
        _request: &Request,
        id: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.core.release(NodeId(id.0));
        reply.ok();
    }

    fn opendir(&self, _request: &Request, _id: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        id: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let core = self.core.clone();
        self.run("read", id, async move {
            match core.read(NodeId(id.0), offset, size as usize).await {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(core.complain("read", NodeId(id.0), &error)),
            }
        });
    }

    fn readdir(&self, _request: &Request, id: INodeNo, _handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.list(id, offset, Sink::plain(reply));
    }

    fn readdirplus(&self, _request: &Request, id: INodeNo, _handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.list(id, offset, Sink::plus(reply));
    }

    fn getxattr(&self, _request: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.core.without_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let (core, name) = (self.core.clone(), name.as_bytes().to_vec());
        self.run("getxattr", id, async move {
            let xattrs = core.xattrs(NodeId(id.0)).await;
            let value = xattrs.and_then(|set| set.get(&name).map(<[u8]>::to_vec).ok_or(OpError::NoData));
            match value {
                Ok(value) => answer_sized(reply, size, &value),
                Err(error) => reply.error(core.complain("getxattr", NodeId(id.0), &error)),
            }
        });
    }

    fn listxattr(&self, _request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        if self.core.without_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let core = self.core.clone();
        self.run("listxattr", id, async move {
            match core.xattrs(NodeId(id.0)).await {
                Ok(set) => {
                    let names: Vec<u8> = set.pairs().iter().flat_map(|(name, _)| name.iter().copied().chain([0])).collect();
                    answer_sized(reply, size, &names);
                }
                Err(error) => reply.error(core.complain("listxattr", NodeId(id.0), &error)),
            }
        });
    }

    fn statfs(&self, _request: &Request, id: INodeNo, reply: ReplyStatfs) {
        let volume = match &self.core.shape {
            Shape::Tree(volume) => Some(volume.clone()),
            Shape::Namespace(_) => self.core.volume_of(NodeId(id.0)),
        };
        let counts = volume.map(|v| v.shown().fsinfo.counts).unwrap_or_default();
        let files = counts.files.saturating_add(counts.directories).saturating_add(counts.symlinks).saturating_add(counts.others);
        let blocks = counts.bytes.div_ceil(STATFS_BLOCK_LEN.into());
        reply.statfs(blocks, 0, 0, files, 0, STATFS_BLOCK_LEN, vouch_tree::name::FILE_NAME_LEN_MAX as u32, STATFS_BLOCK_LEN);
    }

    fn lseek(&self, _request: &Request, id: INodeNo, _handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let (Ok(from), Some(whence)) = (u64::try_from(offset), seek_of(whence)) else { return reply.error(Errno::EINVAL) };
        let core = self.core.clone();
        self.run("lseek", id, async move {
            match core.seek(NodeId(id.0), from, whence).await {
                Ok(offset) => reply.offset(offset as i64),
                Err(error) => reply.error(core.complain("lseek", NodeId(id.0), &error)),
            }
        });
    }

    // With default_permissions the kernel decides; should it ask all the same, there is nothing to add.
    fn access(&self, _request: &Request, _id: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    // ENOSYS to these means: don't ask again, it is as well.
    fn flush(&self, _request: &Request, _id: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _request: &Request, _id: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _request: &Request, _id: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _request: &Request,
        _id: INodeNo,
        _handle: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: fuser::PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _id: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _input: &[u8],
        _output_len: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}

impl Face {
    fn list(&self, id: INodeNo, offset: u64, mut sink: Sink) {
        let core = self.core.clone();
        self.run("readdir", id, async move {
            match core.list(NodeId(id.0), offset, &mut sink).await {
                Ok(()) => sink.send(),
                // Entries that the kernel counts as looked up must reach it; the error comes with the next request.
                Err(error) if sink.has_entries() => {
                    core.complain("readdir", NodeId(id.0), &error);
                    sink.send();
                }
                Err(error) => sink.fail(core.complain("readdir", NodeId(id.0), &error)),
            }
        });
    }
}

/// Length first, then content: the protocol of getxattr(2) and listxattr(2).
fn answer_sized(reply: ReplyXattr, size: u32, bytes: &[u8]) {
    match (size, u32::try_from(bytes.len())) {
        (0, Ok(len)) => reply.size(len),
        (_, Ok(len)) if len <= size => reply.data(bytes),
        _ => reply.error(OpError::TooSmall.errno()),
    }
}

const fn seek_of(whence: i32) -> Option<Seek> {
    match whence {
        SEEK_DATA => Some(Seek::Data),
        SEEK_HOLE => Some(Seek::Hole),
        _ => None,
    }
}

// lseek(2), Linux.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Reads ahead in flight; the kernel's 12 would be 1.5 MiB at its own read-ahead.
const BACKGROUND_MAX: u16 = 64;

const STATFS_BLOCK_LEN: u32 = 4096;

const NOTHING: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: std::time::UNIX_EPOCH,
    mtime: std::time::UNIX_EPOCH,
    ctime: std::time::UNIX_EPOCH,
    crtime: std::time::UNIX_EPOCH,
    kind: fuser::FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};
