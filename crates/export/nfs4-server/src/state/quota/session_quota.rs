use super::{Resource, SourceKey, within_share};
use crate::state::id::SessionKey;
use crate::state::limits::{
    REPLIES_SHED_SHARE, REPLY_CACHE_SESSION_LEN, SESSIONS_MAX, SHARE_FACTOR,
};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    #[inline]
    pub(in crate::state) fn reply_room(&self, source: SourceKey) -> usize {
        let left = self
            .config
            .limits
            .reply_cache_len_max
            .saturating_sub(self.reply_cache_len + self.reply_cache_reserved);
        left.min(
            left.saturating_mul(SHARE_FACTOR)
                .saturating_sub(self.sources.usage(source).reply_len()),
        )
    }

    #[cold]
    pub(in crate::state) fn make_room_for_replies(
        &mut self,
        source: SourceKey,
        exempt: Option<SessionKey>,
        more: usize,
    ) -> bool {
        self.shed_sessions(source, exempt, Resource::Replies) && more <= self.reply_room(source)
    }

    pub(in crate::state) fn make_room_for_session(&mut self, source: SourceKey) -> bool {
        let has_room = |state: &Self| {
            within_share(
                state.sources.usage(source).sessions,
                1,
                state.sessions.len(),
                SESSIONS_MAX,
            )
        };
        let has_session = has_room(self)
            || self.shed_sessions(source, None, Resource::Sessions) && has_room(self);
        if !has_session {
            return false;
        }
        REPLY_CACHE_SESSION_LEN <= self.reply_room(source)
            || self.make_room_for_replies(source, None, REPLY_CACHE_SESSION_LEN)
    }

    /// Ends idle sessions of the largest source, least recently used clients first, until a quarter
    /// of its usage is free; clients create new ones (RFC 8881 §2.10.13.2). O(n log n) in sessions,
    /// so scans are limited.
    fn shed_sessions(
        &mut self,
        source: SourceKey,
        exempt: Option<SessionKey>,
        resource: Resource,
    ) -> bool {
        if !self.sources.may_scan(Some(source), self.latest_ms) {
            return false;
        }
        let Some(largest) = self.sources.largest_user(resource) else { return false };
        let usage = |state: &Self, source| state.sources.usage(source).of(resource);
        let victim = if usage(self, largest) > usage(self, source) { largest } else { source };
        let enough = usage(self, victim) / REPLIES_SHED_SHARE * (REPLIES_SHED_SHARE - 1);
        let mut idle: Vec<(u64, SessionKey)> = self
            .sessions
            .iter()
            .filter(|(key, session)| {
                session.source_key == victim && Some(*key) != exempt && session.slots.busy() == 0
            })
            .map(|(key, session)| (self.clients[session.client].renewed_ms, key))
            .collect();
        idle.sort_unstable();
        let any = !idle.is_empty();
        for (_, key) in idle {
            if usage(self, victim) <= enough {
                break;
            }
            let client = self.sessions[key].client;
            self.remove_session(key);
            self.refresh_paths(client);
            self.send_queued_callbacks(client);
        }
        any
    }
}
