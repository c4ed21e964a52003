//! The way to the broker: one authenticated connection for each request.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use vouch_gss_mit::{ClientSource, KerberosError, MitInitiator};
use zeroize::Zeroizing;

use crate::channel::{Channel, ChannelError};
use crate::limits::{ANSWER_TIMEOUT, CONNECTION_TIMEOUT, REPLY_LEN_MAX};
use crate::wire::{Reply, Request};
use crate::{Error, SERVICE};

pub(crate) type Answer = (Reply, Zeroizing<Vec<u8>>);

/// How the agent reaches the broker.
pub(crate) trait BrokerLink: Send + Sync {
    /// # Errors
    /// `Refused` and `Unavailable` if the broker says so, or without an answer.
    fn ask(&self, request: &Request) -> Result<Answer, Error>;
}

pub(super) struct NetworkLink {
    /// Host and port of the broker.
    pub(super) broker: (String, u16),
    pub(super) principal: String,
    pub(super) keytab: PathBuf,
}

impl BrokerLink for NetworkLink {
    fn ask(&self, request: &Request) -> Result<Answer, Error> {
        let (host, port) = &self.broker;
        let (end, mut pause) = (Instant::now() + CONNECTION_TIMEOUT, PAUSE_MIN);
        let mut answer = self.exchange(host, *port, request);
        // The broker closes connections while an address has too many.
        while answer.as_ref().is_err_and(is_closed) && Instant::now() < end {
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSE_MAX);
            answer = self.exchange(host, *port, request);
        }
        answer.map_err(|error| {
            let at = format!("broker {host}:{port}");
            match error.kerberos() {
                Some(fault) => Error::Kerberos(KerberosError {
                    what: format!("{at}: {}", fault.what),
                    ..fault.clone()
                }),
                None if matches!(error, Error::Refused(_)) => error,
                None => Error::Unavailable(format!("{at}: {error}")),
            }
        })
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

fn is_closed(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error, Error::Connection(ChannelError::Io(error)) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof))
}

impl NetworkLink {
    fn exchange(&self, host: &str, port: u16, request: &Request) -> Result<Answer, Error> {
        // The ticket for the broker stays in this process's memory.
        let source = ClientSource {
            principal: Some(self.principal.clone()),
            ccache: Some("MEMORY:vouch-jobs-agent".into()),
            keytab: Some(self.keytab.clone()),
        };
        let socket = connect(host, port, CONNECTION_TIMEOUT)?;
        let initiator = MitInitiator::new(&format!("{SERVICE}@{host}"), &source)?;
        let mut channel = Channel::connect(socket, initiator, CONNECTION_TIMEOUT)?;
        channel.send(request, &[])?;
        channel.set_deadline(ANSWER_TIMEOUT);
        match channel.receive(REPLY_LEN_MAX)? {
            (Reply::Refused { reason }, _) => Err(Error::Refused(reason)),
            (Reply::Unavailable { reason }, _) => Err(Error::Unavailable(reason)),
            answer => Ok(answer),
        }
    }
}

/// The first address that answers.
fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Error> {
    let at = |source| Error::Io { path: format!("{host}:{port}").into(), source };
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host, port).to_socket_addrs().map_err(at)? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(at)?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(at(failure))
}
