//! Notifications (sd_notify(3)) and passed sockets (sd_listen_fds(3)). No effect without a service
//! manager.

use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

/// Call before a sandbox is entered, which could forbid it.
pub fn connect() {
    MANAGER.get_or_init(|| {
        let name = std::env::var_os("NOTIFY_SOCKET")?;
        let open_socket = || -> io::Result<UnixDatagram> {
            let address = match name.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name)?,
                None => SocketAddr::from_pathname(&name)?,
            };
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            // A manager that does not read must not block the service.
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        open_socket().inspect_err(|error| tracing::warn!(%error, name = %name.display(), "cannot connect to the service manager")).ok()
    });
}

/// Call it also after a reload. `status` is a line for people.
pub fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
}

pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

pub fn stopping() {
    notify("STOPPING=1");
}

/// Sockets from the manager, in its order. Call once.
pub fn listeners() -> io::Result<Vec<TcpListener>> {
    let mut passed = listenfd::ListenFd::from_env();
    let mut listeners = Vec::new();
    for number in 0..passed.len() {
        if let Some(listener) = passed.take_tcp_listener(number)? {
            listener.set_nonblocking(true)?;
            // Accepted sockets inherit this: see `listener`.
            socket2::SockRef::from(&listener).set_tcp_nodelay(true)?;
            listeners.push(listener);
        }
    }
    Ok(listeners)
}

fn notify(state: &str) {
    if let Some(Some(socket)) = MANAGER.get()
        && let Err(error) = socket.send(state.as_bytes())
    {
        tracing::warn!(%error, state, "cannot notify the service manager");
    }
}

static MANAGER: OnceLock<Option<UnixDatagram>> = OnceLock::new();
