//! Attributes of files, from the server's to the kernel's.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;
use rustix::io::Errno;
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::Results;
use vouch_nfs4::{Attributes, Bitmap, Fsid};
use vouch_nfs4_client::ReplyBody;

use crate::error::{self, Result};
use crate::fuse::Attr;

/// What each reply about a file has.
pub(crate) const WANTED: Bitmap =
    Bitmap::of(&[1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55]);

/// Attributes of one file at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) change: u64,
    pub(crate) kind: FileType,
    pub(crate) attr: Attr,
}

impl Known {
    pub(crate) const fn is_directory(&self) -> bool {
        matches!(self.kind, FileType::Directory)
    }
}

/// Converts attributes, and remembers names of users.
#[derive(Debug)]
pub(crate) struct Converter {
    root: Mutex<Option<Fsid>>,
    users: Names,
    groups: Names,
    blksize: u32,
}

impl Converter {
    pub(crate) fn new(blksize: u32) -> Self {
        let (users, groups) = (Names::new(false), Names::new(true));
        Self { root: Mutex::new(None), users, groups, blksize }
    }

    /// The result of GETATTR.
    pub(crate) fn next(&self, results: &mut ReplyBody<'_>) -> Result<Known> {
        match results.next_ok().map_err(|error| error::errno(&error))? {
            Results::Getattr(Ok(ok)) => {
                let attributes = ok.attrs.attributes().map_err(|_| Errno::IO)?;
                self.convert(&attributes).ok_or(Errno::IO)
            }
            _ => Err(Errno::IO),
        }
    }

    /// `None` without type or number.
    pub(crate) fn convert(&self, from: &Attributes<'_>) -> Option<Known> {
        let kind = from.file_type?;
        let fsid = from.fsid.unwrap_or_default();
        let root = *self.root.lock().get_or_insert(fsid);
        let fileid = from.fileid.or(from.mounted_on_fileid)?;
        // Numbers of another file system below the mount must not collide.
        let ino = match fsid == root {
            true => fileid,
            false => fileid ^ (fsid.major ^ fsid.minor).wrapping_mul(SPREAD),
        };
        let rdev = from.rawdev.unwrap_or_default();
        let size = from.size.unwrap_or(0);
        let mtime = from.time_modify.unwrap_or_default();
        let attr = Attr {
            ino,
            size,
            blocks: from.space_used.unwrap_or(size).div_ceil(512),
            atime: from.time_access.unwrap_or(mtime),
            mtime,
            ctime: from.time_metadata.unwrap_or(mtime),
            mode: type_bits(kind) | from.mode.unwrap_or(0) & 0o7777,
            nlink: from.numlinks.unwrap_or(1),
            uid: self.users.number(from.owner.map_or(&[], |owner| owner.0)),
            gid: self.groups.number(from.owner_group.map_or(&[], |group| group.0)),
            rdev: device_number(rdev.major, rdev.minor),
            blksize: self.blksize,
        };
        Some(Known { change: from.change.map_or(0, |change| change.0), kind, attr })
    }

    /// For a server that refuses numbers: `user@domain`, with the domain of its own answers.
    pub(crate) fn user_name(&self, uid: u32) -> Option<Vec<u8>> {
        self.users.name(uid)
    }

    pub(crate) fn group_name(&self, gid: u32) -> Option<Vec<u8>> {
        self.groups.name(gid)
    }
}

pub(crate) const fn type_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Regular | FileType::NamedAttr => 0o100_000,
        FileType::Directory | FileType::AttrDir => 0o040_000,
        FileType::Block => 0o060_000,
        FileType::Character => 0o020_000,
        FileType::Symlink => 0o120_000,
        FileType::Socket => 0o140_000,
        FileType::Fifo => 0o010_000,
    }
}

/// As the kernel's `new_encode_dev`.
const fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

pub(crate) const fn device_parts(number: u32) -> (u32, u32) {
    ((number >> 8) & 0xfff, (number & 0xff) | (number >> 12) & 0xf_ff00)
}

/// `user@domain` to number, by the name service. A number in digits stands for itself.
#[derive(Debug)]
struct Names {
    is_group: bool,
    known: Mutex<HashMap<Vec<u8>, (Instant, u32)>>,
    domain: Mutex<Option<String>>,
}

impl Names {
    fn new(is_group: bool) -> Self {
        Self { is_group, known: Mutex::default(), domain: Mutex::default() }
    }

    fn number(&self, text: &[u8]) -> u32 {
        let Ok(text) = std::str::from_utf8(text) else { return NOBODY };
        if let Ok(number) = text.parse() {
            return number;
        }
        if let Some(&(since, number)) = self.known.lock().get(text.as_bytes())
            && since.elapsed() < NAMES_VALID
        {
            return number;
        }
        let (name, domain) = text.split_once('@').unwrap_or((text, ""));
        if !domain.is_empty() {
            *self.domain.lock() = Some(domain.to_owned());
        }
        // The name service may ask a directory over the network.
        let found = tokio::task::block_in_place(|| match self.is_group {
            true => Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw()),
            false => User::from_name(name).ok().flatten().map(|user| user.uid.as_raw()),
        });
        let number = found.unwrap_or(NOBODY);
        let mut known = self.known.lock();
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        known.insert(text.as_bytes().to_vec(), (Instant::now(), number));
        number
    }

    fn name(&self, number: u32) -> Option<Vec<u8>> {
        let domain = self.domain.lock().clone()?;
        let name = tokio::task::block_in_place(|| match self.is_group {
            true => Group::from_gid(Gid::from_raw(number)).ok().flatten().map(|group| group.name),
            false => User::from_uid(Uid::from_raw(number)).ok().flatten().map(|user| user.name),
        })?;
        Some(format!("{name}@{domain}").into_bytes())
    }
}

const NOBODY: u32 = 65534;
const NAMES_MAX: usize = 4096;
const NAMES_VALID: Duration = Duration::from_secs(600);

/// The odd constant of Fibonacci hashing.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_conversions() {
        for (major, minor) in [(8, 1), (259, 300), (4095, 0xf_ffff)] {
            assert_eq!(device_parts(device_number(major, minor)), (major, minor));
        }
    }

    #[test]
    fn file_of_another_file_system_gets_another_number() {
        let converter = Converter::new(4096);
        let of = |major| Attributes {
            file_type: Some(FileType::Regular),
            fileid: Some(7),
            fsid: Some(Fsid { major, minor: 0 }),
            ..Attributes::default()
        };
        let ino = |major| converter.convert(&of(major)).unwrap().attr.ino;
        assert_eq!((ino(1), ino(1)), (7, 7));
        assert_ne!(ino(2), 7);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn owner_is_number_or_known_name_or_nobody() {
        let names = Names::new(false);
        assert_eq!(names.number(b"1234"), 1234);
        assert_eq!(names.number(b"root@example.org"), 0);
        assert_eq!(names.number(b"-no such user@example.org"), NOBODY);
        assert_eq!(names.name(0).as_deref(), Some(&b"root@example.org"[..]));
    }
}
