//! What the process may still do once its sockets are open. Root keeps what acting for callers
//! takes, and nothing else; everybody else keeps what he has.
//!
//! No landlock here: a file that is reached by its handle after it left the kernel's caches has no
//! path up to a directory that landlock could have allowed, and is refused (tried on Linux 6.18).
//! What bounds a compromise is the set of capabilities, and the service manager's own sandbox.

use rustix::thread::{CapabilitySet, CapabilitySets};

/// As whom the server acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// With each caller's own identity.
    EachCaller,
    /// As this user, for whoever calls.
    User(u32),
}

/// Gives up what is not needed. For all threads that start later; so call it before there are any.
pub(super) fn reduce() -> rustix::io::Result<Rights> {
    rustix::thread::set_no_new_privs(true)?;
    let held = rustix::thread::capabilities(None)?;
    if !held.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        return Ok(Rights::User(rustix::process::geteuid().as_raw()));
    }
    // What could be gained again by executing something goes too.
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // One that this kernel does not know, or a caller without SETPCAP.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    let kept = held.permitted & KEPT;
    rustix::thread::set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })?;
    Ok(Rights::EachCaller)
}

/// To act as callers: their identity; to open by handle what they may reach; as a caller who is
/// root: what root may do to files.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE);
