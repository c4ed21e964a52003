use std::os::fd::AsFd;

use rustix::fs;
use vouch_vfs::{Caller, Result, Space};

use crate::errno::OrError;
use crate::ffi;
use crate::node::Node;

pub(crate) fn space(caller: &Caller, node: &Node) -> Result<Space> {
    let stat = fs::fstatvfs(node).or_error()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let quota = ffi::user_quota(node.mount.fd.as_fd(), caller.uid).ok();
    let mut space = Space {
        bytes_total: bytes(stat.f_blocks),
        bytes_free: bytes(stat.f_bfree),
        bytes_available: bytes(stat.f_bavail),
        // A file system without a limit may say that all numbers are free, as CephFS does.
        files_total: stat.f_files.max(stat.f_ffree),
        files_free: stat.f_ffree,
        files_available: stat.f_favail,
        quota,
    };
    if let Some((used, soft, hard)) = quota {
        let limit = if hard > 0 { hard } else { soft };
        if limit > 0 {
            space.bytes_available = space.bytes_available.min(limit.saturating_sub(used));
        }
    }
    Ok(space)
}
