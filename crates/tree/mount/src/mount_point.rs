//! Reads /proc/self/mountinfo: stat(2) would hang with a hanging server.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getgid, getuid};

use crate::config::{MountOptions, SOURCE_PREFIX, SUBTYPE, device_name};
use crate::error::MountError;

/// Removes a vouch mount whose process has ended. True if there was one.
///
/// # Errors
///
/// [`MountError::Busy`]: the mount is alive. [`MountError::Point`]: a dead mount of another file
/// system.
pub fn clear_dead_mount(point: &Path) -> Result<bool, MountError> {
    let path = absolute(point)?;
    let Some(mount) = mount_at(&path)? else { return Ok(false) };
    if !mount.is_ours() {
        return match fs::metadata(&path) {
            Err(error) if is_dead(&error) => Err(MountError::Point {
                path,
                why: "a dead mount of another file system; unmount it first (`umount DIR`)",
            }),
            _ => Ok(false),
        };
    }
    // statfs(2) always asks the server; the kernel may answer stat(2) from its cache.
    match statvfs(&path) {
        Err(error) if is_dead(&error.into()) => {
            detach(&path)?;
            tracing::info!("{}: removed the dead mount of a killed client", path.display());
            Ok(true)
        }
        _ => Err(MountError::Busy { path }),
    }
}

/// A living mount. `label`: the tree's name, or `auto`.
pub fn is_mounted(label: &str, point: &Path) -> bool {
    let mount = absolute(point).and_then(|path| mount_at(&path)).ok().flatten();
    mount.is_some_and(|mount| mount.is_ours() && mount.source == device_name(label).into_bytes())
        && statvfs(point).is_ok()
}

/// A busy mount disappears at once, and ends when its last file is closed.
pub fn unmount_point(point: &Path) -> Result<(), MountError> {
    let path = existing(point)?;
    match mount_at(&path)? {
        Some(mount) if mount.is_ours() => detach(&path),
        _ => Err(MountError::Point { path, why: "not a vouch mount" }),
    }
}

/// "MAJOR:MINOR". Asks no server.
pub fn mount_device(point: &Path) -> Result<String, MountError> {
    let path = existing(point)?;
    device_at(&path).ok_or(MountError::Point { path, why: "not a vouch mount" })
}

/// The device in mount(8)'s tables: `vouch:` and the tree's name, or `vouch:auto`.
pub fn mount_source(point: &Path) -> Result<OsString, MountError> {
    let path = existing(point)?;
    let mount = mount_at(&path)?
        .filter(Mount::is_ours)
        .ok_or(MountError::Point { path, why: "not a vouch mount" })?;
    Ok(OsString::from_vec(mount.source))
}

/// All vouch mounts that this process sees, dead ones too.
pub fn mount_points() -> io::Result<Vec<PathBuf>> {
    Ok(mounts()?.into_iter().filter(|(_, mount)| mount.is_ours()).map(|(point, _)| point).collect())
}

/// All mounts that this process sees, of any file system. Of several at one path, the last is on top.
pub fn mounts() -> io::Result<Vec<(PathBuf, Mount)>> {
    let text = fs::read(MOUNTINFO)?;
    let mounts = text.split(|&b| b == b'\n').filter_map(parse_line);
    Ok(mounts.map(|(point, mount)| (point.into(), mount)).collect())
}

/// The topmost mount at this path, of any file system and also a dead one.
pub fn mount_on(point: &Path) -> Result<Option<Mount>, MountError> {
    match absolute(point) {
        Ok(path) => mount_at(&path),
        Err(MountError::NoPoint { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// After this time without an answer to one request, the kernel ends the whole connection (Linux 6.14,
/// `fs.fuse.*_request_timeout`).
pub fn request_timeout() -> Option<Duration> {
    let seconds = |name: &str| {
        fs::read_to_string(format!("/proc/sys/fs/fuse/{name}_request_timeout"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let limits = ["default", "max"].into_iter().filter_map(seconds).filter(|limit| *limit > 0);
    limits.min().map(Duration::from_secs)
}

/// The path of a mount that should be there.
fn existing(point: &Path) -> Result<PathBuf, MountError> {
    absolute(point).map_err(|error| match error {
        MountError::NoPoint { path } => MountError::NoMount { path },
        error => error,
    })
}

pub(crate) fn absolute(point: &Path) -> Result<PathBuf, MountError> {
    let failed = |source| MountError::Io {
        doing: "resolving the mount point",
        path: point.to_owned(),
        source,
    };
    match point.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if is_dead(&error) => {
            let parent = match point.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let name = point.file_name().ok_or(MountError::Point {
                path: point.to_owned(),
                why: "cannot mount over the root directory",
            })?;
            Ok(parent.canonicalize().map_err(failed)?.join(name))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(MountError::NoPoint { path: point.to_owned() })
        }
        Err(error) => Err(failed(error)),
    }
}

/// The directory on which to mount.
pub fn existing_directory(point: &Path) -> Result<PathBuf, MountError> {
    let path = absolute(point)?;
    match fs::metadata(&path).is_ok_and(|m| m.is_dir()) {
        true => Ok(path),
        false => Err(MountError::Point { path, why: "not a directory" }),
    }
}

/// Above 128 KiB for root only.
pub fn set_read_ahead(path: &Path, bytes: u32) -> io::Result<()> {
    let mount = mount_at(path).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", mount.device), (bytes / 1024).to_string())
}

/// Mounts a new FUSE device. `None`: this user needs fusermount3.
///
/// The library's own mount(2) leaves the subtype out of the file system type.
pub(crate) fn attach(
    path: &Path,
    label: &str,
    options: &MountOptions,
) -> io::Result<Option<OwnedFd>> {
    let device: OwnedFd = fs::File::options().read(true).write(true).open("/dev/fuse")?.into();
    let (file, user, group) = (device.as_raw_fd(), getuid().as_raw(), getgid().as_raw());
    let mut data =
        format!("fd={file},rootmode=40000,user_id={user},group_id={group},default_permissions");
    if options.others_are_allowed() {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::RDONLY | MountFlags::NOATIME;
    for (allowed, flag) in [
        (options.suid, MountFlags::NOSUID),
        (options.dev, MountFlags::NODEV),
        (options.exec, MountFlags::NOEXEC),
    ] {
        flags.set(flag, !allowed);
    }
    match mount(device_name(label), path, format!("fuse.{SUBTYPE}"), flags, &*CString::new(data)?) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Ordinary users need fusermount3, which checks the owner.
pub(crate) fn detach(path: &Path) -> Result<(), MountError> {
    let failed = |source| MountError::Io { doing: "unmounting", path: path.to_owned(), source };
    match unmount(path, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let mut command = Command::new("fusermount3");
            command
                .args([OsStr::new("-u"), OsStr::new("-z"), OsStr::new("--"), path.as_os_str()])
                .stdin(Stdio::null());
            let output = command.output().map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => MountError::NoFusermount,
                _ => failed(source),
            })?;
            if output.status.success() {
                return Ok(());
            }
            Err(MountError::Denied {
                path: path.to_owned(),
                why: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            })
        }
        Err(error) => Err(failed(error.into())),
    }
}

pub(crate) fn device_at(path: &Path) -> Option<String> {
    mount_at(path).ok().flatten().filter(Mount::is_ours).map(|mount| mount.device)
}

/// In a table as mountinfo, of our mounts only.
pub(crate) fn point_of_device(table: &[u8], device: &str) -> Option<PathBuf> {
    let mut mounts = table.split(|&b| b == b'\n').filter_map(parse_line);
    mounts
        .find(|(_, mount)| mount.is_ours() && mount.device == device)
        .map(|(point, _)| point.into())
}

/// A line of the kernel's mount table.
#[derive(Clone, Debug)]
pub struct Mount {
    /// "MAJOR:MINOR".
    pub device: String,
    pub fs_type: Vec<u8>,
    pub source: Vec<u8>,
}

impl Mount {
    pub fn is_ours(&self) -> bool {
        (self.fs_type == b"fuse.vouch" || self.fs_type == b"fuse")
            && self.source.starts_with(SOURCE_PREFIX.as_bytes())
    }
}

/// The topmost mount at exactly this path.
fn mount_at(path: &Path) -> Result<Option<Mount>, MountError> {
    let text = fs::read(MOUNTINFO).map_err(|source| MountError::Io {
        doing: "reading",
        path: MOUNTINFO.into(),
        source,
    })?;
    Ok(text
        .split(|&b| b == b'\n')
        .filter_map(parse_line)
        .rfind(|(point, _)| point == path.as_os_str())
        .map(|(_, mount)| mount))
}

/// "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw", proc_pid_mountinfo(5).
fn parse_line(line: &[u8]) -> Option<(OsString, Mount)> {
    let mut fields = line.split(|&b| b == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let point = unescape(fields.nth(1)?);
    let mut fields = fields.skip_while(|f| *f != b"-").skip(1);
    let (fs_type, source) = (fields.next()?.to_vec(), fields.next()?.to_vec());
    Some((point, Mount { device, fs_type, source }))
}

fn unescape(field: &[u8]) -> OsString {
    let (mut out, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((&byte, after)) = rest.split_first() {
        let octal = (byte == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|d| std::str::from_utf8(d).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                out.push(escaped);
                rest = &after[3..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(out)
}

const MOUNTINFO: &str = "/proc/self/mountinfo";

fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn parses_mountinfo_lines() {
        let line = br"36 35 0:98 / /mnt/a\040b\134 rw,noatime master:1 - fuse.vouch vouch:@host.id ro,user_id=0";
        let (point, mount) = parse_line(line).unwrap();
        assert_eq!(
            (point.as_bytes(), mount.device.as_str(), mount.is_ours()),
            (&br"/mnt/a b\"[..], "0:98", true)
        );
        assert!(parse_line(b"").is_none() && parse_line(b"36 35 0:98 / /mnt rw").is_none());
    }

    #[test]
    fn plain_directory_has_no_dead_mount() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!clear_dead_mount(dir.path()).unwrap());
        assert!(unmount_point(dir.path()).is_err());
        assert!(clear_dead_mount(&dir.path().join("missing")).is_err());
    }
}
