//! What all threads of the server share, and how the engine's effects are carried out: callbacks
//! leave, records become durable before replies that depend on them do.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use vouch_audit::record::Refusal;
use vouch_nfs4_server::{CallbackId, CallbackTo, Compound, ConnectionId, Effect, Job, JobProgress, Progress, Reply, Server, Unreachable};
use vouch_oncrpc::record_mark;
use vouch_rpcsec_gss::Envelope;
use vouch_vfs::Patience;

use super::audit::{self, Audit, Hold, Refused};
use super::clock;
use super::connection::{AtWork, AwaitsRecords, Connection};
use super::dial::Diallers;
use super::gathered::{Gathered, Waiting};
use super::gss::{Answered, Gss};
use super::hosts::Hosts;
use super::identity;
use super::inbox::{Inbox, QueuedCallback};
use super::limits::{Limits, MOVES_MAX, WAITING_COPY_LEN_MAX};
use super::naming::Naming;
use super::output::Outgoing;
use super::pool::{Origin, Pool};
use super::recovery::{Change, Recovery};
use super::shares::Commons;
use super::status::ExportStatus;
use super::traffic::Traffic;
use vouch_daemon::rate_limit::Throttle;

/// The engine and everything around it.
pub(super) struct Driver {
    pub(super) engine: Server,
    pub(super) limits: Limits,
    pub(super) inboxes: Vec<Arc<Inbox>>,
    /// Where calls go on that have to wait.
    pub(super) pool: Pool,
    /// Where they do for the name service: one that does not answer keeps nobody from the disks.
    pub(super) names: Pool,
    /// Calls that wait for commits.
    pub(super) gathered: Gathered,
    /// How many may wait, of all and of one address.
    pub(super) shares: Commons,
    /// Connections that wait for the names of their hosts.
    pub(super) naming: Naming<(TcpStream, SocketAddr)>,
    /// Hosts whose names are looked for while they are served, to be told in records.
    pub(super) telling: Naming<()>,
    pub(super) diallers: Diallers,
    pub(super) recovery: Recovery,
    /// All connections, for effects that name one.
    pub(super) connections: Mutex<HashMap<ConnectionId, Arc<Connection>>>,
    /// Connections of each worker, to deal new ones out evenly.
    pub(super) open: Vec<AtomicUsize>,
    pub(super) traffic: Traffic,
    /// How much is told of clients that come from elsewhere than before.
    pub(super) strangers: Mutex<Throttle>,
    /// Kerberos, if there is a keytab.
    pub(super) gss: Option<Arc<Gss>>,
    /// The audit trail, if there is one.
    pub(super) audit: Option<Arc<Audit>>,
    /// What is exported, for those who ask.
    pub(super) exports: Mutex<Vec<ExportStatus>>,
    pub(super) hosts: Arc<Hosts>,
    /// Longest call.
    pub(super) record_len_max: usize,
    pub(super) stop: AtomicBool,
}

/// Where a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// For disks, and for clients that are asked something.
    Disks,
    /// For the name service.
    Names,
}

impl Place {
    fn of(names: bool) -> Self {
        if names { Place::Names } else { Place::Disks }
    }
}

impl Driver {
    /// Runs a call that would have to wait where it may, and sends its reply from there.
    pub(super) fn run_waiting(self: &Arc<Self>, connection: Arc<Connection>, mut compound: Compound, envelope: Option<Envelope>) {
        let place = Place::of(identity::take_would_wait());
        let records = self.carry_now(compound.take_effects());
        connection.begin_waiting();
        self.traffic.blocked.add(1);
        let must_be_kept = audit::must_be_kept();
        audit::set_must_be_kept(false);
        let room = connection.take_room(0);
        self.wait_at(place, Waiting { connection, compound, records, envelope, moves: 0, must_be_kept, room });
    }

    fn wait_at(self: &Arc<Self>, place: Place, mut waiting: Waiting) {
        if let Some(export) = waiting.compound.waits_for_sync() {
            match self.gather(export, waiting) {
                None => return,
                Some(back) => waiting = back,
            }
        }
        if waiting.moves == 0 {
            waiting.compound.copy_body(WAITING_COPY_LEN_MAX);
            // What is longer keeps the whole buffer that it came in.
            let len = waiting.compound.body_len();
            waiting.room = waiting.connection.take_room(if len > WAITING_COPY_LEN_MAX { self.record_len_max } else { len });
        }
        let driver = self.clone();
        let pool = match place {
            Place::Disks => &self.pool,
            Place::Names => &self.names,
        };
        pool.submit(waiting.connection.origin(), move || {
            let connection = waiting.connection.clone();
            let _at_work = AtWork(&connection);
            if let Some(outgoing) = driver.finish(waiting, place) {
                connection.send_reply(outgoing);
            }
        });
    }

    /// Runs a call to its end, waiting as it must: here for what this place is for, for the other
    /// elsewhere. A name service that does not answer keeps no thread from the disks,
    /// and no disk one from the names.
    pub(super) fn finish(self: &Arc<Self>, waiting: Waiting, place: Place) -> Option<Outgoing> {
        let Waiting { connection, mut compound, mut records, envelope, moves, must_be_kept, room } = waiting;
        audit::set_must_be_kept(must_be_kept);
        compound.resume_at(clock::now());
        let (disks, names) = match place {
            _ if moves >= MOVES_MAX => (Patience::Any, Patience::Any),
            Place::Disks => (Patience::Any, Patience::None),
            Place::Names => (Patience::None, Patience::Any),
        };
        let reply = loop {
            identity::take_would_wait();
            if let Progress::Done(reply) = compound.run_catching_panics(&self.engine, disks, names) {
                break reply;
            }
            // It waits for the answer to a question that has to be asked first, or belongs elsewhere.
            records |= self.carry_now(compound.take_effects());
            let next = Place::of(identity::take_would_wait());
            if next != place && moves < MOVES_MAX {
                connection.begin_waiting();
                let must_be_kept = audit::must_be_kept();
                audit::set_must_be_kept(false);
                self.wait_at(next, Waiting { connection, compound, records, envelope, moves: moves + 1, must_be_kept, room });
                return None;
            }
        };
        self.carry(&mut compound, &connection, reply, records, envelope)
    }

    /// Carries out the effects of a finished call. The reply is given back if it may leave now;
    /// else it leaves when what it depends on is durable. `records`: it depends on records for
    /// another start that are on their way, whoever's call they came with. `envelope` is what is to
    /// be around its results.
    pub(super) fn carry(
        self: &Arc<Self>,
        compound: &mut Compound,
        connection: &Arc<Connection>,
        reply: Option<Reply>,
        records: bool,
        envelope: Option<Envelope>,
    ) -> Option<Outgoing> {
        let outgoing = reply.map(|reply| Outgoing::reply(reply, envelope));
        let effects = compound.take_effects();
        let waits = (records || compound.waits_for_records()) && self.recovery.is_behind();
        // This thread knows it, and no other that may go on with the reply.
        let hold = audit::take_hold(compound.tells_again());
        if effects.is_empty() && !waits {
            return self.audited(connection, outgoing, hold);
        }
        let changes = self.carry_but_changes(effects);
        if waits || changes.iter().any(Change::is_waited_for) {
            let driver = self.clone();
            let after = outgoing.map(|outgoing| {
                let awaits = AwaitsRecords::new(connection);
                Box::new(move || {
                    let connection = awaits.connection();
                    if let Some(outgoing) = driver.audited(connection, Some(outgoing), hold) {
                        connection.send_kept(outgoing);
                    }
                }) as Box<dyn FnOnce() + Send>
            });
            self.recovery.change(changes, after);
            return None;
        }
        if !changes.is_empty() {
            self.recovery.change(changes, None);
        }
        self.audited(connection, outgoing, hold)
    }

    /// The reply, if it may leave now; else it leaves when what was recorded is kept, as the
    /// administrator wants it.
    fn audited(&self, connection: &Arc<Connection>, outgoing: Option<Outgoing>, hold: Hold) -> Option<Outgoing> {
        let Some(audit) = self.audit.as_ref().filter(|audit| audit.holds(hold)) else { return outgoing };
        let (outgoing, awaits) = (outgoing?, AwaitsRecords::new(connection));
        audit.after(Box::new(move || awaits.connection().send_kept(outgoing)));
        None
    }

    /// Carries out what came of another list of exports, and tells it.
    pub(super) fn carry_replaced(self: &Arc<Self>, replaced: vouch_nfs4_server::Replaced) {
        self.carry_alone(replaced.effects);
        if replaced.ended > 0 {
            tracing::warn!(
                ended = replaced.ended,
                "opens, delegations and copies have ended with their locks: their exports, or what was shown of them, are gone, or not for their clients (so) any more"
            );
        }
    }

    /// Carries out effects that no reply depends on.
    pub(super) fn carry_alone(self: &Arc<Self>, effects: Vec<Effect>) {
        let changes = self.carry_but_changes(effects);
        if !changes.is_empty() {
            self.recovery.change(changes, None);
        }
    }

    /// Carries out the effects of a call that is not at its end. Whether its reply has to wait for
    /// records by that: they are on their way from here on, so that the replies of others wait
    /// for them, too, and not only once a disk has let this call go on.
    fn carry_now(self: &Arc<Self>, effects: Vec<Effect>) -> bool {
        let changes = self.carry_but_changes(effects);
        let records = changes.iter().any(Change::is_waited_for);
        if !changes.is_empty() {
            self.recovery.change(changes, None);
        }
        records
    }

    fn carry_but_changes(self: &Arc<Self>, effects: Vec<Effect>) -> Vec<Change> {
        let mut changes = Vec::new();
        for effect in effects {
            match effect {
                Effect::Persist { key, value, order } => changes.push(Change::Put { key, value, order }),
                Effect::Forget { key, order } => changes.push(Change::Remove { key, order }),
                Effect::GraceEnded => {
                    tracing::info!("the grace period is over");
                    changes.push(Change::RemoveOld);
                }
                Effect::Callback { id, to, xid, record, context, timeout_ms } => {
                    let due_ms = clock::mono_ms().saturating_add(timeout_ms);
                    let record = match &context {
                        None => Some([&record_mark(record.len())[..], &record[..]].concat()),
                        Some(by) => self.gss.as_ref().and_then(|gss| gss.protect_callback(id, &record, by)),
                    };
                    match record {
                        Some(record) => self.call_back(to, QueuedCallback { id, xid, record: Outgoing::bytes(record), due_ms }),
                        None => {
                            tracing::debug!(
                                "a callback's Kerberos context is no more; its client is told, and called back when it names another"
                            );
                            self.give_up([id], Unreachable::Context);
                        }
                    }
                }
                Effect::Elsewhere { name, address, from } => self.tell_elsewhere(&name, address, from),
                Effect::Disconnect(id) => {
                    if let Some(connection) = self.connection(id) {
                        tracing::info!(peer = %connection.peer(), "a peer is told by the end of its connection to call again over another");
                        connection.shut();
                    }
                }
                Effect::Background(job) => self.run_job(job),
            }
        }
        changes
    }

    fn tell_elsewhere(&self, name: &[u8], address: IpAddr, from: impl std::fmt::Display) {
        if let Some(left_out) = self.strangers.lock().admit(address, clock::mono_ms()) {
            tracing::warn!(
                client = %name.escape_ascii(), %address, before = %from, left_out,
                "a client came back from another address than before the restart: what was open and locked under its name it may not reclaim, and it goes on when grace is over"
            );
        }
    }

    fn call_back(self: &Arc<Self>, to: CallbackTo, callback: QueuedCallback) {
        self.traffic.callbacks.add(1);
        match to {
            CallbackTo::Connection(id) => {
                let callback_id = callback.id;
                let sent = self
                    .connection(id)
                    .is_some_and(|connection| connection.call_back(callback.id, callback.xid, callback.record, callback.due_ms));
                if !sent {
                    self.unanswered([callback_id]);
                }
            }
            CallbackTo::Address(address) => self.diallers.call_back(self, address, callback),
        }
    }

    /// Tells the engine of callbacks that nobody will answer. From a thread of its own: the engine
    /// may be in the middle of what sent them.
    pub(super) fn unanswered(self: &Arc<Self>, ids: impl IntoIterator<Item = CallbackId>) {
        self.give_up(ids, Unreachable::Peer);
    }

    fn give_up(self: &Arc<Self>, ids: impl IntoIterator<Item = CallbackId>, why: Unreachable) {
        for id in ids {
            self.traffic.callbacks_failed.add(1);
            self.gss.iter().for_each(|gss| gss.forget_callback(id));
            let driver = self.clone();
            self.pool.submit(Origin::Server, move || {
                let effects = driver.engine.callback_reply(id, Err(why), clock::now());
                driver.carry_alone(effects);
            });
        }
    }

    /// A reply to a callback has come.
    pub(super) fn answered(self: &Arc<Self>, connection: &Connection, xid: u32, record: &[u8]) {
        // A reply to nothing: late, or made up.
        let Some(id) = connection.awaited(xid) else { return };
        let genuine = match self.gss.as_ref().map_or(Answered::Plain, |gss| gss.open_callback_answer(id, record)) {
            Answered::Plain => None,
            Answered::Genuine(record) => Some(record),
            Answered::Forged => {
                self.gss.iter().for_each(|gss| gss.tell_forged_answer(connection.peer()));
                let refused = Refused {
                    detail: "an answer to a callback whose checksum does not hold",
                    ..Refused::of(Refusal::Altered, connection.engine())
                };
                self.audit.iter().for_each(|audit| audit.refuse(&refused));
                return;
            }
        };
        if connection.answered(xid).is_none() {
            return;
        }
        let effects = self.engine.callback_reply(id, Ok(genuine.as_deref().unwrap_or(record)), clock::now());
        self.carry_alone(effects);
    }

    fn run_job(self: &Arc<Self>, mut job: Job) {
        let driver = self.clone();
        self.pool.submit(Origin::job(job.address()), move || {
            let progress = job.step(&driver.engine, clock::now());
            let hold = audit::take_hold(false);
            match progress {
                JobProgress::More => driver.run_job(job),
                // What a client may learn of the end is as good as a reply.
                JobProgress::Ended => match driver.audit.as_ref().filter(|audit| audit.holds(hold)) {
                    Some(audit) => audit.after(Box::new({
                        let driver = driver.clone();
                        move || driver.run_job(job)
                    })),
                    None => driver.run_job(job),
                },
                JobProgress::Done(effects) => driver.carry_alone(effects),
            }
        });
    }

    pub(super) fn connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connections.lock().get(&id).cloned()
    }
}
