//! Blocks, so no worker thread calls it. The only calls into the C library.
#![allow(
    unsafe_code,
    reason = "innetgr, getnameinfo and the errors of getaddrinfo have no safe face"
)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use parking_lot::Mutex;

pub(crate) trait Resolver: Send + Sync {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer>;
    fn name(&self, address: IpAddr) -> Result<Option<String>, NoAnswer>;
    /// False also while the name service is down.
    fn in_netgroup(&self, group: &str, host: &str) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoAnswer;

pub(crate) struct System;

impl Resolver for System {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer> {
        let Ok(host) = CString::new(host) else { return Ok(Vec::new()) };
        crate::identity::as_ourselves();
        let hints = libc::addrinfo {
            ai_flags: 0,
            ai_family: libc::AF_UNSPEC,
            ai_socktype: libc::SOCK_STREAM,
            ai_protocol: 0,
            ai_addrlen: 0,
            ai_addr: std::ptr::null_mut(),
            ai_canonname: std::ptr::null_mut(),
            ai_next: std::ptr::null_mut(),
        };
        let mut list = std::ptr::null_mut();
        // SAFETY: `host` is NUL-terminated and `hints` is initialised. `list` is written on success
        // only.
        let failed = unsafe {
            libc::getaddrinfo(host.as_ptr(), std::ptr::null(), &raw const hints, &raw mut list)
        };
        if failed != 0 {
            return if is_none(failed) { Ok(Vec::new()) } else { Err(NoAnswer) };
        }
        let mut addresses = Vec::new();
        let mut next = list;
        // SAFETY: after success this is a null-terminated list that is not freed yet.
        while let Some(entry) = unsafe { next.as_ref() } {
            // SAFETY: `ai_addr` is an aligned address of the entry's family.
            addresses.extend(unsafe { ip_of(entry) });
            next = entry.ai_next;
        }
        // SAFETY: the list came from getaddrinfo and is not used afterwards.
        unsafe { libc::freeaddrinfo(list) };
        Ok(addresses)
    }

    fn name(&self, address: IpAddr) -> Result<Option<String>, NoAnswer> {
        crate::identity::as_ourselves();
        let address = socket2::SockAddr::from(SocketAddr::new(address, 0));
        let mut host = [0u8; HOST_LEN_MAX];
        // SAFETY: `address` is a valid socket address of its length. The call writes at most
        // `HOST_LEN_MAX` bytes and keeps no pointer.
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
            return if is_none(failed) { Ok(None) } else { Err(NoAnswer) };
        }
        let name = CStr::from_bytes_until_nul(&host).ok().and_then(|name| name.to_str().ok());
        Ok(name.map(str::to_ascii_lowercase))
    }

    fn in_netgroup(&self, group: &str, host: &str) -> bool {
        // getnetgrent(3): the C library has one state for the whole process.
        static TURN: Mutex<()> = Mutex::new(());
        let (Ok(group), Ok(host)) = (CString::new(group), CString::new(host)) else { return false };
        crate::identity::as_ourselves();
        let _turn = TURN.lock();
        // SAFETY: all pointers are null or NUL-terminated. The lock excludes other calls.
        unsafe { innetgr(group.as_ptr(), host.as_ptr(), std::ptr::null(), std::ptr::null()) == 1 }
    }
}

fn is_none(error: c_int) -> bool {
    [libc::EAI_NONAME, libc::EAI_NODATA].contains(&error)
}

/// IP address of an entry.
///
/// # Safety
/// `ai_addr` is null or points to a socket address of the entry's family.
unsafe fn ip_of(entry: &libc::addrinfo) -> Option<IpAddr> {
    if entry.ai_addr.is_null() {
        return None;
    }
    match entry.ai_family {
        libc::AF_INET => {
            // SAFETY: it points to an address of this family.
            let address = unsafe { &*entry.ai_addr.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: it points to an address of this family.
            let address = unsafe { &*entry.ai_addr.cast::<libc::sockaddr_in6>() };
            Some(IpAddr::from(Ipv6Addr::from(address.sin6_addr.s6_addr)).to_canonical())
        }
        _ => None,
    }
}

unsafe extern "C" {
    fn innetgr(
        netgroup: *const c_char,
        host: *const c_char,
        user: *const c_char,
        domain: *const c_char,
    ) -> c_int;
}

const HOST_LEN_MAX: usize = 1025;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_resolver_answers_or_reports_no_entry() {
        assert_eq!(System.addresses("127.0.0.1"), Ok(vec![IpAddr::from([127, 0, 0, 1])]));
        assert_eq!(System.addresses("2001:db8::7"), Ok(vec!["2001:db8::7".parse().unwrap()]));
        assert_eq!(System.addresses("::ffff:192.0.2.1"), Ok(vec![IpAddr::from([192, 0, 2, 1])]));
        assert_eq!(System.addresses("nul\0inside"), Ok(vec![]));
        assert!(
            System
                .addresses("localhost")
                .is_ok_and(|found| !found.is_empty() && found.iter().all(IpAddr::is_loopback))
        );
        assert!(
            is_none(libc::EAI_NONAME)
                && !is_none(libc::EAI_AGAIN)
                && !is_none(libc::EAI_FAIL)
                && !is_none(libc::EAI_SYSTEM)
        );
        assert!(!System.in_netgroup("surely-no-such-group", "localhost"));
        assert!(!System.in_netgroup("nul\0inside", "localhost"));
        let _ = System.name(IpAddr::from([127, 0, 0, 1]));
    }
}
