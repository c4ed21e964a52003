//! The mounts that the kernel lists for this process. Reading the list calls no file system, so it
//! tells what a mount is before anything waits for it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vouch_vfs::{Error, Result, SystemId};

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    /// Of the kernel; changes at each mount.
    pub(crate) id: i32,
    above: i32,
    /// By the mount's own device number; subvolumes show others.
    pub(crate) device: (u32, u32),
    pub(crate) point: PathBuf,
    /// As the kernel names it, for example `ext4` or `fuse.sshfs`.
    pub(crate) kind: Vec<u8>,
    pub(crate) view: MountView,
    pub(crate) is_system_read_only: bool,
    /// The mount shows its file system from the root on.
    pub(crate) is_of_system_root: bool,
    /// A FUSE file system that a user other than root has mounted. Its process says what the files
    /// hold and to whom they belong, and can keep every call waiting.
    pub(crate) is_of_user: bool,
}

/// What a mount permits besides its file system: bind mounts can be read-only or map identities.
/// Mounts of one subtree with the same view stand for each other; a handle from another view must
/// not lead through them. Mount options without effect on a server (nosuid, nodev, noexec) are left
/// out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountView {
    /// The mount is read-only, whether or not its file system is, too.
    pub(crate) is_read_only: bool,
    /// Of an idmapped mount, the mount point: the kernel shows no mapping before Linux 6.15.
    pub(crate) mapped_at: Option<Vec<u8>>,
}

impl MountLine {
    fn parse(line: &[u8]) -> Option<Self> {
        // The first fields are numbers; the rest of a line need not be text.
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
        let mut fields = line.split(|&byte| byte == b' ');
        let (id, above) = (number(fields.next()?)?, number(fields.next()?)?);
        let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
        let (root, point, options) = (fields.next()?, fields.next()?, fields.next()?);
        while fields.next()? != b"-" {}
        let kind = fields.next()?.to_vec();
        let of_file_system = fields.next_back()?;
        let has_option = |options: &[u8], wanted: &[u8]| {
            options.split(|&byte| byte == b',').any(|option| option == wanted)
        };
        let is_fuse = kind.starts_with(b"fuse") && kind != b"fusectl";
        Some(MountLine {
            id,
            above,
            device: (major.parse().ok()?, minor.parse().ok()?),
            point: PathBuf::from(OsStr::from_bytes(&unescape(point))),
            view: MountView {
                is_read_only: has_option(options, b"ro"),
                mapped_at: has_option(options, b"idmapped").then(|| point.to_vec()),
            },
            is_system_read_only: has_option(of_file_system, b"ro"),
            is_of_system_root: root == b"/",
            is_of_user: is_fuse && !has_option(of_file_system, b"user_id=0"),
            kind,
        })
    }

    pub(crate) fn system(&self) -> SystemId {
        SystemId::of_device(self.device.0, self.device.1)
    }

    pub(crate) fn has_kind(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| kind.as_bytes() == self.kind)
    }

    /// A call to it may wait for other machines or processes without a limit.
    pub(crate) fn is_remote(&self) -> bool {
        self.kind.starts_with(b"fuse")
            || self.kind.starts_with(b"nfs")
            || self.has_kind(&REMOTE_KINDS)
    }

    /// Opening its directories mounts something.
    pub(crate) fn is_automount(&self) -> bool {
        self.has_kind(&["autofs"])
    }
}

/// Besides FUSE and NFS.
const REMOTE_KINDS: [&str; 11] =
    ["ceph", "lustre", "gpfs", "beegfs", "gfs2", "ocfs2", "cifs", "smb3", "9p", "afs", "virtiofs"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountTable(Vec<MountLine>);

impl MountTable {
    pub(crate) fn read() -> Result<Self> {
        let text = std::fs::read("/proc/self/mountinfo").map_err(Error::Io)?;
        Ok(MountTable(text.split(|&byte| byte == b'\n').filter_map(MountLine::parse).collect()))
    }

    /// Without mounts elsewhere.
    pub(crate) fn within(mut self, root: &Path, root_mount: i32) -> Self {
        self.0.retain(|line| {
            line.id == root_mount || (line.point != root && line.point.starts_with(root))
        });
        self
    }

    pub(crate) fn get(&self, id: i32) -> Option<&MountLine> {
        self.0.iter().find(|line| line.id == id)
    }

    pub(crate) fn at<'a>(&'a self, point: &'a Path) -> impl Iterator<Item = &'a MountLine> {
        self.0.iter().filter(move |line| line.point == point)
    }

    /// Mount points below `directory`, relative to it.
    pub(crate) fn points_below(&self, directory: &Path) -> Vec<PathBuf> {
        let below = self.0.iter().filter_map(|line| line.point.strip_prefix(directory).ok());
        below.filter(|below| !below.as_os_str().is_empty()).map(Path::to_owned).collect()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &MountLine> {
        self.0.iter()
    }

    /// The mount, or one that its path leads through, fulfils `condition`.
    pub(crate) fn is_behind(
        &self,
        line: &MountLine,
        condition: impl Fn(&MountLine) -> bool,
    ) -> bool {
        let mut next = Some(line);
        // The limit ends circles, which no valid table has.
        for _ in 0..=self.0.len() {
            let Some(line) = next else { return false };
            if condition(line) {
                return true;
            }
            next = self.get(line.above);
        }
        true
    }

    /// Users' own mounts do not count: they come and go, and nobody crosses them.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        !self
            .0
            .iter()
            .filter(|line| !line.is_of_user)
            .eq(other.0.iter().filter(|line| !line.is_of_user))
    }
}

/// Tells when the kernel's list has changed.
pub(crate) struct MountWatch(File);

impl MountWatch {
    pub(crate) fn new() -> std::io::Result<Self> {
        File::open("/proc/self/mountinfo").map(MountWatch)
    }

    /// Since the last call; true to one of several threads.
    pub(crate) fn has_changed(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok()
            && polled[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
    }
}

/// mountinfo writes blanks and similar bytes as three octal digits.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(coded) if byte == b'\\' => {
                plain.push(coded);
                rest = &after[3..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_mount_points_are_unescaped() {
        assert_eq!(unescape(br"/a\040b\134\011/c"), b"/a b\\\t/c");
        assert_eq!(unescape(br"/a\04"), br"/a\04");
    }

    #[test]
    fn line_says_whose_fuse_mount_it_is() {
        let line = |kind: &str, options: &str| {
            MountLine::parse(
                format!("36 35 98:0 / /a\\040b rw,nosuid shared:1 - {kind} it {options}")
                    .as_bytes(),
            )
            .expect("valid")
        };
        let of_user = line("fuse.sshfs", "rw,user_id=1000,group_id=0");
        assert!(of_user.is_of_user && of_user.is_remote() && of_user.point == Path::new("/a b"));
        assert!(
            !line("fuse", "rw,user_id=0,group_id=0").is_of_user
                && !line("fusectl", "rw").is_of_user
                && !line("ext4", "rw").is_remote()
        );
        assert!(
            MountLine::parse(b"").is_none() && MountLine::parse(b"36 35 98:0 / /a rw").is_none()
        );
    }
}
