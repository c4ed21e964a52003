use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{OFlags, RawDir, Statx};
use vouch_vfs::{FileType, Result};

use crate::attributes::{file_type, stat_name};
use crate::errno::OrError;
use crate::export::Inner;
use crate::ffi::{self, KernelHandle};

/// Bytes of a listing at once.
const LISTING_LEN: usize = 32 << 10;

/// Calls `visit` for each name below the root, with the directory of the name; its answer says
/// whether to enter. Directories are reached by handle, so neither depth nor a rename matters. The
/// thread is root.
pub(super) fn walk(
    inner: &Inner,
    visit: &mut dyn FnMut(BorrowedFd<'_>, &CStr, &Statx) -> ControlFlow<(), bool>,
) -> Result<ControlFlow<()>> {
    let mount = &inner.root.mount;
    let mut due: Vec<KernelHandle> =
        vec![ffi::name_to_handle(inner.root.as_fd(), c"").or_error()?.0];
    let mut buffer = Vec::with_capacity(LISTING_LEN);
    while let Some(handle) = due.pop() {
        // Another thread may have removed it.
        let Ok(path) = ffi::open_by_handle(mount.fd.as_fd(), &handle) else { continue };
        let Ok(fd) = inner.reopen(path.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY) else {
            continue;
        };
        let mut listing = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry.or_error()?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = stat_name(fd.as_fd(), name) else { continue };
            if stat.stx_mnt_id != u64::from(mount.id.unsigned_abs()) {
                continue;
            }
            match visit(fd.as_fd(), name, &stat) {
                ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
                ControlFlow::Continue(true) if file_type(&stat) == Some(FileType::Directory) => {
                    due.extend(
                        ffi::name_to_handle(fd.as_fd(), name).ok().map(|(handle, _)| handle),
                    );
                }
                ControlFlow::Continue(_) => {}
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}
