//! The driver for load generation: one thread, many calls in flight on several connections.
//! Protects and opens messages in batches. Allocates nothing per call after its buffers have grown.
//! A lost connection ends the run.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::debug;
use vouch_nfs4::ClientId;
use vouch_oncrpc::RECORD_MARK_LEN;
use vouch_xdr::Writer;

use self::handshake_io::connect_with;
pub(crate) use self::handshake_io::exchange;
use crate::back_channel::is_call;
use crate::core::Unprotected;
use crate::handshake::bind;
use crate::tls::Stream;
use crate::{
    BackChannel, CallBuilder, CallKind, Core, Error, Handshake, Identity, NoCallbacks,
    OutgoingCall, Protection, RecordBuffer, ReplyBody, TlsClient,
};

mod handshake_io;
mod shutdown;

struct Connection {
    stream: Stream,
    input: RecordBuffer,
    writable: bool,
}

impl Connection {
    fn poll_fd(&self) -> PollFd<'_> {
        let room = if self.writable { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(self.stream.socket(), PollFlags::IN | PollFlags::RDHUP | room)
    }
}

#[derive(Default)]
struct Output {
    bytes: Writer,
    written: usize,
    /// In order; must be protected before they are sent.
    unprotected: VecDeque<Unprotected>,
}

/// A reply handler can submit further calls.
pub struct Submitter {
    core: Core,
    outputs: Vec<Output>,
    next: usize,
    in_flight: usize,
}

impl Submitter {
    /// `operations` appends to the call. False if no slot is free.
    pub fn submit(
        &mut self,
        token: u64,
        operations: impl FnOnce(&mut CallBuilder, &mut Writer),
    ) -> Result<bool, Error> {
        let kind = if self.core.minor() == 0 {
            CallKind::Sessionless
        } else {
            CallKind::Session { cache: false }
        };
        let at = self.next;
        let Output { bytes: w, unprotected, .. } = &mut self.outputs[at];
        let Some(mut call) = self.core.begin(token, kind, w)? else { return Ok(false) };
        operations(&mut call, w);
        unprotected.extend(self.core.end_unprotected(call, w)?);
        self.next = (at + 1) % self.outputs.len();
        self.in_flight += 1;
        Ok(true)
    }

    fn callback_output(&mut self, at: usize) -> &mut Writer {
        &mut self.outputs[at].bytes
    }

    fn protect_batch(&mut self) -> Result<bool, Error> {
        let len_max = Some(self.core.batch_len()).filter(|&len| len > 0).unwrap_or(usize::MAX);
        let mut calls: Vec<OutgoingCall<'_>> = Vec::new();
        let (mut len, mut more) = (0, false);
        'outputs: for Output { bytes, unprotected, .. } in &mut self.outputs {
            let (mut unread, mut at) = (bytes.bytes_mut().as_mut_slice(), 0);
            for Unprotected { tag, bytes } in unprotected.iter() {
                if calls.len() == BATCH_CALLS_MAX
                    || (len + bytes.len() > len_max && !calls.is_empty())
                {
                    more = true;
                    break 'outputs;
                }
                len += bytes.len();
                let (call, tail) = unread[bytes.start - at..].split_at_mut(bytes.len());
                (unread, at) = (tail, bytes.end);
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

    /// Calls without a reply.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Number of calls that can be submitted now.
    pub fn available(&self) -> usize {
        self.core.available()
    }
}

/// A session for load generators: many calls in progress, on one thread.
pub struct Pipeline {
    connections: Vec<Connection>,
    ready: Vec<PollFlags>,
    submitter: Submitter,
    back: BackChannel,
    client: ClientId,
    enctype: Option<&'static str>,
    server: Option<String>,
}

impl Pipeline {
    /// Registers the client and binds the other connections to its session. Blocks for at most 30
    /// seconds whenever the server is silent.
    pub fn connect(
        address: SocketAddr,
        minor: u32,
        connections: usize,
        identity: &Identity,
        protection: Box<dyn Protection>,
    ) -> Result<Self, Error> {
        Self::connect_with(address, None, minor, connections, identity, protection)
    }

    /// Over TLS if given.
    pub fn connect_with(
        address: SocketAddr,
        tls: Option<&TlsClient>,
        minor: u32,
        connections: usize,
        identity: &Identity,
        protection: Box<dyn Protection>,
    ) -> Result<Self, Error> {
        let seed = u32::from_be_bytes(std::array::from_fn(|at| {
            identity.verifier.0[at] ^ identity.verifier.0[at + 4]
        }));
        let enctype = protection.enctype();
        let mut core = Core::new(minor, protection, seed);
        let record_len_max = identity.message_len_max as usize + 4096;
        let mut back =
            BackChannel::new(identity.callback_program, minor, identity.back_slots as usize);
        let optional = minor > 0 && identity.callback_security.is_none();
        let mut identity = identity.clone();
        if optional {
            identity.callback_security = core.callback_security();
        }
        back.set_security(identity.callback_security.clone());
        let mut streams = vec![connect_with(address, identity.source, tls)?];
        let mut handshake = Handshake::new(minor)
            .with_state_protection(core.has_integrity())
            .callback_security_optional(optional);
        while let Some((kind, args)) = handshake.request(&identity) {
            let mut w = Writer::new();
            let mut call = core.begin(0, kind, &mut w)?.ok_or(Error::Lost)?;
            call.op(&mut w, &args);
            core.end(call, &mut w)?;
            let record = exchange(&mut streams[0], w.as_bytes(), record_len_max, |call, out| {
                back.answer(call, &mut NoCallbacks, out)
            })?;
            let mut scratch = Vec::new();
            let completion = core
                .reply(&record, &mut scratch)?
                .ok_or(Error::Mismatch("reply to an unknown call"))?;
            let had_session = core.session().is_some();
            handshake.accept(&identity, completion.outcome?, &mut core)?;
            if let Some(session) = core.session().filter(|_| !had_session) {
                back.set_session(session);
            }
        }
        if handshake.is_callback_security_refused() {
            back.set_security(None);
        }
        for _ in 1..connections.max(1) {
            let mut stream = connect_with(address, identity.source, tls)?;
            if let Some(session) = core.session() {
                let mut w = Writer::new();
                let mut call = core.begin(0, CallKind::Sessionless, &mut w)?.ok_or(Error::Lost)?;
                call.op(&mut w, &bind(session));
                core.end(call, &mut w)?;
                let record = exchange(&mut stream, w.as_bytes(), record_len_max, |call, out| {
                    back.answer(call, &mut NoCallbacks, out)
                })?;
                let mut scratch = Vec::new();
                let completion = core
                    .reply(&record, &mut scratch)?
                    .ok_or(Error::Mismatch("reply to an unknown call"))?;
                completion.outcome?.next_ok()?;
            }
            streams.push(stream);
        }
        let mut connections = Vec::new();
        for stream in streams {
            stream.socket().set_nonblocking(true)?;
            connections.push(Connection {
                stream,
                input: RecordBuffer::new(record_len_max),
                writable: true,
            });
        }
        let outputs = connections.iter().map(|_| Output::default()).collect();
        let submitter = Submitter { core, outputs, next: 0, in_flight: 0 };
        Ok(Self {
            connections,
            ready: Vec::new(),
            submitter,
            back,
            client: handshake.client(),
            enctype,
            server: handshake.server().map(str::to_owned),
        })
    }

    /// Encryption type under Kerberos.
    pub const fn enctype(&self) -> Option<&'static str> {
        self.enctype
    }

    /// Longest data of a READ or WRITE, in bytes, that fits the messages of the session. No limit
    /// without a session.
    pub const fn data_len_max(&self) -> usize {
        self.submitter.core.data_len_max()
    }

    /// See [`Handshake::server`].
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Submits calls.
    pub const fn submitter(&mut self) -> &mut Submitter {
        &mut self.submitter
    }

    /// Sends submitted calls, waits at most `timeout` for replies, and passes each to `on_reply`.
    /// Returns their number.
    pub fn poll(
        &mut self,
        timeout: Option<Duration>,
        mut on_reply: impl FnMut(&mut Submitter, u64, Result<ReplyBody<'_>, Error>),
    ) -> Result<usize, Error> {
        self.flush()?;
        if !self.wait(timeout)? {
            return Ok(0);
        }
        let (mut replies, batch_len) = (0, self.submitter.core.batch_len());
        for (at, (connection, ready)) in self.connections.iter_mut().zip(&self.ready).enumerate() {
            connection.writable |= ready.contains(PollFlags::OUT);
            if !ready.intersects(READABLE) {
                continue;
            }
            loop {
                match connection.input.fill(&mut connection.stream) {
                    Ok(0) => {
                        handle_input(
                            connection,
                            at,
                            &mut self.submitter,
                            &mut self.back,
                            &mut on_reply,
                        )?;
                        return Err(Error::Lost);
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        replies += handle_input(
                            connection,
                            at,
                            &mut self.submitter,
                            &mut self.back,
                            &mut on_reply,
                        )?;
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error.into()),
                }
                if !connection.input.is_drained() && connection.input.buffered_len() < batch_len {
                    continue;
                }
                replies += handle_input(
                    connection,
                    at,
                    &mut self.submitter,
                    &mut self.back,
                    &mut on_reply,
                )?;
                if connection.input.is_drained() && !ready.intersects(ENDED) {
                    break;
                }
            }
        }
        self.flush()?;
        Ok(replies)
    }

    /// False at the timeout. ppoll(2) has timeouts in nanoseconds.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let (mut one, mut many);
        let poll_fds: &mut [PollFd<'_>] = match &self.connections[..] {
            [only] => {
                one = [only.poll_fd()];
                &mut one
            }
            all => {
                many = all.iter().map(Connection::poll_fd).collect::<Vec<_>>();
                &mut many
            }
        };
        match poll(poll_fds, timeout.as_ref()) {
            // The caller handles signals.
            Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(false),
            polled => polled.map_err(io::Error::from)?,
        };
        self.ready.clear();
        self.ready.extend(poll_fds.iter().map(PollFd::revents));
        Ok(true)
    }

    /// Batch by batch, so that the server works while the next batch is protected.
    fn flush(&mut self) -> Result<(), Error> {
        loop {
            let more = self.submitter.protect_batch()?;
            for (connection, output) in self.connections.iter_mut().zip(&mut self.submitter.outputs)
            {
                while connection.writable && !output.is_sent() {
                    match output.send(&mut connection.stream) {
                        Ok(n) => output.written += n,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            connection.writable = false
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                if connection.writable && connection.stream.has_pending() {
                    match connection.stream.flush() {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            connection.writable = false
                        }
                        flushed => flushed?,
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

/// One by one after opening. An invalid reply fails its call, and is ignored if no call has its id.
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
            let is_call = is_call(record);
            if is_call {
                back.answer(record, &mut NoCallbacks, submitter.callback_output(at));
            }
            !is_call
        });
        for opened in submitter.core.open_replies(records) {
            let xid = opened.xid();
            let completed = submitter.core.complete_reply(opened);
            let completion = completed.unwrap_or_else(|error| {
                debug!(%error, xid, "a reply of the server is invalid");
                submitter.core.fail_call(xid, error)
            });
            // The reply to the copy that is executing follows.
            if let Some(completion) = completion.filter(|completion| !completion.is_delayed()) {
                replies += 1;
                submitter.in_flight -= 1;
                on_reply(submitter, completion.token, completion.outcome);
            }
        }
    }
}

impl Output {
    fn is_sent(&self) -> bool {
        self.written == self.sendable_len()
    }

    fn sendable_len(&self) -> usize {
        self.unprotected
            .front()
            .map_or(self.bytes.len(), |first| first.bytes.start - RECORD_MARK_LEN)
    }

    /// Removes written bytes if all are written, or many and more than half of the buffer.
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

    fn send(&self, stream: &mut Stream) -> io::Result<usize> {
        stream.write(&self.bytes.as_bytes()[self.written..self.sendable_len()])
    }
}

const BATCH_CALLS_MAX: usize = 64;

const COMPACT_LEN_MIN: usize = 1 << 20;

const READABLE: PollFlags = PollFlags::IN.union(ENDED);
const ENDED: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
