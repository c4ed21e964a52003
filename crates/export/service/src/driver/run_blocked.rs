use std::sync::Arc;

use vouch_nfs4_server::{BlockedOn, Effect, MayBlock, Progress};
use vouch_vfs::Blocking;

use super::blocked_call::{BlockedCall, RunningCall};
use super::state::Driver;
use crate::limits::{MOVES_MAX, WAITING_COPY_LEN_MAX};
use crate::thread_pool::TaskOrigin;
use crate::transport::connection::{ActiveCall, Connection};
use crate::transport::output::Outgoing;
use crate::{clock, identity};

impl Driver {
    pub(crate) fn run_blocked(
        self: &Arc<Self>,
        connection: Arc<Connection>,
        call: RunningCall,
        effects: Vec<Effect>,
        place: BlockedOn,
    ) {
        let RunningCall { compound, mut records, envelope } = call;
        records |= self.apply_early(effects);
        connection.begin_waiting();
        self.traffic.blocked.add(1);
        let charge = connection.charge_blocked(0);
        let waiting = BlockedCall { connection, compound, records, envelope, moves: 0, charge };
        self.block_on(place, waiting);
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
        let connection = &waiting.connection;
        let (origin, weight) = (connection.origin(), connection.qos().weight());
        self.submit(place, origin, weight, move || {
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
        weight: u32,
        task: impl FnOnce() + Send + 'static,
    ) {
        match place {
            BlockedOn::Disk | BlockedOn::Turn => self.pool.submit_weighted(origin, weight, task),
            BlockedOn::NameService => self.names.submit_weighted(origin, weight, task),
            BlockedOn::Remote(system) => {
                self.remote.of(system).submit_weighted(origin, weight, task)
            }
        }
    }

    /// A call that waits for another pool's resource moves there: a dead name service occupies no
    /// thread for disks.
    pub(crate) fn finish(
        self: &Arc<Self>,
        waiting: BlockedCall,
        place: BlockedOn,
    ) -> Option<Outgoing> {
        let BlockedCall { connection, mut compound, mut records, envelope, moves, charge } =
            waiting;
        if !self.may_serve() {
            connection.shut_down();
            return None;
        }
        identity::set_origin(connection.origin());
        compound.resume_at(clock::now());
        let mut on = place;
        let (effects, reply) = loop {
            let may_block = match moves >= MOVES_MAX {
                true => MayBlock { remote: on.remote(), ..Blocking::Allowed.into() },
                false => MayBlock::from(place),
            };
            let run = compound.run_catching_panics(&self.engine, may_block);
            match run.progress {
                Progress::Done(reply) => {
                    self.qos.charge(&connection, &compound, reply.as_ref());
                    break (run.effects, reply);
                }
                Progress::Blocked(next) => on = next,
            }
            records |= self.apply_early(run.effects);
            if on != place && moves < MOVES_MAX {
                connection.begin_waiting();
                let moves = moves + 1;
                let waiting =
                    BlockedCall { connection, compound, records, envelope, moves, charge };
                self.block_on(on, waiting);
                return None;
            }
        };
        self.finish_call(&connection, effects, reply, records, envelope)
    }
}
