//! Callback queues and slots (RFC 8881 §2.10.6 and 20; RFC 7530 §16.33).

use super::record::{Callback, Sent, Subject};
use std::sync::Arc;

use vouch_nfs4::op::SequenceFlags;
use vouch_nfs4::{SlotSeq, Status};

use crate::state::client::record::{BackContext, CallbackPath, VersionState};
use crate::state::effect::{
    CallbackAnswer, CallbackCredential, CallbackOp, CallbackSequence, OutgoingCallback, StateEffect,
};
use crate::state::id::{CallbackKey, ClientKey};
use crate::state::lease::timers::Timer;
use crate::state::limits::{
    CALLBACK_RETRY_MS, CALLBACK_TIMEOUT_MS, CALLBACK_TRIES_MAX, CALLBACKS_PER_CLIENT_MAX,
};
use crate::state::slab::{Ended, SlabKey};
use crate::state::tables::State;
use crate::{CallbackContexts, CallbackId, CallbackTo, ConnectionId, ContextLife, Principal};

fn id_of(key: CallbackKey) -> CallbackId {
    CallbackId(u64::from(key.index()) << 32 | u64::from(key.generation()))
}

fn key_of(id: CallbackId) -> CallbackKey {
    CallbackKey::new((id.0 >> 32) as u32, id.0 as u32)
}

impl<F: Clone> State<F> {
    pub(crate) fn set_callback_contexts(&mut self, contexts: Arc<dyn CallbackContexts>) {
        self.contexts = Some(contexts);
    }

    pub(in crate::state) fn life_of(
        &self,
        credential: Option<&CallbackCredential>,
    ) -> Option<Arc<dyn ContextLife>> {
        match credential? {
            CallbackCredential::Gss(by) => Some(self.contexts.as_ref()?.life(&by.from_server)),
            CallbackCredential::None | CallbackCredential::Sys { .. } => None,
        }
    }

    /// A full queue drops the callback: recalls time out and waiters poll.
    pub(in crate::state) fn queue_callback(
        &mut self,
        client: ClientKey,
        op: CallbackOp,
        subject: Subject,
    ) {
        if self.clients[client].callbacks >= CALLBACKS_PER_CLIENT_MAX {
            return;
        }
        let key = self.callbacks.insert(Callback { client, op, subject, tries: 0, sent: None });
        let record = &mut self.clients[client];
        record.callbacks += 1;
        record.callback_queue.push_back(key);
        self.send_queued_callbacks(client);
    }

    pub(in crate::state) fn probe(&mut self, client: ClientKey) {
        let unknown = self.clients[client]
            .v40()
            .is_some_and(|v40| v40.path == CallbackPath::Unknown && v40.callback.address.is_some());
        if unknown {
            self.queue_callback(client, CallbackOp::Null, Subject::Probe);
        }
    }

    pub(in crate::state) fn send_queued_callbacks(&mut self, client: ClientKey) {
        while let Some(&key) = self.clients[client].callback_queue.front() {
            if !self.is_wanted(key) {
                self.clients[client].callback_queue.pop_front();
                self.forget_callback(key);
                continue;
            }
            let probe = self.callbacks[key].subject == Subject::Probe;
            let Some(mut outgoing) = self.path(client, probe) else { return };
            self.clients[client].callback_queue.pop_front();
            let callback = &mut self.callbacks[key];
            let session = outgoing.sequence.and_then(|sequence| {
                Some((
                    self.sessions.at_mut(crate::state::id::session_index(&sequence.session))?.0,
                    sequence.slot,
                ))
            });
            callback.sent = Some(Sent { session, to: outgoing.to });
            callback.tries += 1;
            outgoing.id = id_of(key);
            outgoing.op = callback.op.clone();
            self.effects.push_back(StateEffect::Callback(Box::new(outgoing)));
        }
    }

    fn path(&mut self, client: ClientKey, probe: bool) -> Option<OutgoingCallback> {
        let blank = OutgoingCallback {
            id: CallbackId(0),
            to: CallbackTo::Connection(ConnectionId(0)),
            minor: 0,
            program: 0,
            ident: 0,
            credential: CallbackCredential::None,
            sequence: None,
            op: CallbackOp::Null,
            timeout_ms: CALLBACK_TIMEOUT_MS,
        };
        match &self.clients[client].version {
            VersionState::V40(v40) => {
                let to = CallbackTo::Address(
                    v40.callback.address.filter(|_| probe || v40.path != CallbackPath::Down)?,
                );
                // RFC 7530 §3.3.3: callbacks use the flavour of SETCLIENTID. Under AUTH_NONE, Linux
                // denies all but CB_NULL.
                let credential = match self.clients[client].principal {
                    Principal::Sys { .. } => {
                        CallbackCredential::Sys { uid: 0, gid: 0, machine: Default::default() }
                    }
                    Principal::None | Principal::Gss { .. } | Principal::Certificate { .. } => {
                        CallbackCredential::None
                    }
                };
                Some(OutgoingCallback {
                    to,
                    program: v40.callback.program,
                    ident: v40.callback.ident,
                    credential,
                    ..blank
                })
            }
            VersionState::V41(v41) => {
                for &key in v41.sessions.iter().rev() {
                    let session = &mut self.sessions[key];
                    let Some(credential) = session
                        .back
                        .credential
                        .clone()
                        .filter(|_| !session.fault && session.has_context())
                    else {
                        continue;
                    };
                    // The newest connection is the most likely to be alive.
                    let Some(bound) =
                        session.connections.iter().rev().find(|bound| bound.back).copied()
                    else {
                        continue;
                    };
                    let Some((slot, seq, highest_slot)) = session.take_back_slot() else {
                        continue;
                    };
                    let sequence =
                        CallbackSequence { session: session.id, seq, slot, highest_slot };
                    return Some(OutgoingCallback {
                        to: CallbackTo::Connection(bound.connection),
                        minor: session.back.minor,
                        program: session.back.program,
                        credential,
                        sequence: Some(sequence),
                        ..blank
                    });
                }
                None
            }
        }
    }

    fn is_wanted(&self, key: CallbackKey) -> bool {
        match self.callbacks[key].subject {
            Subject::Recall(state) => self.is_recalled(state),
            Subject::Getattr(state) | Subject::Copy(state) => self.states.get(state).is_some(),
            Subject::Probe | Subject::Nothing => true,
        }
    }

    pub(in crate::state) fn forget_callback(&mut self, key: CallbackKey) {
        if let Some(callback) = self.callbacks.remove(key, Ended::Freed)
            && let Some(client) = self.clients.get_mut(callback.client)
        {
            client.callbacks -= 1;
        }
    }

    /// Call it exactly once for each [`StateEffect::Callback`], also if it failed.
    pub(crate) fn callback_done(&mut self, id: CallbackId, answer: CallbackAnswer, now: u64) {
        self.latest_ms = now;
        let key = key_of(id);
        let Some(callback) = self.callbacks.get_mut(key) else { return };
        let Some(sent) = callback.sent.take() else { return };
        let client = callback.client;
        let again = self.channel_answered(client, sent, &answer);
        if self.clients.get(client).is_none() {
            self.callbacks.remove(key, Ended::Freed);
            return;
        }
        self.refresh_paths(client);
        match answer {
            CallbackAnswer::Answered { sequence: Status::OK, status, attributes, .. } => {
                let retry = match status {
                    Status::DELAY => true,
                    // The reply that granted the delegation may be on its way (RFC 8881 §2.10.6.3).
                    Status::BAD_STATEID | Status::BADHANDLE => {
                        matches!(self.callbacks[key].subject, Subject::Recall(_))
                    }
                    _ => false,
                };
                if retry && self.callbacks[key].tries < CALLBACK_TRIES_MAX {
                    self.timers.set(now + CALLBACK_RETRY_MS, Timer::Retry(key));
                } else {
                    self.subject_answered(client, key, status, attributes, now);
                }
            }
            _ if again && self.callbacks[key].tries < CALLBACK_TRIES_MAX => {
                self.clients[client].callback_queue.push_front(key)
            }
            _ => self.subject_answered(client, key, Status::CB_PATH_DOWN, None, now),
        }
        self.send_queued_callbacks(client);
    }

    fn channel_answered(&mut self, client: ClientKey, sent: Sent, answer: &CallbackAnswer) -> bool {
        let Some((session, slot)) = sent.session else {
            if let Some(v40) = self.clients.get_mut(client).and_then(|client| client.v40()) {
                v40.path = match answer {
                    CallbackAnswer::Unreachable | CallbackAnswer::NoContext => CallbackPath::Down,
                    CallbackAnswer::Answered { .. } => CallbackPath::Up,
                };
            }
            return false;
        };
        let Some(session) = self.sessions.get_mut(session) else { return true };
        let Some(place) = session.back_slots.get_mut(slot.0 as usize) else { return true };
        place.busy = false;
        match *answer {
            CallbackAnswer::Unreachable => {
                place.in_doubt = true;
                if let CallbackTo::Connection(lost) = sent.to
                    && let Some(bound) =
                        session.connections.iter_mut().find(|bound| bound.connection == lost)
                {
                    bound.back = false;
                }
                true
            }
            CallbackAnswer::NoContext => {
                place.seq = SlotSeq(place.seq.0.wrapping_sub(1));
                true
            }
            CallbackAnswer::Answered { sequence: Status::OK, highest_slot, .. } => {
                place.in_doubt = false;
                if let Some(highest) = highest_slot {
                    session.back_slots_max =
                        highest.0.saturating_add(1).min(session.back.attrs.requests_max).max(1);
                }
                false
            }
            CallbackAnswer::Answered { sequence: Status::DELAY, .. } => {
                place.seq = SlotSeq(place.seq.0.wrapping_sub(1));
                true
            }
            CallbackAnswer::Answered { sequence: Status::SEQ_MISORDERED, .. } if place.in_doubt => {
                place.seq = SlotSeq(place.seq.0.wrapping_sub(2));
                place.in_doubt = false;
                true
            }
            CallbackAnswer::Answered { .. } => {
                session.fault = true;
                true
            }
        }
    }

    fn subject_answered(
        &mut self,
        client: ClientKey,
        key: CallbackKey,
        status: Status,
        attributes: Option<crate::state::effect::HolderAttributes>,
        now: u64,
    ) {
        let subject = self.callbacks[key].subject;
        self.forget_callback(key);
        match subject {
            Subject::Getattr(state) => {
                self.note_holder_attributes(state, attributes.filter(|_| status.is_ok()), now)
            }
            Subject::Copy(state) if status.is_ok() => self.forget_copy(state),
            Subject::Recall(_) | Subject::Copy(_) | Subject::Probe | Subject::Nothing => {}
        }
        debug_assert!(self.clients.get(client).is_some());
    }

    pub(in crate::state) fn retry_due(&mut self, key: CallbackKey) {
        let Some(callback) = self.callbacks.get(key).filter(|callback| callback.sent.is_none())
        else {
            return;
        };
        let client = callback.client;
        match self.clients.get_mut(client) {
            Some(record) => {
                record.callback_queue.push_back(key);
                self.send_queued_callbacks(client);
            }
            None => {
                self.callbacks.remove(key, Ended::Freed);
            }
        }
    }

    pub(in crate::state) fn callbacks_reach(&self, client: ClientKey) -> bool {
        match &self.clients[client].version {
            VersionState::V40(v40) => v40.path == CallbackPath::Up,
            VersionState::V41(v41) => {
                v41.sessions.iter().any(|&key| self.sessions[key].has_back_path())
            }
        }
    }

    /// SEQUENCE flags about callback paths (RFC 8881 §18.46.3).
    pub(in crate::state) fn refresh_paths(&mut self, client: ClientKey) {
        let lease_ms = self.config.lease_ms;
        let Some(record) = self.clients.get_mut(client) else { return };
        let VersionState::V41(v41) = &record.version else { return };
        let mut any = false;
        for &key in &v41.sessions {
            let session = &mut self.sessions[key];
            let connected = session.connections.iter().any(|bound| bound.back);
            any |= session.has_back_path();
            session.context = session.back.context(lease_ms);
            let context = match session.context {
                BackContext::Lasts => SequenceFlags(0),
                BackContext::Ends => SequenceFlags::CB_GSS_CONTEXTS_EXPIRING,
                BackContext::Ended => SequenceFlags::CB_GSS_CONTEXTS_EXPIRED,
            };
            let path = match (session.fault, connected) {
                (true, _) => SequenceFlags::BACKCHANNEL_FAULT,
                (false, true) => SequenceFlags(0),
                (false, false) => SequenceFlags::CB_PATH_DOWN_SESSION,
            };
            session.flags = path | context;
        }
        let down = SequenceFlags::CB_PATH_DOWN;
        record.flags =
            if any { SequenceFlags(record.flags.0 & !down.0) } else { record.flags | down };
    }
}
