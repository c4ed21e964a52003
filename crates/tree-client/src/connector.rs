//! The network as a parameter.

use std::io;
use std::net::SocketAddr;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream to a replica.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The caller limits the time of both methods.
pub trait Connector: Send + Sync + 'static {
    /// `host`: a DNS name, an IPv4 address, or an IPv6 address without brackets.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Connects to one of the addresses of `host`.
    fn connect<'a>(&'a self, host: &'a str, address: SocketAddr) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// TCP and the system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpConnector;

impl Connector for TcpConnector {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        async move { tokio::net::lookup_host((host, port)).await.map(Iterator::collect) }.boxed()
    }

    fn connect<'a>(&'a self, _host: &'a str, address: SocketAddr) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move { Ok(Box::new(tcp(address).await?) as Box<dyn Stream>) }.boxed()
    }
}

pub(crate) async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Nagle's algorithm would delay small calls.
    stream.set_nodelay(true)?;
    Ok(stream)
}
