//! The driver for load: one thread, many calls in flight on several connections, replies by
//! callback. Calls that were submitted between two looks at the sockets are protected together, and
//! replies that have come together are opened together; none waits for others. Allocates nothing
//! per call once its buffers have grown. Reconnects nothing: a lost connection ends the run.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vouch_oncrpc::RECORD_MARK_LEN;
use vouch_xdr::Writer;

use self::handshake_io::{HANDSHAKE_TIMEOUT, connect, exchange};
use crate::core::Unprotected;
use crate::handshake::bind;
use crate::{
    BackChannel, CallBuilder, CallKind, Core, Error, Handshake, Identity, NoCallbacks, OutgoingCall, Protection, RecordBuffer, ReplyBody,
};

mod handshake_io;
mod shutdown;

/// One connection.
struct Connection {
    stream: TcpStream,
    input: RecordBuffer,
    /// Whether the kernel may take more.
    writable: bool,
}

impl Connection {
    /// What is polled for: something to read, and room where there was none.
    fn poll_fds(&self) -> PollFd<'_> {
        let room = if self.writable { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(&self.stream, PollFlags::IN | PollFlags::RDHUP | room)
    }
}

/// What waits to be written to a connection, and how much of it has been.
#[derive(Default)]
struct Output {
    bytes: Writer,
    written: usize,
    /// Calls that are not to be sent before they are protected, in order.
    unprotected: VecDeque<Unprotected>,
}

/// Takes new calls, also while a reply is handled.
pub struct Submitter {
    core: Core,
    outputs: Vec<Output>,
    next: usize,
    in_flight: usize,
}

impl Submitter {
    /// Begins a call, lets `operations` append to it, and puts it on its way. False if no slot is
    /// free.
    pub fn submit(&mut self, token: u64, operations: impl FnOnce(&mut CallBuilder, &mut Writer)) -> Result<bool, Error> {
        let kind = if self.core.minor() == 0 { CallKind::Sessionless } else { CallKind::Session { cache: false } };
        let at = self.next;
        let Output { bytes: w, unprotected, .. } = &mut self.outputs[at];
        let Some(mut call) = self.core.begin(token, kind, w)? else { return Ok(false) };
        operations(&mut call, w);
        unprotected.extend(self.core.end_unprotected(call, w)?);
        self.next = (at + 1) % self.outputs.len();
        self.in_flight += 1;
        Ok(true)
    }

    /// Where a call of the server on this connection is answered.
    fn callback_output(&mut self, at: usize) -> &mut Writer {
        &mut self.outputs[at].bytes
    }

    /// Protects calls that wait for it, of any connection, as many as go together. Whether more
    /// wait.
    fn protect_batch(&mut self) -> Result<bool, Error> {
        // Where nothing is long, only how many there are counts.
        let len_max = Some(self.core.batch_len_min()).filter(|&len| len > 0).unwrap_or(usize::MAX);
        let mut calls: Vec<OutgoingCall<'_>> = Vec::new();
        let (mut len, mut more) = (0, false);
        'outputs: for Output { bytes, unprotected, .. } in &mut self.outputs {
            let (mut rest, mut at) = (bytes.bytes_mut().as_mut_slice(), 0);
            for Unprotected { tag, bytes } in unprotected.iter() {
                if calls.len() == BATCH_CALLS_MAX || (len + bytes.len() > len_max && !calls.is_empty()) {
                    more = true;
                    break 'outputs;
                }
                len += bytes.len();
                let (call, behind) = rest[bytes.start - at..].split_at_mut(bytes.len());
                (rest, at) = (behind, bytes.end);
                calls.push(OutgoingCall { tag: *tag, bytes: call });
            }
        }
        if calls.is_empty() {
            return Ok(false);
        }
        self.core.protect(&mut calls)?;
        let mut left = calls.len();
        for Output { unprotected, .. } in &mut self.outputs {
            let count = left.min(unprotected.len());
            unprotected.drain(..count);
            left -= count;
        }
        Ok(more)
    }

    /// Calls whose replies have not come.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Calls that could be submitted now.
    pub fn available(&self) -> usize {
        self.core.idle()
    }
}

/// A client for load generation.
pub struct Pipeline {
    connections: Vec<Connection>,
    /// What the last look ready of each connection.
    ready: Vec<PollFlags>,
    submitter: Submitter,
    back: BackChannel,
    enctype: Option<&'static str>,
    server: Option<String>,
}

impl Pipeline {
    /// Connects, introduces the client, and adds the other connections to its session. Blocks, for
    /// half a minute at most wherever the server is silent.
    pub fn connect(
        address: SocketAddr,
        minor: u32,
        connections: usize,
        identity: &Identity,
        protection: Box<dyn Protection>,
    ) -> Result<Self, Error> {
        let seed = u32::from_be_bytes(std::array::from_fn(|at| identity.verifier.0[at] ^ identity.verifier.0[at + 4]));
        let enctype = protection.enctype();
        let mut core = Core::new(minor, protection, seed);
        let record_len_max = identity.message_len_max as usize + 4096;
        let mut back = BackChannel::new(identity.callback_program, minor, identity.back_slots as usize);
        let optional = minor > 0 && identity.callback_security.is_none();
        let mut identity = identity.clone();
        if optional {
            identity.callback_security = core.callback_security();
        }
        back.set_security(identity.callback_security.clone());
        let mut streams = vec![connect(address, HANDSHAKE_TIMEOUT)?];
        let mut handshake = Handshake::new(minor).with_state_protection(core.has_integrity()).callback_security_optional(optional);
        while let Some((kind, args)) = handshake.request(&identity) {
            let mut w = Writer::new();
            let mut call = core.begin(0, kind, &mut w)?.ok_or(Error::Lost)?;
            call.op(&mut w, &args);
            core.end(call, &mut w)?;
            let record = exchange(&mut streams[0], w.as_bytes(), record_len_max)?;
            let mut scratch = Vec::new();
            let completion = core.reply(&record, &mut scratch)?.ok_or(Error::Mismatch("a reply to no call"))?;
            handshake.accept(&identity, completion.outcome?, &mut core)?;
        }
        if handshake.is_callback_security_refused() {
            back.set_security(None);
        }
        for _ in 1..connections.max(1) {
            let mut stream = connect(address, HANDSHAKE_TIMEOUT)?;
            if let Some(session) = core.session() {
                let mut w = Writer::new();
                let mut call = core.begin(0, CallKind::Sessionless, &mut w)?.ok_or(Error::Lost)?;
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
        let mut connections = Vec::new();
        for stream in streams {
            stream.set_nonblocking(true)?;
            connections.push(Connection { stream, input: RecordBuffer::new(record_len_max), writable: true });
        }
        let outputs = connections.iter().map(|_| Output::default()).collect();
        let submitter = Submitter { core, outputs, next: 0, in_flight: 0 };
        Ok(Self { connections, ready: Vec::new(), submitter, back, enctype, server: handshake.server().map(str::to_owned) })
    }

    /// Of Kerberos, the name of its encryption type.
    pub const fn enctype(&self) -> Option<&'static str> {
        self.enctype
    }

    /// What the server says it is: [`Handshake::server`].
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Takes new calls.
    pub const fn submitter(&mut self) -> &mut Submitter {
        &mut self.submitter
    }

    /// Sends what was submitted, waits for replies up to `timeout`, to some microseconds, and hands
    /// each to `on_reply`, which may submit more. How many came.
    pub fn poll(
        &mut self,
        timeout: Option<Duration>,
        mut on_reply: impl FnMut(&mut Submitter, u64, Result<ReplyBody<'_>, Error>),
    ) -> Result<usize, Error> {
        self.flush()?;
        if !self.wait(timeout)? {
            return Ok(0);
        }
        let (mut replies, batch_len_min) = (0, self.submitter.core.batch_len_min());
        for (at, (connection, ready)) in self.connections.iter_mut().zip(&self.ready).enumerate() {
            connection.writable |= ready.contains(PollFlags::OUT);
            if !ready.intersects(READABLE) {
                continue;
            }
            loop {
                match connection.input.fill(&mut connection.stream) {
                    Ok(0) => {
                        handle_input(connection, at, &mut self.submitter, &mut self.back, &mut on_reply)?;
                        return Err(Error::Lost);
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        replies += handle_input(connection, at, &mut self.submitter, &mut self.back, &mut on_reply)?;
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error.into()),
                }
                // More that is there already is opened together with this.
                if !connection.input.is_drained() && connection.input.buffered_len() < batch_len_min {
                    continue;
                }
                replies += handle_input(connection, at, &mut self.submitter, &mut self.back, &mut on_reply)?;
                // The end of the stream may have come with the last bytes, in the same look.
                if connection.input.is_drained() && !ready.intersects(ENDED) {
                    break;
                }
            }
        }
        self.flush()?;
        Ok(replies)
    }

    /// Waits until there is something to read, or room to write where there was none; whether there
    /// is. O(connections): few have more than one, and a timeout of nanoseconds costs no call
    /// of its own so.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        let timeout = timeout.map(|timeout| Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: timeout.subsec_nanos().into() });
        let (mut one, mut many);
        let poll_fds: &mut [PollFd<'_>] = match &self.connections[..] {
            [only] => {
                one = [only.poll_fds()];
                &mut one
            }
            all => {
                many = all.iter().map(Connection::poll_fds).collect::<Vec<_>>();
                &mut many
            }
        };
        match poll(poll_fds, timeout.as_ref()) {
            // A signal is for others; whoever drives this looks what it was about.
            Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(false),
            polled => polled.map_err(io::Error::from)?,
        };
        self.ready.clear();
        self.ready.extend(poll_fds.iter().map(PollFd::revents));
        Ok(true)
    }

    /// Protects what waits for it, as much at a time as goes together, and sends it: the server has
    /// work while the next are protected.
    fn flush(&mut self) -> Result<(), Error> {
        loop {
            let more = self.submitter.protect_batch()?;
            for (connection, output) in self.connections.iter_mut().zip(&mut self.submitter.outputs) {
                while connection.writable && !output.is_sent() {
                    match output.send(&mut connection.stream) {
                        Ok(n) => output.written += n,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.writable = false,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                output.compact();
            }
            if !more {
                return Ok(());
            }
        }
    }
}

/// Looks at what came on a connection: replies are opened together and then handed over one by one.
/// One that is not believed is an error when the others have been.
fn handle_input(
    connection: &mut Connection,
    at: usize,
    submitter: &mut Submitter,
    back: &mut BackChannel,
    on_reply: &mut impl FnMut(&mut Submitter, u64, Result<ReplyBody<'_>, Error>),
) -> Result<usize, Error> {
    let mut replies = 0;
    loop {
        let mut records = connection.input.take()?;
        if records.is_empty() {
            return Ok(replies);
        }
        records.retain(|record| {
            let is_call = record.get(4..8) == Some(&[0; 4]);
            if is_call {
                back.answer(record, &mut NoCallbacks, submitter.callback_output(at));
            }
            !is_call
        });
        let mut refused = None;
        for opened in submitter.core.open_replies(records) {
            match submitter.core.complete_reply(opened) {
                Ok(Some(completion)) => {
                    replies += 1;
                    submitter.in_flight -= 1;
                    on_reply(submitter, completion.token, completion.outcome);
                }
                Ok(None) => {}
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
    }
}

impl Output {
    /// All has left that may.
    fn is_sent(&self) -> bool {
        self.written == self.sendable_len()
    }

    /// The bytes up to the first call that is not protected yet.
    fn sendable_len(&self) -> usize {
        self.unprotected.front().map_or(self.bytes.len(), |first| first.bytes.start - RECORD_MARK_LEN)
    }

    /// Gives up bytes that have left, when they are all or many more than the others.
    fn compact(&mut self) {
        let len = self.bytes.len();
        if self.written < len && (self.written < COMPACT_LEN_MIN || self.written < len / 2) {
            return;
        }
        let sent = std::mem::take(&mut self.written);
        self.bytes.bytes_mut().copy_within(sent.., 0);
        self.bytes.truncate(len - sent);
        for call in &mut self.unprotected {
            call.bytes = call.bytes.start - sent..call.bytes.end - sent;
        }
    }

    fn send(&self, stream: &mut TcpStream) -> io::Result<usize> {
        stream.write(&self.bytes.as_bytes()[self.written..self.sendable_len()])
    }
}

/// Calls that are protected together at most: enough for the lanes of the widest vectors.
const BATCH_CALLS_MAX: usize = 64;

/// Bytes that have left are given up in front of others when they are more than this, and more than
/// those.
const COMPACT_LEN_MIN: usize = 1 << 20;

/// There is something to read, be it the end.
const READABLE: PollFlags = PollFlags::IN.union(ENDED);
/// Nothing comes after what is there.
const ENDED: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
