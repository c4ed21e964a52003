use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::net::RecvFlags;
use vouch_nfs4_server::TlsPeer;
use vouch_rpc_tls::credentials::ServerCredentials;
use vouch_rpc_tls::{Handshake, Opener, Session, Step};

use super::service::Tls;
use crate::transport::connection::Connection;

pub(crate) enum PeerTls {
    /// No COMPOUND came yet: a handshake may begin.
    Fresh,
    Clear,
    Handshake(Box<HandshakeInProgress>),
    Open(Box<Opener>),
}

pub(crate) struct HandshakeInProgress {
    handshake: Option<Handshake>,
    tls: Arc<Tls>,
    credentials: Arc<ServerCredentials>,
    address: std::net::IpAddr,
    pub(crate) began_ms: u64,
}

impl Drop for HandshakeInProgress {
    fn drop(&mut self) {
        self.tls.end_handshake(self.address);
    }
}

pub(crate) enum HandshakeEnd {
    Wait,
    /// There may be more bytes to read (edge-triggered).
    More,
    Done(Box<Opener>),
    Closed,
    Refused(String),
}

impl PeerTls {
    pub(crate) fn begin(
        tls: &Arc<Tls>,
        connection: &Connection,
        now_ms: u64,
    ) -> Result<Self, String> {
        let address = connection.peer().ip();
        if !tls.begin_handshake(address) {
            return Err("too many handshakes are in progress".into());
        }
        let credentials = tls.live.credentials();
        let mut begun = HandshakeInProgress {
            handshake: None,
            tls: tls.clone(),
            credentials,
            address,
            began_ms: now_ms,
        };
        begun.handshake = Some(
            Handshake::server(begun.credentials.config.clone())
                .map_err(|error| error.to_string())?,
        );
        if !connection.begin_tls(tls.is_by_kernel()) {
            return Err("replies in clear text are still to be sent".into());
        }
        Ok(PeerTls::Handshake(Box::new(begun)))
    }

    pub(crate) fn opener(&mut self) -> Option<&mut Opener> {
        match self {
            PeerTls::Open(opener) => Some(opener),
            _ => None,
        }
    }
}

impl HandshakeInProgress {
    pub(crate) fn advance(&mut self, connection: &Connection) -> HandshakeEnd {
        let Some(handshake) = self.handshake.take() else { return HandshakeEnd::Closed };
        let mut bytes = [0; READ_LEN];
        let len = match rustix::io::retry_on_intr(|| {
            rustix::net::recv(connection.socket().as_fd(), &mut bytes, RecvFlags::DONTWAIT)
        }) {
            Ok((0, _)) => return HandshakeEnd::Closed,
            Ok((len, _)) => len,
            Err(rustix::io::Errno::AGAIN) => {
                self.handshake = Some(handshake);
                return HandshakeEnd::Wait;
            }
            Err(_) => return HandshakeEnd::Closed,
        };
        let mut out = Vec::new();
        let step = handshake.advance(&bytes[..len], &mut out);
        connection.send_handshake(&out);
        match step {
            Ok(Step::More(handshake)) => {
                self.handshake = Some(handshake);
                HandshakeEnd::More
            }
            Ok(Step::Done(session)) => self.open(*session, connection),
            Err(error) => HandshakeEnd::Refused(error.to_string()),
        }
    }

    fn open(&self, session: Session, connection: &Connection) -> HandshakeEnd {
        let Session { sealer, opener, certificates, cipher_suite, .. } = session;
        let certificate =
            match certificates.first().map(|first| self.tls.identify(first)).transpose() {
                Ok(certificate) => certificate,
                Err(cause) => return HandshakeEnd::Refused(cause),
            };
        let name = certificate.as_ref().map_or("", |certificate| &certificate.name);
        tracing::debug!(peer = %connection.peer(), cipher_suite, certificate = name, "TLS session begins");
        self.tls.handshakes.add(1);
        connection.open_tls(sealer, certificates);
        connection.engine().set_tls(TlsPeer { certificate, cipher_suite });
        // A reload may have missed this session, which was not open yet.
        if let Some(session) = connection.engine().tls().and_then(|tls| tls.certificate.as_ref())
            && !Arc::ptr_eq(&self.credentials, &self.tls.live.credentials())
            && let Err(cause) = self.tls.check_session(connection.certificates(), session)
        {
            return HandshakeEnd::Refused(cause);
        }
        HandshakeEnd::Done(Box::new(opener))
    }
}

const READ_LEN: usize = 16 * 1024;
