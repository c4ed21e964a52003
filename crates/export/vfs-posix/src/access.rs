//! Asks the kernel as the caller, without a cache. One system call if everything is granted.

use std::os::fd::AsFd;

use vouch_vfs::{Access, FileType, Result};

use crate::errno::OrError;
use crate::ffi;
use crate::node::Node;
use rustix::io::Errno;

const READ: u8 = 4;
const WRITE: u8 = 2;
const EXECUTE: u8 = 1;

/// Kernel bits for each right, on directories and on other files.
const DIRECTORY: [(Access, u8); 8] = [
    (Access::READ, READ),
    (Access::LOOKUP, EXECUTE),
    (Access::MODIFY, WRITE | EXECUTE),
    (Access::EXTEND, WRITE | EXECUTE),
    (Access::DELETE, WRITE | EXECUTE),
    (Access::XATTR_READ, READ),
    (Access::XATTR_WRITE, WRITE),
    (Access::XATTR_LIST, READ),
];
const OTHER: [(Access, u8); 7] = [
    (Access::READ, READ),
    (Access::MODIFY, WRITE),
    (Access::EXTEND, WRITE),
    (Access::EXECUTE, EXECUTE),
    (Access::XATTR_READ, READ),
    (Access::XATTR_WRITE, WRITE),
    (Access::XATTR_LIST, READ),
];

pub(crate) fn granted(node: &Node, wanted: Access) -> Result<Access> {
    let rules = if node.file_type == FileType::Directory { &DIRECTORY[..] } else { &OTHER };
    let rules_of = || rules.iter().filter(|(right, _)| wanted.has(*right));
    let all = rules_of().fold(0, |bits, rule| bits | rule.1);
    let has = if all == 0 || may(node, all)? {
        all
    } else {
        let mut has = 0;
        for bit in [READ, WRITE, EXECUTE] {
            if all & bit != 0 && all != bit && may(node, bit)? {
                has |= bit;
            }
        }
        has
    };
    let granted = rules_of().filter(|(_, bits)| has & bits == *bits);
    Ok(granted.fold(Access::default(), |granted, (right, _)| granted | *right))
}

pub(crate) fn may(node: &Node, bits: u8) -> Result<bool> {
    match ffi::may(node.as_fd(), bits) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => Ok(false),
        Err(errno) => Err(errno).or_error(),
    }
}

/// Like `may`, with the error of an operation.
pub(crate) fn require(node: &Node, bits: u8) -> Result<()> {
    ffi::may(node.as_fd(), bits).or_error()
}
