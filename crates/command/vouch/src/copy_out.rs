//! Works relative to open directories: no path is too long, and no link on the way is followed.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::process::{Resource, Rlimit};
use vouch_tree::{Blob, Content, FileType, Inode};
use vouch_tree_client::{Seek, Tree};

use crate::exit::{At as _, Failure, Outcome};

#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOptions {
    pub(crate) owner: bool,
    pub(crate) xattrs: bool,
    /// Set-id bits of files, capabilities and trusted attributes.
    pub(crate) privileges: bool,
    pub(crate) devices: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) not_kept: u64,
    /// Privileges and devices without an option for them.
    pub(crate) left_out: u64,
}

impl std::ops::AddAssign for Written {
    fn add_assign(&mut self, other: Written) {
        self.bytes += other.bytes;
        self.not_kept += other.not_kept;
        self.left_out += other.left_out;
    }
}

#[derive(Clone)]
pub(crate) struct EntryInDirectory {
    pub(crate) dir: Arc<OwnedFd>,
    pub(crate) name: Vec<u8>,
    pub(crate) shown: Vec<u8>,
}

impl EntryInDirectory {
    pub(crate) fn below(&self, dir: &Arc<OwnedFd>, name: &[u8]) -> EntryInDirectory {
        let shown = if self.shown.is_empty() {
            name.to_vec()
        } else {
            [&self.shown, &b"/"[..], name].concat()
        };
        EntryInDirectory { dir: dir.clone(), name: name.to_vec(), shown }
    }

    /// Private to its owner until it is finished.
    pub(crate) fn make_directory(&self) -> Outcome<OwnedFd> {
        rustix::fs::mkdirat(&self.dir, &*self.name, Mode::RWXU)
            .map_err(io::Error::from)
            .at(self)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, &*self.name, flags, Mode::empty())
            .map_err(io::Error::from)
            .at(self)
    }

    pub(crate) fn link_to(&self, first: &EntryInDirectory) -> Outcome {
        rustix::fs::linkat(&first.dir, &*first.name, &self.dir, &*self.name, AtFlags::empty())
            .map_err(io::Error::from)
            .at(self)
    }

    pub(crate) async fn write(
        &self,
        tree: &Arc<Tree>,
        inode: &Inode,
        keep: CopyOptions,
    ) -> Outcome<Written> {
        let mut written = Written::default();
        if is_device(inode) && !keep.devices {
            tracing::info!(path = %self, "device left out");
            written.left_out += 1;
            return Ok(written);
        }
        let object = if let Content::Regular { blob, .. } = &inode.content {
            let file = self.write_regular(tree, blob, &mut written.bytes).await?;
            OwnedFd::from(file)
        } else {
            match self.make_special(&inode.content) {
                Ok(kind) => self.open_made(kind)?,
                Err(rustix::io::Errno::PERM) if is_device(inode) => {
                    tracing::info!(path = %self, "device left out: operation not permitted");
                    written.not_kept += 1;
                    return Ok(written);
                }
                Err(error) => return Err(io::Error::from(error)).at(self),
            }
        };
        written += self.metadata(&object, tree, inode, keep).await?;
        Ok(written)
    }

    fn make_special(&self, content: &Content) -> rustix::io::Result<rustix::fs::FileType> {
        use rustix::fs::FileType::{BlockDevice, CharacterDevice, Fifo, Socket, Symlink};
        let (kind, device) = match content {
            Content::Symlink(target) => {
                return rustix::fs::symlinkat(&**target, &self.dir, &*self.name).map(|()| Symlink);
            }
            Content::Fifo => (Fifo, 0),
            Content::Socket => (Socket, 0),
            Content::CharDevice(n) => (CharacterDevice, rustix::fs::makedev(n.major, n.minor)),
            Content::BlockDevice(n) => (BlockDevice, rustix::fs::makedev(n.major, n.minor)),
            Content::Regular { .. } | Content::Directory { .. } => {
                return Err(rustix::io::Errno::INVAL);
            }
        };
        rustix::fs::mknodat(&self.dir, &*self.name, kind, Mode::RUSR | Mode::WUSR, device)
            .map(|()| kind)
    }

    fn open_made(&self, kind: rustix::fs::FileType) -> Outcome<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, &*self.name, flags, Mode::empty())
            .map_err(io::Error::from)
            .at(self)?;
        let found = rustix::fs::fstat(&fd).map_err(io::Error::from).at(self)?;
        let is_ours = found.st_uid == rustix::process::geteuid().as_raw() && found.st_nlink == 1;
        if !is_ours || rustix::fs::FileType::from_raw_mode(found.st_mode) != kind {
            return Err(Failure::input(self, "was replaced while it was written")
                .cure("copy into a directory that only you can change"));
        }
        Ok(fd)
    }

    async fn write_regular(&self, tree: &Arc<Tree>, blob: &Blob, bytes: &mut u64) -> Outcome<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, &*self.name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .at(self)?;
        let mut file = File::from(fd);
        let reader = tree.open_file(blob.clone());
        let mut offset = 0;
        while offset < blob.size {
            let Some(data) = tree.seek(blob, offset, Seek::Data).await? else { break };
            let end = tree.seek(blob, data, Seek::Hole).await?.unwrap_or(blob.size);
            offset = data;
            while offset < end {
                let want = STEP.min(usize::try_from(end - offset).unwrap_or(STEP));
                let piece = reader.read(offset, want).await?;
                if piece.is_empty() {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof)).at(self);
                }
                file.write_all_at(&piece, offset).at(self)?;
                offset += piece.len() as u64;
                *bytes += piece.len() as u64;
            }
        }
        file.flush().and_then(|()| file.set_len(blob.size)).at(self)?;
        Ok(file)
    }

    /// Sets owner, then mode (a change of owner clears set-id bits), then attributes, then times,
    /// through the open object: a rename in the destination can't redirect them.
    pub(crate) async fn metadata(
        &self,
        object: &OwnedFd,
        tree: &Tree,
        inode: &Inode,
        keep: CopyOptions,
    ) -> Outcome<Written> {
        let (mut not_kept, mut left_out) = (0, 0);
        let mut lost = |what: &str, error: rustix::io::Errno| {
            tracing::info!(path = %self, %error, "{what} not kept");
            not_kept += 1;
        };
        let mut mode = u32::from(inode.mode);
        if keep.owner {
            let (uid, gid) = (Uid::from_raw(inode.uid), Gid::from_raw(inode.gid));
            if let Err(error) =
                rustix::fs::chownat(object, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
            {
                lost("owner", error);
            }
        } else {
            // Under another owner a set-id bit would grant other rights.
            mode &= !0o6000;
        }
        // The publisher does not decide which programs run with privileges. A directory's set-gid
        // bit only passes on its group.
        if !keep.privileges && !inode.is_directory() && mode & 0o6000 != 0 {
            tracing::info!(path = %self, "set-id bits left out");
            mode &= !0o6000;
            left_out += 1;
        }
        let is_link = inode.file_type() == FileType::Symlink;
        let path = format!("/proc/self/fd/{}", object.as_raw_fd());
        if keep.xattrs && inode.xattrs.size > 0 {
            for (name, value) in tree.xattrs(inode).await?.pairs() {
                // A capability or label grants rights like a set-id bit.
                let grants_rights = name.starts_with(b"security.") || name.starts_with(b"trusted.");
                if grants_rights && keep.owner && !keep.privileges {
                    tracing::info!(path = %self, "attribute {} left out", vouch_daemon::printable::printable(name));
                    left_out += 1;
                    continue;
                }
                if grants_rights && !keep.owner {
                    lost(
                        &format!("attribute {}", vouch_daemon::printable::printable(name)),
                        rustix::io::Errno::PERM,
                    );
                    continue;
                }
                if let Err(error) = rustix::fs::setxattr(&path, &**name, value, XattrFlags::empty())
                {
                    lost(&format!("attribute {}", vouch_daemon::printable::printable(name)), error);
                }
            }
        }
        if !is_link {
            rustix::fs::chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty())
                .map_err(io::Error::from)
                .at(self)?;
        }
        let mtime = Timespec { tv_sec: inode.mtime.s, tv_nsec: inode.mtime.ns.into() };
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: mtime,
        };
        if let Err(error) = rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()) {
            lost("time", error);
        }
        Ok(Written { bytes: 0, not_kept, left_out })
    }
}

pub(crate) fn open_directory(path: &Path) -> Outcome<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from).at(path.display())
}

pub(crate) fn remove(path: &PathBuf) {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => return,
    };
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "cannot remove the incomplete copy");
    }
}

/// Raises the limit of open files: each level of the walk holds a descriptor.
pub(crate) fn allow_deep_trees() {
    let now = rustix::process::getrlimit(Resource::Nofile);
    let want = DESCRIPTORS_MAX.min(now.maximum.unwrap_or(DESCRIPTORS_MAX));
    if now.current.is_some_and(|current| current < want) {
        // Otherwise only very deep trees fail, with their own message.
        let _ = rustix::process::setrlimit(
            Resource::Nofile,
            Rlimit { current: Some(want), maximum: now.maximum },
        );
    }
}

const fn is_device(inode: &Inode) -> bool {
    matches!(inode.content, Content::CharDevice(_) | Content::BlockDevice(_))
}

const DESCRIPTORS_MAX: u64 = 65_536;

const STEP: usize = 1 << 20;
