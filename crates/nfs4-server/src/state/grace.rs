//! Grace: after a start, what clients held before is theirs to reclaim, and nobody gets anything
//! new (RFC 8881, section 8.4.2; RFC 7530, section 9.6.2).

use vouch_nfs4::{Status, Verifier};

use super::State;
use super::client::{Client, Credential, Family};
use super::client_principal::ClientPrincipal;
use super::effect::StateEffect;
use super::hash::Map;
use super::id::ClientKey;
use super::recovery::RecoveryRecord;
use crate::access::network::Network;

/// The grace period and those for whom it is.
pub(super) struct Grace {
    /// When it ends; none if it has.
    until_ms: Option<u64>,
    /// Those who may reclaim, by the key of their record, and have not said that they are done.
    waiting: Map<Vec<u8>, Awaited>,
}

/// One who may reclaim.
struct Awaited {
    verifier: Verifier,
    maker: ClientPrincipal,
    from: Option<Network>,
}

impl Grace {
    /// Begins. Without anybody who may reclaim there is no grace.
    pub(super) fn new(records: &[RecoveryRecord], grace_ms: u64, now: u64, hasher: super::hash::Seed) -> Self {
        let mut waiting = Map::with_hasher(hasher);
        // Section 8.4.3: those whose state was taken away in the life before must not have it back.
        for record in records.iter().filter(|record| !record.revoked) {
            let awaited = Awaited { verifier: record.verifier, maker: record.maker, from: record.from };
            waiting.insert(RecoveryRecord::key(record.family, &record.owner), awaited);
        }
        Grace { until_ms: (!waiting.is_empty() && grace_ms > 0).then_some(now + grace_ms), waiting }
    }

    pub(super) fn is_active(&self) -> bool {
        self.until_ms.is_some()
    }

    pub(super) fn until_ms(&self) -> Option<u64> {
        self.until_ms
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.until_ms.is_some_and(|until| until <= now)
    }

    /// Whether this caller may introduce himself by this name: while what was held under it waits
    /// to be reclaimed, only who held it. RFC 8881, section 2.4.3: the name is in use, and the
    /// lease counts as begun anew.
    pub(super) fn admits(&self, family: Family, owner: &[u8], credential: Credential<'_>) -> bool {
        !self.is_active() || self.waiting.get(&RecoveryRecord::key(family, owner)).is_none_or(|awaited| awaited.maker.admits(credential))
    }

    /// Where the one comes from for whom what was held under this name waits, if that is known and
    /// was not proven otherwise.
    pub(super) fn awaits_from(&self, family: Family, owner: &[u8]) -> Option<Network> {
        if !self.is_active() {
            return None;
        }
        self.waiting.get(&RecoveryRecord::key(family, owner))?.from
    }

    /// Whether this life of this client, whose introduction was admitted, has something to reclaim.
    pub(super) fn may_reclaim(&self, family: Family, owner: &[u8], verifier: Verifier) -> bool {
        self.is_active() && self.waiting.get(&RecoveryRecord::key(family, owner)).is_some_and(|awaited| awaited.verifier == verifier)
    }

    /// A client has nothing more to reclaim: it says so, or has begun another life. As only the
    /// maker of a record is admitted by its name, nobody says it for him. Whether grace can
    /// end, since nobody has. Clients of 4.0 never say so.
    pub(super) fn completed(&mut self, family: Family, owner: &[u8]) -> bool {
        self.waiting.remove(&RecoveryRecord::key(family, owner));
        self.is_active() && self.waiting.is_empty()
    }

    /// How many have not said that they are done.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl<F: Clone> State<F> {
    /// Whether the server is in grace.
    pub fn in_grace(&self) -> bool {
        self.grace.is_active()
    }

    /// A client introduces itself. CLID_INUSE by a name under which another may still reclaim.
    pub(super) fn admit_introduction(&self, family: Family, owner: &[u8], credential: Credential<'_>) -> Result<(), Status> {
        if self.grace.admits(family, owner, credential) { Ok(()) } else { Err(Status::CLID_INUSE) }
    }

    /// A client introduces itself, or goes on to, by a name under which an unproven one may still
    /// reclaim. Under AUTH_SYS anybody says that he is anybody, so that only where he
    /// calls from tells him from others. Who calls from there has the name, whoever had it
    /// meanwhile: he could get nothing by it that would be lost. From elsewhere a client is let
    /// in, with nothing to reclaim (section 8.4.2.1 leaves it to the server whom it believes),
    /// since it may be the same one whose address has changed: it shall go on as soon as
    /// grace is over. DELAY where the other has come back.
    pub(super) fn give_name(&mut self, family: Family, owner: &[u8], credential: Credential<'_>) -> Result<(), Status> {
        let Some(from) = self.grace.awaits_from(family, owner) else { return Ok(()) };
        let here = from == Network::of(credential.address);
        if here && !self.grace.admits(family, owner, credential) {
            return Ok(());
        }
        let named = self.named(family, owner);
        for key in [named.confirmed, named.unconfirmed].into_iter().flatten() {
            match (here, self.clients[key].elsewhere) {
                (true, true) => self.expire(key),
                (false, false) => return Err(Status::DELAY),
                _ => {}
            }
        }
        Ok(())
    }

    /// The same for what is done by the number of a client.
    pub(super) fn check_name(&self, key: ClientKey, credential: Credential<'_>) -> Result<(), Status> {
        let client = &self.clients[key];
        let from = if client.elsewhere { None } else { self.grace.awaits_from(client.family(), &client.owner) };
        if from.is_none_or(|from| from == Network::of(credential.address)) { Ok(()) } else { Err(Status::DELAY) }
    }

    /// Something new is asked for. Section 8.4.2.1: GRACE while others may still reclaim what it
    /// conflicts with; section 18.51.3: also for a client of 4.1 that has not said that it has
    /// nothing to reclaim.
    pub(super) fn admit_new(&mut self, key: ClientKey) -> Result<(), Status> {
        if self.grace.is_active() {
            return Err(Status::GRACE);
        }
        match self.client(key)?.v41() {
            Some(v41) if !v41.reclaim_complete => Err(Status::GRACE),
            _ => Ok(()),
        }
    }

    /// Something is reclaimed. NO_GRACE when grace is over, or the client has said that it is done;
    /// RECLAIM_BAD if it had nothing.
    pub(super) fn admit_reclaim(&mut self, key: ClientKey) -> Result<(), Status> {
        let active = self.grace.is_active();
        let client = self.client(key)?;
        if !active || client.v41().is_some_and(|v41| v41.reclaim_complete) {
            return Err(Status::NO_GRACE);
        }
        match client.may_reclaim {
            true => Ok(()),
            false => Err(Status::RECLAIM_BAD),
        }
    }

    /// Grace ends. Section 8.4.3: from here on, who has not reclaimed has lost what it held, also
    /// if the server restarts again.
    pub(super) fn end_grace(&mut self) {
        if self.grace.until_ms.take().is_some() {
            self.grace.waiting = Map::with_hasher(self.hasher);
            self.record_those_from_elsewhere();
            self.effects.push_back(StateEffect::GraceEnded);
        }
    }

    /// Who came by another's name, from elsewhere, has it for his own: until now the other's record
    /// was kept. O(n) in clients, once.
    fn record_those_from_elsewhere(&mut self) {
        let done = |client: &Client| client.elsewhere && client.v41().is_some_and(|v41| v41.reclaim_complete);
        let keys: Vec<ClientKey> = self.clients.iter().filter(|(_, client)| done(client)).map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.record(key, false));
    }
}
