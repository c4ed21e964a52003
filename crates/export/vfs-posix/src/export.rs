//! An exported directory: how it is opened and probed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::io::Errno;
use vouch_vfs::{Blocking, FileId, FileType, NAME_LEN_MAX, SystemId, Traits};

use crate::covered_directory::CoveredIndex;
use crate::directory_stream::Streams;
use crate::id_store::IdStore;
use crate::io_mode::IoMode;
use crate::mount::Mount;
use crate::mount_crossing::Crossing;
use crate::node::{FileCache, Node, Nodes};
use crate::quota::enforcement::Enforcement;
use crate::{attributes, ffi, handle, identity, probe};

#[derive(Clone)]
pub struct Options {
    pub read_only: bool,
    pub cross_mounts: bool,
    /// Checks every file by names from the root down: identities of files moved out of the export
    /// become invalid. Needs `ids`. Otherwise, as in other NFS servers, an identity stays valid
    /// anywhere on the file system.
    pub subtree_check: bool,
    /// Needed where files cannot be opened by handle.
    pub ids: Option<Arc<IdStore>>,
    pub files: FileCache,
    pub io_mode: IoMode,
    /// Number of the snapshot that this directory is. It sets identities and `fsid` apart from
    /// those of the same file system elsewhere.
    pub snapshot: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: false,
            cross_mounts: false,
            subtree_check: false,
            ids: None,
            files: FileCache::of_process(),
            io_mode: IoMode::Buffered,
            snapshot: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("open {path}: {source}")]
    Open { path: PathBuf, source: std::io::Error },
    #[error("{0}: this user or file system can't open files by handle; a name store is needed")]
    NeedsIds(PathBuf),
    #[error(
        "this process keeps its capabilities when it takes on a caller's identity (see securebits in capabilities(7))"
    )]
    KeepsCapabilities,
    #[error("snapshots in {path}: {source}")]
    Snapshots { path: PathBuf, source: vouch_vfs::Error },
    #[error("this file system shows no snapshots of its own; write snapshots=DIR")]
    NoSnapshots,
    #[error("read the list of mounts: {0}")]
    Mounts(vouch_vfs::Error),
    #[error("take on a caller's identity: {0}")]
    Identity(vouch_vfs::Error),
}

/// Clones share everything.
#[derive(Clone)]
pub struct PosixFs {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) traits: Traits,
    pub(crate) options: Options,
    pub(crate) root: Arc<Node>,
    /// For `cross_mounts`.
    pub(crate) crossing: Option<Crossing>,
    /// The first one among the root's file system and those mounted below.
    pub(crate) remote: OnceLock<SystemId>,
    pub(crate) covered: Mutex<CoveredIndex>,
    pub(crate) nodes: Nodes,
    pub(crate) streams: Mutex<Streams>,
    /// `/proc/self/fd`: opens a file from an O_PATH descriptor with the thread's present rights.
    descriptors: OwnedFd,
    pub(crate) swept: AtomicUsize,
    pub(crate) quota: Mutex<Enforcement>,
}

impl PosixFs {
    /// Features that the root's file system lacks, each with its effect on clients.
    pub fn missing_features(&self) -> Vec<&'static str> {
        let traits = self.inner.traits;
        let features = [
            (
                !self.inner.root.mount.handles,
                "it cannot open files by handle: they are found by names in the state directory, and file handles are volatile",
            ),
            (!traits.xattrs, "it has no user extended attributes: clients cannot set any"),
            (!traits.acls, "it has no POSIX ACLs: clients cannot set ACLs"),
        ];
        features
            .into_iter()
            .filter(|(is_missing, _)| *is_missing)
            .map(|(_, meaning)| meaning)
            .collect()
    }

    /// # Errors
    /// If the directory cannot be opened, or this process cannot serve it as requested.
    pub fn open(path: &Path, options: Options) -> Result<Self, ExportError> {
        if !identity::check_switching().map_err(ExportError::Identity)? {
            return Err(ExportError::KeepsCapabilities);
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |errno: Errno| ExportError::Open { path, source: errno.into() }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::openat(CWD, path, flags, Mode::empty()).map_err(failed(path))?;
        let mount = match options.snapshot {
            Some(number) => Mount::snapshot(directory, number),
            None => Mount::new(directory, true),
        };
        let mount = Arc::new(mount.map_err(failed(path))?);
        let by_handle = identity::can_serve_others() && mount.handles && !options.subtree_check;
        if !by_handle && options.ids.is_none() {
            return Err(ExportError::NeedsIds(path.to_owned()));
        }
        let fd = fs::openat(
            CWD,
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed(path))?;
        let id = identify(fd.as_fd(), &mount).map_err(failed(path))?;
        let proc = Path::new("/proc/self/fd");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = fs::openat(CWD, proc, flags, Mode::empty()).map_err(failed(proc))?;
        let space = fs::fstatvfs(&fd).map_err(failed(path))?;
        let traits = Traits {
            read_only: options.read_only || space.f_flag.contains(fs::StatVfsMountFlags::RDONLY),
            // Below a mount point files may be longer; there the write itself reports the limit.
            file_size_max: if options.cross_mounts || options.snapshot.is_some() {
                probe::OFFSET_MAX
            } else {
                probe::file_size_max(&mount.fd)
            },
            links_max: LINKS_MAX,
            name_len_max: u32::try_from(space.f_namemax)
                .unwrap_or(NAME_LEN_MAX as u32)
                .min(NAME_LEN_MAX as u32),
            xattrs: probe::knows_xattr(&mount.fd, "user.vouch"),
            labels: probe::sets_labels(&mount.fd),
            uncacheable: false,
            acls: probe::knows_xattr(&mount.fd, "system.posix_acl_access"),
            clone_block_len: if options.snapshot.is_some() {
                0
            } else {
                probe::clone_block_len(&mount.fd)
            },
            sparse: mount.finds_holes(),
            // With handles, a file is found for as long as it exists. By names it is lost when
            // moved outside of the server, or when the store lost its last second.
            persistent_ids: by_handle,
            unique_ids: true,
            change_grows: false,
        };
        let crossing = options.cross_mounts.then(|| Crossing::new(fd.as_fd())).transpose();
        let crossing = crossing
            .map_err(|source| ExportError::Open { path: "/proc/self/mountinfo".into(), source })?;
        let remote = OnceLock::new();
        mount.note_remote(&remote);
        let root = Node::new(id, FileType::Directory, mount, fd);
        let nodes = Nodes::new(options.files.clone());
        let inner = Inner {
            traits,
            options,
            root,
            crossing,
            remote,
            covered: Mutex::default(),
            nodes,
            streams: Mutex::default(),
            descriptors,
            swept: AtomicUsize::new(0),
            quota: Mutex::default(),
        };
        inner.refresh_mounts(Blocking::Allowed).map_err(ExportError::Mounts)?;
        Ok(PosixFs { inner: Arc::new(inner) })
    }
}

/// Reported to clients; the file system's own limit shows when reached.
const LINKS_MAX: u32 = 65_000;

pub(crate) fn identify(fd: BorrowedFd<'_>, mount: &Mount) -> Result<FileId, Errno> {
    if mount.handles {
        let (handle, _) = ffi::name_to_handle(fd, c"")?;
        return handle::id_of_handle(mount.id_fsid(), &handle).ok_or(Errno::OVERFLOW);
    }
    let stat = attributes::stat(fd)?;
    let birth = if mount.stacked { 0 } else { attributes::birth(&stat) };
    Ok(handle::id_of_number(
        attributes::inode_scope(&stat, mount),
        stat.stx_ino & mount.inode_mask,
        birth,
    ))
}

impl Inner {
    pub(crate) fn opens_by_handle(&self, mount: &Mount) -> bool {
        identity::can_serve_others() && mount.handles && !self.options.subtree_check
    }

    /// With the thread's rights and never by name, so no race is possible. Only regular files:
    /// others could block or have side effects.
    pub(crate) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let name = rustix::path::DecInt::from_fd(fd);
        fs::openat(
            &self.descriptors,
            name.as_c_str(),
            flags | OFlags::CLOEXEC | OFlags::NOCTTY,
            Mode::empty(),
        )
    }

    pub(crate) fn descriptor_name(
        &self,
        fd: BorrowedFd<'_>,
    ) -> (BorrowedFd<'_>, rustix::path::DecInt) {
        (self.descriptors.as_fd(), rustix::path::DecInt::from_fd(fd))
    }

    /// For calls without a directory descriptor.
    pub(crate) fn descriptor_path(fd: BorrowedFd<'_>) -> String {
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    }
}
