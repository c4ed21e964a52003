//! Runs operations one at a time, and suspends before an operation that would wait.

use std::sync::Arc;

use bytes::Bytes;
use vouch_nfs4::op::{Args, Op, Results};
use vouch_nfs4::{CompoundHead, ReplyWriter, Status};
use vouch_vfs::{Blocking, FileId, FileSystem, SystemId};
use vouch_xdr::{Reader, Writer};

use super::dispatch::dispatch;
use super::precheck;
use super::progress::{BlockedOn, Progress, RunOutcome, Stop};
use crate::compound::context::{CallState, CompoundContext, PendingSync, RecordWait};
use crate::compound::lookahead::Lookahead;
use crate::compound::sequence::{self, SequenceInput};
use crate::error::OpError;
use crate::files::file_ref::Object;
use crate::observer::notification::{CompletedOp, DeferredNotification};
use crate::state::FileKey;
use crate::{Effect, ExportId, Now, Reply, Request, Server};

/// Must run to its end even without its connection: the session's slot waits for it.
pub struct Compound {
    pub(super) call: CallState,
    body: Bytes,
    out: Vec<u8>,
    pub(super) start: usize,
    pub(super) phase: Phase,
    pub(super) head: Option<ReplyWriter>,
    pub(super) deferred: Vec<DeferredNotification>,
}

pub(super) enum Phase {
    Head,
    Operation(OperationCursor),
    Sync(OperationCursor, Status),
    Over,
}

pub(super) struct OperationCursor {
    position: usize,
    pub(super) count: u32,
    pub(super) done: u32,
    head: ReplyWriter,
}

enum OperationOutcome {
    Go,
    End(Status),
    Blocked(Stop),
    Replayed,
}

enum Synced {
    All,
    /// A file system failed. Its status replaces the first result that depends on it.
    Failed(Status),
    MustWait,
}

impl Compound {
    pub(crate) fn new(server: &Server, request: Request, now: Now) -> Self {
        let start = request.reply.len();
        let call = CallState {
            connection: request.connection,
            principal: request.principal,
            flavour: request.flavour,
            enctype: request.enctype,
            xid: request.xid,
            now,
            tree: server.tree(),
            minor: 0,
            current: None,
            saved: None,
            current_stateid: None,
            saved_stateid: None,
            session: None,
            owner: None,
            candidate: None,
            replay: None,
            spans_allowed: request.spans_allowed && request.flavour.plain_data(),
            spans: Vec::new(),
            spans_len: 0,
            effects: Vec::new(),
            pending_syncs: Vec::new(),
            machine_admitted: false,
            machine_does: false,
            names: Blocking::Forbidden,
            may_wait_for: None,
            op: 0,
            index: 0,
            result_at: start,
            end_max: start + server.config().limits.message_len_max as usize,
            tail_len: request.reply_tail_len,
            end_status: Status::RESOURCE,
            record_wait: RecordWait::None,
            bytes_read: 0,
            bytes_written: 0,
            tracks: false,
            used: [const { None }; 2],
            granted: None,
            totals: None,
            new_owner: (None, None),
            stage: crate::observer::interface::Stage::Whole,
            changed: None,
            note: None,
        };
        Compound {
            call,
            body: request.body,
            out: request.reply,
            start,
            phase: Phase::Head,
            head: None,
            deferred: Vec::new(),
        }
    }

    pub fn run(&mut self, server: &Server, blocking: Blocking) -> Progress {
        self.run_with_name_lookups(server, blocking, blocking)
    }

    pub(crate) fn run_with_name_lookups(
        &mut self,
        server: &Server,
        blocking: Blocking,
        names: Blocking,
    ) -> Progress {
        self.run_by(names, |compound, body, out| {
            compound.run_operations(server, blocking, body, out)
        })
    }

    pub(super) fn run_by(
        &mut self,
        names: Blocking,
        run: impl FnOnce(&mut Self, &[u8], &mut Writer) -> RunOutcome,
    ) -> Progress {
        self.call.names = names;
        let body = std::mem::take(&mut self.body);
        let mut out = Writer::append_to(std::mem::take(&mut self.out));
        let progress = run(self, &body, &mut out);
        self.out = out.into_bytes();
        self.body = body;
        match progress {
            RunOutcome::Blocked(Stop::ForNames) => Progress::Blocked(BlockedOn::NameService),
            RunOutcome::Blocked(Stop::ForFiles) => {
                Progress::Blocked(self.remote_system().map_or(BlockedOn::Disk, BlockedOn::Remote))
            }
            RunOutcome::Unanswered => Progress::Done(None),
            RunOutcome::Answered => {
                let bytes = std::mem::take(&mut self.out);
                Progress::Done(Some(Reply { bytes, spans: std::mem::take(&mut self.call.spans) }))
            }
        }
    }

    /// Copies arguments of up to `len_max` bytes, so that a suspended call does not keep its
    /// receive buffer.
    pub fn copy_body(&mut self, len_max: usize) {
        if self.body.len() <= len_max {
            self.body = Bytes::copy_from_slice(&self.body);
        }
    }

    pub fn body_len(&self) -> usize {
        self.body.len()
    }

    pub fn resume_at(&mut self, now: Now) {
        if now.mono_ms > self.call.now.mono_ms {
            self.call.now = now;
        }
    }

    /// The reply grants state or repeats such a reply (RFC 8881 §8.4.3).
    pub fn waits_for_records(&self) -> bool {
        self.call.record_wait != RecordWait::None
    }

    pub fn is_replay(&self) -> bool {
        self.call.record_wait == RecordWait::ForReplay
    }

    /// The remote file system for which the call must wait on a thread that may: see
    /// [`wait_for`](Self::wait_for).
    pub fn remote_system(&self) -> Option<SystemId> {
        match &self.phase {
            Phase::Operation(_) => self.call.remote_system(),
            Phase::Sync(..) => self.call.pending_syncs.last().and_then(PendingSync::remote_system),
            Phase::Head | Phase::Over => None,
        }
    }

    /// Until the next call. Operations on other remote file systems do not run, whatever
    /// [`run`](Self::run) permits.
    pub fn wait_for(&mut self, remote: Option<SystemId>) {
        self.call.may_wait_for = remote;
    }

    /// The export whose journal commit is all that the call waits for. Drops the arguments.
    pub fn waits_for_sync(&mut self) -> Option<ExportId> {
        let (Phase::Sync(..), [one]) = (&self.phase, &self.call.pending_syncs[..]) else {
            return None;
        };
        let export = &one.files.site.export;
        if !export.file_system.syncs_together(&one.ids) {
            return None;
        }
        self.body = Bytes::new();
        Some(export.id)
    }

    /// One sync for all changes of one file system. May block. After a failure each compound
    /// retries alone.
    pub fn sync_batch<'a>(server: &Server, compounds: impl IntoIterator<Item = &'a mut Compound>) {
        let (mut ids, mut keys): (Vec<FileId>, Vec<FileKey>) = (Vec::new(), Vec::new());
        let mut together: Vec<&mut Compound> = Vec::new();
        let mut file_system: Option<Arc<dyn FileSystem>> = None;
        for compound in compounds {
            let [one] = &compound.call.pending_syncs[..] else { continue };
            let of_this =
                file_system.get_or_insert_with(|| one.files.site.export.file_system.clone());
            if Arc::ptr_eq(of_this, &one.files.site.export.file_system) {
                ids.extend_from_slice(&one.ids);
                keys.extend(one.keys());
                together.push(compound);
            }
        }
        let Some(file_system) = file_system else { return };
        if server
            .sync_tracker()
            .during(&keys, || file_system.sync_metadata(&ids, Blocking::Allowed))
            .is_ok()
        {
            together.into_iter().for_each(|compound| compound.call.pending_syncs.clear());
        }
    }

    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.call.effects)
    }

    pub(super) fn run_operations(
        &mut self,
        server: &Server,
        blocking: Blocking,
        body: &[u8],
        out: &mut Writer,
    ) -> RunOutcome {
        loop {
            match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Head => match self.head(server, body, out) {
                    Ok(phase) => self.phase = phase,
                    Err(ended) => return ended,
                },
                Phase::Operation(mut cursor) => {
                    let next = self.operation(server, blocking, body, out, &mut cursor);
                    match next {
                        OperationOutcome::Go if cursor.done < cursor.count => {
                            self.phase = Phase::Operation(cursor)
                        }
                        OperationOutcome::Go => self.phase = Phase::Sync(cursor, Status::OK),
                        OperationOutcome::End(status) => self.phase = Phase::Sync(cursor, status),
                        OperationOutcome::Blocked(stop) => {
                            self.phase = Phase::Operation(cursor);
                            return RunOutcome::Blocked(stop);
                        }
                        OperationOutcome::Replayed => return RunOutcome::Answered,
                    }
                }
                Phase::Sync(mut cursor, mut status) => {
                    match self.sync(server, blocking, out, &mut cursor) {
                        Synced::All => {}
                        Synced::Failed(worse) => status = worse,
                        Synced::MustWait => {
                            self.phase = Phase::Sync(cursor, status);
                            return RunOutcome::Blocked(Stop::ForFiles);
                        }
                    }
                    self.deferred
                        .drain(..)
                        .for_each(|deferred| deferred.report(server, &self.call));
                    let OperationCursor { done, head, .. } = cursor;
                    head.finish(out, status, done);
                    sequence::finish(server, &mut self.call, &out.as_bytes()[self.start..]);
                    return RunOutcome::Answered;
                }
                Phase::Over => return RunOutcome::Unanswered,
            }
        }
    }

    fn head(
        &mut self,
        server: &Server,
        body: &[u8],
        out: &mut Writer,
    ) -> Result<Phase, RunOutcome> {
        let mut r = Reader::new(body);
        let whole = |out: &mut Writer, status, tag: &[u8]| {
            ReplyWriter::begin(out, tag).finish(out, status, 0);
            Err(RunOutcome::Answered)
        };
        let Ok(head) = CompoundHead::decode(&mut r) else { return whole(out, Status::BADXDR, b"") };
        if head.tag.len() > server.config().limits.tag_len_max {
            return whole(out, Status::RESOURCE, b"");
        }
        // RFC 8881 §16.2.3.
        if !server.config().minor_versions.contains(&head.minor) {
            return whole(out, Status::MINOR_VERS_MISMATCH, head.tag);
        }
        self.call.minor = head.minor;
        if head.count == 0 {
            return whole(out, Status::OK, head.tag);
        }
        if head.minor == 0 {
            match sequence::duplicate(server, &mut self.call, body) {
                sequence::Duplicate::No => {}
                sequence::Duplicate::InProgress => {
                    // RFC 7530 §3.1.1: a client retries only over a new connection.
                    self.call.effects.push(Effect::Disconnect(self.call.connection.id()));
                    return Err(RunOutcome::Unanswered);
                }
                sequence::Duplicate::Answered(reply) => {
                    out.raw(&reply);
                    self.call.record_wait = RecordWait::ForReplay;
                    return Err(RunOutcome::Answered);
                }
            }
        }
        let position = body.len() - r.remaining();
        let writer = ReplyWriter::begin(out, head.tag);
        self.head = Some(writer);
        Ok(Phase::Operation(OperationCursor { position, count: head.count, done: 0, head: writer }))
    }

    fn operation(
        &mut self,
        server: &Server,
        blocking: Blocking,
        body: &[u8],
        out: &mut Writer,
        cursor: &mut OperationCursor,
    ) -> OperationOutcome {
        let mut r = Reader::new(&body[cursor.position..]);
        let call = &mut self.call;
        call.index = cursor.done;
        call.result_at = out.len();
        call.op = r.clone().u32().unwrap_or(vouch_nfs4::op::ILLEGAL);
        let args = Args::decode(call.minor, &mut r);
        let last = cursor.done + 1 == cursor.count;
        let lookahead =
            Lookahead { minor: call.minor, body: r.rest(), count: cursor.count - cursor.done - 1 };
        let (object, bytes) = (call.current.clone(), (call.bytes_read, call.bytes_written));
        let arguments = args
            .as_ref()
            .ok()
            .filter(|_| server.observer().wants(call.op))
            .map(crate::observer::arguments::of);
        call.begin_tracking(arguments.is_some());
        let args = match args {
            Ok(args) => precheck::check(call, &args, cursor, server).map(|()| args),
            Err(error) => Err(crate::compound::dispatch::unreadable(Op(call.op), &error)),
        };
        let mut context = CompoundContext { server, blocking, call, out, lookahead };
        let outcome = match args {
            Err(status) => Err(OpError::Status(status)),
            Ok(Args::Sequence(args)) => {
                let input = SequenceInput {
                    args: &args,
                    body_len: body.len(),
                    rest: r.rest(),
                    operations: cursor.count,
                };
                match sequence::sequence(&mut context, &input)
                    .map(|answer| after_sequence(answer, &mut context, self.start, cursor))
                {
                    Ok(Some(next)) => return next,
                    Ok(None) => Ok(()),
                    Err(stop) => Err(stop),
                }
            }
            Ok(args) => execute(server, &mut context, &args),
        };
        let status = match context.status_of(outcome, object.as_ref(), last) {
            Ok(status) => status,
            Err(stop) => return OperationOutcome::Blocked(stop),
        };
        cursor.position = body.len() - r.remaining();
        cursor.done += 1;
        let moved = (call.bytes_read - bytes.0, call.bytes_written - bytes.1);
        let unopened = call.count(moved);
        let changed = (call.changed.take(), call.note.take());
        let call = &self.call;
        let seen = CompletedOp {
            op: call.op,
            status,
            object: object.as_ref(),
            after: call.current.as_ref(),
            saved: call.saved.as_ref(),
            arguments: arguments.map(|arguments| arguments.unopened_if(unopened)),
            stage: call.stage,
            granted: call.granted,
            totals: call.totals,
            new_owner: call.new_owner,
            bytes: moved,
            note: None,
        };
        seen.notify_or_defer(server, call, changed, &mut self.deferred);
        if status.is_ok() { OperationOutcome::Go } else { OperationOutcome::End(status) }
    }

    fn sync(
        &mut self,
        server: &Server,
        blocking: Blocking,
        out: &mut Writer,
        cursor: &mut OperationCursor,
    ) -> Synced {
        let mut outcome = Synced::All;
        while let Some(one) = self.call.pending_syncs.last() {
            if one.remote_system().is_some_and(|remote| self.call.may_wait_for != Some(remote)) {
                return Synced::MustWait;
            }
            let sync = || one.files.site.export.file_system.sync_metadata(&one.ids, blocking);
            let synced = match blocking {
                Blocking::Forbidden => server.sync_tracker().watched(sync()),
                Blocking::Allowed => {
                    server.sync_tracker().during(&one.keys().collect::<Vec<_>>(), sync)
                }
            };
            match synced {
                Ok(()) => {}
                Err(vouch_vfs::Error::WouldBlock) if blocking == Blocking::Forbidden => {
                    return Synced::MustWait;
                }
                Err(error) => {
                    let (status, source) = match OpError::from(error) {
                        OpError::Fault(status, source) => (status, source),
                        OpError::Status(status) | OpError::Encoded(status) => {
                            (status, std::io::Error::other("metadata did not become durable"))
                        }
                        OpError::WouldBlock | OpError::NamesWouldBlock => (
                            Status::DELAY,
                            std::io::Error::other(
                                "the file system would block although blocking was allowed",
                            ),
                        ),
                    };
                    let export = one.files.site.export.id;
                    self.deferred.iter_mut().for_each(|deferred| deferred.fail(export, status));
                    out.truncate(one.result_at);
                    Results::failure(Op(one.op), status).encode(out);
                    cursor.done = one.results_before + 1;
                    let results = one.result_at;
                    self.call.spans.retain(|(at, _)| *at <= results);
                    server.note_error(&self.call, None, status, &source);
                    outcome = Synced::Failed(status);
                }
            }
            self.call.pending_syncs.pop();
        }
        outcome
    }
}

/// They only replace filehandles.
const WITHOUT_FILE_SYSTEM: [Op; 6] =
    [Op::PUTFH, Op::PUTROOTFH, Op::PUTPUBFH, Op::SAVEFH, Op::RESTOREFH, Op::GETFH];

fn execute(
    server: &Server,
    context: &mut CompoundContext<'_>,
    args: &Args<'_>,
) -> Result<(), OpError> {
    // A read from memory waits for nothing.
    let may_begin = WITHOUT_FILE_SYSTEM.contains(&args.op())
        || (args.op() == Op::READ && context.blocking == Blocking::Forbidden);
    if !may_begin
        && context
            .call
            .remote_system()
            .is_some_and(|remote| context.call.may_wait_for != Some(remote))
    {
        return Err(OpError::WouldBlock);
    }
    if matches!(args.op(), Op::OPEN | Op::LOCK | Op::WANT_DELEGATION) {
        context.call.record_wait = RecordWait::ForGrant;
    }
    if precheck::changes(args.op()) {
        sequence::begin_change(server, context.call);
    }
    context.call.machine_does = context.machine_admitted && context.is_admitted(args);
    dispatch(context, args)
}

fn after_sequence(
    answer: sequence::Sequence,
    context: &mut CompoundContext<'_>,
    start: usize,
    cursor: &mut OperationCursor,
) -> Option<OperationOutcome> {
    match answer {
        sequence::Sequence::Go => None,
        sequence::Sequence::Answered(reply) => {
            context.out.truncate(start);
            context.out.raw(&reply);
            context.call.record_wait = RecordWait::ForReplay;
            Some(OperationOutcome::Replayed)
        }
        sequence::Sequence::Uncached => {
            // RFC 8881 §2.10.6.1.3: the operation after SEQUENCE carries the status.
            cursor.done += 1;
            let Some(op) = context.lookahead.next() else {
                return Some(OperationOutcome::End(Status::OK));
            };
            Results::failure(Op(op), Status::RETRY_UNCACHED_REP).encode(context.out);
            cursor.done += 1;
            Some(OperationOutcome::End(Status::RETRY_UNCACHED_REP))
        }
    }
}

impl CompoundContext<'_> {
    fn status_of(
        &mut self,
        outcome: Result<(), OpError>,
        object: Option<&Object>,
        is_last: bool,
    ) -> Result<Status, Stop> {
        let status = match outcome {
            Ok(()) => self.fits(is_last),
            Err(stop @ (OpError::WouldBlock | OpError::NamesWouldBlock)) => {
                let at = self.result_at;
                self.out.truncate(at);
                return Err(if matches!(stop, OpError::WouldBlock) {
                    Stop::ForFiles
                } else {
                    Stop::ForNames
                });
            }
            Err(OpError::Encoded(status)) => status,
            Err(OpError::Status(status)) => self.fail(status),
            Err(OpError::Fault(status, source)) => {
                self.server.note_error(self.call, object, status, &source);
                self.fail(status)
            }
        };
        Ok(status)
    }

    pub(crate) fn fail(&mut self, status: Status) -> Status {
        let status = super::dispatch::status_of_minor(self.minor, status);
        let (at, op) = (self.result_at, self.op);
        self.out.truncate(at);
        while self.call.spans.last().is_some_and(|(position, _)| *position > at) {
            let (_, span) = self.call.spans.pop().expect("an entry was just seen");
            self.call.spans_len -= span.len;
        }
        // RFC 8881 §16.2.3.
        match Op(op).since().is_some_and(|since| since <= self.minor) {
            true => Results::failure(Op(op), status).encode(self.out),
            false => Results::Illegal(status).encode(self.out),
        }
        status
    }

    /// RFC 8881 §2.10.6.4.
    fn fits(&mut self, last: bool) -> Status {
        let reserve = if last { 0 } else { FAILURE_LEN };
        if self.out.len() + self.spans_len + reserve <= self.end_max {
            return Status::OK;
        }
        let status = self.end_status;
        self.fail(status)
    }
}

const FAILURE_LEN: usize = 8;

impl Server {
    pub fn begin(&self, request: Request, now: Now) -> Compound {
        Compound::new(self, request, now)
    }
}
