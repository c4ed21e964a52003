//! Capabilities of the process after its sockets are open. Root keeps those that acting for callers
//! needs. Other users keep what they have.
//!
//! The server does not use landlock: a file opened by handle may have no path to an allowed
//! directory, and landlock refuses it (tried on Linux 6.18). A compromise is bounded by the
//! capabilities and the sandbox of the service manager.

use rustix::thread::{CapabilitySet, CapabilitySets};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    EachCaller,
    User(u32),
}

/// Drops capabilities, for this thread and those that it starts later. Call it before any thread
/// starts.
pub(super) fn reduce() -> rustix::io::Result<Rights> {
    rustix::thread::set_no_new_privs(true)?;
    let held = rustix::thread::capabilities(None)?;
    if !held.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        return Ok(Rights::User(rustix::process::geteuid().as_raw()));
    }
    // The bounding set also limits what an executed program could gain.
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A capability that this kernel does not know, or a caller without SETPCAP.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    let kept = held.permitted & KEPT;
    rustix::thread::set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })?;
    Ok(Rights::EachCaller)
}

/// Acting as callers (SETUID, SETGID), opening by handle (DAC_READ_SEARCH), and what root may do to
/// files for a caller who is root.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE);
