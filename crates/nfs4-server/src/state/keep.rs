//! Room for sessions and for the replies that they keep: one origin gets its share, and where it is
//! short, sessions of whoever keeps the most make way.

use super::State;
use super::id::SessionKey;
use super::limits::{ORIGIN_SHARE, REPLIES_SHED_SHARE, REPLY_CACHE_SESSION_LEN, SESSIONS_MAX};
use super::looks::Scarce;
use super::places::{Held, Place, fits};

impl<F: Clone> State<F> {
    /// How many bytes this origin may keep beyond what it has.
    #[inline]
    pub(super) fn reply_room(&self, place: Place) -> usize {
        let left = self.config.limits.reply_cache_len_max.saturating_sub(self.reply_cache_len + self.reply_cache_promised);
        left.min(left.saturating_mul(ORIGIN_SHARE).saturating_sub(self.places.holds(place).cache_len()))
    }

    /// Whether this origin may keep so much more.
    #[inline]
    pub(super) fn may_keep(&self, place: Place, more: usize) -> bool {
        more <= self.reply_room(place)
    }

    /// Makes room for so many bytes more. Whether there is, then. `spared`: the session that asks.
    #[cold]
    pub(super) fn make_room_for_replies(&mut self, place: Place, spared: Option<SessionKey>, more: usize) -> bool {
        self.shed(place, spared, Scarce::Replies) && self.may_keep(place, more)
    }

    /// Makes room for one more session of this origin. Whether there is, then.
    pub(super) fn make_room_for_session(&mut self, place: Place) -> bool {
        let may = |state: &Self| fits(state.places.holds(place).sessions, 1, state.sessions.len(), SESSIONS_MAX);
        let room = may(self) || self.shed(place, None, Scarce::Sessions) && may(self);
        if !room {
            return false;
        }
        self.may_keep(place, REPLY_CACHE_SESSION_LEN) || self.make_room_for_replies(place, None, REPLY_CACHE_SESSION_LEN)
    }

    /// Sessions go that are of the origin that has the most of it, nothing under way, those of
    /// clients first that were not heard of for longest; their clients make new ones (RFC 8881,
    /// section 2.10.13.2: the loss of a session). A quarter of what that origin has. Whether any
    /// did. O(n log n) in sessions, and so not more than once in a while.
    fn shed(&mut self, place: Place, spared: Option<SessionKey>, scarce: Scarce) -> bool {
        if !self.places.may_look(place, scarce, self.latest_ms) {
            return false;
        }
        let found = self.shed_of_richest(place, spared, scarce);
        self.places.looked(place, scarce, found, self.latest_ms);
        found
    }

    fn shed_of_richest(&mut self, place: Place, spared: Option<SessionKey>, scarce: Scarce) -> bool {
        let what = |held: &Held| scarce.of(held);
        let Some(richest) = self.places.richest(what) else { return false };
        // Of two that have as much, who asks is the one who pays.
        let whose = if what(self.places.holds(richest)) > what(self.places.holds(place)) { richest } else { place };
        let enough = what(self.places.holds(whose)) / REPLIES_SHED_SHARE * (REPLIES_SHED_SHARE - 1);
        let mut idle: Vec<(u64, SessionKey)> = self
            .sessions
            .iter()
            .filter(|(key, session)| session.place == whose && Some(*key) != spared && session.slots.busy() == 0)
            .map(|(key, session)| (self.clients[session.client].renewed_ms, key))
            .collect();
        idle.sort_unstable();
        let mut any = false;
        for (_, key) in idle {
            if what(self.places.holds(whose)) <= enough {
                break;
            }
            let client = self.sessions[key].client;
            self.remove_session(key);
            self.refresh_paths(client);
            self.pump(client);
            any = true;
        }
        any
    }
}
