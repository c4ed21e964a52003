//! Identity of the calling thread for file access. System calls switch one thread; a repeated
//! caller costs nothing.
//!
//! Root with CAP_SETUID and CAP_SETGID takes on the caller's user and groups, and the kernel adapts
//! capabilities over file permissions (capabilities(7)). Each thread drops CAP_SYS_RESOURCE, which
//! would bypass quotas, and has CAP_SYS_ADMIN for single calls only. An unprivileged server acts only as itself.
//!
//! A thread keeps its last caller's identity. Before it opens its own files, it calls
//! [`leave_callers`].

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups, umask};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups};
use vouch_vfs::{Caller, Error, Result};

use crate::errno::OrError;
use crate::ffi;

struct ProcessIdentity {
    uid: u32,
    gid: u32,
    groups: Arc<[u32]>,
    switches: bool,
}

fn process_identity() -> &'static ProcessIdentity {
    static PROCESS: OnceLock<ProcessIdentity> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::DAC_READ_SEARCH;
        let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
        let groups: Vec<u32> =
            getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        let uid = geteuid().as_raw();
        ProcessIdentity {
            uid,
            gid: getegid().as_raw(),
            groups: groups.into(),
            switches: uid == 0 && permitted.contains(needed),
        }
    })
}

/// True if this process may act for other users and open files by handle.
pub fn can_serve_others() -> bool {
    process_identity().switches
}

#[derive(Default)]
struct Thread {
    prepared: bool,
    /// None after a failed switch.
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Option<Arc<[u32]>>,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

pub(crate) fn assume(caller: &Caller) -> Result<()> {
    THREAD.with_borrow_mut(|thread| {
        thread.prepare()?;
        if !process_identity().switches {
            return if caller.uid == process_identity().uid { Ok(()) } else { Err(Error::Access) };
        }
        thread.switch(caller.uid, caller.gid, &caller.groups)
    })
}

/// For operations on open files. Unprivileged users are equivalent there, so threads do not switch
/// between them.
pub(crate) fn assume_privileges(caller: &Caller) -> Result<()> {
    let enough = THREAD.with_borrow(|thread| {
        thread.prepared && caller.uid != 0 && thread.uid.is_some_and(|uid| uid != 0)
    });
    if enough { Ok(()) } else { assume(caller) }
}

/// Acts as the superuser for file access until the guard is dropped, if the process is root. Groups
/// stay.
pub(crate) fn assume_root() -> Result<AsRoot> {
    THREAD.with_borrow_mut(|thread| {
        thread.prepare()?;
        let before = thread.uid;
        if process_identity().switches {
            thread.set_uid(0)?;
        }
        Ok(AsRoot { before, of_thread: PhantomData })
    })
}

#[must_use]
pub(crate) struct AsRoot {
    before: Option<u32>,
    of_thread: PhantomData<*const ()>,
}

impl Drop for AsRoot {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && process_identity().switches
        {
            // If that fails, the thread has no known user, and the next caller is set.
            let _ = THREAD.with_borrow_mut(|thread| thread.set_uid(before));
        }
    }
}

/// The process's own identity in the calling thread. A new thread inherits its creator's identity
/// and also needs this call.
///
/// # Errors
/// If the kernel has no memory.
pub fn leave_callers() -> Result<()> {
    THREAD.with_borrow_mut(|thread| {
        if !process_identity().switches {
            return Ok(());
        }
        thread.switch(process_identity().uid, process_identity().gid, &process_identity().groups)
    })
}

/// One system call with CAP_SYS_ADMIN. PERM if the process may not have it.
pub(crate) fn with_administration<T>(
    call: impl FnOnce() -> std::result::Result<T, Errno>,
) -> std::result::Result<T, Errno> {
    let before = capabilities(None)?;
    if !before.permitted.contains(CapabilitySet::SYS_ADMIN) {
        return Err(Errno::PERM);
    }
    let mut raised = before;
    raised.effective.insert(CapabilitySet::SYS_ADMIN);
    set_capabilities(None, raised)?;
    let done = call();
    set_capabilities(None, before)?;
    done
}

pub(crate) fn with_umask<T>(mask: Option<u16>, call: impl FnOnce() -> T) -> T {
    let Some(mask) = mask else { return call() };
    let _until_dropped = Umask;
    umask(Mode::from_raw_mode((mask & 0o777).into()));
    call()
}

/// Also after a panic, which ends only the call.
struct Umask;

impl Drop for Umask {
    fn drop(&mut self) {
        umask(Mode::empty());
    }
}

impl Thread {
    /// Once in each thread: an own umask of 0, and no power over quotas.
    fn prepare(&mut self) -> Result<()> {
        if self.prepared {
            return Ok(());
        }
        ffi::unshare_fs().or_error()?;
        umask(Mode::empty());
        if process_identity().switches {
            self.set_uid(0)?;
            let mut sets = capabilities(None).or_error()?;
            let dropped = CapabilitySet::SYS_RESOURCE | CapabilitySet::SYS_ADMIN;
            if sets.effective.intersects(dropped) {
                sets.effective.remove(dropped);
                set_capabilities(None, sets).or_error()?;
            }
        }
        self.prepared = true;
        Ok(())
    }

    fn switch(&mut self, uid: u32, gid: u32, groups: &Arc<[u32]>) -> Result<()> {
        let same_groups =
            self.groups.as_ref().is_some_and(|now| Arc::ptr_eq(now, groups) || now == groups);
        if !same_groups {
            self.groups = None;
            let raw: Vec<_> =
                groups.iter().map(|&gid| rustix::process::Gid::from_raw(gid)).collect();
            set_thread_groups(&raw).or_error()?;
            self.groups = Some(Arc::clone(groups));
        }
        if self.gid != Some(gid) {
            self.gid = None;
            ffi::set_fs_gid(gid);
            // The call reports no error: read back the result.
            if gid == u32::MAX || ffi::set_fs_gid(u32::MAX) != gid {
                return Err(Error::Invalid);
            }
            self.gid = Some(gid);
        }
        self.set_uid(uid)
    }

    fn set_uid(&mut self, uid: u32) -> Result<()> {
        if self.uid == Some(uid) {
            return Ok(());
        }
        self.uid = None;
        ffi::set_fs_uid(uid);
        if uid == u32::MAX || ffi::set_fs_uid(u32::MAX) != uid {
            return Err(Error::Invalid);
        }
        self.uid = Some(uid);
        Ok(())
    }
}

/// Switching users drops root's powers. With securebits(7) that keep them, every caller would be
/// root.
pub(crate) fn check_switching() -> Result<bool> {
    if !process_identity().switches {
        return Ok(true);
    }
    assume(&Caller::new(65_534, 65_534, []))?;
    let override_capabilities = CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::CHOWN;
    let kept = capabilities(None).or_error()?.effective.intersects(override_capabilities);
    leave_callers()?;
    Ok(!kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_leaves_no_umask() {
        let thread = || {
            let _as_root = assume_root()?;
            let call = || with_umask(Some(0o777), || panic!("a panic on purpose"));
            assert!(std::panic::catch_unwind(call).is_err());
            Ok::<_, Error>(umask(Mode::empty()))
        };
        let left = std::thread::spawn(thread)
            .join()
            .expect("no other panic")
            .expect("root acts as itself");
        assert_eq!(left, Mode::empty());
    }
}
