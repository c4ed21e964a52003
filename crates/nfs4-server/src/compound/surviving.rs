//! What becomes of a call that panics on its way: it is answered, as a fault of the server's, and
//! whatever waits for its end hears of it. Who panics is in error, and says so; but a slot, an
//! owner or a retry that waits for the call would wait for ever.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vouch_nfs4::Status;
use vouch_nfs4::op::{Op, Results};
use vouch_vfs::Patience;
use vouch_xdr::Writer;

use super::{At, Compound, Ended, Progress};
use crate::state::OwnerReply;
use crate::{Effect, Server, session};

impl Compound {
    /// As [`Compound::run_apart`], for threads that outlive a panic: the call then ends with
    /// SERVERFAULT.
    pub fn run_surviving(&mut self, server: &Server, patience: Patience, names: Patience) -> Progress {
        self.run_by(names, |compound, body, out| {
            // What it leaves behind is what any thread that panics would: locks are released, and what was half
            // done is what `faulted` is for.
            let walked = catch_unwind(AssertUnwindSafe(|| compound.walk(server, patience, body, out)));
            walked.unwrap_or_else(|_| compound.faulted(server, out))
        })
    }

    fn faulted(&mut self, server: &Server, out: &mut Writer) -> Ended {
        let status = Status::SERVERFAULT;
        self.at = At::Over;
        let core = &mut self.core;
        server.note_error(core, None, status, &io::Error::other("the call ended in a panic; this is an error in this program"));
        let Some(head) = self.head.take() else {
            // Nobody knows of it yet.
            core.effects.push(Effect::Disconnect(core.connection.id()));
            return Ended::Unanswered;
        };
        // Of what was changed before, nobody knows whether it is on the disk: the first such result does
        // not stand.
        let (result_at, op, before) = match core.unsynced.first() {
            Some(one) => (one.result_at, one.op, one.results_before),
            None => (core.result_at, core.op, core.index),
        };
        out.truncate(result_at);
        core.spans.retain(|(at, _)| *at <= result_at);
        Results::failure(Op(op), status).encode(out);
        if let Some(token) = core.owner.take() {
            let reply = OwnerReply { op, bytes: out.as_bytes()[result_at..].to_vec(), file: None };
            server.with_state(&mut core.effects, core.now.mono_ms, |state| state.owner_done(&token, status, reply));
        }
        for one in core.unsynced.drain(..) {
            self.later.iter_mut().for_each(|later| later.fail(one.files.site.export.id, status));
        }
        self.later.drain(..).for_each(|later| later.tell(server, &self.core));
        head.finish(out, status, before + 1);
        session::finish(server, &mut self.core, &out.as_bytes()[self.start..]);
        Ended::Answered
    }
}
