//! One for each address and thread: the kernel spreads connections without a shared lock.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Port 0 selects one free port for all threads.
pub fn bind(address: SocketAddr, threads: usize) -> io::Result<Vec<TcpListener>> {
    // SO_REUSEPORT would let a second replica silently share the port.
    let probe = socket(address, false)?;
    let address = local_address(&probe)?;
    drop(probe);
    (0..threads)
        .map(|_| {
            let socket = socket(address, true)?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        })
        .collect()
}

/// The address may come to this machine later (IP_FREEBIND, ip(7)). `prepare` changes the socket
/// before the first client can reach it.
pub fn bind_before_address_is_here(
    address: SocketAddr,
    prepare: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<TcpListener> {
    let socket = unbound(address, false)?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    socket.bind(&address.into())?;
    prepare(&socket)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = unbound(address, shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn unbound(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    // A restart works while old connections are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Accepted sockets inherit this. Replies are sent whole, so Nagle's algorithm only delays them.
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// The kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn threads_share_one_free_port() {
        let listeners = bind(any(), 3).unwrap();
        let ports: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap().port()).collect();
        assert!(ports[0] != 0 && ports.iter().all(|port| *port == ports[0]));
    }

    #[test]
    fn address_of_another_machine_is_bound_in_advance() {
        let address = SocketAddr::from(([192, 0, 2, 77], 0));
        assert_eq!(bind(address, 1).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
        let listener = bind_before_address_is_here(address, |_| Ok(())).unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), address.ip());
    }

    #[test]
    fn socket_is_prepared_before_clients_reach_it() {
        let connect = |to| std::net::TcpStream::connect(to).map(drop).map_err(|error| error.kind());
        let is_unreachable = |socket: &Socket| {
            assert_eq!(
                connect(local_address(socket).unwrap()),
                Err(io::ErrorKind::ConnectionRefused)
            );
            Ok(())
        };
        let listener = bind_before_address_is_here(any(), is_unreachable).unwrap();
        assert_eq!(connect(listener.local_addr().unwrap()), Ok(()));
    }

    #[test]
    fn port_of_running_replica_is_refused() {
        let first = bind(any(), 1).unwrap();
        let error = bind(first[0].local_addr().unwrap(), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
