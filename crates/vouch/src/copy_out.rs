//! Writes files of a published tree to a local directory with all permitted metadata. Works
//! relative to open directories: no path is too long, and no link on the way is followed.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::process::{Resource, Rlimit};
use vouch_tree::{Content, FileType, Inode};
use vouch_tree_client::{Seek, Tree};

use crate::exit::{At as _, Outcome};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    pub(crate) owner: bool,
    pub(crate) xattrs: bool,
    /// Set-id bits of files, capabilities and trusted attributes.
    pub(crate) privileges: bool,
    pub(crate) devices: bool,
}

/// Statistics of one file, with the metadata that could not be set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) not_kept: u64,
    /// Privileges and devices that the user did not ask for.
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
pub(crate) struct Place {
    pub(crate) dir: Arc<OwnedFd>,
    pub(crate) name: Vec<u8>,
    pub(crate) shown: Vec<u8>,
}

impl Place {
    pub(crate) fn below(&self, dir: &Arc<OwnedFd>, name: &[u8]) -> Place {
        let shown = if self.shown.is_empty() { name.to_vec() } else { [&self.shown, &b"/"[..], name].concat() };
        Place { dir: dir.clone(), name: name.to_vec(), shown }
    }

    /// Creates the directory, private to its owner until it is finished.
    pub(crate) fn make_directory(&self) -> Outcome<OwnedFd> {
        rustix::fs::mkdirat(&self.dir, &*self.name, Mode::RWXU).map_err(io::Error::from).at(self)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, &*self.name, flags, Mode::empty()).map_err(io::Error::from).at(self)
    }

    pub(crate) fn link_to(&self, first: &Place) -> Outcome {
        rustix::fs::linkat(&first.dir, &*first.name, &self.dir, &*self.name, AtFlags::empty()).map_err(io::Error::from).at(self)
    }

    pub(crate) async fn write(&self, tree: &Arc<Tree>, inode: &Inode, keep: Keep) -> Outcome<Written> {
        let mut written = Written::default();
        if is_device(inode) && !keep.devices {
            tracing::info!(path = %self, "device left out");
            written.left_out += 1;
            return Ok(written);
        }
        let made = match &inode.content {
            Content::Regular { .. } => {
                written.bytes = self.write_regular(tree, inode).await?;
                Ok(())
            }
            Content::Symlink(target) => rustix::fs::symlinkat(&**target, &self.dir, &*self.name),
            Content::Fifo => self.node(rustix::fs::FileType::Fifo, 0),
            Content::Socket => self.node(rustix::fs::FileType::Socket, 0),
            Content::CharDevice(n) => self.node(rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(n.major, n.minor)),
            Content::BlockDevice(n) => self.node(rustix::fs::FileType::BlockDevice, rustix::fs::makedev(n.major, n.minor)),
            Content::Directory { .. } => Ok(()),
        };
        match made {
            Ok(()) => {}
            Err(rustix::io::Errno::PERM) if is_device(inode) => {
                tracing::info!(path = %self, "device left out: operation not permitted");
                written.not_kept += 1;
                return Ok(written);
            }
            Err(error) => return Err(io::Error::from(error)).at(self),
        }
        written += self.metadata(tree, inode, keep).await?;
        Ok(written)
    }

    fn node(&self, kind: rustix::fs::FileType, device: u64) -> rustix::io::Result<()> {
        rustix::fs::mknodat(&self.dir, &*self.name, kind, Mode::RUSR | Mode::WUSR, device)
    }

    async fn write_regular(&self, tree: &Arc<Tree>, inode: &Inode) -> Outcome<u64> {
        let Content::Regular { blob, .. } = &inode.content else { return Ok(0) };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, &*self.name, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from).at(self)?;
        let mut file = File::from(fd);
        let reader = tree.open_file(blob.clone());
        let (mut offset, mut bytes) = (0, 0);
        while offset < blob.size {
            // One seek suffices for a file without holes.
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
                bytes += piece.len() as u64;
            }
        }
        file.flush().and_then(|()| file.set_len(blob.size)).at(self)?;
        Ok(bytes)
    }

    /// Sets owner, then mode (a change of owner clears set-id bits), then attributes, then times.
    pub(crate) async fn metadata(&self, tree: &Tree, inode: &Inode, keep: Keep) -> Outcome<Written> {
        let (mut not_kept, mut left_out) = (0, 0);
        let mut lost = |what: &str, error: rustix::io::Errno| {
            tracing::info!(path = %self, %error, "{what} not kept");
            not_kept += 1;
        };
        let mut mode = u32::from(inode.mode);
        if keep.owner {
            let (uid, gid) = (Uid::from_raw(inode.uid), Gid::from_raw(inode.gid));
            if let Err(error) = rustix::fs::chownat(&self.dir, &*self.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
                lost("owner", error);
            }
        } else {
            // Under another owner a set-id bit would grant other rights.
            mode &= !0o6000;
        }
        // The publisher does not decide which programs run with privileges. A directory's set-gid bit
        // only passes on its group.
        if !keep.privileges && !inode.is_directory() && mode & 0o6000 != 0 {
            tracing::info!(path = %self, "set-id bits left out");
            mode &= !0o6000;
            left_out += 1;
        }
        let is_link = inode.file_type() == FileType::Symlink;
        if keep.xattrs && inode.xattrs.size > 0 {
            let path = self.by_descriptor();
            for (name, value) in tree.xattrs(inode).await?.pairs() {
                // Under another owner a capability or label would grant other rights, like a set-id
                // bit.
                let grants_rights = name.starts_with(b"security.") || name.starts_with(b"trusted.");
                if grants_rights && keep.owner && !keep.privileges {
                    tracing::info!(path = %self, "attribute {} left out", vouch_daemon::printable::printable(name));
                    left_out += 1;
                    continue;
                }
                if grants_rights && !keep.owner {
                    lost(&format!("attribute {}", vouch_daemon::printable::printable(name)), rustix::io::Errno::PERM);
                    continue;
                }
                if let Err(error) = rustix::fs::lsetxattr(&path, &**name, value, XattrFlags::empty()) {
                    lost(&format!("attribute {}", vouch_daemon::printable::printable(name)), error);
                }
            }
        }
        if !is_link {
            rustix::fs::chmodat(&self.dir, &*self.name, Mode::from_raw_mode(mode), AtFlags::empty()).map_err(io::Error::from).at(self)?;
        }
        let mtime = Timespec { tv_sec: inode.mtime.s, tv_nsec: inode.mtime.ns.into() };
        let times = Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: mtime };
        if let Err(error) = rustix::fs::utimensat(&self.dir, &*self.name, &times, AtFlags::SYMLINK_NOFOLLOW) {
            lost("time", error);
        }
        Ok(Written { bytes: 0, not_kept, left_out })
    }

    /// There are no calls for attributes relative to a directory; /proc/self/fd replaces them.
    fn by_descriptor(&self) -> Vec<u8> {
        [format!("/proc/self/fd/{}/", self.dir.as_fd().as_raw_fd()).as_bytes(), &self.name].concat()
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
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(want), maximum: now.maximum });
    }
}

const fn is_device(inode: &Inode) -> bool {
    matches!(inode.content, Content::CharDevice(_) | Content::BlockDevice(_))
}

const DESCRIPTORS_MAX: u64 = 65_536;

const STEP: usize = 1 << 20;
