//! RPC-with-TLS (RFC 9289).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use vouch_nfs4::{PROGRAM, VERSION};
use vouch_oncrpc::{Accepted, Call, Flavor, OpaqueAuth, RECORD_MARK_LEN, Reply, ReplyBody};
use vouch_rpc_tls::credentials::{self, ClientFiles, CredentialError};
use vouch_rpc_tls::{ClientConfig, Handshake, STARTTLS, ServerName, Step, TlsStream};

use crate::Error;

/// NFS-Ganesha 15.2 may answer a call that follows the TLS handshake at once with its reply to the
/// probe, and then never.
const FIRST_CALL_PAUSE: Duration = Duration::from_millis(50);

/// RPC-with-TLS to one server (RFC 9289).
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
    /// Read again for each connection.
    files: Option<ClientFiles>,
}

impl TlsClient {
    /// `server`: name or address in the server's certificate.
    pub fn new(files: &ClientFiles, server: &str) -> Result<Self, TlsClientError> {
        let name = ServerName::try_from(server.to_owned())
            .map_err(|_| TlsClientError::Name(server.to_owned()))?;
        Ok(TlsClient { config: credentials::client_config(files)?, server: name, files: None })
    }

    /// Each connection reads the files again, because a certificate may be renewed. Those of the first
    /// time are used if they cannot be read.
    pub fn rereading(files: &ClientFiles, server: &str) -> Result<Self, TlsClientError> {
        Ok(TlsClient { files: Some(files.clone()), ..Self::new(files, server)? })
    }

    fn config(&self) -> Arc<ClientConfig> {
        match self.files.as_ref().map(credentials::client_config) {
            Some(Ok(config)) => config,
            Some(Err(error)) => {
                tracing::warn!("{error}; the earlier certificate is used");
                self.config.clone()
            }
            None => self.config.clone(),
        }
    }

    pub(crate) fn upgrade(&self, mut stream: TcpStream) -> Result<Stream, Error> {
        let reply =
            crate::pipeline::exchange(&mut stream, &probe(PROBE_XID), PROBE_LEN_MAX, |_, _| {})?;
        check_probe(&reply, PROBE_XID)?;
        let mut handshake = Handshake::client(self.config(), self.server.clone())
            .map_err(|error| Error::Tls(error.to_string()))?;
        let (mut bytes, mut len) = ([0; 16 * 1024], 0);
        loop {
            let mut out = Vec::new();
            let step = handshake.advance(&bytes[..len], &mut out);
            stream.write_all(&out)?;
            match step.map_err(|error| Error::Tls(error.to_string()))? {
                Step::Done(session) => {
                    std::thread::sleep(FIRST_CALL_PAUSE);
                    return Ok(Stream::Tls(Box::new(TlsStream::new(stream, session))));
                }
                Step::More(next) => handshake = next,
            }
            len = stream.read(&mut bytes)?;
            if len == 0 {
                return Err(Error::Tls(
                    "the server closed the connection during the TLS handshake".into(),
                ));
            }
        }
    }

    pub(crate) async fn upgrade_async<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
    ) -> Result<tokio_rustls::client::TlsStream<S>, Error> {
        stream.write_all(&probe(PROBE_XID)).await?;
        let mut mark = [0; RECORD_MARK_LEN];
        stream.read_exact(&mut mark).await?;
        let len = (u32::from_be_bytes(mark) & (u32::MAX >> 1)) as usize;
        if len > PROBE_LEN_MAX {
            return Err(Error::Mismatch("the reply to the TLS probe is too long"));
        }
        let mut reply = vec![0; len];
        stream.read_exact(&mut reply).await?;
        check_probe(&reply, PROBE_XID)?;
        let connector = tokio_rustls::TlsConnector::from(self.config());
        connector
            .connect(self.server.clone(), stream)
            .await
            .map_err(|error| Error::Tls(error.to_string()))
    }
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsClientError {
    /// A certificate or key file cannot be used.
    #[error(transparent)]
    Files(#[from] CredentialError),
    /// The server has no usable name.
    #[error("{0} is neither a host name nor an address, so no certificate can prove it")]
    Name(String),
}

/// The AUTH_TLS probe with its record mark (§4.1).
pub(crate) fn probe(xid: u32) -> Vec<u8> {
    let cred = OpaqueAuth { flavor: Flavor::TLS, body: &[] };
    vouch_oncrpc::record(|w| Call { cred, ..Call::new(xid, (PROGRAM, VERSION), 0, &[]) }.encode(w))
}

/// Without STARTTLS nothing more is sent: an attacker may have removed it.
pub(crate) fn check_probe(record: &[u8], xid: u32) -> Result<(), Error> {
    let reply = Reply::decode(record)?;
    match reply.body {
        ReplyBody::Accepted { verf, outcome: Accepted::Success(_) }
            if reply.xid == xid && verf.body == STARTTLS =>
        {
            Ok(())
        }
        _ => Err(Error::Tls(
            "the server does not offer TLS, or something on the way removed its offer".into(),
        )),
    }
}

pub(crate) const PROBE_XID: u32 = 0x7415_0001;
pub(crate) const PROBE_LEN_MAX: usize = 4096;

pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_pending())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(bytes),
            Stream::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
