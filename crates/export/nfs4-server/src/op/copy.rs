//! COPY within the server (RFC 7862 §15.2).

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vouch_nfs4::cb::OffloadInfo;
use vouch_nfs4::op::{CopyArgs, CopyOk, CopyRequirements, Op, Results, StableHow, WriteResponse};
use vouch_nfs4::{Status, Verifier};
use vouch_vfs::{Access, Blocking, Error, SystemId, mutant};

use crate::background_job::{JobProgress, Steps};
use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::copy_pair::Pair;
use crate::files::file_ref::{FileRef, Object};
use crate::observer::event::{CallOrigin, CompletedOp, OpDetails};
use crate::observer::interface::{Arguments, Stage};
use crate::state::StateKey;
use crate::{Effect, Job, Now, OpenHandle, Server};

const LONG_LEN: u64 = 1 << 20;
/// Runs in the background if the client permits it.
const BACKGROUND_LEN: u64 = 64 << 20;

pub(crate) fn copy(context: &mut CompoundContext<'_>, args: &CopyArgs<'_>) -> OpResult {
    // §15.2.3.
    if !args.source_server.is_empty() {
        return Err(Status::NOTSUPP.into());
    }
    let pair = Pair::open(context, &args.source, &args.destination)?;
    let size = pair.source.file().attributes()?.size;
    pair.check_range(size, args.source_offset, args.destination_offset, args.count)?;
    // §15.2.3.
    if args.source_offset > size || args.source_offset.saturating_add(args.count) > size {
        return Err(Status::INVAL.into());
    }
    let len = if args.count == 0 { size - args.source_offset } else { args.count };
    if context.blocking == Blocking::Forbidden && len >= LONG_LEN {
        return Err(OpError::WouldBlock);
    }
    let mut copying = Copying {
        source: pair.source.clone(),
        destination: pair.destination.clone(),
        from: args.source_offset,
        to: match mutant("copy-goes-to-source-offset") {
            true => args.source_offset,
            false => args.destination_offset,
        },
        len: if mutant("copy-overruns") { len + 8 } else { len },
        done: 0,
    };
    if !args.synchronous && len >= BACKGROUND_LEN {
        return in_background(context, &pair, copying);
    }
    let step = context.server.config().limits.copy_step_len_max;
    let verifier = context.server.write_verifier();
    if mutant("copy-does-nothing") {
        copying.done = len;
    }
    while copying.done < copying.len.min(step) && copying.step()? {}
    if mutant("copy-overruns") {
        copying.done = len;
    }
    context.details.bytes_read += copying.done;
    context.details.bytes_written += copying.done;
    let response = WriteResponse {
        callback: None,
        count: copying.done,
        committed: StableHow::Unstable,
        verifier,
    };
    answer(context, response, true);
    Ok(())
}

fn answer(context: &mut CompoundContext<'_>, response: WriteResponse, synchronous: bool) {
    let requirements = CopyRequirements { consecutive: true, synchronous };
    Results::Copy(Ok(CopyOk { response, requirements })).encode(context.out);
}

/// The reply carries the stateid of the copy (§15.2.3).
fn in_background(context: &mut CompoundContext<'_>, pair: &Pair, copying: Copying) -> OpResult {
    let client = context.turn()?.client;
    let (key, terms) = (pair.to.key(), context.terms());
    let object = |file: &FileRef| Some(Cow::Owned(Object::File(file.clone())));
    let done = CompletedOp {
        op: Op::COPY,
        status: Status::OK,
        arguments: None,
        details: OpDetails::default(),
        before: object(&pair.to),
        after: object(&pair.to),
        saved: object(&pair.from),
    };
    let origin = context.origin.clone();
    let (copy, stateid) =
        context.granting(&pair.to, |state| state.copy_begin(client, &key, terms))?;
    let verifier = context.server.write_verifier();
    let tracks = context.details.is_tracked;
    context.details.stage = Stage::Started;
    let remote = pair.to.files().remote_system();
    let job = Job::new(
        context.origin.connection.peer().ip(),
        remote,
        Background {
            copy,
            copying,
            verifier,
            tracks,
            origin,
            done,
            end: None,
            system: key.system(),
            has_freed_space: false,
            effects: Vec::new(),
        },
    );
    context.call.effects.push(Effect::Background(job));
    answer(
        context,
        WriteResponse {
            callback: Some(stateid),
            count: 0,
            committed: StableHow::Unstable,
            verifier,
        },
        false,
    );
    Ok(())
}

struct Copying {
    source: OpenHandle,
    destination: OpenHandle,
    from: u64,
    to: u64,
    len: u64,
    done: u64,
}

/// Other calls get their turn between steps, and a cancellation takes effect.
const STEP_LEN: u64 = 8 << 20;

impl Copying {
    fn step(&mut self) -> Result<bool, vouch_vfs::Error> {
        let len = (self.len - self.done).min(STEP_LEN);
        let copied = self.destination.file().copy_from(
            self.source.file(),
            self.from + self.done,
            self.to + self.done,
            len,
        )?;
        self.done += copied.min(len);
        Ok(copied > 0)
    }
}

struct Background {
    copy: StateKey,
    copying: Copying,
    verifier: Verifier,
    tracks: bool,
    origin: CallOrigin,
    done: CompletedOp<'static>,
    end: Option<OffloadInfo>,
    /// Of the destination.
    system: SystemId,
    has_freed_space: bool,
    /// Of steps before the last one.
    effects: Vec<Effect>,
}

impl Background {
    fn finish(&mut self, server: &Server, now: Now, info: OffloadInfo) -> JobProgress {
        let mut effects = std::mem::take(&mut self.effects);
        server.with_state(&mut effects, now.mono_ms, |state| {
            state.copy_done(self.copy, info, now.mono_ms)
        });
        JobProgress::Done(effects)
    }

    fn report(&mut self, server: &Server, status: Status, stage: Stage, bytes: u64) -> bool {
        let access = Access::READ.0 | Access::MODIFY.0;
        self.done.status = status;
        self.done.arguments = server
            .observer()
            .wants(self.done.op)
            .then_some(Arguments { access: Some(access), ..Arguments::default() });
        (self.done.details.bytes_read, self.done.details.bytes_written) = (bytes, bytes);
        self.done.details.stage = stage;
        server.observer().operation(&self.origin, &self.done)
    }
}

impl Steps for Background {
    fn step(&mut self, server: &Server, now: Now) -> JobProgress {
        if let Some(info) = self.end {
            return self.finish(server, now, info);
        }
        let before = self.copying.done;
        let stepped = if before < self.copying.len { self.copying.step() } else { Ok(false) };
        if matches!(stepped, Err(Error::NoSpace | Error::Quota))
            && !std::mem::replace(&mut self.has_freed_space, true)
            && server.may_free_removed_files(now)
        {
            server.free_removed_files(self.system, now, &mut self.effects);
            return JobProgress::More;
        }
        let done = self.copying.done;
        if self.tracks {
            self.copying.source.usage().add(done - before, 0);
            self.copying.destination.usage().add(0, done - before);
        }
        let info = match stepped {
            Ok(true) if done < self.copying.len => {
                let mut effects = Vec::new();
                return match server.with_state(&mut effects, now.mono_ms, |state| {
                    state.note_copied(self.copy, done)
                }) {
                    true => JobProgress::More,
                    false => {
                        self.report(server, Status::OK, Stage::Stopped, done);
                        effects.append(&mut self.effects);
                        JobProgress::Done(effects)
                    }
                };
            }
            Ok(_) => {
                let verifier = self.verifier;
                OffloadInfo::Done(WriteResponse {
                    callback: None,
                    count: done,
                    committed: StableHow::Unstable,
                    verifier,
                })
            }
            Err(error) => match OpError::from(error) {
                OpError::Status(status) | OpError::Encoded(status) | OpError::Fault(status, _) => {
                    OffloadInfo::Failed(status, done)
                }
                OpError::WouldBlock | OpError::NamesWouldBlock | OpError::TurnOver => {
                    return JobProgress::More;
                }
            },
        };
        let status = match info {
            OffloadInfo::Done(_) => Status::OK,
            OffloadInfo::Failed(status, _) => status,
        };
        let awaits_observer = self.report(server, status, Stage::Ended, done);
        self.end = Some(info);
        JobProgress::Ended { awaits_observer }
    }

    /// An abandoned copy would count against the client's limit.
    fn failed(&mut self, server: &Server, now: Now) -> JobProgress {
        let (status, done) = (Status::SERVERFAULT, self.copying.done);
        let message = "the copy ended in a panic; this is an error in this program".to_owned();
        let to = self.done.before.as_deref();
        server.note_failure(&self.origin, now, self.done.op, to, status, message);
        if let Some(info) = self.end {
            return self.finish(server, now, info);
        }
        // The report itself may have panicked.
        let reported =
            catch_unwind(AssertUnwindSafe(|| self.report(server, status, Stage::Ended, done)));
        self.end = Some(OffloadInfo::Failed(status, done));
        JobProgress::Ended { awaits_observer: reported.unwrap_or(false) }
    }
}
