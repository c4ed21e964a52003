//! Recovery records, callbacks, background jobs. A reply waits for the records that it depends on.

use std::sync::Arc;

use vouch_nfs4_server::{BlockedOn, Effect, Job, JobProgress, Reply, ReplyKind, Unreachable};
use vouch_oncrpc::record_mark;
use vouch_rpcsec_gss::Envelope;

use super::state::Driver;
use crate::clock;
use crate::monitoring::client_faults::ClientFault;
use crate::recovery::Change;
use crate::thread_pool::TaskOrigin;
use crate::transport::connection::{Connection, PendingReply};
use crate::transport::inbox::QueuedCallback;
use crate::transport::output::Outgoing;

impl Driver {
    /// Returns the reply if it may leave now. `records`: the reply depends on records of earlier
    /// calls.
    pub(crate) fn finish_call(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        effects: Vec<Effect>,
        reply: Option<Reply>,
        records: bool,
        envelope: Option<Envelope>,
    ) -> Option<Outgoing> {
        let (awaits_observer, kind) = reply
            .as_ref()
            .map_or((false, ReplyKind::Plain), |reply| (reply.awaits_observer, reply.kind));
        let outgoing = reply.map(|reply| Outgoing::reply(reply.bytes, reply.spans, envelope));
        let waits = (records || kind != ReplyKind::Plain) && self.recovery.has_pending();
        if effects.is_empty() && !waits {
            return self.hold_for_audit(connection, outgoing, awaits_observer, kind);
        }
        let changes = self.apply_all_but_records(effects);
        if waits || changes.iter().any(Change::delays_replies) {
            let driver = self.clone();
            let after = outgoing.map(|outgoing| {
                let awaits = PendingReply::new(connection);
                Box::new(move || {
                    let connection = awaits.connection();
                    let outgoing = Some(outgoing);
                    driver
                        .hold_for_audit(connection, outgoing, awaits_observer, kind)
                        .into_iter()
                        .for_each(|outgoing| connection.send_durable(outgoing));
                }) as Box<dyn FnOnce() + Send>
            });
            self.recovery.change(changes, after);
            return None;
        }
        if !changes.is_empty() {
            self.recovery.change(changes, None);
        }
        self.hold_for_audit(connection, outgoing, awaits_observer, kind)
    }

    /// Returns the reply if it may leave now.
    fn hold_for_audit(
        &self,
        connection: &Arc<Connection>,
        outgoing: Option<Outgoing>,
        awaits_observer: bool,
        kind: ReplyKind,
    ) -> Option<Outgoing> {
        let Some(audit) = self.audit.as_ref().filter(|audit| audit.holds(awaits_observer, kind))
        else {
            return outgoing;
        };
        let (outgoing, awaits) = (outgoing?, PendingReply::new(connection));
        audit.after(Box::new(move || awaits.connection().send_durable(outgoing)));
        None
    }

    pub(crate) fn apply_replaced(self: &Arc<Self>, replaced: vouch_nfs4_server::Replaced) {
        self.apply(replaced.effects);
        if replaced.ended > 0 {
            tracing::warn!(
                ended = replaced.ended,
                "the new exports ended opens, delegations, copies and locks of clients that lost their access"
            );
        }
    }

    /// An administrator can free the device of a removed snapshot then.
    pub(crate) fn close_removed_files(self: &Arc<Self>) {
        let replaced = self.engine.end_state_of_removed_files();
        self.apply(replaced.effects);
        if replaced.ended > 0 {
            tracing::warn!(
                ended = replaced.ended,
                "ended opens, delegations and locks of files in removed snapshots"
            );
        }
    }

    pub(crate) fn apply(self: &Arc<Self>, effects: Vec<Effect>) {
        let changes = self.apply_all_but_records(effects);
        if !changes.is_empty() {
            self.recovery.change(changes, None);
        }
    }

    /// At once, so that replies of other calls wait for its records too. True if its own reply must
    /// wait.
    pub(crate) fn apply_early(self: &Arc<Self>, effects: Vec<Effect>) -> bool {
        let changes = self.apply_all_but_records(effects);
        let records = changes.iter().any(Change::delays_replies);
        if !changes.is_empty() {
            self.recovery.change(changes, None);
        }
        records
    }

    fn apply_all_but_records(self: &Arc<Self>, effects: Vec<Effect>) -> Vec<Change> {
        let mut changes = Vec::new();
        for effect in effects {
            match effect {
                Effect::Persist { key, value, order } => {
                    changes.push(Change::Put { key, value, order })
                }
                Effect::Forget { key, order } => changes.push(Change::Remove { key, order }),
                Effect::GraceEnded => {
                    tracing::info!("the grace period has ended");
                    changes.push(Change::RemoveOld);
                }
                Effect::Callback { id, to, xid, record, context, timeout_ms } => {
                    let due_ms = clock::mono_ms().saturating_add(timeout_ms);
                    let record = match &context {
                        None => Some([&record_mark(record.len())[..], &record[..]].concat()),
                        Some(by) => {
                            self.gss.as_ref().and_then(|gss| gss.protect_callback(id, &record, by))
                        }
                    };
                    match record {
                        Some(record) => self.call_back(
                            to,
                            QueuedCallback { id, xid, record: Outgoing::bytes(record), due_ms },
                        ),
                        None => {
                            tracing::debug!(
                                "the Kerberos context of a callback has expired; the callback waits until the client names another context"
                            );
                            self.give_up([id], Unreachable::Context);
                        }
                    }
                }
                Effect::AddressMismatch { name, address, from } => {
                    self.client_faults.note(
                        ClientFault::AddressChanged,
                        Some(&name),
                        address,
                        format_args!("before={from}"),
                    );
                }
                Effect::RecallOverdue { name, address, export, file, waited_ms, is_revoked } => {
                    let fault = if is_revoked {
                        ClientFault::DelegationRevoked
                    } else {
                        ClientFault::DelegationOverdue
                    };
                    let waited_s = waited_ms / 1000;
                    self.client_faults.note(
                        fault,
                        Some(&name),
                        address,
                        format_args!("export={export} file={file} waited_s={waited_s}"),
                    );
                }
                Effect::ClientEnded { name, address, why } => {
                    let fault = ClientFault::of_end(why);
                    self.client_faults.note(fault, Some(&name), address, format_args!("{why:?}"));
                }
                Effect::NameConflict { name, holder, refused, has_ended } => {
                    let fault =
                        if has_ended { ClientFault::NameShared } else { ClientFault::NameInUse };
                    let holder = holder.map_or_else(
                        || "from before the restart".to_owned(),
                        |holder| holder.to_string(),
                    );
                    self.client_faults.note(
                        fault,
                        Some(&name),
                        refused,
                        format_args!("holder={holder} refused={refused}"),
                    );
                }
                Effect::Disconnect(id) => {
                    if let Some(connection) = self.connection(id) {
                        tracing::info!(peer = %connection.peer(), "the engine closes a connection, so that the client retries over another");
                        connection.shut_down();
                    }
                }
                Effect::Background(job) => self.run_job(job),
            }
        }
        changes
    }

    fn run_job(self: &Arc<Self>, mut job: Job) {
        let driver = self.clone();
        let place = job.remote_system().map_or(BlockedOn::Disk, BlockedOn::Remote);
        self.submit(place, TaskOrigin::job(job.address()), 1, move || {
            if !driver.may_serve() {
                return;
            }
            match job.step(&driver.engine, clock::now()) {
                JobProgress::More => driver.run_job(job),
                // A client can observe the end of a job, so it waits for the audit like a reply.
                JobProgress::Ended { awaits_observer } => {
                    let mut audit = driver.audit.iter();
                    match audit.find(|audit| audit.holds(awaits_observer, ReplyKind::Plain)) {
                        Some(audit) => audit.after(Box::new({
                            let driver = driver.clone();
                            move || driver.run_job(job)
                        })),
                        None => driver.run_job(job),
                    }
                }
                JobProgress::Done(effects) => driver.apply(effects),
            }
        });
    }
}
