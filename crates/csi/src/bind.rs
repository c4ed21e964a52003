//! Bind mounts of a directory within a tree, whose publisher chooses its symbolic links.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};

use tonic::Status;

/// A copy of the mount at `root`, of the directory `within`, not attached yet. No link leads out of
/// `root`. The copy has the flags of the mount: read-only, `nosuid`, `nodev`.
pub(crate) fn copy(root: &Path, within: &str) -> Result<OwnedFd, Status> {
    let local = |error: Errno, doing: &str| {
        Status::internal(format!("{doing}: {}", io::Error::from(error)))
    };
    let base =
        rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| local(error, "opening the tree"))?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let clone =
        |of: &OwnedFd| open_tree(of, "", clone).map_err(|error| local(error, "copying the mount"));
    // Without a look at the file system, whose server may be away.
    if within.is_empty() {
        return clone(&base);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let directory =
        openat2(&base, within, flags, Mode::empty(), resolve).map_err(|error| match error {
            Errno::NOENT => Status::not_found(format!("path: the tree has no directory {within}")),
            Errno::NOTDIR => Status::invalid_argument(format!("path: {within} is no directory")),
            Errno::XDEV | Errno::LOOP => Status::invalid_argument(format!(
                "path: a symbolic link in {within} leads out of the tree"
            )),
            error => local(error, "path"),
        })?;
    clone(&directory)
}

/// Replaces all mounts at `target`, also dead ones.
pub(crate) fn attach(copy: &OwnedFd, target: &Path) -> Result<(), Status> {
    unmount_all(target, true)?;
    cover(copy, target)
}

/// Above the dead mount at `target`. A running container has a copy of the dead mount, to which the kernel
/// propagates what is mounted on it, not what replaces it.
pub(crate) fn cover(copy: &OwnedFd, target: &Path) -> Result<(), Status> {
    move_mount(copy, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| Status::internal(format!("mounting: {}", io::Error::from(error))))
}

/// Ends all mounts at exactly this path. `lazily`: also one that is in use or dead.
pub(crate) fn unmount_all(target: &Path, lazily: bool) -> Result<(), Status> {
    let flags =
        UnmountFlags::NOFOLLOW | if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    loop {
        match unmount(target, flags) {
            Ok(()) => {}
            // Not mounted, or no longer there.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(error) => {
                return Err(Status::internal(format!(
                    "unmounting {}: {}",
                    target.display(),
                    io::Error::from(error)
                )));
            }
        }
    }
}

/// A FUSE mount whose process never answers, until the file is dropped.
#[cfg(test)]
pub(crate) fn mount_without_answers(target: &Path) -> std::fs::File {
    use std::os::fd::AsRawFd as _;
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("hung", target, "fuse", flags, &*options).unwrap();
    device
}
