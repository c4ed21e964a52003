use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use vouch_audit::record::Refusal;
use vouch_nfs4_server::Now;

use super::scratch::WorkerScratch;
use super::suspended_call::{SuspendedCall, run_compound};
use super::verify_batch::NextRead;
use crate::audit::Refused;
use crate::clock;
use crate::driver::{Driver, RunningCall};
use crate::gss::{self, Protected, Recent};
use crate::limits::{FLUSH_LEN, TURN_READS_MAX};
use crate::memory_quota::{AddressShares, ReceiveCharge};
use crate::tls::{HandshakeEnd, PeerTls};
use crate::transport::connection::{Connection, Side};
use crate::transport::output::Outgoing;
use crate::transport::receive::{Batch, Input, Read, ReadError, Record, Verification};
use crate::transport::rpc_call::{self as call, Incoming, LastCredential};

pub(super) struct Peer {
    pub(super) connection: Arc<Connection>,
    pub(super) input: Input,
    pub(super) last_credential: LastCredential,
    pub(super) recent: Recent,
    pub(super) slot: usize,
    pub(super) is_batched: bool,
    pub(super) suspended: Option<Box<SuspendedCall>>,
    /// Calls behind a suspended one.
    pub(super) verified: VecDeque<Batch>,
    pub(super) readable: bool,
    pub(super) read_closed: bool,
    pub(super) behind: bool,
    pub(super) awaits_contexts: bool,
    pub(super) queued: bool,
    pub(super) hold_timer_ns: u64,
    /// After one read or call at least.
    pub(super) turn_ends: Instant,
    pub(super) record_began_ms: Option<u64>,
    pub(super) tls: PeerTls,
}

pub(super) enum TurnEnd {
    Wait,
    Yield,
    VerifyBatch,
    Handshake,
    /// A limit of `qos=` holds it back until this time.
    Hold(u64),
    Close(CloseReason),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    PeerClosed,
    ProtocolError,
    ReplayDropped,
    TimedOut,
    /// TLS was refused, with a line of its own.
    Tls,
    Shutdown,
}

impl Peer {
    pub(super) fn new(
        connection: Arc<Connection>,
        slot: usize,
        shares: Arc<AddressShares>,
    ) -> Self {
        Peer {
            connection,
            input: Input::new(ReceiveCharge::new(shares)),
            last_credential: LastCredential::default(),
            recent: Recent::default(),
            slot,
            is_batched: false,
            suspended: None,
            verified: VecDeque::new(),
            readable: true,
            read_closed: false,
            behind: false,
            awaits_contexts: false,
            queued: false,
            hold_timer_ns: 0,
            turn_ends: Instant::now(),
            record_began_ms: None,
            tls: PeerTls::Fresh,
        }
    }

    pub(super) fn turn(&mut self, scratch: &mut WorkerScratch, driver: &Arc<Driver>) -> TurnEnd {
        if let PeerTls::Handshake(_) = self.tls {
            return if self.connection.has_failed() {
                TurnEnd::Close(CloseReason::PeerClosed)
            } else {
                TurnEnd::Handshake
            };
        }
        let mut reads = 0;
        let mut has_worked = false;
        loop {
            if self.connection.has_failed() {
                return TurnEnd::Close(CloseReason::PeerClosed);
            }
            let has_begun = self.has_begun();
            if has_worked && (has_begun || self.behind || self.readable) && self.is_turn_over() {
                return TurnEnd::Yield;
            }
            if has_begun {
                has_worked = true;
                match self.resume(scratch, driver) {
                    Ok(_) => continue,
                    Err(why) => return TurnEnd::Close(why),
                }
            }
            if (self.behind || self.readable)
                && driver.qos.is_active()
                && let Some(until_ns) = self.connection.qos().held_until_ns()
            {
                (self.behind, self.record_began_ms) = (self.behind || self.readable, None);
                return TurnEnd::Hold(until_ns);
            }
            if (self.behind || self.readable)
                && (self.connection.pause() || self.is_throttled(driver))
            {
                self.behind |= self.readable;
                return TurnEnd::Wait;
            }
            has_worked = true;
            let resumed = if self.behind { self.input.resume() } else { None };
            self.behind = false;
            let batch = match resumed {
                Some(batch) => batch,
                None if !self.readable => return TurnEnd::Wait,
                None if reads == TURN_READS_MAX => return TurnEnd::Yield,
                None if !self.input.may_read(&scratch.buffers) => {
                    (self.behind, self.record_began_ms) = (true, None);
                    return TurnEnd::Wait;
                }
                None => {
                    reads += 1;
                    match self.read(scratch, driver) {
                        Ok(NextRead::Process(batch)) => batch,
                        Ok(NextRead::ReadMore) => continue,
                        Ok(NextRead::VerifyBatch) => return TurnEnd::VerifyBatch,
                        Err(end) => return end,
                    }
                }
            };
            if let Err(why) = self.process(batch, scratch, driver) {
                return TurnEnd::Close(why);
            }
        }
    }

    fn read(
        &mut self,
        scratch: &mut WorkerScratch,
        driver: &Arc<Driver>,
    ) -> Result<NextRead, TurnEnd> {
        match self.input.read(
            self.connection.socket().as_fd(),
            &mut scratch.buffers,
            self.tls.opener(),
            scratch.part_len_max,
        ) {
            Ok(Read::Some { fresh, more, len, update_key }) => {
                if update_key {
                    self.connection.update_tls_key();
                }
                // A short read emptied the socket, and later data causes an event (epoll(7)).
                self.readable = more || self.read_closed;
                driver.traffic.received_len.add(len as u64);
                Ok(self.verify_or_batch(fresh, scratch, driver))
            }
            Ok(Read::Empty) => {
                self.readable = false;
                Err(TurnEnd::Wait)
            }
            Ok(Read::NoData { more, update_key }) => {
                if update_key {
                    self.connection.update_tls_key();
                }
                self.readable = more || self.read_closed;
                if self.input.is_inside_record() {
                    self.record_began_ms.get_or_insert_with(clock::mono_ms);
                }
                Ok(NextRead::ReadMore)
            }
            Err(ReadError::Tls(error)) => {
                driver.refuse_tls(&self.connection, &error.to_string());
                Err(TurnEnd::Close(CloseReason::ProtocolError))
            }
            Ok(Read::Closed) | Err(ReadError::Socket(_)) => {
                Err(TurnEnd::Close(CloseReason::PeerClosed))
            }
        }
    }

    pub(super) fn is_turn_over(&self) -> bool {
        Instant::now() >= self.turn_ends
    }

    /// Too many calls of the connection and its address wait. Other connections go on: their leases
    /// would expire.
    fn is_throttled(&mut self, driver: &Driver) -> bool {
        let origin = self.connection.origin();
        self.awaits_contexts =
            self.awaits_contexts && driver.gss.as_ref().is_some_and(|gss| gss.is_crowded(origin));
        let crowded = driver.pool.is_crowded(origin) || driver.names.is_crowded(origin);
        self.awaits_contexts
            || crowded && self.connection.has_waiting()
            || !self.connection.may_wait(driver.record_len_max)
    }

    pub(super) fn process(
        &mut self,
        mut batch: Batch,
        scratch: &mut WorkerScratch,
        driver: &Arc<Driver>,
    ) -> Result<(), CloseReason> {
        let now = clock::now();
        let mut calls = 0;
        let mut half_len = batch.left_len() / 2;
        let result = loop {
            let record = match self.input.next(&mut batch, scratch.record_len_max) {
                Ok(Some(record)) => record,
                Ok(None) => break Ok(()),
                Err(error) => {
                    tracing::info!(peer = %self.connection.peer(), %error, "malformed RPC record; closing the connection");
                    break Err(CloseReason::ProtocolError);
                }
            };
            calls += 1;
            match self.process_record(record, now, !batch.is_empty(), scratch, driver) {
                Ok(None) => {}
                Ok(Some(call)) => {
                    driver.traffic.calls.add(calls);
                    scratch.flush(&self.connection);
                    self.record_began_ms = None;
                    self.suspend(call, batch);
                    return Ok(());
                }
                Err(why) => {
                    self.log_close(why);
                    break Err(why);
                }
            }
            if scratch.ready_len >= FLUSH_LEN {
                scratch.flush(&self.connection);
            }
            if !batch.is_empty() && batch.left_len() <= half_len && scratch.is_worth_sending() {
                half_len = 0;
                scratch.send_if_awaited(&self.connection);
            }
            if !batch.is_empty()
                && (self.is_turn_over()
                    || driver.qos.is_active() && self.connection.qos().held_until_ns().is_some()
                    || self.is_throttled(driver)
                    || (calls % LIMIT_CHECK_CALLS == 0
                        || (scratch.ready.is_empty() && scratch.unsealed.is_empty()))
                        && self.connection.pause())
            {
                self.behind = true;
                break Ok(());
            }
        };
        driver.traffic.calls.add(calls);
        self.input.put_back(batch, &mut scratch.buffers);
        scratch.flush(&self.connection);
        scratch.seal_full_batch();
        self.record_began_ms = match self.record_began_ms {
            Some(began) if calls == 0 => Some(began),
            _ if self.input.is_inside_record() && !self.behind => Some(now.mono_ms),
            _ => None,
        };
        result
    }

    fn log_close(&self, why: CloseReason) {
        let peer = self.connection.peer();
        match why {
            CloseReason::Tls => {}
            CloseReason::ReplayDropped => {
                tracing::info!(%peer, "replayed or late RPCSEC_GSS call; closing the connection")
            }
            _ => tracing::info!(%peer, "the record is not an RPC call; closing the connection"),
        }
    }

    fn process_record(
        &mut self,
        record: Record,
        now: Now,
        has_more: bool,
        scratch: &mut WorkerScratch,
        driver: &Arc<Driver>,
    ) -> Result<Option<RunningCall>, CloseReason> {
        let connection = &self.connection;
        let Record { mut bytes, verification } = record;
        if connection.side() == Side::Callback && bytes.get(4..8) != Some(&[0, 0, 0, 1]) {
            let refusal = call::refuse(&bytes, scratch.reply(connection))
                .ok_or(CloseReason::ProtocolError)?;
            scratch.push(Outgoing::bytes(refusal));
            return Ok(None);
        }
        let protected = match verification {
            Verification::Done(protected) => protected,
            Verification::Pending => verify_alone(&mut bytes, driver, &mut self.recent),
        };
        if let (Some(protected), Some(audit)) = (&protected, &driver.audit) {
            protected.record_refusal(audit, connection.engine());
        }
        let incoming = match protected {
            Some(protected) => call::read_protected(
                &bytes,
                protected,
                connection.engine(),
                scratch.reply(connection),
                clock::boot_ms(),
            ),
            None => call::read(
                bytes,
                connection.engine(),
                &mut self.last_credential,
                driver.tls.is_some(),
                scratch.reply(connection),
            ),
        };
        match incoming {
            Incoming::Compound(request, envelope) => {
                if let PeerTls::Fresh = self.tls {
                    self.tls = PeerTls::Clear;
                }
                return Ok(run_compound(&self.connection, request, envelope, now, scratch, driver));
            }
            Incoming::Sealed(bytes, envelope) => {
                scratch.push_for(connection, Outgoing::unmarked(bytes, Some(envelope)))
            }
            Incoming::Destroyed(bytes, envelope, context) => {
                driver.gss.iter().for_each(|gss| gss.destroy(&context));
                scratch.push_for(connection, Outgoing::unmarked(bytes, Some(envelope)));
            }
            Incoming::Init(init) => {
                let gss = driver.gss.as_ref().ok_or(CloseReason::ProtocolError)?;
                gss.init(init, connection, driver.audit.as_ref());
                self.awaits_contexts = gss.is_crowded(connection.origin());
            }
            Incoming::Denied(bytes, stat, flavour, detail) => {
                driver.note_refused_credential(connection.engine(), stat);
                let refused = Refused {
                    flavour,
                    detail,
                    ..Refused::of(Refusal::Authentication, connection.engine())
                };
                driver.audit.iter().for_each(|audit| audit.refuse(&refused));
                scratch.push(Outgoing::bytes(bytes));
            }
            Incoming::Refused(bytes, stat) => {
                driver.note_refused_credential(connection.engine(), stat);
                scratch.push(Outgoing::bytes(bytes));
            }
            Incoming::StartTls(bytes) => {
                self.start_tls(bytes, has_more, scratch, driver, now)?;
            }
            Incoming::Answer(bytes) => scratch.push(Outgoing::bytes(bytes)),
            Incoming::CallbackReply(xid, record) if connection.has_sent_callbacks() => {
                driver.answered(connection, xid, &record)
            }
            Incoming::CallbackReply(..) | Incoming::Broken => {
                return Err(CloseReason::ProtocolError);
            }
            Incoming::Dropped => return Err(CloseReason::ReplayDropped),
        }
        Ok(None)
    }
}

fn verify_alone(
    bytes: &mut bytes::Bytes,
    driver: &Driver,
    recent: &mut Recent,
) -> Option<Protected> {
    let mut own = bytes::BytesMut::from(std::mem::take(bytes));
    let protected = gss::verify_one(&mut own, driver.gss.as_ref(), recent, clock::boot_ms());
    *bytes = own.freeze();
    protected
}

impl Peer {
    /// Only the first calls of a connection may ask for TLS, and nothing may follow the probe: an
    /// attacker could have put it there (RFC 9289 §4.1).
    fn start_tls(
        &mut self,
        reply: Vec<u8>,
        has_more: bool,
        scratch: &mut WorkerScratch,
        driver: &Arc<Driver>,
        now: Now,
    ) -> Result<(), CloseReason> {
        let connection = self.connection.clone();
        let cause = match &self.tls {
            PeerTls::Open(_) | PeerTls::Handshake(_) => Some("a second STARTTLS"),
            PeerTls::Clear => Some("STARTTLS after calls in clear text"),
            PeerTls::Fresh if has_more => Some("clear text behind STARTTLS"),
            PeerTls::Fresh => None,
        };
        let tls = driver.tls.as_ref().ok_or(CloseReason::ProtocolError)?;
        let begun = match cause {
            Some(cause) => Err(cause.to_owned()),
            None => {
                scratch.push(Outgoing::bytes(reply));
                scratch.flush(&connection);
                PeerTls::begin(tls, &connection, now.mono_ms)
            }
        };
        match begun {
            Ok(tls) => {
                self.tls = tls;
                Ok(())
            }
            Err(cause) => {
                driver.refuse_tls(&connection, &cause);
                Err(CloseReason::Tls)
            }
        }
    }

    pub(super) fn handshake(&mut self, driver: &Driver) -> TurnEnd {
        let PeerTls::Handshake(progress) = &mut self.tls else { return TurnEnd::Yield };
        match progress.advance(&self.connection) {
            HandshakeEnd::Wait => TurnEnd::Wait,
            HandshakeEnd::More => TurnEnd::Handshake,
            HandshakeEnd::Done(opener) => {
                self.tls = PeerTls::Open(opener);
                self.readable = true;
                TurnEnd::Yield
            }
            HandshakeEnd::Closed => TurnEnd::Close(CloseReason::PeerClosed),
            HandshakeEnd::Refused(cause) => {
                driver.refuse_tls(&self.connection, &cause);
                TurnEnd::Close(CloseReason::Tls)
            }
        }
    }
}

const LIMIT_CHECK_CALLS: u64 = 16;
