//! Grace: after a start, clients reclaim what they held before (RFC 8881, section 8.4.2).

use vouch_nfs4::Verifier;

use crate::access::network::Network;
use crate::state::client::credential::{Credential, Family};
use crate::state::client::principal::ClientPrincipal;
use crate::state::hash::Map;
use crate::state::recovery::record::RecoveryRecord;

/// The grace period and those for whom it is.
pub(in crate::state) struct Grace {
    /// When it ends; none if it has.
    pub(in crate::state) until_ms: Option<u64>,
    /// Those who may reclaim, by the key of their record, and have not said that they are done.
    pub(in crate::state) waiting: Map<Vec<u8>, Awaited>,
}

/// One who may reclaim.
pub(in crate::state) struct Awaited {
    pub(in crate::state) verifier: Verifier,
    pub(in crate::state) maker: ClientPrincipal,
    pub(in crate::state) from: Option<Network>,
}

impl Grace {
    /// Begins. Without anybody who may reclaim there is no grace.
    pub(in crate::state) fn new(records: &[RecoveryRecord], grace_ms: u64, now: u64, hasher: crate::state::hash::Seed) -> Self {
        let mut waiting = Map::with_hasher(hasher);
        // Section 8.4.3: those whose state was taken away in the life before must not have it back.
        for record in records.iter().filter(|record| !record.revoked) {
            let awaited = Awaited { verifier: record.verifier, maker: record.maker, from: record.from };
            waiting.insert(RecoveryRecord::key(record.family, &record.owner), awaited);
        }
        Grace { until_ms: (!waiting.is_empty() && grace_ms > 0).then_some(now + grace_ms), waiting }
    }

    pub(in crate::state) fn is_active(&self) -> bool {
        self.until_ms.is_some()
    }

    pub(in crate::state) fn until_ms(&self) -> Option<u64> {
        self.until_ms
    }

    pub(in crate::state) fn is_over(&self, now: u64) -> bool {
        self.until_ms.is_some_and(|until| until <= now)
    }

    /// Whether this caller may introduce himself by this name: while what was held under it waits
    /// to be reclaimed, only who held it. RFC 8881, section 2.4.3: the name is in use, and the
    /// lease counts as begun anew.
    pub(in crate::state) fn admits(&self, family: Family, owner: &[u8], credential: Credential<'_>) -> bool {
        !self.is_active() || self.waiting.get(&RecoveryRecord::key(family, owner)).is_none_or(|awaited| awaited.maker.admits(credential))
    }

    /// Where the one comes from for whom what was held under this name waits, if that is known and
    /// was not proven otherwise.
    pub(in crate::state) fn awaits_from(&self, family: Family, owner: &[u8]) -> Option<Network> {
        if !self.is_active() {
            return None;
        }
        self.waiting.get(&RecoveryRecord::key(family, owner))?.from
    }

    /// Whether this life of this client, whose introduction was admitted, has something to reclaim.
    pub(in crate::state) fn may_reclaim(&self, family: Family, owner: &[u8], verifier: Verifier) -> bool {
        self.is_active() && self.waiting.get(&RecoveryRecord::key(family, owner)).is_some_and(|awaited| awaited.verifier == verifier)
    }

    /// A client has nothing more to reclaim: it says so, or has begun another life. As only the
    /// maker of a record is admitted by its name, nobody says it for him. Whether grace can
    /// end, since nobody has. Clients of 4.0 never say so.
    pub(in crate::state) fn completed(&mut self, family: Family, owner: &[u8]) -> bool {
        self.waiting.remove(&RecoveryRecord::key(family, owner));
        self.is_active() && self.waiting.is_empty()
    }

    /// How many have not said that they are done.
    pub(in crate::state) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
