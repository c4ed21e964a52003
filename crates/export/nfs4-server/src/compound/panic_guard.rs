use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vouch_nfs4::Status;
use vouch_nfs4::op::Results;
use vouch_xdr::Writer;

use super::context::ResultPlace;
use super::progress::{MayBlock, RunOutcome, RunResult};
use super::run::{Compound, Phase};
use crate::state::OwnerReply;
use crate::{Effect, Server, compound::sequence};

impl Compound {
    /// A panic ends the call with SERVERFAULT and releases its slot and owner.
    pub fn run_catching_panics(
        &mut self,
        server: &Server,
        may_block: impl Into<MayBlock>,
    ) -> RunResult {
        let may_block = may_block.into();
        self.run_by(|compound, body, out| {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                compound.run_operations(server, may_block, body, out)
            }));
            caught.unwrap_or_else(|_| compound.answer_fault(server, out))
        })
    }

    fn answer_fault(&mut self, server: &Server, out: &mut Writer) -> RunOutcome {
        let status = Status::SERVERFAULT;
        self.phase = Phase::Over;
        let call = &mut self.call;
        server.note_error(
            call,
            None,
            status,
            &io::Error::other("the call ended in a panic; this is an error in this program"),
        );
        let Some(head) = self.head.take() else {
            call.effects.push(Effect::Disconnect(call.origin.connection.id()));
            return RunOutcome::Unanswered;
        };
        // Earlier changes may not be durable, so the first of their results is replaced.
        let ResultPlace { op, index, at } =
            call.pending_syncs.first().map_or(call.result, |one| one.first);
        call.space.truncate(out, at);
        Results::failure(op, status).encode(out);
        if let Some(token) = call.owner.take() {
            let reply = OwnerReply { op: op.0, bytes: out.as_bytes()[at..].to_vec(), file: None };
            server.with_state(&mut call.effects, call.now.mono_ms, |state| {
                state.owner_done(&token, status, reply)
            });
        }
        for one in call.pending_syncs.drain(..) {
            self.deferred
                .iter_mut()
                .for_each(|deferred| deferred.fail(one.files.site.export.id, status));
        }
        self.report_deferred(server);
        head.finish(out, status, index + 1);
        sequence::finish(server, &mut self.call, &out.as_bytes()[self.start..]);
        RunOutcome::Answered
    }
}
