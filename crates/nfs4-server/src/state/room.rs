//! Room for new clients: who goes when the table is full, and how much of it one origin may have.

use vouch_nfs4::Status;

use super::State;
use super::client::{Client, Lease};
use super::id::ClientKey;
use super::limits::{CLIENTS_SHARE, ENDS_PER_LOOK_MAX, IDLE_LOOKS_MAX, ROOM_ROUNDS_MAX, UNCONFIRMED_MIN, UNCONFIRMED_SHARE};
use super::looks::Scarce;
use super::places::{Origin, Place, Worth, fits, fits_client};

impl Client {
    /// Of which worth it is; none if it may not go.
    fn worth(&self) -> Option<Worth> {
        match self.lease {
            _ if !self.confirmed => Some(Worth::Unconfirmed),
            _ if !self.has_state() => Some(Worth::Idle),
            Lease::Courtesy { .. } => Some(Worth::Courtesy),
            Lease::Active => None,
        }
    }
}

impl<F: Clone> State<F> {
    /// Lists a client by what it is worth now. What a client holds changes with every other call,
    /// so this is asked when its lease is looked at, and once more before it goes.
    pub(super) fn list_client(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if let Some(listed) = client.listed.take() {
            self.places.strike(listed, &client.origin);
        }
        client.listed = client.worth().map(|worth| self.places.list(worth, &client.origin, key));
    }

    /// Makes room for one more. DELAY if there are as many as may be and none can go, or if the
    /// origin has more than its share and none of its own can.
    pub(super) fn make_room_for_client(&mut self, origin: &Origin) -> Result<(), Status> {
        let clients_max = self.config.limits.clients_max;
        // Anybody can introduce himself under any number of names: such records get a share of the places.
        if self.places.total(Worth::Unconfirmed) >= (clients_max / UNCONFIRMED_SHARE).max(UNCONFIRMED_MIN) {
            let whose = self.crowding(origin).or_else(|| self.places.most(Worth::Unconfirmed).map(|(whose, _)| whose));
            if let Some(whose) = whose {
                self.displace(Worth::Unconfirmed, &whose, None);
            }
        }
        let left = clients_max.saturating_sub(self.clients.len());
        let room = match left {
            0 => self.displace_any(origin),
            // Near the end one origin does not get what is left for all.
            left if self.places.of(origin) >= left.saturating_mul(CLIENTS_SHARE) => {
                [Worth::Unconfirmed, Worth::Idle, Worth::Courtesy].into_iter().any(|worth| self.displace(worth, origin, None))
            }
            _ => true,
        };
        if room {
            return Ok(());
        }
        self.clients_refused += 1;
        Err(Status::DELAY)
    }

    /// Which origin's introductions should make way for one more by this one: its own, or one that
    /// has more. None if each has one at most.
    fn crowding(&self, origin: &Origin) -> Option<Origin> {
        let own = self.places.listed(Worth::Unconfirmed, origin);
        match self.places.most(Worth::Unconfirmed) {
            Some((whose, count)) if count > own + 1 => Some(whose),
            _ => (own > 0).then(|| origin.clone()),
        }
    }

    /// The table is full. Nobody's state goes as long as there are clients without; of those,
    /// whoever has most loses one.
    fn displace_any(&mut self, origin: &Origin) -> bool {
        self.crowding(origin).is_some_and(|whose| self.displace(Worth::Unconfirmed, &whose, None))
            || self.displace_of_most(Worth::Idle)
            || self.displace_of_most(Worth::Unconfirmed)
            || self.displace_of_most(Worth::Courtesy)
    }

    fn displace_of_most(&mut self, worth: Worth) -> bool {
        // A list that was out of date is better afterwards.
        (0..ROOM_ROUNDS_MAX).any(|_| self.places.most(worth).is_some_and(|(whose, _)| self.displace(worth, &whose, None)))
    }

    /// One of this worth and origin goes: of those that hold nothing the one that was heard of
    /// least recently, of others the one that was listed first. Not `spared`. O(log n).
    fn displace(&mut self, worth: Worth, origin: &Origin, spared: Option<ClientKey>) -> bool {
        let keys: Vec<ClientKey> = self.places.first(worth, origin).take(IDLE_LOOKS_MAX).collect();
        let mut found: Option<(u64, ClientKey)> = None;
        for key in keys {
            let Some(client) = self.clients.get(key) else { continue };
            if client.worth() != Some(worth) {
                self.list_client(key);
                continue;
            }
            let heard_ms = if worth == Worth::Idle { client.renewed_ms } else { 0 };
            if client.running == 0 && Some(key) != spared && found.is_none_or(|(before, _)| heard_ms < before) {
                found = Some((heard_ms, key));
            }
        }
        let Some((_, key)) = found else { return false };
        self.clients_displaced += 1;
        self.expire(key);
        true
    }

    /// Whether the client's origin may have one more of this, of which all have `all` and may have
    /// `max`, and the client, which has `of_client`, within that. Silent clients are ended for it,
    /// where a lease has run out: its own, or those of the origin that holds the most and more
    /// than itself; never the client that asks. O(n) in origins, but not for each call that is
    /// refused.
    pub(super) fn make_room_for_state(
        &mut self,
        key: ClientKey,
        scarce: Scarce,
        max: usize,
        all: impl Fn(&Self) -> usize,
        of_client: impl Fn(&Self) -> usize,
    ) -> bool {
        let Some(client) = self.clients.get(key) else { return false };
        let (place, origin) = (client.place, client.origin.clone());
        let room = |state: &Self| {
            let (own, all) = (scarce.of(state.places.holds(place)), all(state));
            fits(own, 1, all, max) && fits_client(of_client(state), own, all, max)
        };
        if room(self) {
            return true;
        }
        if !self.places.may_look(place, scarce, self.latest_ms) {
            return false;
        }
        let mut found = false;
        for _ in 0..ENDS_PER_LOOK_MAX {
            let own = self.places.listed(Worth::Courtesy, &origin) > 0 && self.displace(Worth::Courtesy, &origin, Some(key));
            if !own && !self.displace_of_richer(place, scarce) {
                break;
            }
            found = true;
            if room(self) {
                break;
            }
        }
        self.places.looked(place, scarce, found, self.latest_ms);
        room(self)
    }

    /// A silent client goes that is of the origin that holds the most of this, if that is more than
    /// what this place holds.
    fn displace_of_richer(&mut self, place: Place, scarce: Scarce) -> bool {
        let own = scarce.of(self.places.holds(place));
        let richest = self.places.richest_of(Worth::Courtesy, |held| scarce.of(held)).filter(|(_, most)| *most > own);
        richest.is_some_and(|(whose, _)| self.displace(Worth::Courtesy, &whose, None))
    }
}
