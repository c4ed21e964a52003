//! Mounts a FUSE device: root with mount(2), other users with fusermount3.

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{getgid, getuid};

/// How the kernel shows and restricts the mount.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    /// For mount(8)'s tables.
    pub(crate) source: String,
    pub(crate) read_only: bool,
    pub(crate) allow_other: bool,
    /// The kernel checks modes and owners.
    pub(crate) default_permissions: bool,
    pub(crate) suid: bool,
    pub(crate) dev: bool,
    pub(crate) exec: bool,
}

/// The device of a mount that has begun.
#[derive(Debug)]
pub(crate) struct Attached(pub(crate) OwnedFd);

pub(crate) fn attach(path: &Path, how: &Attachment) -> io::Result<Attached> {
    let device: OwnedFd = std::fs::File::options().read(true).write(true).open("/dev/fuse")?.into();
    let (file, user, group) = (device.as_raw_fd(), getuid().as_raw(), getgid().as_raw());
    let mut data = format!("fd={file},rootmode=40000,user_id={user},group_id={group}");
    if how.default_permissions {
        data.push_str(",default_permissions");
    }
    if how.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, how.read_only);
    flags.set(MountFlags::NOSUID, !how.suid);
    flags.set(MountFlags::NODEV, !how.dev);
    flags.set(MountFlags::NOEXEC, !how.exec);
    match mount(&*how.source, path, FS_TYPE, flags, &*CString::new(data)?) {
        Ok(()) => Ok(Attached(device)),
        Err(Errno::PERM) => attach_by_helper(path, how),
        Err(error) => Err(error.into()),
    }
}

/// fusermount3 checks the owner of the directory, and sends the device over its standard input.
fn attach_by_helper(path: &Path, how: &Attachment) -> io::Result<Attached> {
    let (ours, theirs) = UnixStream::pair()?;
    let output = Command::new("fusermount3")
        .arg("-o")
        .arg(helper_options(how))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&ours, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(device) = descriptors.next()
        {
            return Ok(Attached(device));
        }
    }
    Err(io::Error::other("fusermount3 sent no device"))
}

fn helper_options(how: &Attachment) -> OsString {
    // A comma ends an option.
    let source = how.source.replace(['\\', ','], ".");
    let mut options = vec![format!("fsname={source}"), "subtype=vouch".into()];
    for (is_set, word) in [
        (how.read_only, "ro"),
        (how.allow_other, "allow_other"),
        (how.default_permissions, "default_permissions"),
        (!how.suid, "nosuid"),
        (!how.dev, "nodev"),
        (!how.exec, "noexec"),
    ] {
        if is_set {
            options.push(word.into());
        }
    }
    OsString::from_vec(options.join(",").into_bytes())
}

const FS_TYPE: &str = "fuse.vouch";
