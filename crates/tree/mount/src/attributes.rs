use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, INodeNo};
use vouch_tree::inode::DeviceNumber;
use vouch_tree::{Blob, BlobBody, Content, FileType, Inode, Timestamp};

use vouch_tree::inode_number::InodeNumber as NodeId;

/// Size of a page and of a stdio buffer. Read-ahead makes larger reads.
const BLOCK_LEN: u32 = 4096;

/// Readdirplus entry with a name of average length.
const LISTED_LEN: u64 = 192;

const LISTING_LEN_MAX: u32 = 1 << 20;

pub(crate) fn attributes(id: NodeId, inode: &Inode) -> FileAttr {
    let mtime = system_time(inode.mtime);
    let space = match &inode.content {
        Content::Regular { space, .. } => *space,
        _ => 0,
    };
    FileAttr {
        ino: INodeNo(id.0),
        size: inode.size(),
        blocks: space.div_ceil(512),
        atime: mtime,
        mtime,
        ctime: mtime,
        crtime: mtime,
        kind: kind(inode.file_type()),
        perm: inode.mode,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: match &inode.content {
            Content::CharDevice(number) | Content::BlockDevice(number) => encode_device(*number),
            _ => 0,
        },
        blksize: match &inode.content {
            Content::Directory { entries, .. } => listing_len(*entries),
            _ => BLOCK_LEN,
        },
        flags: 0,
    }
}

/// st_blksize, the buffer length of readdir(3): 200,000 entries take 40 requests instead of 1,000.
fn listing_len(entries: u64) -> u32 {
    let len = entries.saturating_mul(LISTED_LEN).min(LISTING_LEN_MAX.into());
    (len as u32).next_power_of_two().max(BLOCK_LEN)
}

pub(crate) const fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// Saves memory per known file; the directory's page still has the bytes.
pub(crate) fn without_inline(inode: &Inode) -> Inode {
    let strip = |blob: &Blob| match &blob.body {
        BlobBody::Inline(_) => Blob { size: blob.size, body: BlobBody::Inline(Vec::new()) },
        _ => blob.clone(),
    };
    let content = match &inode.content {
        Content::Regular { blob, space } => Content::Regular { blob: strip(blob), space: *space },
        other => other.clone(),
    };
    Inode { xattrs: strip(&inode.xattrs), content, ..*inode }
}

pub(crate) const fn lacks_inline(blob: &Blob) -> bool {
    matches!(&blob.body, BlobBody::Inline(bytes) if bytes.len() as u64 != blob.size)
}

fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.s.unsigned_abs());
    let second =
        if time.s < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second.and_then(|s| s.checked_add(Duration::from_nanos(time.ns.into()))).unwrap_or(UNIX_EPOCH)
}

/// The kernel's 32 bits: 12 bits major, 20 bits minor.
const fn encode_device(number: DeviceNumber) -> u32 {
    (number.minor & 0xff) | ((number.major & 0xfff) << 8) | ((number.minor & 0xfff00) << 12)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn file(len: usize, link_group: u64) -> Inode {
        Inode {
            uid: 1,
            gid: 2,
            mtime: Timestamp { s: 1, ns: 2 },
            link_group,
            ..Inode::new(
                0o644,
                Content::Regular {
                    blob: Blob { size: len as u64, body: BlobBody::Inline(vec![b'x'; len]) },
                    space: 0,
                },
            )
        }
    }

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = system_time(Timestamp { s: -2, ns: 800_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(time).unwrap(), Duration::new(1, 200_000_000));
        assert_eq!(
            system_time(Timestamp { s: i64::MAX, ns: 999_999_999 }),
            UNIX_EPOCH + Duration::new(i64::MAX as u64, 999_999_999)
        );
        system_time(Timestamp { s: i64::MIN, ns: 0 });
    }

    #[test]
    fn device_numbers_match_the_kernel() {
        assert_eq!(encode_device(DeviceNumber { major: 8, minor: 1 }), 0x801);
        assert_eq!(encode_device(DeviceNumber { major: 259, minor: 0x12345 }), 0x1231_0345);
    }

    #[test]
    fn large_directories_have_large_blksize() {
        assert_eq!(listing_len(0), BLOCK_LEN);
        assert_eq!(listing_len(200), 64 << 10);
        assert_eq!(listing_len(3000), 1 << 20);
        assert_eq!(listing_len(u64::MAX), LISTING_LEN_MAX);
    }

    #[test]
    fn inode_without_inline_keeps_its_size() {
        let without_inline = without_inline(&file(700, 0));
        assert_eq!(without_inline.size(), 700);
        let Content::Regular { blob, .. } = &without_inline.content else { unreachable!() };
        assert!(lacks_inline(blob) && !lacks_inline(&Blob::empty()));
    }
}
