//! Long calls that have come whole in the same round of a thread, on any of its connections, are
//! checked and opened side by side. A lone one is not kept waiting: when nothing more is there to
//! be read, the round ends and it is taken up.

use std::collections::VecDeque;
use std::sync::Arc;

use vouch_nfs4_server::ConnectionId;

use super::peer::Peer;
use super::scratch::Tools;
use super::thread::Worker;
use crate::clock;
use crate::driver::Driver;
use crate::gss;
use crate::transport::receive::{Batch, Fresh};

/// Bytes of a connection that are to be checked with others.
pub(crate) struct Gathered {
    /// Whose they are.
    slot: usize,
    id: ConnectionId,
    fresh: Fresh,
    found: VecDeque<gss::Looked>,
}

/// What becomes of bytes that were read.
pub(crate) enum Looked {
    /// They are taken up.
    Now(Batch),
    /// They are gathered, and more may be read.
    Later,
    /// They are gathered, and all that were are to be taken up before more is read.
    Together,
}

impl Peer {
    /// Looks at what was read. What comes behind a call that was gathered is taken up behind it.
    pub(crate) fn look(&mut self, mut fresh: Fresh, tools: &mut Tools, driver: &Arc<Driver>) -> Looked {
        let gss = driver.gss.as_ref();
        let now_ms = clock::boot_ms_nearly();
        let mut found = gss::find(fresh.bytes(), fresh.records, gss, &mut self.recent, now_ms);
        let goes_on = fresh.is_one_record() && gss::is_laborious(&found, tools.laborious_len);
        if !goes_on && (!self.gathered || fresh.is_incomplete()) {
            if !found.is_empty() {
                gss::check([(fresh.bytes_mut(), &mut found)], gss, now_ms);
            }
            return Looked::Now(fresh.into_batch(found));
        }
        self.gathered = true;
        tools.gathered.push(Gathered { slot: self.slot, id: self.connection.engine().id(), fresh, found });
        match goes_on && tools.gathered.len() < tools.gathered_max {
            true => Looked::Later,
            false => Looked::Together,
        }
    }
}

impl Worker {
    /// Checks what was gathered and takes it up, in the order in which it came.
    pub(crate) fn take_gathered(&mut self) {
        if self.tools.gathered.is_empty() {
            return;
        }
        let mut gathered = std::mem::take(&mut self.tools.gathered);
        let found = gathered.iter_mut().map(|one| (one.fresh.bytes_mut(), &mut one.found));
        gss::check(found, self.driver.gss.as_ref(), clock::boot_ms());
        for Gathered { slot, id, fresh, found } in gathered.drain(..) {
            // It may have been closed for what came before.
            let Some(Some(peer)) = self.peers.get_mut(slot) else { continue };
            if peer.connection.engine().id() != id {
                continue;
            }
            peer.gathered = false;
            if let Err(why) = peer.take_up(fresh.into_batch(found), &mut self.tools, &self.driver) {
                self.close(slot, why);
            }
        }
        self.tools.gathered = gathered;
    }
}
