//! Runs operations one at a time, and suspends before an operation that would wait.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use vouch_nfs4::op::{Args, Op, Results};
use vouch_nfs4::{CompoundHead, ReplyWriter, Status};
use vouch_vfs::{Blocking, FileId, FileSystem, SystemId};
use vouch_xdr::{Reader, Writer};

use super::dispatch::dispatch;
use super::full_disk::retry_with_freed_space;
use super::precheck;
use super::progress::{BlockedOn, MayBlock, Progress, RunOutcome, RunResult};
use crate::compound::context::{
    CallState, CompoundContext, MachineCredential, ResultPlace, Selected,
};
use crate::compound::lookahead::Lookahead;
use crate::compound::reply_space::ReplySpace;
use crate::compound::sequence::{self, ExactlyOnce, SequenceInput};
use crate::error::OpError;
use crate::files::file_ref::Object;
use crate::observer::event::{CallOrigin, CompletedOp, OpDetails};
use crate::state::FileKey;
use crate::{Effect, Export, ExportId, Now, Principal, Reply, ReplyKind, Request, Server};

/// Must run to its end even without its connection: the session's slot waits for it.
pub struct Compound {
    pub(super) call: CallState,
    body: Bytes,
    out: Vec<u8>,
    pub(super) start: usize,
    pub(super) phase: Phase,
    pub(super) head: Option<ReplyWriter>,
    pub(super) deferred: Vec<CompletedOp<'static>>,
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
    Blocked(BlockedOn),
    Replayed,
}

enum Synced {
    All,
    /// A file system failed. Its status replaces the first result that depends on it.
    Failed(Status),
    Blocked(BlockedOn),
}

impl Compound {
    pub(crate) fn new(server: &Server, request: Request, now: Now) -> Self {
        let start = request.reply.len();
        let space = ReplySpace::new(
            start + server.config().limits.message_len_max as usize,
            request.reply_tail_len,
            request.spans_allowed && request.flavour.plain_data(),
        );
        let call = CallState {
            origin: CallOrigin {
                connection: request.connection,
                principal: request.principal,
                flavour: request.flavour,
                enctype: request.enctype,
                xid: request.xid,
                minor: 0,
            },
            now,
            tree: server.tree(),
            current: Selected::default(),
            saved: Selected::default(),
            machine: MachineCredential::NotAdmitted,
            exactly_once: ExactlyOnce::Unguarded,
            owner: None,
            result: ResultPlace { op: Op(0), index: 0, at: start },
            details: OpDetails::default(),
            written: 0,
            used: [const { None }; 2],
            space,
            effects: Vec::new(),
            pending_syncs: Vec::new(),
            reply_kind: ReplyKind::Plain,
            awaits_observer: false,
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

    /// On a remote file system that the thread may not wait for, no operation begins.
    pub fn run(&mut self, server: &Server, may_block: impl Into<MayBlock>) -> RunResult {
        let may_block = may_block.into();
        self.run_by(|compound, body, out| compound.run_operations(server, may_block, body, out))
    }

    pub(super) fn run_by(
        &mut self,
        run: impl FnOnce(&mut Self, &[u8], &mut Writer) -> RunOutcome,
    ) -> RunResult {
        let body = std::mem::take(&mut self.body);
        let mut out = Writer::append_to(std::mem::take(&mut self.out));
        let outcome = run(self, &body, &mut out);
        self.out = out.into_bytes();
        self.body = body;
        let progress = match outcome {
            RunOutcome::Blocked(on) => Progress::Blocked(on),
            RunOutcome::Unanswered => Progress::Done(None),
            RunOutcome::Answered => Progress::Done(Some(Reply {
                bytes: std::mem::take(&mut self.out),
                spans: self.call.space.take_spans(),
                kind: self.call.reply_kind,
                awaits_observer: self.call.awaits_observer,
            })),
        };
        RunResult { effects: std::mem::take(&mut self.call.effects), progress }
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

    /// The caller and the export of the current filehandle, for the driver's accounts.
    pub fn account(&self) -> Option<(&Principal, &Export)> {
        match self.call.current.object.as_ref()? {
            Object::File(file) => Some((&self.call.origin.principal, &file.grant.site.export)),
            Object::Pseudo(_) => None,
        }
    }

    pub fn resume_at(&mut self, now: Now) {
        if now.mono_ms > self.call.now.mono_ms {
            self.call.now = now;
        }
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

    pub(super) fn run_operations(
        &mut self,
        server: &Server,
        may_block: MayBlock,
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
                    let next = self.operation(server, may_block, body, out, &mut cursor);
                    match next {
                        OperationOutcome::Go if cursor.done < cursor.count => {
                            self.phase = Phase::Operation(cursor)
                        }
                        OperationOutcome::Go => self.phase = Phase::Sync(cursor, Status::OK),
                        OperationOutcome::End(status) => self.phase = Phase::Sync(cursor, status),
                        OperationOutcome::Blocked(on) => {
                            self.phase = Phase::Operation(cursor);
                            return RunOutcome::Blocked(on);
                        }
                        OperationOutcome::Replayed => return RunOutcome::Answered,
                    }
                }
                Phase::Sync(mut cursor, mut status) => {
                    match self.sync(server, may_block, out, &mut cursor) {
                        Synced::All => {}
                        Synced::Failed(worse) => status = worse,
                        Synced::Blocked(on) => {
                            self.phase = Phase::Sync(cursor, status);
                            return RunOutcome::Blocked(on);
                        }
                    }
                    self.report_deferred(server);
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
        self.call.origin.minor = head.minor;
        if head.count == 0 {
            return whole(out, Status::OK, head.tag);
        }
        if head.minor == 0 {
            match sequence::duplicate(server, &mut self.call, body) {
                sequence::Duplicate::No => {}
                sequence::Duplicate::InProgress => {
                    // RFC 7530 §3.1.1: a client retries only over a new connection.
                    self.call.effects.push(Effect::Disconnect(self.call.origin.connection.id()));
                    return Err(RunOutcome::Unanswered);
                }
                sequence::Duplicate::Answered(reply) => {
                    out.raw(&reply);
                    self.call.reply_kind = ReplyKind::Replay;
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
        may_block: MayBlock,
        body: &[u8],
        out: &mut Writer,
        cursor: &mut OperationCursor,
    ) -> OperationOutcome {
        let mut r = Reader::new(&body[cursor.position..]);
        let call = &mut self.call;
        let op = Op(r.clone().u32().unwrap_or(vouch_nfs4::op::ILLEGAL));
        call.result = ResultPlace { op, index: cursor.done, at: out.len() };
        let args = Args::decode(call.origin.minor, &mut r);
        let last = cursor.done + 1 == cursor.count;
        let lookahead = Lookahead {
            minor: call.origin.minor,
            body: r.rest(),
            count: cursor.count - cursor.done - 1,
        };
        let before = call.current.object.clone();
        let arguments = args
            .as_ref()
            .ok()
            .filter(|_| server.observer().wants(op))
            .map(crate::observer::arguments::of);
        call.details.is_tracked = arguments.is_some();
        let args = match args {
            Ok(args) => precheck::check(call, &args, cursor, server).map(|()| args),
            Err(error) => Err(crate::compound::dispatch::unreadable(op, &error)),
        };
        let MayBlock { disks: blocking, names, remote, write_len_max } = may_block;
        let mut context =
            CompoundContext { server, blocking, names, write_len_max, call, out, lookahead };
        let outcome = match perform(&mut context, args, remote, self.start, body.len(), cursor) {
            Ok(Some(next)) => return next,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        let status = match context.status_of(outcome, before.as_ref(), last) {
            Ok(status) => status,
            Err(on) => return OperationOutcome::Blocked(on),
        };
        cursor.position = body.len() - r.remaining();
        cursor.done += 1;
        let is_unopened = call.count_use();
        let details = std::mem::take(&mut call.details);
        let done = CompletedOp {
            op,
            status,
            arguments: arguments.map(|arguments| arguments.unopened_if(is_unopened)),
            details,
            before: before.as_ref().map(Cow::Borrowed),
            after: call.current.object.as_ref().map(Cow::Borrowed),
            saved: call.saved.object.as_ref().map(Cow::Borrowed),
        };
        call.awaits_observer |=
            done.report_or_defer(server.observer(), &call.origin, &mut self.deferred);
        if status.is_ok() { OperationOutcome::Go } else { OperationOutcome::End(status) }
    }

    pub(super) fn report_deferred(&mut self, server: &Server) {
        for done in self.deferred.drain(..) {
            self.call.awaits_observer |= server.observer().operation(&self.call.origin, &done);
        }
    }

    fn sync(
        &mut self,
        server: &Server,
        may_block: MayBlock,
        out: &mut Writer,
        cursor: &mut OperationCursor,
    ) -> Synced {
        let mut outcome = Synced::All;
        while let Some(one) = self.call.pending_syncs.last() {
            let (remote, disks) = (one.remote_system(), may_block.disks);
            if remote.is_some() && remote != may_block.remote {
                return Synced::Blocked(BlockedOn::files(remote));
            }
            let sync = || one.files.site.export.file_system.sync_metadata(&one.ids, disks);
            let synced = match disks {
                Blocking::Forbidden => server.sync_tracker().watched(sync()),
                Blocking::Allowed => {
                    server.sync_tracker().during(&one.keys().collect::<Vec<_>>(), sync)
                }
            };
            match synced {
                Ok(()) => {}
                Err(vouch_vfs::Error::WouldBlock) if disks == Blocking::Forbidden => {
                    return Synced::Blocked(BlockedOn::files(remote));
                }
                Err(error) => {
                    let (status, source) = cause_of_failed_sync(error);
                    let export = one.files.site.export.id;
                    self.deferred.iter_mut().for_each(|deferred| deferred.fail(export, status));
                    self.call.space.truncate(out, one.first.at);
                    Results::failure(one.first.op, status).encode(out);
                    cursor.done = one.first.index + 1;
                    server.note_error(&self.call, None, status, &source);
                    outcome = Synced::Failed(status);
                }
            }
            self.call.pending_syncs.pop();
        }
        outcome
    }
}

fn cause_of_failed_sync(error: vouch_vfs::Error) -> (Status, io::Error) {
    match OpError::from(error) {
        OpError::Fault(status, source) => (status, source),
        OpError::Status(status) | OpError::Encoded(status) => {
            (status, io::Error::other("metadata did not become durable"))
        }
        OpError::WouldBlock | OpError::NamesWouldBlock | OpError::TurnOver => (
            Status::DELAY,
            io::Error::other("the file system would block although blocking was allowed"),
        ),
    }
}

/// `Some`: the call continues so, and the operation is not reported.
fn perform(
    context: &mut CompoundContext<'_>,
    args: Result<Args<'_>, Status>,
    may_wait_for: Option<SystemId>,
    start: usize,
    body_len: usize,
    cursor: &mut OperationCursor,
) -> Result<Option<OperationOutcome>, OpError> {
    match args? {
        Args::Sequence(args) => {
            let (rest, operations) = (context.lookahead.body, cursor.count);
            let input = SequenceInput { args: &args, body_len, rest, operations };
            let answer = sequence::sequence(context, &input)?;
            Ok(after_sequence(answer, context, start, cursor))
        }
        args => execute(context, may_wait_for, &args).map(|()| None),
    }
}

/// They only replace filehandles.
const WITHOUT_FILE_SYSTEM: [Op; 6] =
    [Op::PUTFH, Op::PUTROOTFH, Op::PUTPUBFH, Op::SAVEFH, Op::RESTOREFH, Op::GETFH];

fn execute(
    context: &mut CompoundContext<'_>,
    may_wait_for: Option<SystemId>,
    args: &Args<'_>,
) -> Result<(), OpError> {
    // A read from memory waits for nothing.
    let may_begin = WITHOUT_FILE_SYSTEM.contains(&args.op())
        || (args.op() == Op::READ && context.blocking == Blocking::Forbidden);
    if !may_begin && context.remote_system().is_some_and(|remote| may_wait_for != Some(remote)) {
        return Err(OpError::WouldBlock);
    }
    if matches!(args.op(), Op::OPEN | Op::LOCK | Op::WANT_DELEGATION) {
        context.call.reply_kind = ReplyKind::Grant;
    }
    if args.op().changes_something() {
        sequence::begin_change(context.server, context.call);
    }
    if context.machine != MachineCredential::NotAdmitted {
        context.machine = match context.is_admitted(args) {
            true => MachineCredential::Acts,
            false => MachineCredential::Admitted,
        };
    }
    retry_with_freed_space(context, |context| dispatch(context, args))
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
            context.call.reply_kind = ReplyKind::Replay;
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
    ) -> Result<Status, BlockedOn> {
        let status = match outcome {
            Ok(()) => self.fits(is_last),
            Err(stop @ (OpError::WouldBlock | OpError::NamesWouldBlock | OpError::TurnOver)) => {
                self.call.space.truncate(self.out, self.call.result.at);
                self.call.forget_details();
                return Err(match stop {
                    OpError::NamesWouldBlock => BlockedOn::NameService,
                    OpError::TurnOver => BlockedOn::Turn,
                    _ => BlockedOn::files(self.remote_system()),
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
        let status = super::dispatch::status_of_minor(self.origin.minor, status);
        let ResultPlace { op, at, .. } = self.result;
        self.call.space.truncate(self.out, at);
        // RFC 8881 §16.2.3.
        match op.since().is_some_and(|since| since <= self.origin.minor) {
            true => Results::failure(op, status).encode(self.out),
            false => Results::Illegal(status).encode(self.out),
        }
        status
    }

    /// RFC 8881 §2.10.6.4.
    fn fits(&mut self, last: bool) -> Status {
        let reserve = if last { 0 } else { FAILURE_LEN };
        match self.space.fits(self.out.len(), reserve) {
            true => Status::OK,
            false => self.fail(self.space.end_status),
        }
    }
}

const FAILURE_LEN: usize = 8;

impl Server {
    pub fn begin(&self, request: Request, now: Now) -> Compound {
        Compound::new(self, request, now)
    }
}
