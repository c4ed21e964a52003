use std::os::fd::AsFd;

use rustix::fs;
use vouch_vfs::{Caller, Quota, Result, Space};

use crate::errno::OrError;
use crate::ffi::{self, QuotaKind};
use crate::identity;
use crate::node::Node;

/// `export`: of the whole export, if the file counts.
pub(crate) fn space(caller: &Caller, node: &Node, export: Option<Quota>) -> Result<Space> {
    let stat = fs::fstatvfs(node).or_error()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let record = || ffi::quota_of(node.mount.fd.as_fd(), QuotaKind::User, caller.uid);
    let quota = identity::with_administration(record).ok();
    let quota = quota.map(|record| (record.used, record.soft(), record.hard()));
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
    let own_left = quota.and_then(|(used, soft, hard)| {
        let limit = if hard > 0 { hard } else { soft };
        (limit > 0).then(|| limit.saturating_sub(used))
    });
    space.bytes_available = space.bytes_available.min(own_left.unwrap_or(u64::MAX));
    if let Some(Quota { used, limit, .. }) = export {
        let left = limit.saturating_sub(used);
        space.bytes_total = space.bytes_total.min(limit);
        space.bytes_free = space.bytes_free.min(left);
        space.bytes_available = space.bytes_available.min(left);
        // One limit is shown (RFC 8881 §5.8.2.28): the one that leaves less.
        if own_left.is_none_or(|own_left| left <= own_left) {
            space.quota = Some((used, limit, limit));
        }
    }
    Ok(space)
}
