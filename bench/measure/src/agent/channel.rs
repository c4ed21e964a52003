//! Authenticated connection between coordinator and agent. Both sides send a nonce. The session key
//! comes from both nonces and the shared token, or from a secret that the coordinator sends sealed
//! by Kerberos. Each line of JSON follows its keyed BLAKE3 hash over direction, number and bytes.
//! Messages are not encrypted.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use vouch_gss_mit::{ClientSource, MitAcceptor, MitInitiator};
use vouch_rpcsec_gss::{Accept, Acceptor as _, InitStep, Initiator as _};

use crate::{Error, StopFlag};

#[derive(Clone)]
pub enum Credential {
    Token(Vec<u8>),
    /// For the service `host@NODE`.
    Kerberos(String),
}

pub enum Acceptor {
    Token(Vec<u8>),
    Kerberos {
        /// None uses the system's keytab.
        keytab: Option<PathBuf>,
        principals: Vec<String>,
    },
}

pub(super) struct Channel {
    input: BufReader<TcpStream>,
    output: TcpStream,
    key: [u8; 32],
    /// Direction bytes of sent and received messages.
    own: u8,
    peer: u8,
    sent: u64,
    received: u64,
    auth_deadline: Option<AuthDeadline>,
    stop: Option<StopFlag>,
}

#[derive(Debug, Clone)]
struct AuthDeadline {
    until: Instant,
    stop: StopFlag,
    line_len_max: usize,
}

pub(super) struct Receiver(Channel);

impl Channel {
    pub(super) fn connect(
        address: SocketAddr,
        credential: &Credential,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let begun = Instant::now();
        loop {
            match Self::connect_once(address, credential, stop) {
                // The agent may still be cleaning up after an earlier run.
                Err(Error::Refused(why))
                    if why.ends_with(BUSY_TEXT)
                        && begun.elapsed() < BUSY_RETRY_MAX
                        && !stop.is_set() =>
                {
                    std::thread::sleep(TICK);
                }
                connected => return connected,
            }
        }
    }

    fn connect_once(
        address: SocketAddr,
        credential: &Credential,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let name = address.to_string();
        let stream = TcpStream::connect_timeout(&address, PEER_TIMEOUT)
            .map_err(|error| Error::Unreachable(format!("agent {name}: {error}")))?;
        let auth_deadline = AuthDeadline {
            until: Instant::now() + PEER_TIMEOUT,
            stop: stop.clone(),
            line_len_max: PROOF_LEN_MAX,
        };
        let mut channel = Self::begin(stream, COORDINATOR, AGENT, auth_deadline, &name)?;
        let own = nonce()?;
        let kind = if matches!(credential, Credential::Token(_)) { "token" } else { "kerberos" };
        channel.write_line(&format!("{GREETING} {kind} {}", hex(&own)), &name)?;
        let greeting = channel.read_line(&name)?;
        if greeting == BUSY {
            return Err(Error::Refused(format!("agent {name}: {BUSY_TEXT}")));
        }
        let peer = unhex(&greeting, &name)?;
        channel.authenticate(credential, [&own, &peer], &name).map_err(|error| match error {
            Error::Unreachable(_) => Error::Refused(format!(
                "agent {name}: the agent refuses this coordinator: {}",
                if kind == "token" {
                    "it has another token, or accepts only Kerberos tickets"
                } else {
                    "its --principal does not name this user, or it accepts only a token (--token-file)"
                }
            )),
            error => error,
        })?;
        Ok(channel)
    }

    fn authenticate(
        &mut self,
        credential: &Credential,
        [own, peer]: [&[u8]; 2],
        name: &str,
    ) -> Result<(), Error> {
        self.key = match credential {
            Credential::Token(token) => key(token, own, peer),
            Credential::Kerberos(service) => {
                let refused = |error: &dyn std::fmt::Display| {
                    Error::Refused(format!("agent {name}: {error}"))
                };
                let mut initiator = MitInitiator::new(service, &ClientSource::default())
                    .map_err(|error| refused(&error))?;
                let mut token = None;
                let context = loop {
                    match initiator.step(token.as_deref()).map_err(|error| refused(&error))? {
                        InitStep::Continue { token } => self.write_line(&hex(&token), name)?,
                        InitStep::Established { context, token } => {
                            if let Some(token) = token {
                                self.write_line(&hex(&token), name)?;
                            }
                            break context;
                        }
                    }
                    token = Some(unhex(&self.read_line(name)?, name)?);
                };
                let secret = nonce()?;
                let mut sealed = vec![0; 32 + secret.len() + context.keys.trailer_len()];
                sealed[32..32 + secret.len()].copy_from_slice(&secret);
                let confounder = *nonce()?.first_chunk::<16>().expect("32 bytes hold 16");
                context
                    .keys
                    .seal(context.token_seq, confounder, &mut sealed)
                    .map_err(|_| refused(&"sealing the session key failed"))?;
                self.write_line(&hex(&sealed), name)?;
                key(&secret, own, peer)
            }
        };
        self.send(&"coordinator", name)?;
        let hello: String = self.receive(name)?.ok_or_else(|| {
            Error::Unreachable(format!("agent {name}: the agent closed the connection"))
        })?;
        match &hello[..] {
            "agent" => Ok(()),
            BUSY => Err(Error::Refused(format!("agent {name}: {BUSY_TEXT}"))),
            _ => Err(Error::Refused(format!("agent {name}: unexpected greeting"))),
        }
    }

    /// `turn` reserves the agent for an authenticated coordinator, or returns false.
    pub(super) fn accept(
        stream: TcpStream,
        acceptor: &Acceptor,
        within: Duration,
        stop: &StopFlag,
        turn: impl FnOnce() -> bool,
    ) -> Result<Self, Error> {
        let name = stream.peer_addr().map_or_else(|_| "?".into(), |peer| peer.to_string());
        // A Kerberos ticket may hold a directory's authorization data.
        let line_len_max =
            if matches!(acceptor, Acceptor::Token(_)) { TOKEN_LINE_LEN_MAX } else { PROOF_LEN_MAX };
        let auth_deadline =
            AuthDeadline { until: Instant::now() + within, stop: stop.clone(), line_len_max };
        let mut channel = Self::begin(stream, AGENT, COORDINATOR, auth_deadline, &name)?;
        let greeting = channel.read_line(&name)?;
        let mut words = greeting.split(' ');
        let (version, kind, nonce_text) = (words.next(), words.next(), words.next());
        if version != Some(GREETING) {
            return Err(Error::Refused(format!(
                "{name}: the peer is not a coordinator of this version"
            )));
        }
        let peer = unhex(nonce_text.unwrap_or_default(), &name)?;
        let own = nonce()?;
        channel.write_line(&hex(&own), &name)?;
        channel.key = match (acceptor, kind) {
            (Acceptor::Token(token), Some("token")) => key(token, &peer, &own),
            (Acceptor::Kerberos { keytab, principals }, Some("kerberos")) => {
                let sealed = channel.accept_ticket(keytab.as_deref(), principals, &name)?;
                key(&sealed, &peer, &own)
            }
            _ => {
                return Err(Error::Refused(format!(
                    "{name}: the coordinator uses another kind of authentication than this agent"
                )));
            }
        };
        let hello: String = channel
            .receive(&name)?
            .ok_or_else(|| Error::Refused(format!("{name}: the peer closed the connection")))?;
        if hello != "coordinator" {
            return Err(Error::Refused(format!("{name}: unexpected greeting")));
        }
        if !turn() {
            channel.send(&BUSY, &name)?;
            return Err(Error::Refused("refused: the agent works for another coordinator".into()));
        }
        channel.send(&"agent", &name)?;
        Ok(channel)
    }

    fn accept_ticket(
        &mut self,
        keytab: Option<&Path>,
        principals: &[String],
        name: &str,
    ) -> Result<Vec<u8>, Error> {
        let refused = |error: &dyn std::fmt::Display| Error::Refused(format!("{name}: {error}"));
        let acceptor = MitAcceptor::new(keytab, "host").map_err(|error| refused(&error))?;
        let mut partial = None;
        let context = loop {
            let token = unhex(&self.read_line(name)?, name)?;
            match acceptor.accept(partial.take(), &token) {
                Accept::Established { context, token } => {
                    self.write_line(&hex(&token), name)?;
                    break context;
                }
                Accept::Continue { partial: next, token } => {
                    partial = Some(next);
                    self.write_line(&hex(&token), name)?;
                }
                Accept::Failed { reason, .. } => return Err(refused(&reason)),
            }
        };
        if !principals.iter().any(|principal| **principal == *context.principal) {
            return Err(refused(&format!("{} is not allowed (--principal)", context.principal)));
        }
        let mut sealed = unhex(&self.read_line(name)?, name)?;
        let body = context
            .keys
            .open(&mut sealed)
            .map_err(|_| refused(&"the session key does not decrypt"))?;
        Ok(sealed[body].to_vec())
    }

    fn begin(
        stream: TcpStream,
        own: u8,
        peer: u8,
        auth_deadline: AuthDeadline,
        name: &str,
    ) -> Result<Self, Error> {
        let failed = || Error::io(name.to_owned());
        stream.set_nodelay(true).map_err(failed())?;
        // Short reads, to check the deadline and stop requests.
        stream.set_read_timeout(Some(TICK)).map_err(failed())?;
        stream.set_write_timeout(Some(PEER_TIMEOUT)).map_err(failed())?;
        let input = BufReader::new(stream.try_clone().map_err(failed())?);
        Ok(Self {
            input,
            output: stream,
            key: [0; 32],
            own,
            peer,
            sent: 0,
            received: 0,
            auth_deadline: Some(auth_deadline),
            stop: None,
        })
    }

    pub(super) fn set_authenticated(&mut self, stop: Option<&StopFlag>) {
        self.auth_deadline = None;
        self.stop = stop.cloned();
        if stop.is_none() {
            let _ = self.output.set_read_timeout(None);
        }
        // Keep-alive detects a node that is gone.
        let _ = sockopt::set_socket_keepalive(&self.output, true);
        let _ = sockopt::set_tcp_keepidle(&self.output, UNREACHABLE_AFTER / 2);
        let _ = sockopt::set_tcp_keepintvl(&self.output, UNREACHABLE_AFTER / 12);
        let _ = sockopt::set_tcp_keepcnt(&self.output, 6);
        let _ = sockopt::set_tcp_user_timeout(&self.output, UNREACHABLE_AFTER.as_millis() as u32);
    }

    pub(super) fn refuse_busy(mut stream: TcpStream) {
        let failed =
            stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(TICK)));
        let written = failed.and_then(|()| stream.write_all(format!("{BUSY}\n").as_bytes()));
        // Otherwise the kernel would reset the connection, and the message could be lost.
        let _ = written
            .and_then(|()| stream.shutdown(std::net::Shutdown::Write))
            .and_then(|()| stream.set_read_timeout(Some(TICK)));
        let _ = std::io::Read::read(&mut stream, &mut [0; 1024]);
    }

    pub(super) fn shut_down(&self) {
        let _ = self.output.shutdown(std::net::Shutdown::Both);
    }

    pub(super) fn send(&mut self, message: &impl Serialize, name: &str) -> Result<(), Error> {
        let text = serde_json::to_string(message).expect("numbers and text serialize");
        let sum = mac(&self.key, self.own, self.sent, text.as_bytes());
        self.sent += 1;
        self.write_line(&format!("{} {text}", hex(sum.as_bytes())), name)
    }

    pub(super) fn receive<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Error> {
        let line = match self.read_line(name) {
            Err(Error::Unreachable(_)) => return Ok(None),
            line => line?,
        };
        let (sum, text) = line.split_once(' ').unwrap_or_default();
        let sum: Option<[u8; 32]> = unhex(sum, name)?.try_into().ok();
        // `blake3::Hash` compares in constant time.
        if sum.map(blake3::Hash::from)
            != Some(mac(&self.key, self.peer, self.received, text.as_bytes()))
        {
            return Err(Error::Refused(format!(
                "{name}: a message fails authentication; the tokens may differ"
            )));
        }
        self.received += 1;
        serde_json::from_str(text)
            .map(Some)
            .map_err(|error| Error::Refused(format!("{name}: {error}")))
    }

    pub(super) fn split(self) -> Result<(Self, Receiver), Error> {
        let failed = || Error::io("a connection");
        let output = self.output.try_clone().map_err(failed())?;
        let idle = BufReader::new(self.output.try_clone().map_err(failed())?);
        let (key, own, peer, sent, received) =
            (self.key, self.own, self.peer, self.sent, self.received);
        let (auth_deadline, stop) = (self.auth_deadline, self.stop);
        let sender = Self {
            input: idle,
            output: self.output,
            key,
            own,
            peer,
            sent,
            received,
            auth_deadline: auth_deadline.clone(),
            stop: stop.clone(),
        };
        Ok((
            sender,
            Receiver(Self {
                input: self.input,
                output,
                key,
                own,
                peer,
                sent,
                received,
                auth_deadline,
                stop,
            }),
        ))
    }

    fn write_line(&mut self, line: &str, name: &str) -> Result<(), Error> {
        let lost = |error| Error::Unreachable(format!("{name}: {error}"));
        self.output
            .write_all(line.as_bytes())
            .and_then(|()| self.output.write_all(b"\n"))
            .map_err(lost)
    }

    fn read_line(&mut self, name: &str) -> Result<String, Error> {
        let (mut line, mut stop_seen) = (Vec::new(), None);
        let line_len_max = self
            .auth_deadline
            .as_ref()
            .map_or(LINE_LEN_MAX, |auth_deadline| auth_deadline.line_len_max);
        loop {
            match &self.auth_deadline {
                Some(auth_deadline) if auth_deadline.stop.is_set() => {
                    return Err(Error::Interrupted);
                }
                Some(auth_deadline) if Instant::now() >= auth_deadline.until => {
                    return Err(Error::Refused(format!(
                        "{name}: the peer did not authenticate in time"
                    )));
                }
                _ => {}
            }
            let stopped = self.stop.as_ref().is_some_and(StopFlag::must_hurry);
            if stopped && stop_seen.get_or_insert_with(Instant::now).elapsed() > ANSWER_WAIT_MAX {
                return Err(Error::Unreachable(format!("{name}: no answer")));
            }
            let waits = self.auth_deadline.is_some() || self.stop.is_some();
            let bytes = match self.input.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error)
                    if waits
                        && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(error) => return Err(Error::Unreachable(format!("{name}: {error}"))),
            };
            if bytes.is_empty() {
                return Err(Error::Unreachable(format!("{name}: the peer closed the connection")));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let len = end.unwrap_or(bytes.len());
            if line.len() + len > line_len_max {
                return Err(Error::Refused(format!("{name}: a line exceeds {line_len_max} bytes")));
            }
            line.extend(&bytes[..len]);
            self.input.consume(len + usize::from(end.is_some()));
            if end.is_some() {
                return String::from_utf8(line)
                    .map_err(|_| Error::Refused(format!("{name}: a line is not UTF-8")));
            }
        }
    }
}

impl Receiver {
    pub(super) fn receive<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Error> {
        self.0.receive(name)
    }
}

fn key(secret: &[u8], coordinator: &[u8], agent: &[u8]) -> [u8; 32] {
    let master = blake3::derive_key("vouch bench agent, 2026: session key", secret);
    let mut hasher = blake3::Hasher::new_keyed(&master);
    for nonce in [coordinator, agent] {
        hasher.update(&(nonce.len() as u64).to_le_bytes()).update(nonce);
    }
    *hasher.finalize().as_bytes()
}

fn mac(key: &[u8; 32], direction: u8, number: u64, text: &[u8]) -> blake3::Hash {
    blake3::Hasher::new_keyed(key)
        .update(&[direction])
        .update(&number.to_le_bytes())
        .update(text)
        .finalize()
}

fn nonce() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Input(format!("randomness: {error}")))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

fn unhex(text: &str, name: &str) -> Result<Vec<u8>, Error> {
    data_encoding::HEXLOWER
        .decode(text.as_bytes())
        .map_err(|_| Error::Refused(format!("{name}: the message is not hexadecimal")))
}

const BUSY: &str = "busy";
const BUSY_TEXT: &str = "the agent works for another coordinator";
/// As long as an agent may need for cleanup.
const BUSY_RETRY_MAX: Duration = Duration::from_secs(3);
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);
const UNREACHABLE_AFTER: Duration = Duration::from_secs(60);
const GREETING: &str = "vouch-bench-2";
const COORDINATOR: u8 = b'C';
const AGENT: u8 = b'A';
const PEER_TIMEOUT: Duration = Duration::from_secs(30);
/// A sample with a full histogram has some hundred kilobytes.
const LINE_LEN_MAX: usize = 16 << 20;
/// A ticket with all groups of a user has up to 64 KiB, and twice as much in hexadecimal.
const PROOF_LEN_MAX: usize = 192 << 10;
const TOKEN_LINE_LEN_MAX: usize = 512;
const TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair(own: &[u8]) -> (Result<Channel, Error>, Result<Channel, Error>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("a port");
        let agent = std::thread::spawn(move || {
            let stream = listener.accept().expect("a connection").0;
            Channel::accept(
                stream,
                &Acceptor::Token(b"secret".to_vec()),
                PEER_TIMEOUT,
                &StopFlag::default(),
                || true,
            )
        });
        let coordinator =
            Channel::connect(address, &Credential::Token(own.to_vec()), &StopFlag::default());
        (agent.join().expect("the thread ends"), coordinator)
    }

    fn authenticated() -> (Channel, Channel) {
        let (agent, coordinator) = pair(b"secret");
        (agent.expect("the token"), coordinator.expect("the token"))
    }

    #[test]
    fn wrong_token_and_repeated_message_are_refused() {
        let (agent, coordinator) = pair(b"guess");
        assert!(matches!(agent, Err(Error::Refused(_))) && coordinator.is_err());
        let (mut agent, mut coordinator) = authenticated();
        for number in 1u32..=2 {
            coordinator.send(&number, "a").expect("a line");
            assert_eq!(agent.receive::<u32>("c").expect("a message"), Some(number));
        }
        coordinator.sent -= 1;
        coordinator.send(&2u32, "a").expect("a line");
        assert!(matches!(agent.receive::<u32>("c"), Err(Error::Refused(_))));
        let (mut agent, coordinator) = authenticated();
        drop(coordinator);
        assert_eq!(agent.receive::<u32>("c").expect("an end"), None);
    }

    fn result_of_slow_peer(
        text: &[u8],
        every: Duration,
        within: Duration,
        stop: &StopFlag,
    ) -> Result<Channel, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("a port");
        let text = text.to_vec();
        let peer = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("the agent");
            for byte in text.iter().cycle() {
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
                std::thread::sleep(every);
            }
        });
        let accepted = Channel::accept(
            listener.accept().expect("a connection").0,
            &Acceptor::Token(b"secret".to_vec()),
            within,
            stop,
            || true,
        );
        peer.join().expect("the connection is closed");
        accepted
    }

    #[test]
    fn unauthenticated_peer_is_limited_in_time_and_length() {
        let (slow, stop) = (Duration::from_millis(20), StopFlag::default());
        let held = result_of_slow_peer(b"x", slow, Duration::from_millis(300), &stop);
        assert!(
            matches!(&held, Err(Error::Refused(why)) if why.contains("in time")),
            "{:?}",
            held.err()
        );
        let held = result_of_slow_peer(b"x", Duration::ZERO, Duration::from_secs(60), &stop);
        assert!(
            matches!(&held, Err(Error::Refused(why)) if why.contains("bytes")),
            "{:?}",
            held.err()
        );
        stop.set();
        assert!(matches!(
            result_of_slow_peer(b"x", slow, Duration::from_secs(60), &stop),
            Err(Error::Interrupted)
        ));
    }

    #[test]
    fn stop_request_does_not_wait_for_silent_agent() {
        let (_agent, mut coordinator) = authenticated();
        let stop = StopFlag::default();
        coordinator.set_authenticated(Some(&stop));
        stop.set();
        assert_eq!(coordinator.receive::<u32>("a").expect("no answer is none"), None);
    }
}
