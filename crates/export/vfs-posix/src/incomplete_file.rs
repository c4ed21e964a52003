//! unlink removes any file under the name. So the name is first moved to a private one, checked
//! there, and moved back if it is another file's.

use std::ffi::{CStr, CString};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, RenameFlags, Statx};
use rustix::io::Errno;
use vouch_vfs::{Caller, Error, FileId, FileType, Name, Result};

use crate::attributes::{file_type, stat, stat_name};
use crate::c_name::CName;
use crate::directory_lock;
use crate::errno::OrError;
use crate::export::Inner;
use crate::identity;
use crate::node::Node;

impl Inner {
    pub(crate) fn remove_incomplete(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        id: &FileId,
    ) -> Result<()> {
        self.changeable()?;
        let directory = self.node(directory)?;
        let made = match self.node(id) {
            Err(Error::Stale) => return Ok(()),
            made => made?,
        };
        identity::assume(caller)?;
        let _locked = directory_lock::lock(&directory.id, self.home(&directory.id));
        remove_if_same_file(&directory, &CName::new(name), &stat(made.as_fd()).or_error()?)?;
        directory.note_change();
        made.note_change();
        if stat(made.as_fd()).is_ok_and(|stat| stat.stx_nlink == 0) {
            made.note_unlinked();
            if !self.nodes.is_open(id) {
                made.count_removed();
            }
            self.nodes.forget(id);
            if let Some(ids) = &self.options.ids {
                ids.forget(id);
            }
        }
        Ok(())
    }
}

/// Does nothing if the name is another file's, or a directory that is not empty. The caller has
/// locked the directory: the name is gone for a moment.
pub(crate) fn remove_if_same_file(directory: &Node, name: &CName, made: &Statx) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if !is_named(directory, name, made)? {
        return Ok(());
    }
    let flags = if file_type(made) == Some(FileType::Directory) {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    let private_name = format!(
        ".vouch-{}-{:x}-{:x}",
        std::process::id(),
        made.stx_ino,
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let private_name = CString::new(private_name).expect("letters and digits have no NUL");
    match move_without_replacing(directory, name, &private_name) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        // The file system cannot do that, but nothing else has the private name.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            match fs::renameat(directory, &**name, directory, &*private_name) {
                Err(Errno::NOENT) => return Ok(()),
                moved => moved.or_error()?,
            }
        }
        Err(errno) => return Err(errno).or_error(),
    }
    let removed = match is_named(directory, &private_name, made) {
        Ok(true) => fs::unlinkat(directory, &*private_name, flags).or_error(),
        Ok(false) => Err(Error::Exists),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Ok(()),
        // Another file, or not empty any more: it gets its name back unless that is taken.
        Err(error) => restore_name(directory, &private_name, name).or_error().and(match error {
            Error::Exists | Error::NotEmpty => Ok(()),
            error => Err(error),
        }),
    }
}

fn move_without_replacing(
    directory: &Node,
    from: &CStr,
    to: &CStr,
) -> std::result::Result<(), Errno> {
    fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE)
}

fn restore_name(
    directory: &Node,
    private_name: &CStr,
    name: &CStr,
) -> std::result::Result<(), Errno> {
    match move_without_replacing(directory, private_name, name) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        restored => return restored,
    }
    // link(2) never replaces a file.
    match fs::linkat(directory, private_name, directory, name, AtFlags::empty()) {
        Ok(()) => fs::unlinkat(directory, private_name, AtFlags::empty()),
        // A directory, which replaces empty directories only, or a file that the caller may not link.
        Err(Errno::PERM) => fs::renameat(directory, private_name, directory, name),
        Err(errno) => Err(errno),
    }
}

fn is_named(directory: &Node, name: &CStr, made: &Statx) -> Result<bool> {
    match stat_name(directory.as_fd(), name) {
        Ok(found) => Ok((found.stx_ino, found.stx_dev_major, found.stx_dev_minor)
            == (made.stx_ino, made.stx_dev_major, made.stx_dev_minor)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno).or_error(),
    }
}
