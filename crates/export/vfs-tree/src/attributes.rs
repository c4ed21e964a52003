//! An inode of the tree, shown as in the mount.

use vouch_tree::{Content, FileType as TreeType, Timestamp};
use vouch_vfs::{Attributes, FileType, Time};

use crate::node::Node;

pub(crate) fn attributes(node: &Node, fsid: u64, change: u64) -> Attributes {
    let inode = &*node.inode;
    let modified = time(inode.mtime);
    Attributes {
        file_type: file_type(inode.file_type()),
        mode: inode.mode,
        links: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size(),
        space_used: match &inode.content {
            Content::Regular { space, .. } => *space,
            _ => 0,
        },
        device: match &inode.content {
            Content::CharDevice(number) | Content::BlockDevice(number) => {
                (number.major, number.minor)
            }
            _ => (0, 0),
        },
        fsid,
        file_number: node.number.0,
        // The tree has no access times, and no times of the copy.
        accessed: modified,
        modified,
        changed: modified,
        created: None,
        change,
    }
}

pub(crate) const fn file_type(file_type: TreeType) -> FileType {
    match file_type {
        TreeType::Regular => FileType::Regular,
        TreeType::Directory => FileType::Directory,
        TreeType::Symlink => FileType::Symlink,
        TreeType::Fifo => FileType::Fifo,
        TreeType::Socket => FileType::Socket,
        TreeType::CharDevice => FileType::CharDevice,
        TreeType::BlockDevice => FileType::BlockDevice,
    }
}

const fn time(time: Timestamp) -> Time {
    Time { seconds: time.s, nanos: time.ns }
}
