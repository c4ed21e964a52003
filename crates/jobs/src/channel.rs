//! Connections between agents, scheduler and broker: frames of bounded length under one deadline.
//! Over TCP each frame after the handshake is sealed by Kerberos (RFC 4121), with numbers that
//! exclude replay; over a Unix socket the kernel says who the peer is.
//!
//! ```text
//! 4 bytes  length, big endian
//! n bytes  token of GSS-API, sealed message, or plain message
//! ```

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Serialize, de::DeserializeOwned};
use vouch_gss_mit::{KerberosError, MitAcceptor, MitInitiator};
use vouch_krb5_seal::ContextKeys;
use vouch_rpcsec_gss::{Accept, Acceptor as _, InitStep, Initiator as _};
use zeroize::Zeroizing;

use crate::Error;
use crate::limits::{ANSWER_TIMEOUT, CONNECTION_TIMEOUT, CONTROL_LEN_MAX, TOKEN_LEN_MAX};
use crate::wire::{self, Reply, Request, WireError};

#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the peer sends {0} bytes, more than the {1} allowed")]
    Long(usize, usize),
    #[error("{0}")]
    Kerberos(#[from] KerberosError),
    #[error("{reason}")]
    Unauthenticated { principal: String, reason: String },
    #[error("the peer refuses this machine's ticket; its log says why")]
    TicketRefused,
    #[error("a message is altered, replayed or out of order")]
    Altered,
    #[error("{0}")]
    Malformed(#[from] WireError),
}

/// A socket with time-outs.
pub(crate) trait Socket: Read + Write + Send {
    /// # Errors
    /// If the system refuses.
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()>;
}

macro_rules! sockets {
    ($($type:ty)*) => {$(
        impl Socket for $type {
            fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(timeout))?;
                self.set_write_timeout(Some(timeout))
            }
        }
    )*};
}

sockets! { TcpStream UnixStream }

/// A connection with a peer that is known.
pub(crate) struct Channel<S> {
    socket: S,
    deadline: Instant,
    seal: Option<Seal>,
}

struct Seal {
    keys: Arc<ContextKeys>,
    sent: u64,
    received: u64,
}

impl<S: Socket> Channel<S> {
    /// For a Unix socket.
    pub(crate) fn plain(socket: S, timeout: Duration) -> Self {
        Self { socket, deadline: Instant::now() + timeout, seal: None }
    }

    /// Proves this machine to a broker, and the broker to this machine.
    ///
    /// # Errors
    /// Without a ticket, if the broker refuses it, or if it cannot prove itself.
    pub(crate) fn connect(
        socket: S,
        mut initiator: MitInitiator,
        timeout: Duration,
    ) -> Result<Self, ChannelError> {
        let mut channel = Self::plain(socket, timeout);
        let mut answer: Option<Zeroizing<Vec<u8>>> = None;
        loop {
            match initiator.step(answer.as_ref().map(|bytes| &bytes[..]))? {
                InitStep::Continue { token } => channel.write_frame(&token)?,
                InitStep::Established { context, token } => {
                    if let Some(token) = token {
                        channel.write_frame(&token)?;
                    }
                    channel.seal = Some(Seal { keys: context.keys, sent: 0, received: 0 });
                    return Ok(channel);
                }
            }
            let token = channel.read_frame(TOKEN_LEN_MAX)?;
            if token.is_empty() {
                return Err(ChannelError::TicketRefused);
            }
            answer = Some(token);
        }
    }

    /// Returns the peer's principal too.
    ///
    /// # Errors
    /// If the peer cannot prove itself in time.
    pub(crate) fn accept(
        socket: S,
        acceptor: &MitAcceptor,
        timeout: Duration,
    ) -> Result<(Self, Arc<str>), ChannelError> {
        /// Kerberos needs one exchange.
        const EXCHANGE_COUNT_MAX: usize = 4;
        let mut channel = Self::plain(socket, timeout);
        let mut partial = None;
        for _ in 0..EXCHANGE_COUNT_MAX {
            let token = channel.read_frame(TOKEN_LEN_MAX)?;
            match acceptor.accept(partial.take(), &token) {
                Accept::Established { context, token } => {
                    channel.write_frame(&token)?;
                    channel.seal = Some(Seal { keys: context.keys, sent: 0, received: 0 });
                    return Ok((channel, context.principal));
                }
                Accept::Continue { partial: next, token } => {
                    partial = Some(next);
                    channel.write_frame(&token)?;
                }
                Accept::Failed { reason, principal, .. } => {
                    // The peer learns no more than that.
                    let _ = channel.write_frame(&[]);
                    return Err(ChannelError::Unauthenticated { principal, reason });
                }
            }
        }
        Err(ChannelError::Unauthenticated {
            principal: String::new(),
            reason: "the handshake does not end".into(),
        })
    }

    pub(crate) fn set_deadline(&mut self, timeout: Duration) {
        self.deadline = Instant::now() + timeout;
    }

    /// # Errors
    /// If the peer does not take the message in time.
    pub(crate) fn send(
        &mut self,
        message: &impl Serialize,
        tickets: &[u8],
    ) -> Result<(), ChannelError> {
        let body = wire::encode(message, tickets);
        let Some(seal) = &mut self.seal else { return self.write_frame(&body) };
        let header_len = seal.keys.header_len();
        let mut token =
            Zeroizing::new(Vec::with_capacity(header_len + body.len() + seal.keys.trailer_len()));
        token.resize(header_len, 0);
        token.extend_from_slice(&body);
        token.resize(header_len + body.len() + seal.keys.trailer_len(), 0);
        let mut confounder = [0; 16];
        getrandom::fill(&mut confounder).map_err(io::Error::other)?;
        seal.keys.seal(seal.sent, confounder, &mut token).map_err(io::Error::other)?;
        seal.sent += 1;
        self.write_frame(&token)
    }

    /// The next message and its tickets.
    ///
    /// # Errors
    /// If no message arrives in time, or it is too long, altered or malformed.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        len_max: usize,
    ) -> Result<(T, Zeroizing<Vec<u8>>), ChannelError> {
        let mut frame = self.read_frame(len_max)?;
        let Some(seal) = &mut self.seal else { return decode(&frame) };
        let opened = seal.keys.open_any(&mut frame).map_err(|_| ChannelError::Altered)?;
        if !opened.sealed || opened.seq != seal.received {
            return Err(ChannelError::Altered);
        }
        seal.received += 1;
        decode(&frame[opened.range])
    }

    fn write_frame(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        self.socket.set_timeouts(self.remaining()?)?;
        self.socket.write_all(&(bytes.len() as u32).to_be_bytes())?;
        self.socket.write_all(bytes)?;
        Ok(())
    }

    fn read_frame(&mut self, len_max: usize) -> Result<Zeroizing<Vec<u8>>, ChannelError> {
        let mut len = [0; 4];
        self.fill(&mut len)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > len_max {
            return Err(ChannelError::Long(len, len_max));
        }
        let mut bytes = Zeroizing::new(vec![0; len]);
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, mut buffer: &mut [u8]) -> Result<(), ChannelError> {
        while !buffer.is_empty() {
            self.socket.set_timeouts(self.remaining()?)?;
            match self.socket.read(buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn remaining(&self) -> io::Result<Duration> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
    }
}

/// Sends one request to the broker or the agent of this machine and waits for its reply.
///
/// # Errors
/// If it does not answer, or refuses.
pub fn ask_local(socket: &Path, request: &Request) -> Result<Reply, Error> {
    let at = |source| Error::Io { path: socket.to_owned(), source };
    let mut channel = Channel::plain(
        UnixStream::connect(socket).map_err(at)?,
        ANSWER_TIMEOUT + CONNECTION_TIMEOUT,
    );
    channel.send(request, &[])?;
    match channel.receive(CONTROL_LEN_MAX)? {
        (Reply::Refused { reason }, _) => Err(Error::Refused(reason)),
        (Reply::Unavailable { reason }, _) => Err(Error::Unavailable(reason)),
        (reply, _) => Ok(reply),
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, Zeroizing<Vec<u8>>), ChannelError> {
    let (message, tickets) = wire::decode(bytes)?;
    Ok((message, Zeroizing::new(tickets.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_frames_and_silent_peers_are_refused_in_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut channel = Channel::plain(ours, Duration::from_millis(200));
        theirs.write_all(&5000u32.to_be_bytes()).unwrap();
        assert!(matches!(channel.receive::<Request>(4096), Err(ChannelError::Long(5000, 4096))));
        // One byte at a time does not extend the deadline.
        let begun = Instant::now();
        let slow = std::thread::spawn(move || {
            for byte in [0, 0, 0, 9, 1, 2, 3, 4, 5] {
                if theirs.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        assert!(channel.receive::<Request>(4096).is_err());
        assert!(begun.elapsed() < Duration::from_secs(1));
        drop(channel);
        slow.join().unwrap();
    }

    #[test]
    fn sealed_messages_cannot_be_replayed_or_altered() {
        use vouch_krb5_seal::{Enctype, Role};
        let keys = |role| {
            Arc::new(
                ContextKeys::new(Enctype::Aes256CtsHmacSha1_96, &[7; 32], role, false).unwrap(),
            )
        };
        let sealed = |socket, role| {
            let mut channel = Channel::plain(socket, Duration::from_secs(10));
            channel.seal = Some(Seal { keys: keys(role), sent: 0, received: 0 });
            channel
        };
        let (near, far) = UnixStream::pair().unwrap();
        let (mut client, mut server) = (sealed(near, Role::Initiator), sealed(far, Role::Acceptor));
        client.send(&Request::List, b"secret bytes").unwrap();
        let (request, tickets) = server.receive::<Request>(4096).unwrap();
        assert_eq!((request, &tickets[..]), (Request::List, &b"secret bytes"[..]));
        // The same number again, a reflected message, and a flipped bit.
        client.seal.as_mut().unwrap().sent = 0;
        client.send(&Request::List, b"").unwrap();
        assert!(matches!(server.receive::<Request>(4096), Err(ChannelError::Altered)));
        server.send(&Request::List, b"").unwrap();
        let reflected = client.read_frame(4096).unwrap();
        client.write_frame(&reflected).unwrap();
        assert!(matches!(server.receive::<Request>(4096), Err(ChannelError::Altered)));
        server.send(&Request::List, b"").unwrap();
        let mut altered = client.read_frame(4096).unwrap();
        altered[20] ^= 1;
        assert!(client.seal.as_ref().unwrap().keys.open_any(&mut altered).is_err());
    }
}
