//! Credentials of AUTH_SYS calls: the user, group and supplementary groups of the calling process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vouch_oncrpc::AuthSys;
use vouch_xdr::Xdr as _;

use crate::fuse::Header;

/// The credential of one call. `None`: that of the session, as under Kerberos.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller(pub(crate) Option<Arc<[u8]>>);

/// Credentials of processes that called lately.
#[derive(Debug)]
pub(crate) struct Callers {
    machine: Vec<u8>,
    sends_callers: bool,
    sends_groups: bool,
    recent: Mutex<HashMap<Process, (Instant, Caller)>>,
}

/// Process, user, group.
type Process = (u32, u32, u32);

impl Callers {
    /// `sends_callers`: calls name their process's user. `sends_groups`: and its supplementary
    /// groups, which an idmapped mount would not map.
    pub(crate) fn new(sends_callers: bool, sends_groups: bool) -> Self {
        let machine = rustix::system::uname().nodename().to_bytes().to_vec();
        Self { machine, sends_callers, sends_groups, recent: Mutex::default() }
    }

    pub(crate) fn of(&self, header: &Header) -> Caller {
        // The kernel's own requests, and those of a mount with idmapped users, name nobody.
        if !self.sends_callers || header.uid == u32::MAX {
            return Caller::default();
        }
        let key = (header.pid, header.uid, header.gid);
        let mut recent = self.recent.lock();
        if let Some((since, caller)) = recent.get(&key)
            && since.elapsed() < GROUPS_VALID
        {
            return caller.clone();
        }
        if recent.len() >= RECENT_MAX {
            recent.clear();
        }
        let groups = if self.sends_groups { groups_of(header.pid) } else { Vec::new() };
        let caller = self.credential(header.uid, header.gid, groups);
        recent.insert(key, (Instant::now(), caller.clone()));
        caller
    }

    fn credential(&self, uid: u32, gid: u32, gids: Vec<u32>) -> Caller {
        let machine_name = self.machine.clone();
        let auth = AuthSys { stamp: 0, machine_name, uid, gid, gids };
        Caller(Some(auth.to_xdr().into()))
    }

    /// The mounting user.
    pub(crate) fn own(&self) -> AuthSys {
        let gids = rustix::process::getgroups().unwrap_or_default();
        AuthSys {
            stamp: 0,
            machine_name: self.machine.clone(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            gids: gids.into_iter().map(rustix::process::Gid::as_raw).take(GROUPS_MAX).collect(),
        }
    }
}

/// The supplementary groups of a process, at most 16. None for the kernel's own requests.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = status_of(pid);
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|group| group.parse().ok())
        .take(GROUPS_MAX)
        .collect()
}

/// A fatal signal waits for the process: the kernel then marks SIGKILL as pending.
pub(crate) fn is_being_killed(pid: u32) -> bool {
    const KILL: u64 = 1 << (9 - 1);
    let status = status_of(pid);
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.fold(0, |all, mask| all | mask) & KILL != 0
}

fn status_of(pid: u32) -> String {
    match pid {
        0 => String::new(),
        pid => std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
    }
}

/// AUTH_SYS has room for no more (RFC 5531, appendix A).
const GROUPS_MAX: usize = 16;

/// A process that leaves a group keeps its rights for this time.
const GROUPS_VALID: Duration = Duration::from_secs(1);

const RECENT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_groups_of_process_and_names_nobody_for_kernel() {
        let own: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .take(GROUPS_MAX)
            .collect();
        assert_eq!(groups_of(std::process::id()), own);
        assert!(groups_of(0).is_empty());
        let header = Header { unique: 1, node: 1, uid: u32::MAX, gid: u32::MAX, pid: 0 };
        assert!(Callers::new(true, true).of(&header).0.is_none());
    }

    #[test]
    fn running_process_is_not_being_killed() {
        assert!(!is_being_killed(std::process::id()) && !is_being_killed(0));
    }
}
