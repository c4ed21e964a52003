//! Runs calls on a worker. A long WRITE beside other clients is suspended after each part, so that
//! their calls do not wait for all of it.

use std::sync::Arc;

use vouch_nfs4_server::{BlockedOn, MayBlock, Now, Progress, Request, RunResult};
use vouch_rpcsec_gss::Envelope;
use vouch_vfs::Blocking;

use super::peer::{CloseReason, Peer};
use super::scratch::WorkerScratch;
use crate::driver::{Driver, RunningCall};
use crate::transport::connection::{Connection, PendingReply};
use crate::transport::output::Outgoing;
use crate::transport::receive::Batch;

pub(super) struct SuspendedCall {
    call: RunningCall,
    /// It holds the call's buffer, and the records behind the call.
    batch: Batch,
    _waiting: PendingReply,
}

pub(super) fn run_compound(
    connection: &Arc<Connection>,
    request: Request,
    envelope: Option<Envelope>,
    now: Now,
    scratch: &mut WorkerScratch,
    driver: &Arc<Driver>,
) -> Option<RunningCall> {
    if driver.engine.is_transport_too_weak(connection.engine(), now) {
        scratch.push(Outgoing::bytes(driver.refuse_transport(connection, request)));
        return None;
    }
    let compound = driver.engine.begin(request, now);
    run(connection, RunningCall { compound, records: false, envelope }, scratch, driver)
}

/// Returns a call that has a further part.
fn run(
    connection: &Arc<Connection>,
    mut call: RunningCall,
    scratch: &mut WorkerScratch,
    driver: &Arc<Driver>,
) -> Option<RunningCall> {
    if !driver.may_serve() {
        connection.shut_down();
        return None;
    }
    let may_block = MayBlock { write_len_max: scratch.part_len_max, ..Blocking::Forbidden.into() };
    let RunResult { effects, progress } = call.compound.run(&driver.engine, may_block);
    match progress {
        Progress::Done(reply) => {
            driver.qos.charge(connection, &call.compound, reply.as_ref());
            driver
                .finish_call(connection, effects, reply, call.records, call.envelope)
                .into_iter()
                .for_each(|outgoing| scratch.push_for(connection, outgoing));
            None
        }
        Progress::Blocked(BlockedOn::Turn) => {
            call.records |= driver.apply_early(effects);
            Some(call)
        }
        Progress::Blocked(place) => {
            // Earlier replies leave first: a client that compares their order sees them as older.
            scratch.flush(connection);
            driver.run_blocked(connection.clone(), call, effects, place);
            None
        }
    }
}

impl Peer {
    pub(super) fn suspend(&mut self, call: RunningCall, batch: Batch) {
        let _waiting = PendingReply::new(&self.connection);
        self.suspended = Some(Box::new(SuspendedCall { call, batch, _waiting }));
    }

    /// Runs a part of the suspended call, or the records that waited for one. False if there are
    /// none.
    pub(super) fn resume(
        &mut self,
        scratch: &mut WorkerScratch,
        driver: &Arc<Driver>,
    ) -> Result<bool, CloseReason> {
        let batch = match self.suspended.take() {
            Some(suspended) => {
                let SuspendedCall { call, batch, _waiting } = *suspended;
                if let Some(call) = run(&self.connection, call, scratch, driver) {
                    self.suspended = Some(Box::new(SuspendedCall { call, batch, _waiting }));
                    return Ok(true);
                }
                batch
            }
            None => match self.verified.pop_front() {
                Some(batch) => batch,
                None => return Ok(false),
            },
        };
        self.process(batch, scratch, driver).map(|()| true)
    }

    /// The worker ends or the connection is closed, and the call must run to its end.
    pub(super) fn hand_over(&mut self, driver: &Arc<Driver>) {
        if let Some(suspended) = self.suspended.take() {
            let connection = self.connection.clone();
            driver.run_blocked(connection, suspended.call, Vec::new(), BlockedOn::Disk);
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.suspended.is_some() || !self.verified.is_empty()
    }
}
