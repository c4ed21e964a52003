use std::collections::{BTreeMap, BTreeSet};

use vouch_nfs4::Stateid;

use crate::driver::LEASE_MS;

pub(crate) const READ: u32 = 1;
pub(crate) const WRITE: u32 = 2;
pub(crate) const BYTES: usize = 18;

pub(crate) type Key = (usize, u8, u8);

#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) access: u32,
    pub(crate) deny: u32,
    pub(crate) stateid: Stateid,
}

#[derive(Clone, Debug)]
pub(crate) struct Locks {
    pub(crate) bytes: [u8; BYTES],
    pub(crate) stateid: Stateid,
}

#[derive(Clone, Debug)]
pub(crate) struct Delegation {
    pub(crate) write: bool,
    pub(crate) stateid: Stateid,
    pub(crate) recalled_ms: Option<u64>,
}

#[derive(Clone, Default)]
pub(crate) struct HeldState {
    pub(crate) opens: BTreeMap<Key, Open>,
    pub(crate) locks: BTreeMap<Key, Locks>,
    pub(crate) delegations: BTreeMap<(usize, u8), Delegation>,
}

impl HeldState {
    pub(crate) fn take_agent(&mut self, agent: usize) -> HeldState {
        fn take_matching<K: Ord + Copy, V>(
            map: &mut BTreeMap<K, V>,
            of: impl Fn(&K) -> bool,
        ) -> BTreeMap<K, V> {
            let (taken, remaining) = std::mem::take(map).into_iter().partition(|(key, _)| of(key));
            *map = remaining;
            taken
        }
        HeldState {
            opens: take_matching(&mut self.opens, |key| key.0 == agent),
            locks: take_matching(&mut self.locks, |key| key.0 == agent),
            delegations: take_matching(&mut self.delegations, |key| key.0 == agent),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.locks.is_empty() && self.delegations.is_empty()
    }

    pub(crate) fn share_conflicts(&self, file: u8, access: u32, deny: u32) -> BTreeSet<usize> {
        let opens = self.opens.iter().filter(|(key, open)| {
            key.2 == file && (access & open.deny != 0 || deny & open.access != 0)
        });
        opens.map(|(key, _)| key.0).collect()
    }

    pub(crate) fn delegation_conflicts(
        &self,
        agent: Option<usize>,
        file: u8,
        reads_only: bool,
    ) -> BTreeSet<usize> {
        let others = self.delegations.iter().filter(|(key, held)| {
            key.1 == file && Some(key.0) != agent && (held.write || !reads_only)
        });
        others.map(|(key, _)| key.0).collect()
    }

    pub(crate) fn lock_conflicts(
        &self,
        by: Key,
        bytes: std::ops::Range<usize>,
        exclusive: bool,
    ) -> BTreeSet<usize> {
        let others = self.locks.iter().filter(|(key, _)| **key != by && key.2 == by.2);
        let conflicts = |locks: &Locks| {
            locks.bytes[bytes.clone()].iter().any(|&mode| mode == 2 || mode == 1 && exclusive)
        };
        others.filter(|(_, locks)| conflicts(locks)).map(|(key, _)| key.0).collect()
    }

    pub(crate) fn recall(&mut self, agent: usize, file: u8, now_ms: u64) {
        if let Some(held) = self.delegations.get_mut(&(agent, file)) {
            held.recalled_ms.get_or_insert(now_ms);
        }
    }

    /// RFC 8881 §10.4.6: a lease after the recall, but not within the holder's own lease; two leases
    /// after the recall at most.
    pub(crate) fn take_overdue(
        &mut self,
        now_ms: u64,
        renewed_ms: impl Fn(usize) -> u64,
    ) -> Vec<(usize, Stateid)> {
        let mut overdue = Vec::new();
        self.delegations.retain(|&(agent, _), held| {
            let due_ms = |at: u64| (at.max(renewed_ms(agent)) + LEASE_MS).min(at + 2 * LEASE_MS);
            let is_overdue = held.recalled_ms.is_some_and(|at| now_ms >= due_ms(at));
            if is_overdue {
                overdue.push((agent, held.stateid));
            }
            !is_overdue
        });
        overdue
    }

    pub(crate) fn counts(&self, agent: usize) -> (usize, usize, usize) {
        let ranges = |bytes: &[u8; BYTES]| {
            let starts = bytes
                .iter()
                .enumerate()
                .filter(|&(at, &mode)| mode > 0 && (at == 0 || bytes[at - 1] != mode));
            starts.count()
        };
        let opens = self.opens.keys().filter(|key| key.0 == agent).count();
        let locks = self
            .locks
            .iter()
            .filter(|(key, _)| key.0 == agent)
            .map(|(_, locks)| ranges(&locks.bytes))
            .sum();
        (opens, locks, self.delegations.keys().filter(|key| key.0 == agent).count())
    }
}
