//! Encrypted replies that arrive together are opened in one batch, outside the lock.

use vouch_nfs4::{SlotId, cb};
use vouch_oncrpc::RecordReader;

use super::background::BackgroundTask;
use super::{Shared, State};
use crate::back_channel::is_call;
use crate::gss::is_context_denial;
use crate::{CallbackHandler, Completion, Core, Error, Reply};

const DENIALS_MAX: u8 = 3;
const REPEATS_MAX: u8 = 3;

impl Shared {
    pub(super) fn receive(
        &self,
        at: usize,
        reader: &mut RecordReader,
        mut input: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<BackgroundTask, Error> {
        let mut state = self.state.lock();
        let Some(opener) = state.core.opener() else {
            return self.receive_clear(&mut state, at, reader, input, scratch);
        };
        drop(state);
        let mut records = Vec::new();
        while let Some(record) = reader.next(&mut input)? {
            records.push(record.into_owned());
        }
        let mut replies = Vec::with_capacity(records.len());
        // A callback may recall a delegation that a reply before it granted, so each has the number
        // of those replies.
        let mut calls = Vec::new();
        let mut state = self.state.lock();
        for record in &mut records {
            match is_call(record) {
                true => calls.push((replies.len(), record.as_slice())),
                false => {
                    state.notice_context_end(record);
                    replies.push(record.as_mut_slice());
                }
            }
        }
        let mut matched = state.core.match_replies(replies);
        drop(state);
        if !matched.received.is_empty() {
            opener.open_many(&mut matched.received);
        }
        let opened = matched.into_opened();
        let mut state = self.state.lock();
        let mut first_error = None;
        let mut calls = calls.into_iter().peekable();
        for (index, reply) in opened.into_iter().enumerate() {
            while let Some((_, call)) =
                calls.next_if(|&(replies_before, _)| replies_before == index)
            {
                state.answer_callback(at, call);
            }
            match state
                .core
                .complete_reply(reply)
                .map(|completion| completion.map(into_owned_reply))
            {
                Ok(Some(completion)) => self.complete(&mut state, completion),
                Ok(None) => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        calls.for_each(|(_, call)| state.answer_callback(at, call));
        first_error.map_or_else(|| Ok(state.after_replies(at)), Err)
    }

    fn receive_clear(
        &self,
        state: &mut State,
        at: usize,
        reader: &mut RecordReader,
        mut input: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<BackgroundTask, Error> {
        while let Some(record) = reader.next(&mut input)? {
            if is_call(&record) {
                state.answer_callback(at, &record);
            } else if let Some(completion) = state.core.reply(&record, scratch)? {
                self.complete(state, into_owned_reply(completion));
            } else {
                state.notice_context_end(&record);
            }
        }
        Ok(state.after_replies(at))
    }

    fn complete(&self, state: &mut State, completion: OwnedCompletion) {
        let OwnedCompletion { token, outcome, is_repeatable } = completion;
        if let Some(pending) = state.pending.get_mut(&token)
            && is_repeatable
            && pending.repeats < REPEATS_MAX
        {
            pending.repeats += 1;
            if state.submit_anew(token) {
                return;
            }
        }
        match (&outcome, state.pending.get_mut(&token)) {
            (Err(Error::Denied(stat)), Some(pending))
                if is_context_denial(*stat)
                    && self.renewal.is_some()
                    && pending.denials < DENIALS_MAX =>
            {
                pending.denials += 1;
                state.denied_calls.push(token);
            }
            (Err(error), Some(_)) if error.is_delayed_sequence() => {
                state.delayed_calls.push(token);
            }
            _ => {
                if let Some(pending) = state.pending.remove(&token) {
                    let _ = pending.reply.send(outcome);
                }
            }
        }
        self.slot_free.notify_one();
    }
}

impl State {
    fn answer_callback(&mut self, at: usize, record: &[u8]) {
        let State { core, callbacks, back, connections, .. } = self;
        let mut handler = Callbacks { core, others: &mut **callbacks };
        let Some(connection) = connections.get_mut(at) else { return };
        back.answer(record, &mut handler, &mut connection.out);
        connection.wake.notify_one();
    }

    fn after_replies(&mut self, at: usize) -> BackgroundTask {
        self.destroy_previous_context(at);
        self.next_task()
    }
}

/// Those of the session itself are answered by the core.
struct Callbacks<'c> {
    core: &'c mut Core,
    others: &'c mut dyn CallbackHandler,
}

impl CallbackHandler for Callbacks<'_> {
    fn callback<'a>(&'a mut self, args: &cb::Args<'_>) -> cb::Results<'a> {
        if let cb::Args::RecallSlot(args) = args {
            self.core.set_target_slot(SlotId(args.target_highest_slot.0));
            return cb::Results::RecallSlot(Ok(()));
        }
        self.others.callback(args)
    }
}

struct OwnedCompletion {
    token: u64,
    outcome: Result<Reply, Error>,
    is_repeatable: bool,
}

fn into_owned_reply(completion: Completion<'_>) -> OwnedCompletion {
    let Completion { token, outcome, is_repeatable } = completion;
    OwnedCompletion { token, outcome: outcome.map(|body| Reply::of(&body)), is_repeatable }
}
