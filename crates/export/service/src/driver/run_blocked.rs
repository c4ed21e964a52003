use std::sync::Arc;

use vouch_nfs4_server::{BlockedOn, Compound, Progress};
use vouch_rpcsec_gss::Envelope;
use vouch_vfs::Blocking;

use super::blocked_call::BlockedCall;
use super::state::Driver;
use crate::limits::{MOVES_MAX, WAITING_COPY_LEN_MAX};
use crate::thread_pool::TaskOrigin;
use crate::transport::connection::{ActiveCall, Connection};
use crate::transport::output::Outgoing;
use crate::{audit, clock, identity};

impl Driver {
    pub(crate) fn run_blocked(
        self: &Arc<Self>,
        connection: Arc<Connection>,
        mut compound: Compound,
        place: BlockedOn,
        envelope: Option<Envelope>,
    ) {
        let records = self.apply_early(compound.take_effects());
        connection.begin_waiting();
        self.traffic.blocked.add(1);
        let must_be_durable = audit::must_be_durable();
        audit::set_must_be_durable(false);
        let charge = connection.charge_blocked(0);
        self.block_on(
            place,
            BlockedCall {
                connection,
                compound,
                records,
                envelope,
                moves: 0,
                must_be_durable,
                charge,
            },
        );
    }

    fn block_on(self: &Arc<Self>, place: BlockedOn, mut waiting: BlockedCall) {
        if let Some(export) = waiting.compound.waits_for_sync() {
            match self.queue_commit(export, waiting) {
                None => return,
                Some(back) => waiting = back,
            }
        }
        if waiting.moves == 0 {
            waiting.compound.copy_body(WAITING_COPY_LEN_MAX);
            let len = waiting.compound.body_len();
            waiting.charge = waiting.connection.charge_blocked(if len > WAITING_COPY_LEN_MAX {
                self.record_len_max
            } else {
                len
            });
        }
        let driver = self.clone();
        self.submit(place, waiting.connection.origin(), move || {
            let connection = waiting.connection.clone();
            let _at_work = ActiveCall(&connection);
            if let Some(outgoing) = driver.finish(waiting, place) {
                connection.send_reply(outgoing);
            }
        });
    }

    pub(super) fn submit(
        &self,
        place: BlockedOn,
        origin: TaskOrigin,
        task: impl FnOnce() + Send + 'static,
    ) {
        match place {
            BlockedOn::Disk => self.pool.submit(origin, task),
            BlockedOn::NameService => self.names.submit(origin, task),
            BlockedOn::Remote(system) => self.remote.of(system).submit(origin, task),
        }
    }

    /// A call that waits for another pool's resource moves there: a dead name service occupies no
    /// thread for disks.
    pub(crate) fn finish(
        self: &Arc<Self>,
        waiting: BlockedCall,
        place: BlockedOn,
    ) -> Option<Outgoing> {
        let BlockedCall {
            connection,
            mut compound,
            mut records,
            envelope,
            moves,
            must_be_durable,
            charge,
        } = waiting;
        if !self.may_serve() {
            connection.shut_down();
            return None;
        }
        audit::set_must_be_durable(must_be_durable);
        identity::set_origin(connection.origin());
        compound.resume_at(clock::now());
        let (disks, names) = match place {
            _ if moves >= MOVES_MAX => (Blocking::Allowed, Blocking::Allowed),
            BlockedOn::Disk | BlockedOn::Remote(_) => (Blocking::Allowed, Blocking::Forbidden),
            BlockedOn::NameService => (Blocking::Forbidden, Blocking::Allowed),
        };
        let reply = loop {
            compound.wait_for(if moves >= MOVES_MAX {
                compound.remote_system()
            } else {
                place.remote()
            });
            let next = match compound.run_catching_panics(&self.engine, disks, names) {
                Progress::Done(reply) => break reply,
                Progress::Blocked(next) => next,
            };
            records |= self.apply_early(compound.take_effects());
            if next != place && moves < MOVES_MAX {
                connection.begin_waiting();
                let must_be_durable = audit::must_be_durable();
                audit::set_must_be_durable(false);
                self.block_on(
                    next,
                    BlockedCall {
                        connection,
                        compound,
                        records,
                        envelope,
                        moves: moves + 1,
                        must_be_durable,
                        charge,
                    },
                );
                return None;
            }
        };
        self.finish_call(&mut compound, &connection, reply, records, envelope)
    }
}
