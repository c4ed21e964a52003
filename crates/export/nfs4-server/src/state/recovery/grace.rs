//! Clients reclaim their former state (RFC 8881 §8.4.2).

use vouch_nfs4::Verifier;

use crate::access::network::Network;
use crate::state::client::credential::{Credential, Family};
use crate::state::client::principal::ClientPrincipal;
use crate::state::hash::Map;
use crate::state::recovery::record::RecoveryRecord;

pub(in crate::state) struct Grace {
    pub(in crate::state) until_ms: Option<u64>,
    pub(in crate::state) waiting: Map<Vec<u8>, Awaited>,
}

pub(in crate::state) struct Awaited {
    pub(in crate::state) verifier: Verifier,
    pub(in crate::state) creator: ClientPrincipal,
    pub(in crate::state) from: Option<Network>,
}

impl Grace {
    pub(in crate::state) fn new(
        records: &[RecoveryRecord],
        grace_ms: u64,
        now: u64,
        hasher: crate::state::hash::Seed,
    ) -> Self {
        let mut waiting = Map::with_hasher(hasher);
        // §8.4.3.
        for record in records.iter().filter(|record| !record.revoked) {
            let awaited =
                Awaited { verifier: record.verifier, creator: record.creator, from: record.from };
            waiting.insert(RecoveryRecord::key(record.family, &record.owner), awaited);
        }
        if vouch_vfs::mutant("restart-has-no-grace") {
            return Grace { until_ms: None, waiting };
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

    /// While a record waits, only its principal may use the name. The recorded client's lease
    /// counts as renewed (§2.4.3).
    pub(in crate::state) fn admits(
        &self,
        family: Family,
        owner: &[u8],
        credential: Credential<'_>,
    ) -> bool {
        !self.is_active()
            || self
                .waiting
                .get(&RecoveryRecord::key(family, owner))
                .is_none_or(|awaited| awaited.creator.admits(credential))
    }

    pub(in crate::state) fn awaits_from(&self, family: Family, owner: &[u8]) -> Option<Network> {
        if !self.is_active() {
            return None;
        }
        self.waiting.get(&RecoveryRecord::key(family, owner))?.from
    }

    pub(in crate::state) fn may_reclaim(
        &self,
        family: Family,
        owner: &[u8],
        verifier: Verifier,
    ) -> bool {
        self.is_active()
            && self
                .waiting
                .get(&RecoveryRecord::key(family, owner))
                .is_some_and(|awaited| awaited.verifier == verifier)
    }

    pub(in crate::state) fn awaited_count(&self) -> usize {
        if self.is_active() { self.waiting.len() } else { 0 }
    }

    /// Clients that grace waits for. Kerberos clients have no address.
    pub(in crate::state) fn awaited(
        &self,
    ) -> impl Iterator<Item = (Family, &[u8], Option<Network>)> {
        self.waiting.iter().filter(|_| self.is_active()).map(|(key, awaited)| {
            let (family, owner) = RecoveryRecord::of_key(key);
            (family, owner, awaited.from)
        })
    }

    pub(in crate::state) fn completed(&mut self, family: Family, owner: &[u8]) -> bool {
        self.waiting.remove(&RecoveryRecord::key(family, owner));
        self.is_active() && self.waiting.is_empty()
    }
}
