//! Connects to one of the server's addresses, and binds connections to the session.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::{Shared, Stream};
use crate::handshake::bind;
use crate::{CallKind, Error};

impl Shared {
    /// For the connection `at`.
    pub(super) async fn open_stream(&self, at: usize) -> Result<Stream, Error> {
        let stream = self.connect_to_any(at).await?;
        match &self.tls {
            None => Ok(stream),
            Some(tls) => Ok(Box::new(tls.upgrade_async(stream).await?)),
        }
    }

    async fn connect_to_any(&self, at: usize) -> std::io::Result<Stream> {
        let count = self.addresses.len();
        let mut tried = 0;
        loop {
            match self.connect_to(self.addresses[(at + tried) % count]).await {
                Err(_) if tried + 1 < count => tried += 1,
                connected => return connected,
            }
        }
    }

    async fn connect_to(&self, address: SocketAddr) -> std::io::Result<Stream> {
        if let Some(connector) = &self.connector {
            return connector(address).await;
        }
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    /// A server that is another one at this address does not know the session.
    pub(super) async fn connect_to_session(&self, at: usize) -> Result<Stream, Error> {
        let mut stream = self.open_stream(at).await?;
        let session = self.state.lock().core.session();
        if let Some(session) = session {
            let call = self.encode_call(|_| Some((CallKind::Sessionless, bind(session))))?;
            self.exchange(&mut stream, call, |_, mut body| body.next_ok().map(drop)).await?;
        }
        Ok(stream)
    }
}
