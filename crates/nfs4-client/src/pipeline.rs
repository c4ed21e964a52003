//! The driver for load: one thread, many calls in flight on several connections, replies by callback. Allocates nothing per call once its
//! buffers have grown. Reconnects nothing: a lost connection ends the run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use vouch_xdr::Writer;

use crate::handshake::bind;
use crate::{BackChannel, CallKind, Core, Error, Handshake, Identity, NoCallbacks, OpenCall, Protection, RecordBuffer, ReplyBody};

/// One connection.
struct Connection {
    stream: TcpStream,
    input: RecordBuffer,
    /// Whether the kernel may take more.
    writable: bool,
}

/// What waits to be written to a connection, and how much of it has been.
#[derive(Default)]
struct Output {
    bytes: Writer,
    written: usize,
}

/// Takes new calls, also while a reply is handled.
pub struct Submitter {
    core: Core,
    outputs: Vec<Output>,
    next: usize,
    in_flight: usize,
}

impl Submitter {
    /// Begins a call, lets `operations` append to it, and puts it on its way. False if no slot is free.
    pub fn submit(&mut self, token: u64, operations: impl FnOnce(&mut OpenCall, &mut Writer)) -> Result<bool, Error> {
        let kind = if self.core.minor() == 0 { CallKind::Loose } else { CallKind::Session { cache: false } };
        let at = self.next;
        let w = &mut self.outputs[at].bytes;
        let Some(mut call) = self.core.begin(token, kind, w)? else { return Ok(false) };
        operations(&mut call, w);
        self.core.end(call, w)?;
        self.next = (at + 1) % self.outputs.len();
        self.in_flight += 1;
        Ok(true)
    }

    /// Calls whose replies have not come.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Calls that could be submitted now.
    pub fn idle(&self) -> usize {
        self.core.idle()
    }
}

/// A client for load generation.
pub struct Pipeline {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    submitter: Submitter,
    back: BackChannel,
    scratch: Vec<u8>,
}

impl Pipeline {
    /// Connects, introduces the client, and adds the other connections to its session. Blocks.
    pub fn connect(
        address: SocketAddr,
        minor: u32,
        connections: usize,
        identity: &Identity,
        protection: Box<dyn Protection>,
    ) -> Result<Self, Error> {
        let seed = u32::from_be_bytes(std::array::from_fn(|at| identity.verifier.0[at] ^ identity.verifier.0[at + 4]));
        let mut core = Core::new(minor, protection, seed);
        let record_len_max = identity.message_len_max as usize + 4096;
        let mut back = BackChannel::new(identity.callback_program, minor, identity.back_slots as usize);
        let mut streams = vec![connect(address)?];
        let mut handshake = Handshake::new(minor);
        while let Some((kind, args)) = handshake.request(identity) {
            let mut w = Writer::new();
            let mut call = core.begin(0, kind, &mut w)?.ok_or(Error::Lost)?;
            call.op(&mut w, &args);
            core.end(call, &mut w)?;
            let record = exchange(&mut streams[0], w.as_bytes(), record_len_max)?;
            let mut scratch = Vec::new();
            let completion = core.reply(&record, &mut scratch)?.ok_or(Error::Mismatch("a reply to no call"))?;
            handshake.accept(identity, completion.outcome?, &mut core)?;
        }
        for _ in 1..connections.max(1) {
            let mut stream = connect(address)?;
            if let Some(session) = core.session() {
                let mut w = Writer::new();
                let mut call = core.begin(0, CallKind::Loose, &mut w)?.ok_or(Error::Lost)?;
                call.op(&mut w, &bind(session));
                core.end(call, &mut w)?;
                let record = exchange(&mut stream, w.as_bytes(), record_len_max)?;
                let mut scratch = Vec::new();
                let completion = core.reply(&record, &mut scratch)?.ok_or(Error::Mismatch("a reply to no call"))?;
                completion.outcome?.next_ok()?;
            }
            streams.push(stream);
        }
        if let Some(session) = core.session() {
            back.set_session(session);
        }
        let poll = Poll::new()?;
        let mut connections = Vec::new();
        for (at, stream) in streams.into_iter().enumerate() {
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(at), Interest::READABLE | Interest::WRITABLE)?;
            connections.push(Connection { stream, input: RecordBuffer::new(record_len_max), writable: true });
        }
        let outputs = connections.iter().map(|_| Output::default()).collect();
        let submitter = Submitter { core, outputs, next: 0, in_flight: 0 };
        Ok(Self { poll, events: Events::with_capacity(64), connections, submitter, back, scratch: Vec::new() })
    }

    /// Takes new calls.
    pub const fn submitter(&mut self) -> &mut Submitter {
        &mut self.submitter
    }

    /// Sends what was submitted, waits for replies up to `timeout`, and hands each to `on_reply`, which may submit more. How many came.
    pub fn turn(
        &mut self,
        timeout: Option<Duration>,
        mut on_reply: impl FnMut(&mut Submitter, u64, Result<ReplyBody<'_>, Error>),
    ) -> Result<usize, Error> {
        self.flush()?;
        self.poll.poll(&mut self.events, timeout)?;
        let mut replies = 0;
        for event in &self.events {
            let at = event.token().0;
            let connection = &mut self.connections[at];
            connection.writable |= event.is_writable();
            if !event.is_readable() {
                continue;
            }
            loop {
                match connection.input.fill(&mut connection.stream) {
                    Ok(0) => return Err(Error::Lost),
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error.into()),
                }
                while let Some(record) = connection.input.next_record()? {
                    if record.get(4..8) == Some(&[0; 4]) {
                        self.back.answer(&record, &mut NoCallbacks, &mut self.submitter.outputs[at].bytes);
                        continue;
                    }
                    if let Some(completion) = self.submitter.core.reply(&record, &mut self.scratch)? {
                        replies += 1;
                        self.submitter.in_flight -= 1;
                        on_reply(&mut self.submitter, completion.token, completion.outcome);
                    }
                }
                // The end of the stream may have come with the last bytes, in the same event.
                if connection.input.is_drained() && !event.is_read_closed() {
                    break;
                }
            }
        }
        self.flush()?;
        Ok(replies)
    }

    fn flush(&mut self) -> Result<(), Error> {
        for (connection, output) in self.connections.iter_mut().zip(&mut self.submitter.outputs) {
            while connection.writable && output.written < output.bytes.len() {
                match connection.stream.write(&output.bytes.as_bytes()[output.written..]) {
                    Ok(n) => output.written += n,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => connection.writable = false,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if output.written == output.bytes.len() {
                output.bytes.truncate(0);
                output.written = 0;
            }
        }
        Ok(())
    }
}

fn connect(address: SocketAddr) -> Result<StdStream, Error> {
    let stream = StdStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a record and takes one, on a connection that carries nothing else yet.
fn exchange(stream: &mut StdStream, call: &[u8], record_len_max: usize) -> Result<Vec<u8>, Error> {
    stream.write_all(call)?;
    let mut reader = vouch_oncrpc::RecordReader::new(record_len_max);
    let mut bytes = [0; 4096];
    loop {
        let n = stream.read(&mut bytes)?;
        if n == 0 {
            return Err(Error::Lost);
        }
        if let Some(record) = reader.next(&mut &bytes[..n])? {
            return Ok(record.into_owned());
        }
    }
}
