//! Names of hosts: forward, backward and netgroups, by the system's resolver. May sleep: called when exports are read and before a connection is admitted, never by a
//! thread that serves. The one home of calls into the C library here.
#![allow(unsafe_code, reason = "innetgr and getnameinfo have no safe face")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use parking_lot::Mutex;

/// What is asked of a resolver; the second one is the tests'.
pub(super) trait Resolver: Send + Sync {
    /// Addresses of a host.
    fn addresses(&self, host: &str) -> Vec<IpAddr>;
    /// Name of the host with this address, in lower case.
    fn name(&self, address: IpAddr) -> Option<String>;
    /// Whether a host is in a netgroup.
    fn in_netgroup(&self, group: &str, host: &str) -> bool;
}

/// The system's.
pub(super) struct System;

impl Resolver for System {
    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        super::identity::as_ourselves();
        (host, 0).to_socket_addrs().map(|found| found.map(|address| address.ip().to_canonical()).collect()).unwrap_or_default()
    }

    fn name(&self, address: IpAddr) -> Option<String> {
        super::identity::as_ourselves();
        let address = socket2::SockAddr::from(SocketAddr::new(address, 0));
        let mut host = [0u8; HOST_LEN_MAX];
        // SAFETY: `address` holds a valid socket address of `address.len()` bytes, and `host` is as long as it is said to be; the call writes at most that and keeps no pointer.
        let failed = unsafe {
            libc::getnameinfo(
                address.as_ptr().cast(),
                address.len(),
                host.as_mut_ptr().cast::<c_char>(),
                HOST_LEN_MAX as libc::socklen_t,
                std::ptr::null_mut(),
                0,
                libc::NI_NAMEREQD,
            )
        };
        if failed != 0 {
            return None;
        }
        CStr::from_bytes_until_nul(&host).ok()?.to_str().ok().map(str::to_ascii_lowercase)
    }

    fn in_netgroup(&self, group: &str, host: &str) -> bool {
        // getnetgrent(3): the C library keeps one state for the process.
        static TURN: Mutex<()> = Mutex::new(());
        let (Ok(group), Ok(host)) = (CString::new(group), CString::new(host)) else { return false };
        super::identity::as_ourselves();
        let _turn = TURN.lock();
        // SAFETY: all pointers are null or to strings that end with NUL and live through the call, which keeps none; nobody else is in it.
        unsafe { innetgr(group.as_ptr(), host.as_ptr(), std::ptr::null(), std::ptr::null()) == 1 }
    }
}

unsafe extern "C" {
    fn innetgr(netgroup: *const c_char, host: *const c_char, user: *const c_char, domain: *const c_char) -> c_int;
}

/// `NI_MAXHOST`.
const HOST_LEN_MAX: usize = 1025;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_answers_or_says_no() {
        assert!(System.addresses("127.0.0.1").contains(&IpAddr::from([127, 0, 0, 1])));
        assert!(!System.in_netgroup("surely-no-such-group", "localhost"));
        assert!(!System.in_netgroup("nul\0inside", "localhost"));
        // Whatever the machine says of it, it does not fail.
        System.name(IpAddr::from([127, 0, 0, 1]));
    }
}
