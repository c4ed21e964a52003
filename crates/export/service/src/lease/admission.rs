//! Connections to a head that waits.
//!
//! Clients may reach a standby that serves next: they wait in the queue of its socket. They may also
//! reach a standby when another head serves next, because the address has not moved yet. Such a
//! connection would hang after the move, and a refusal delays a client's next attempt. So that standby
//! ignores attempts, and TCP repeats them until they reach the head that serves.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockFilter, SockRef};

pub(super) struct Admission {
    listeners: Vec<Arc<TcpListener>>,
    is_open: bool,
}

impl Admission {
    pub(super) fn closed(listeners: &[Arc<TcpListener>]) -> io::Result<Self> {
        let mut admission = Admission { listeners: listeners.to_vec(), is_open: true };
        admission.set_open(false)?;
        Ok(admission)
    }

    pub(super) fn set_open(&mut self, is_open: bool) -> io::Result<()> {
        if is_open == self.is_open {
            return Ok(());
        }
        for listener in &self.listeners {
            if is_open { admit(listener)? } else { ignore(listener)? }
        }
        self.is_open = is_open;
        Ok(())
    }
}

/// Accepts connections again on a socket of the service manager, where an earlier process may have
/// waited as a standby.
///
/// # Errors
/// The socket's options cannot be changed.
pub fn admit(listener: &TcpListener) -> io::Result<()> {
    match SockRef::from(listener).detach_filter() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Clients get no answer from this socket until the head serves next. A client that was accepted
/// before would have to be reset.
///
/// # Errors
/// The socket's options cannot be changed.
pub fn ignore_attempts(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&[SockFilter::new(RETURN, 0, 0, KEPT_LEN)])
}

fn ignore(listener: &TcpListener) -> io::Result<()> {
    ignore_attempts(listener)?;
    listener.set_nonblocking(true)?;
    // These clients try again at once.
    while let Ok((queued, _)) = listener.accept() {
        SockRef::from(&queued).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}

/// `BPF_RET | BPF_K` of linux/filter.h.
const RETURN: u16 = 0x06;
/// Nothing is kept of a packet.
const KEPT_LEN: u32 = 0;

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn closed_socket_ignores_attempts_and_resets_its_queue() {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let attempt = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        let mut admission = Admission::closed(std::slice::from_ref(&listener)).unwrap();
        assert_eq!(attempt().unwrap_err().kind(), io::ErrorKind::TimedOut);
        admission.set_open(true).unwrap();
        let mut queued = TcpStream::connect(address).unwrap();
        admission.set_open(false).unwrap();
        assert_eq!(queued.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(attempt().unwrap_err().kind(), io::ErrorKind::TimedOut);
        admission.set_open(true).unwrap();
        let _client = TcpStream::connect(address).unwrap();
        assert!(listener.accept().is_ok());
    }
}
