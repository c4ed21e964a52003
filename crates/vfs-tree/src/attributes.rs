//! What is told of a file: an inode of the tree as attributes, the same as the mount shows.

use vouch_tree::{Content, FileType as TreeType, Timestamp};
use vouch_vfs::{Attributes, FileType, Time};

use crate::node::Node;

/// The attributes of a node of the file system `fsid`. `change`: its change attribute.
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
            Content::CharDevice(number) | Content::BlockDevice(number) => (number.major, number.minor),
            _ => (0, 0),
        },
        fsid,
        file_number: node.number.0,
        // What is published was not read, and the time at which a copy was made is not part of it.
        accessed: modified,
        modified,
        changed: modified,
        created: None,
        change,
    }
}

/// The type in the words of a file system.
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
