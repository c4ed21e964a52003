//! Long calls of one round, of any connection, are verified and unsealed side by side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use vouch_nfs4_server::ConnectionId;

use super::peer::Peer;
use super::scratch::WorkerScratch;
use super::thread::Worker;
use crate::clock;
use crate::driver::Driver;
use crate::gss;
use crate::transport::receive::{Batch, FreshRead};

pub(crate) struct BatchedRead {
    slot: usize,
    id: ConnectionId,
    fresh: FreshRead,
    found: VecDeque<gss::ProtectedRecord>,
}

pub(crate) enum NextRead {
    Process(Batch),
    ReadMore,
    VerifyBatch,
}

impl Peer {
    /// Data behind a batched call joins the batch too, to keep the order.
    pub(crate) fn verify_or_batch(
        &mut self,
        mut fresh: FreshRead,
        scratch: &mut WorkerScratch,
        driver: &Arc<Driver>,
    ) -> NextRead {
        let gss = driver.gss.as_ref();
        let now_ms = clock::boot_ms_nearly();
        let mut found =
            gss::find_protected(fresh.bytes(), fresh.records, gss, &mut self.recent, now_ms);
        let goes_on = fresh.is_one_record() && gss::has_long_call(&found, scratch.batch_len_min);
        if !goes_on && (!self.is_batched || fresh.is_incomplete()) {
            if !found.is_empty() {
                gss::verify_all([(fresh.bytes_mut(), &mut found)], gss, now_ms);
            }
            return NextRead::Process(fresh.into_batch(found));
        }
        self.is_batched = true;
        scratch.verify_batch.push(BatchedRead {
            slot: self.slot,
            id: self.connection.engine().id(),
            fresh,
            found,
        });
        match goes_on && !scratch.is_verify_batch_full() && !self.is_turn_over() {
            true => NextRead::ReadMore,
            false => NextRead::VerifyBatch,
        }
    }
}

impl Worker {
    pub(crate) fn process_verify_batch(&mut self) {
        if self.scratch.verify_batch.is_empty() {
            return;
        }
        let mut began = Instant::now();
        let mut gathered = std::mem::take(&mut self.scratch.verify_batch);
        let found = gathered.iter_mut().map(|one| (one.fresh.bytes_mut(), &mut one.found));
        gss::verify_all(found, self.driver.gss.as_ref(), clock::boot_ms());
        let verification = began.elapsed() / u32::try_from(gathered.len()).unwrap_or(u32::MAX);
        for BatchedRead { slot, id, fresh, found } in gathered.drain(..) {
            let Some(Some(peer)) = self.peers.get_mut(slot) else { continue };
            if peer.connection.engine().id() != id {
                continue;
            }
            peer.is_batched = false;
            began = Instant::now();
            let batch = fresh.into_batch(found);
            if peer.has_begun() {
                peer.verified.push_back(batch);
            } else if let Err(why) = peer.process(batch, &mut self.scratch, &self.driver) {
                self.close(slot, why);
            }
            self.charge(slot, verification + began.elapsed());
            if self.peers[slot].as_ref().is_some_and(|peer| peer.behind || peer.has_begun()) {
                self.queue(slot);
            }
        }
        self.scratch.verify_batch = gathered;
    }
}
