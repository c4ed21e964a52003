//! Runs calls that would block a worker, on threads that may sleep.

use std::sync::Arc;

use vouch_nfs4_server::{Compound, Progress};
use vouch_rpcsec_gss::Envelope;
use vouch_vfs::Patience;

use super::blocked_call::{Place, Waiting};
use super::state::Driver;
use crate::limits::{MOVES_MAX, WAITING_COPY_LEN_MAX};
use crate::transport::connection::{AtWork, Connection};
use crate::transport::output::Outgoing;
use crate::{audit, clock, identity};

impl Driver {
    /// Runs a call that would have to wait where it may, and sends its reply from there.
    pub(crate) fn run_waiting(self: &Arc<Self>, connection: Arc<Connection>, mut compound: Compound, envelope: Option<Envelope>) {
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
    pub(crate) fn finish(self: &Arc<Self>, waiting: Waiting, place: Place) -> Option<Outgoing> {
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
}
