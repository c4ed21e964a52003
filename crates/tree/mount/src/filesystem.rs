//! Decodes the kernel's requests, sends the replies.
//!
//! The FUSE thread polls a request's future once, which answers it if all data is cached. Otherwise
//! the future moves to the runtime.
//!
//! Without passthrough and observer, open and opendir return ENOSYS: the kernel then opens files
//! without a request, and keeps pages and listings until told to drop them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollNotifier, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyPoll, ReplyStatfs, ReplyXattr, Request,
};
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree_client::Seek;

use crate::config::XattrMode;
use crate::error::OpError;
use crate::file_status::is_reserved;
use crate::journal::record::KernelRecord;
use crate::listing_reply::ListingReply;
use crate::observer::{Operation, Recorded};
use crate::open::NO_OPEN;
use crate::request::KernelRequest;
use crate::state::{LookupResult, MountKind, MountState};

pub(crate) struct FuseFilesystem {
    state: Arc<MountState>,
}

impl FuseFilesystem {
    pub(crate) fn new(state: Arc<MountState>) -> Self {
        Self { state }
    }

    fn run(&self, request: &KernelRequest, answer: impl Future<Output = ()> + Send + 'static) {
        let mut answer: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(answer);
        let _runtime = self.state.runtime.enter();
        if answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            let (state, request) = (self.state.clone(), request.clone());
            let in_flight = InFlight::new(state.clone());
            self.state.runtime.spawn(async move {
                let _in_flight = in_flight;
                let deadline = state.options.deadline;
                if tokio::time::timeout(deadline, answer).await.is_err() {
                    drop(state.log_and_report(&request, &OpError::TooLate(deadline)));
                }
            });
        }
        self.state.gate.pass();
    }
}

struct InFlight(Arc<MountState>);

impl InFlight {
    fn new(state: Arc<MountState>) -> Self {
        state.gate.enter();
        Self(state)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}

impl MountState {
    async fn report_failure(&self, request: &KernelRequest, error: &OpError) -> Errno {
        if let Some(recorded) = self.log_and_report(request, error) {
            recorded.await;
        }
        error.errno()
    }

    fn log_and_report(&self, request: &KernelRequest, error: &OpError) -> Option<Recorded> {
        match (error.is_logged(), self.volume_of(request.id)) {
            (true, Some(volume)) => {
                self.error_log.log_limited(request.opcode, volume.label(), error);
            }
            (true, None) => {
                self.error_log.log_limited(request.opcode, "", error);
            }
            (false, _) => {}
        }
        self.observe_failed(request, error)
    }
}

impl Filesystem for FuseFilesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // With an observer, each open, listing and link must be a request.
        if self.state.observed.is_none() {
            for wish in [
                InitFlags::FUSE_NO_OPEN_SUPPORT,
                InitFlags::FUSE_NO_OPENDIR_SUPPORT,
                InitFlags::FUSE_CACHE_SYMLINKS,
            ] {
                let _ = config.add_capabilities(wish);
            }
        }
        for wish in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            // Without this, a plain listing of 200,000 names takes four times as long.
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            let _ = config.add_capabilities(wish);
        }
        // Then only requests that make files name the caller, whom a trail records and whom a mount for
        // one user compares.
        if self.state.observed.is_none() && self.state.options.others_are_allowed() {
            let _ = config.add_capabilities(InitFlags::FUSE_ALLOW_IDMAP);
        }
        // Any file may have an ACL: the kernel checks it.
        if !self.state.without_xattrs {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        if self.state.wants_passthrough
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok()
        {
            self.state.open_files.turn_on();
        }
        let fuser::Version(major, minor) = config.kernel_abi();
        let _ = self.state.kernel_offer.set(KernelRecord {
            major,
            minor,
            flags: config.capabilities().bits(),
        });
        if let Err(most) = config.set_max_readahead(self.state.options.read_ahead_bytes.max(4096)) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (state, name) = (self.state.clone(), name.as_bytes().to_vec());
        let request = self
            .state
            .request(request, Operation::Lookup, "lookup", NodeId(parent.0))
            .with_name(&name);
        self.run(&request.clone(), async move {
            match state.lookup(NodeId(parent.0), &name).await {
                Ok(LookupResult::File(attr, left)) => {
                    state.observe_done(&request.with_number(attr.ino.0), None).await;
                    reply.entry(&left, &attr, Generation(0));
                }
                // Number 0 is a negative entry, which the kernel caches.
                Ok(LookupResult::Nothing(left)) => {
                    state.observe_missing(&request).await;
                    reply.entry(&left, &NO_ATTRIBUTES, Generation(0));
                }
                Err(error) => reply.error(state.report_failure(&request, &error).await),
            }
        });
    }

    fn forget(&self, _request: &Request, id: INodeNo, count: u64) {
        self.state.table.forget(NodeId(id.0), count);
    }

    fn getattr(
        &self,
        request: &Request,
        id: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let state = self.state.clone();
        let request = self.state.request(request, Operation::Attributes, "getattr", NodeId(id.0));
        self.run(&request.clone(), async move {
            match state.attributes(NodeId(id.0)).await {
                Ok((attr, left)) => {
                    state.observe_done(&request, None).await;
                    reply.attr(&left, &attr);
                }
                Err(error) => reply.error(state.report_failure(&request, &error).await),
            }
        });
    }

    fn readlink(&self, request: &Request, id: INodeNo, reply: ReplyData) {
        let state = self.state.clone();
        let request = self.state.request(request, Operation::Link, "readlink", NodeId(id.0));
        self.run(&request.clone(), async move {
            match state.link_target(NodeId(id.0)).await {
                Ok(target) => {
                    state.observe_done(&request, None).await;
                    reply.data(&target);
                }
                Err(error) => reply.error(state.report_failure(&request, &error).await),
            }
        });
    }

    fn open(&self, request: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if !self.state.open_files.is_on() && self.state.observed.is_none() {
            reply.error(NO_OPEN);
            return self.state.gate.pass();
        }
        let state = self.state.clone();
        let request =
            self.state.request(request, Operation::Open, "open", NodeId(id.0)).with_flags(flags);
        self.run(&request.clone(), async move {
            if let Err((reply, error)) = state.open(&request, reply).await {
                reply.error(state.report_failure(&request, &error).await);
            }
        });
    }

    fn release(
        &self,
        _request: &Request,
        id: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.state.end_open_file(handle.0);
        self.state.release(NodeId(id.0));
        reply.ok();
        self.state.gate.pass();
    }

    fn opendir(&self, _request: &Request, _id: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.state.observed {
            // Not cached, so that each listing is a request of its caller.
            Some(_) => reply.opened(FileHandle(0), FopenFlags::empty()),
            None => reply.error(Errno::ENOSYS),
        }
        self.state.gate.pass();
    }

    fn read(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state.clone();
        let (node, process) = (NodeId(id.0), request.pid());
        let request =
            self.state.request(request, Operation::Read, "read", node).with_offset(offset);
        self.run(&request.clone(), async move {
            let limit = state.options.deadline;
            if state.late_reads.is_second((node, process)) {
                state.count_read(handle.0, None);
                return reply.error(state.report_failure(&request, &OpError::TooLate(limit)).await);
            }
            let mut read = state.late_reads.begin((node, process), limit);
            match state.read(node, offset, size as usize).await {
                Ok(bytes) => {
                    read.answered();
                    let len = bytes.len() as u64;
                    state.count_read(handle.0, Some(len));
                    state.observe_done(&request, Some(len)).await;
                    reply.data(&bytes);
                }
                Err(error) => {
                    state.count_read(handle.0, None);
                    reply.error(state.report_failure(&request, &error).await);
                }
            }
        });
    }

    fn readdir(
        &self,
        request: &Request,
        id: INodeNo,
        _handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.list(request, id, offset, ListingReply::plain(reply));
    }

    fn readdirplus(
        &self,
        request: &Request,
        id: INodeNo,
        _handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.list(request, id, offset, ListingReply::plus(reply));
    }

    fn getxattr(&self, request: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.state.options.xattrs == XattrMode::Off {
            return reply.error(Errno::ENOSYS);
        }
        if is_reserved(name.as_bytes()) {
            return match self.state.file_status(NodeId(id.0), name.as_bytes()) {
                Ok(value) => answer_sized(reply, size, &value),
                Err(error) => reply.error(error.errno()),
            };
        }
        if self.state.without_xattrs {
            // After ENOSYS the kernel would not ask for `user.vouch.*` either. After this error
            // ls(1) asks for no further file.
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (state, name) = (self.state.clone(), name.as_bytes().to_vec());
        let request = self.state.request(request, Operation::Xattr, "getxattr", NodeId(id.0));
        self.run(&request.clone(), async move {
            let xattrs = state.xattrs(NodeId(id.0)).await;
            let value =
                xattrs.and_then(|set| set.get(&name).map(<[u8]>::to_vec).ok_or(OpError::NoData));
            if name == SELINUX_LABEL && matches!(value, Err(OpError::NoData)) {
                // After this error ls(1) asks for the label of no further file.
                return reply.error(Errno::EOPNOTSUPP);
            }
            match value {
                Ok(value) => {
                    state.observe_done(&request, None).await;
                    answer_sized(reply, size, &value);
                }
                Err(error) => reply.error(state.report_failure(&request, &error).await),
            }
        });
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        if self.state.without_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let state = self.state.clone();
        let request = self.state.request(request, Operation::Xattrs, "listxattr", NodeId(id.0));
        self.run(&request.clone(), async move {
            match state.xattrs(NodeId(id.0)).await {
                Ok(set) => {
                    state.observe_done(&request, None).await;
                    let shown = set.pairs().iter().filter(|(name, _)| !is_reserved(name));
                    let names: Vec<u8> =
                        shown.flat_map(|(name, _)| name.iter().copied().chain([0])).collect();
                    answer_sized(reply, size, &names);
                }
                Err(error) => reply.error(state.report_failure(&request, &error).await),
            }
        });
    }

    fn statfs(&self, _request: &Request, id: INodeNo, reply: ReplyStatfs) {
        let volume = match &self.state.kind {
            MountKind::Tree(volume) => Some(volume.clone()),
            MountKind::Namespace(_) => self.state.volume_of(NodeId(id.0)),
        };
        let counts = volume.map(|v| v.shown().fsinfo.counts).unwrap_or_default();
        let files = counts
            .files
            .saturating_add(counts.directories)
            .saturating_add(counts.symlinks)
            .saturating_add(counts.others);
        let blocks = counts.bytes.div_ceil(STATFS_BLOCK_LEN.into());
        reply.statfs(
            blocks,
            0,
            0,
            files,
            0,
            STATFS_BLOCK_LEN,
            vouch_tree::name::FILE_NAME_LEN_MAX as u32,
            STATFS_BLOCK_LEN,
        );
        self.state.gate.pass();
    }

    fn lseek(
        &self,
        request: &Request,
        id: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let (Ok(from), Some(whence)) = (u64::try_from(offset), seek_of(whence)) else {
            return reply.error(Errno::EINVAL);
        };
        let state = self.state.clone();
        let request =
            self.state.request(request, Operation::Seek, "lseek", NodeId(id.0)).with_offset(from);
        self.run(&request.clone(), async move {
            match state.seek(NodeId(id.0), from, whence).await {
                Ok(offset) => {
                    state.observe_done(&request, None).await;
                    reply.offset(offset as i64);
                }
                Err(error) => reply.error(state.report_failure(&request, &error).await),
            }
        });
    }

    // default_permissions: the kernel decides.
    fn access(&self, _request: &Request, _id: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn flush(
        &self,
        _request: &Request,
        _id: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _request: &Request,
        _id: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _id: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
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

impl FuseFilesystem {
    fn list(&self, request: &Request, id: INodeNo, offset: u64, mut reply: ListingReply) {
        let state = self.state.clone();
        let request = self
            .state
            .request(request, Operation::List, "readdir", NodeId(id.0))
            .with_offset(offset);
        self.run(&request.clone(), async move {
            match state.list(NodeId(id.0), offset, &mut reply).await {
                Ok(()) => {
                    state.observe_done(&request, None).await;
                    reply.send();
                }
                // The kernel counts these entries as looked up: send them.
                Err(error) if reply.has_entries() => {
                    state.report_failure(&request, &error).await;
                    reply.send();
                }
                Err(error) => reply.fail(state.report_failure(&request, &error).await),
            }
        });
    }
}

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

// Linux lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Read-ahead requests in flight. The kernel's default of 12 allows only 1.5 MiB.
const BACKGROUND_MAX: u16 = 64;

/// On hosts with SELinux the kernel answers with its own label of the mount.
const SELINUX_LABEL: &[u8] = b"security.selinux";

const STATFS_BLOCK_LEN: u32 = 4096;

const NO_ATTRIBUTES: FileAttr = FileAttr {
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
