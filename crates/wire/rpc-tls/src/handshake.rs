//! The handshake, by rustls. Never touches a socket.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, ServerConfig};

use crate::keys::{KeySource, TrafficKey};
use crate::open::{Opener, Side, next_record};
use crate::seal::Sealer;
use crate::{ALPN, TlsError};

/// A handshake in progress.
pub struct Handshake {
    connection: Box<Connection>,
    received: Vec<u8>,
    received_len: usize,
}

enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// Progress of a handshake.
pub enum Step {
    /// The peer must send more bytes.
    More(Handshake),
    /// The handshake is complete.
    Done(Box<Session>),
}

/// A session after its handshake.
pub struct Session {
    /// The sending direction.
    pub sealer: Sealer,
    /// The receiving direction, with bytes received behind the handshake.
    pub opener: Opener,
    /// Verified certificates of the peer, its own first. Empty if it presented none.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The peer named the protocol by ALPN. Clients of Linux up to ktls-utils 1.0 do not.
    pub has_alpn: bool,
    /// For example `TLS13_AES_128_GCM_SHA256`.
    pub cipher_suite: String,
}

/// All messages of a peer's handshake: some certificates with large keys.
const HANDSHAKE_LEN_MAX: usize = 64 * 1024;

impl Handshake {
    /// Waits for the client's first message.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, TlsError> {
        let connection = Box::new(Connection::Server(UnbufferedServerConnection::new(config)?));
        Ok(Handshake { connection, received: Vec::new(), received_len: 0 })
    }

    /// Call [`Handshake::advance`] without bytes for the first message.
    pub fn client(
        config: Arc<ClientConfig>,
        server: ServerName<'static>,
    ) -> Result<Self, TlsError> {
        let connection =
            Box::new(Connection::Client(UnbufferedClientConnection::new(config, server)?));
        Ok(Handshake { connection, received: Vec::new(), received_len: 0 })
    }

    /// Processes bytes of the peer, and appends messages for it to `out`: after an error, the
    /// alert.
    pub fn advance(mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, TlsError> {
        self.received_len += bytes.len();
        self.received.extend_from_slice(bytes);
        if self.received.is_empty() {
            self.process(&mut [], out)?;
        }
        // Record by record: the records behind the handshake belong to the opener.
        let mut at = 0;
        while self.is_handshaking() {
            let Some(record) = next_record(&self.received, at)? else { break };
            at = record.end;
            if at > HANDSHAKE_LEN_MAX {
                return Err(TlsError::HandshakeTooLong { max: HANDSHAKE_LEN_MAX });
            }
            let mut record = self.received[record].to_vec();
            self.process(&mut record, out)?;
        }
        self.received.drain(..at);
        if self.is_handshaking() {
            if self.received_len > HANDSHAKE_LEN_MAX {
                return Err(TlsError::HandshakeTooLong { max: HANDSHAKE_LEN_MAX });
            }
            return Ok(Step::More(self));
        }
        self.finish().map(|session| Step::Done(Box::new(session)))
    }

    fn is_handshaking(&self) -> bool {
        match &*self.connection {
            Connection::Server(connection) => connection.is_handshaking(),
            Connection::Client(connection) => connection.is_handshaking(),
        }
    }

    fn process(&mut self, record: &mut [u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        match &mut *self.connection {
            Connection::Server(connection) => process_record(connection, record, out),
            Connection::Client(connection) => process_record(connection, record, out),
        }
    }

    fn finish(self) -> Result<Session, TlsError> {
        let (certificates, alpn, suite) = match &*self.connection {
            Connection::Server(c) => {
                (c.peer_certificates(), c.alpn_protocol(), c.negotiated_cipher_suite())
            }
            Connection::Client(c) => {
                (c.peer_certificates(), c.alpn_protocol(), c.negotiated_cipher_suite())
            }
        };
        let certificates =
            certificates.unwrap_or_default().iter().map(|one| one.clone().into_owned()).collect();
        let has_alpn = match alpn {
            Some(protocol) if protocol == ALPN => true,
            None => false,
            Some(_) => return Err(TlsError::Alpn),
        };
        let cipher_suite = suite.map_or_else(String::new, |suite| format!("{:?}", suite.suite()));
        let (secrets, source, side) = match *self.connection {
            Connection::Server(connection) => {
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (secrets, KeySource::Server(kernel), Side::Server)
            }
            Connection::Client(connection) => {
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (secrets, KeySource::Client(kernel), Side::Client)
            }
        };
        let source = Arc::new(Mutex::new(source));
        let sealer = Sealer::new(TrafficKey::new(secrets.tx)?, source.clone());
        let opener = Opener::new(TrafficKey::new(secrets.rx)?, source, side, self.received);
        Ok(Session { sealer, opener, certificates, has_alpn, cipher_suite })
    }
}

trait Process {
    type Data;
    fn process<'c>(&'c mut self, bytes: &'c mut [u8]) -> UnbufferedStatus<'c, 'c, Self::Data>;
}

impl Process for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    fn process<'c>(&'c mut self, bytes: &'c mut [u8]) -> UnbufferedStatus<'c, 'c, Self::Data> {
        self.process_tls_records(bytes)
    }
}

impl Process for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    fn process<'c>(&'c mut self, bytes: &'c mut [u8]) -> UnbufferedStatus<'c, 'c, Self::Data> {
        self.process_tls_records(bytes)
    }
}

fn process_record(
    connection: &mut impl Process,
    record: &mut [u8],
    out: &mut Vec<u8>,
) -> Result<(), TlsError> {
    let (mut at, mut failed) = (0, None);
    loop {
        let UnbufferedStatus { discard, state, .. } = connection.process(&mut record[at..]);
        let goes_on = match state {
            Ok(ConnectionState::EncodeTlsData(mut message)) => {
                let start = out.len();
                let len = match message.encode(&mut []) {
                    Err(EncodeError::InsufficientSize(needed)) => needed.required_size,
                    _ => {
                        return Err(TlsError::Ours(
                            "a message of the handshake was encoded already",
                        ));
                    }
                };
                out.resize(start + len, 0);
                message
                    .encode(&mut out[start..])
                    .map_err(|_| TlsError::Ours("a message of the handshake has no room"))?;
                true
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                transmit.done();
                true
            }
            Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => false,
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                return Err(TlsError::Alert("CloseNotify".into()));
            }
            Ok(_) => {
                return Err(TlsError::Malformed(
                    "application data before the end of the handshake",
                ));
            }
            // The alert for the peer waits behind the error.
            Err(error) if failed.is_none() => {
                failed = Some(error);
                true
            }
            Err(_) => false,
        };
        at = (at + discard).min(record.len());
        if !goes_on {
            return match failed {
                None => Ok(()),
                Some(rustls::Error::NoApplicationProtocol) => Err(TlsError::Alpn),
                Some(error) => Err(error.into()),
            };
        }
    }
}
