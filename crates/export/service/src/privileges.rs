//! Capabilities of the process after its sockets are open.
//!
//! No landlock: it refuses files opened by handle, which may have no path to an allowed directory.

use rustix::thread::{CapabilitySet, CapabilitySets};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    EachCaller,
    User(u32),
}

/// For this thread and those that it starts later: call this before any thread starts.
pub(super) fn reduce() -> rustix::io::Result<Rights> {
    rustix::thread::set_no_new_privs(true)?;
    let held = rustix::thread::capabilities(None)?;
    if !held.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        return Ok(Rights::User(rustix::process::geteuid().as_raw()));
    }
    // The bounding set also limits what an executed program could gain.
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: held.permitted & KEPT,
            permitted: held.permitted & (KEPT | RAISED),
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(Rights::EachCaller)
}

/// Act as callers (SETUID, SETGID), open by handle (DAC_READ_SEARCH), and serve callers who are
/// root.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE);

/// For limits of projects, by single system calls. The unit does not give it by default.
const RAISED: CapabilitySet = CapabilitySet::SYS_ADMIN;
