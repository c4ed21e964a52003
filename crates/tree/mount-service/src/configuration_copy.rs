//! The supervisor's copy of the configuration, for workers that it starts after a kill. A fault in
//! the files, or their absence, must not end a mount.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::role::{Role, role_of};

pub(crate) struct ConfigurationCopy(File);

impl ConfigurationCopy {
    pub(crate) fn new(text: &str) -> io::Result<Self> {
        let mut file = File::from(memfd_create("vouch-configuration", MemfdFlags::CLOEXEC)?);
        file.write_all(text.as_bytes())?;
        Ok(Self(file))
    }

    /// Starts `command` with the copy. No other thread of the supervisor starts processes.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        command.env(VARIABLE, self.0.as_raw_fd().to_string());
        fcntl_setfd(&self.0, FdFlags::empty())?;
        let child = command.spawn();
        fcntl_setfd(&self.0, FdFlags::CLOEXEC)?;
        child
    }
}

/// The copy that the supervisor has given to this worker.
pub fn configuration_copy(arguments: &[OsString]) -> Option<String> {
    let number: u32 = std::env::var(VARIABLE).ok()?.parse().ok()?;
    if role_of(arguments) != Some(Role::Worker) {
        return None;
    }
    std::fs::read_to_string(format!("/proc/self/fd/{number}")).ok()
}

const VARIABLE: &str = "VOUCH_MOUNT_CONFIGURATION";
