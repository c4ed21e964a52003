//! Connections from ports below 1024, which servers demand for exports with `secure`. Only root has them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::{TcpSocket, TcpStream};
use vouch_nfs4_client::{Connector, Stream};

pub(crate) fn connector() -> Option<Connector> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    Some(Arc::new(|address| {
        Box::pin(async move {
            let stream = connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Stream)
        })
    }))
}

/// From any port if none below 1024 is free.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let mut start = [0; 2];
    getrandom::fill(&mut start).map_err(io::Error::other)?;
    let start = u16::from_ne_bytes(start);
    for port in (0..PORT_COUNT).map(|number| PORT_MIN + start.wrapping_add(number) % PORT_COUNT) {
        let (socket, own) = match address {
            SocketAddr::V4(_) => (TcpSocket::new_v4()?, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
            SocketAddr::V6(_) => (TcpSocket::new_v6()?, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        };
        match socket.bind((own, port).into()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
            // Root of a container.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            bound => bound?,
        }
        match socket.connect(address).await {
            // An earlier connection from this port has not ended yet.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            connected => return connected,
        }
    }
    TcpStream::connect(address).await
}

/// As Linux's client: services below keep their ports.
const PORT_MIN: u16 = 665;
const PORT_COUNT: u16 = 1024 - PORT_MIN;
