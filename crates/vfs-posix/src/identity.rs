//! As whom the calling thread uses files. Switched a thread at a time by system calls that change
//! no other, remembered so that the same caller costs none.
//!
//! A server that may (it runs as root, with CAP_SETUID and CAP_SETGID) takes on user, group and
//! supplementary groups of the caller. The capabilities that stand above file permissions go and
//! come by themselves when the file system user leaves and becomes 0 (capabilities(7));
//! CAP_SYS_RESOURCE, which would let callers write beyond their quota, is put down once a thread. A
//! server that may not acts as itself, and for nobody else.
//!
//! A thread keeps the identity of its last caller. One that has files of its own to open calls
//! [`leave_callers`] first.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use rustix::fs::Mode;
use rustix::process::{getegid, geteuid, getgroups, umask};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups};
use vouch_vfs::{Caller, Error, Result};

use crate::errno::OrError;
use crate::ffi;

/// What this process is, told once.
struct Own {
    uid: u32,
    gid: u32,
    groups: Arc<[u32]>,
    switches: bool,
}

fn own() -> &'static Own {
    static OWN: OnceLock<Own> = OnceLock::new();
    OWN.get_or_init(|| {
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::DAC_READ_SEARCH;
        let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
        let groups: Vec<u32> = getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        let uid = geteuid().as_raw();
        Own { uid, gid: getegid().as_raw(), groups: groups.into(), switches: uid == 0 && permitted.contains(needed) }
    })
}

/// Whether this process can act for callers other than itself, and open files by handle: it is root
/// and has kept the capabilities for it.
pub fn can_serve_others() -> bool {
    own().switches
}

#[derive(Default)]
struct Thread {
    prepared: bool,
    /// What was set last; none where a switch has failed half-way.
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Option<Arc<[u32]>>,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// Makes the calling thread act as `caller`.
pub(crate) fn assume(caller: &Caller) -> Result<()> {
    THREAD.with_borrow_mut(|thread| {
        thread.prepare()?;
        if !own().switches {
            return if caller.uid == own().uid { Ok(()) } else { Err(Error::Access) };
        }
        thread.switch(caller.uid, caller.gid, &caller.groups)
    })
}

/// Makes the calling thread no more and no less privileged than `caller`, for what goes by
/// privileges alone: data of a file that is open. One user without privileges is as
/// good as another, so threads that serve many callers don't switch for it.
pub(crate) fn assume_privileges(caller: &Caller) -> Result<()> {
    let enough = THREAD.with_borrow(|thread| thread.prepared && caller.uid != 0 && thread.uid.is_some_and(|uid| uid != 0));
    if enough { Ok(()) } else { assume(caller) }
}

/// Makes the calling thread act as the superuser towards files, where the process is one. The
/// groups stay.
pub(crate) fn assume_root() -> Result<()> {
    THREAD.with_borrow_mut(|thread| {
        thread.prepare()?;
        if own().switches { thread.set_uid(0) } else { Ok(()) }
    })
}

/// Gives the calling thread back the identity of the process, as before it served callers; also one
/// that has served none, for a thread begins as what its maker was at the time.
///
/// # Errors
/// Where the kernel refuses, which it does for want of memory only.
pub fn leave_callers() -> Result<()> {
    THREAD.with_borrow_mut(|thread| {
        if !own().switches {
            return Ok(());
        }
        thread.switch(own().uid, own().gid, &own().groups)
    })
}

/// Runs `call` with this umask, for a name that is made with the caller's own.
pub(crate) fn with_umask<T>(mask: Option<u16>, call: impl FnOnce() -> T) -> T {
    let Some(mask) = mask else { return call() };
    umask(Mode::from_raw_mode((mask & 0o777).into()));
    let made = call();
    umask(Mode::empty());
    made
}

impl Thread {
    /// Once a thread: a umask of its own, which is 0, and no power over quotas.
    fn prepare(&mut self) -> Result<()> {
        if self.prepared {
            return Ok(());
        }
        ffi::unshare_fs().or_error()?;
        umask(Mode::empty());
        if own().switches {
            // A thread inherits what its maker was at the time.
            self.set_uid(0)?;
            let mut sets = capabilities(None).or_error()?;
            if sets.effective.contains(CapabilitySet::SYS_RESOURCE) {
                sets.effective.remove(CapabilitySet::SYS_RESOURCE);
                set_capabilities(None, sets).or_error()?;
            }
        }
        self.prepared = true;
        Ok(())
    }

    fn switch(&mut self, uid: u32, gid: u32, groups: &Arc<[u32]>) -> Result<()> {
        let same_groups = self.groups.as_ref().is_some_and(|now| Arc::ptr_eq(now, groups) || now == groups);
        if !same_groups {
            self.groups = None;
            let raw: Vec<_> = groups.iter().map(|&gid| rustix::process::Gid::from_raw(gid)).collect();
            set_thread_groups(&raw).or_error()?;
            self.groups = Some(Arc::clone(groups));
        }
        if self.gid != Some(gid) {
            self.gid = None;
            ffi::set_fs_gid(gid);
            // The call reports no error: ask what it did.
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

/// Whether taking on another identity does take the superuser's powers away; what keeps them
/// (securebits(7)) would make every caller root.
pub(crate) fn check_switching() -> Result<bool> {
    if !own().switches {
        return Ok(true);
    }
    assume(&Caller::new(65_534, 65_534, []))?;
    let powers = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER | CapabilitySet::CHOWN;
    let kept = capabilities(None).or_error()?.effective.intersects(powers);
    leave_callers()?;
    Ok(!kept)
}
