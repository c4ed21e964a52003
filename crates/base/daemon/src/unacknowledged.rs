//! Sent bytes that the other system has not acknowledged.
#![allow(unsafe_code, reason = "no crate has a safe face of SIOCOUTQ")]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

/// Number of bytes; the end of the stream counts as one (tcp(7), SIOCOUTQ).
///
/// # Errors
/// If the system refuses the request.
pub fn unacknowledged_len(stream: &TcpStream) -> io::Result<usize> {
    let mut len: libc::c_int = 0;
    // SAFETY: the descriptor is open while `stream` is borrowed; the request writes one int
    // (SIOCOUTQ has the number of TIOCOUTQ) to `len`.
    let failed = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut len) };
    if failed == 0 {
        Ok(usize::try_from(len).unwrap_or_default())
    } else {
        Err(io::Error::last_os_error())
    }
}
