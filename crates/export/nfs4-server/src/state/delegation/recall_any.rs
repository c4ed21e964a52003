//! CB_RECALL_ANY (RFC 8881 §20.6): large holders return their least used delegations.

use crate::state::callback::record::Subject;
use crate::state::client::credential::Family;
use crate::state::effect::CallbackOp;
use crate::state::id::ClientKey;
use crate::state::limits::{RECALL_ANY_INTERVAL_MS, RECALL_ANY_ROOM, RECALL_ANY_SHARE};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    pub(in crate::state) fn keep_room_for_delegations(&mut self, now: u64) {
        let limits = &self.config.limits;
        let has_room = |count: usize, max: usize| count < max - max / RECALL_ANY_ROOM;
        if has_room(self.file_delegation_count(), limits.delegations_max)
            && has_room(self.directory_delegation_count, limits.directory_delegations_max)
            || now < self.recall_any_after_ms
        {
            return;
        }
        self.recall_any_after_ms = now + RECALL_ANY_INTERVAL_MS;
        let holders = self.clients.iter().filter(|(_, client)| !client.delegations.is_empty());
        let holders: Vec<(ClientKey, usize)> =
            holders.map(|(key, client)| (key, client.delegations.len())).collect();
        let mean = self.delegation_count / holders.len().max(1);
        for (client, held) in holders {
            if self.clients.get(client).is_none() {
                continue;
            }
            if self.is_courtesy(client) {
                self.expire(client);
            } else if held >= mean
                && self.clients[client].family() == Family::V41
                && self.callbacks_reach(client)
            {
                let keep =
                    u32::try_from(held - held.div_ceil(RECALL_ANY_SHARE)).unwrap_or(u32::MAX);
                self.queue_callback(client, CallbackOp::RecallAny { keep }, Subject::Nothing);
            }
        }
    }
}
