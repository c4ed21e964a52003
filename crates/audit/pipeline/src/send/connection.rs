use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

use vouch_audit::syslog;

use super::delivery_error::DeliveryError;
use super::target::{Protocol, Target};
use super::tls::{Tls, TlsOptions};
use super::unacknowledged;
use super::{Message, STALL};

pub(super) enum Connection {
    Stream(TcpStream),
    Tls(Box<Tls>),
    Datagrams(UdpSocket),
}

impl Connection {
    pub(super) fn open(target: &Target, tls: &TlsOptions) -> Result<Connection, DeliveryError> {
        match target.protocol {
            Protocol::SyslogTcp => Ok(Connection::Stream(target.connect(STALL)?)),
            Protocol::SyslogTls => Ok(Connection::Tls(Box::new(tls.open(
                &target.host,
                target.connect(STALL)?,
                STALL,
            )?))),
            Protocol::SyslogUdp => Ok(Connection::Datagrams(datagrams(target)?)),
            Protocol::Nats | Protocol::NatsTls => Err(DeliveryError::new("NATS is no syslog")),
        }
    }

    pub(super) fn send(&mut self, messages: &[Message]) -> Result<(), DeliveryError> {
        let mut bytes = Vec::new();
        if !matches!(self, Connection::Datagrams(_)) {
            messages.iter().for_each(|message| syslog::frame(&message.text, &mut bytes));
        }
        match self {
            Connection::Stream(stream) => Ok(stream.write_all(&bytes)?),
            Connection::Tls(session) => session.send(&bytes),
            Connection::Datagrams(socket) => {
                Ok(messages.iter().try_for_each(|message| datagram(socket, message))?)
            }
        }
    }

    /// Syslog has no acknowledgements: only an orderly end by the other side proves that it has
    /// read all (RFC 2525 §2.17).
    pub(super) fn end(self) -> Result<(), DeliveryError> {
        match self {
            Connection::Stream(stream) => Ok(end_stream(stream, STALL)?),
            Connection::Tls(session) => session.end(STALL),
            Connection::Datagrams(_) => Ok(()),
        }
    }
}

/// A record too long for a datagram is cut and marked.
fn datagram(socket: &UdpSocket, message: &Message) -> io::Result<()> {
    match (socket.send(message.text.as_bytes()), &message.short) {
        (Err(error), Some(short))
            if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) =>
        {
            tracing::warn!(
                record = message.seq,
                bytes = message.text.len(),
                "the record is too long for a datagram and is truncated"
            );
            socket.send(short.as_bytes()).map(drop)
        }
        (sent, _) => sent.map(drop),
    }
}

fn end_stream(mut stream: TcpStream, limit: Duration) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let begun = Instant::now();
    let mut ignored = [0; 512];
    while stream.read(&mut ignored)? > 0 {
        if begun.elapsed() > limit {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    unacknowledged::wait(&stream, limit)
}

fn datagrams(target: &Target) -> io::Result<UdpSocket> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (&*target.host, target.port).to_socket_addrs()? {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        match UdpSocket::bind(any).and_then(|socket| socket.connect(address).map(|()| socket)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
