//! Asks the kernel as the caller, without a cache. One system call if everything is granted.

use std::os::fd::AsFd;

use vouch_vfs::rights::{EXECUTE, READ, WRITE};
use vouch_vfs::{Access, FileType, Result};

use crate::errno::OrError;
use crate::ffi;
use crate::node::Node;
use rustix::io::Errno;

pub(crate) fn granted(node: &Node, wanted: Access) -> Result<Access> {
    let is_directory = node.file_type == FileType::Directory;
    let rules = Access::rules(is_directory).iter().filter(|(right, _)| wanted.has(*right));
    let all = rules.fold(0, |bits, rule| bits | rule.1);
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
    Ok(wanted.granted_by(is_directory, |bits| has & bits == bits))
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
