use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use vouch_tree::protocol::{GetDataArgs, Procedure};

/// A byte stream to a replica.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A replica within the process, which needs no stream. Its data is verified like a remote one's.
pub trait LocalReplica: Send + Sync {
    /// XDR results of a call other than GETDATA.
    fn call<'a>(
        &'a self,
        procedure: Procedure,
        args: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>>;

    /// Passes the frames of a GETDATA call to `take` as they arrive, in the order of their handles;
    /// `None`: no such frame.
    fn data<'a>(
        &'a self,
        args: &'a GetDataArgs,
        take: &'a mut TakeFrame<'_>,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Bytes received so far: shows whether a slow replica makes progress.
    fn received(&self) -> u64;
}

/// An error of a way to replicas. The client logs it and tries another replica.
pub type TransportError = Box<dyn std::error::Error + Send + Sync>;

/// Takes one result of a GETDATA call; returns `false` if the frame has another hash.
pub type TakeFrame<'a> = dyn FnMut(Option<Bytes>) -> bool + Send + 'a;

/// What a replica is reached by.
pub enum Link {
    /// A connection that carries the replica protocol.
    Stream(Box<dyn Stream>),
    /// A replica within the process.
    Local(Arc<dyn LocalReplica>),
}

/// Access to the network. The caller limits the time of both methods.
pub trait Connector: Send + Sync + 'static {
    /// `host`: a DNS name, an IPv4 address, or an IPv6 address without brackets.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Connects to a replica: to one of the addresses of `host`.
    fn connect<'a>(&'a self, host: &'a str, address: SocketAddr)
    -> BoxFuture<'a, io::Result<Link>>;
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TcpConnector;

impl Connector for TcpConnector {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        async move { tokio::net::lookup_host((host, port)).await.map(Iterator::collect) }.boxed()
    }

    fn connect<'a>(
        &'a self,
        _host: &'a str,
        address: SocketAddr,
    ) -> BoxFuture<'a, io::Result<Link>> {
        async move { Ok(Link::Stream(Box::new(tcp(address).await?))) }.boxed()
    }
}

pub(crate) async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Nagle's algorithm would delay small calls.
    stream.set_nodelay(true)?;
    Ok(stream)
}
