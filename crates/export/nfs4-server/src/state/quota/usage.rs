use super::Source;
use super::eviction_limit::{EvictionLimit, EvictionScans};
use crate::state::hash::{Map, Seed};
use crate::state::limits::SHARE_FACTOR;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Resource {
    Opens,
    Owners,
    Sessions,
    Replies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::state) struct SourceKey(u32);

#[derive(Debug, Default)]
pub(in crate::state) struct SourceUsage {
    source: Option<Source>,
    pub(super) clients: usize,
    pub(in crate::state) sessions: usize,
    pub(in crate::state) opens: usize,
    pub(in crate::state) owners: usize,
    pub(in crate::state) locks: usize,
    pub(in crate::state) cached_len: usize,
    reserved_len: usize,
    scans: EvictionScans,
}

impl SourceUsage {
    pub(in crate::state) fn reply_len(&self) -> usize {
        self.cached_len + self.reserved_len
    }

    pub(super) fn of(&self, resource: Resource) -> usize {
        match resource {
            Resource::Opens => self.opens,
            Resource::Owners => self.owners,
            Resource::Sessions => self.sessions,
            Resource::Replies => self.reply_len(),
        }
    }
}

/// True if a source that uses `own` may have `more`, where all sources use `all` of `max`.
pub(in crate::state) fn within_share(own: usize, more: usize, all: usize, max: usize) -> bool {
    let left = max.saturating_sub(all);
    more <= left && own.saturating_add(more) <= left.saturating_mul(SHARE_FACTOR)
}

pub(in crate::state) struct SourceTable {
    keys: Map<Source, SourceKey>,
    usages: Vec<SourceUsage>,
    vacant: Vec<SourceKey>,
    eviction_limit: EvictionLimit,
}

impl SourceTable {
    pub(in crate::state) fn new(hasher: Seed) -> Self {
        SourceTable {
            keys: Map::with_hasher(hasher),
            usages: Vec::new(),
            vacant: Vec::new(),
            eviction_limit: EvictionLimit::default(),
        }
    }

    pub(in crate::state) fn add_client(&mut self, source: &Source) -> SourceKey {
        let key = match self.keys.get(source) {
            Some(&key) => key,
            None => {
                let key = self.vacant.pop().unwrap_or_else(|| {
                    self.usages.push(SourceUsage::default());
                    SourceKey(
                        u32::try_from(self.usages.len() - 1)
                            .expect("there are no more sources than clients"),
                    )
                });
                self.keys.insert(source.clone(), key);
                *self.usage_mut(key) =
                    SourceUsage { source: Some(source.clone()), ..SourceUsage::default() };
                key
            }
        };
        self.usage_mut(key).clients += 1;
        key
    }

    pub(in crate::state) fn remove_client(&mut self, key: SourceKey) {
        self.usage_mut(key).clients -= 1;
        self.free_if_unused(key);
    }

    #[inline]
    pub(in crate::state) fn reserve(&mut self, key: SourceKey, len: usize) {
        self.usage_mut(key).reserved_len += len;
    }

    #[inline]
    pub(in crate::state) fn unreserve(&mut self, key: SourceKey, len: usize) {
        self.usage_mut(key).reserved_len -= len;
        self.free_if_unused(key);
    }

    #[inline]
    fn free_if_unused(&mut self, key: SourceKey) {
        let usage = self.usage_mut(key);
        if usage.clients == 0
            && usage.reserved_len == 0
            && let Some(source) = usage.source.take()
        {
            debug_assert!(
                usage.sessions + usage.opens + usage.owners + usage.locks + usage.cached_len == 0,
                "a client is removed after its state"
            );
            self.keys.remove(&source);
            self.vacant.push(key);
        }
    }

    #[inline]
    pub(in crate::state) fn usage(&self, key: SourceKey) -> &SourceUsage {
        &self.usages[key.0 as usize]
    }

    #[inline]
    pub(in crate::state) fn usage_mut(&mut self, key: SourceKey) -> &mut SourceUsage {
        &mut self.usages[key.0 as usize]
    }

    pub(in crate::state) fn clients_of(&self, source: &Source) -> usize {
        self.keys.get(source).map_or(0, |&key| self.usage(key).clients)
    }

    pub(super) fn may_scan(&mut self, key: Option<SourceKey>, now: u64) -> bool {
        let scans = key.map(|key| &mut self.usages[key.0 as usize].scans);
        self.eviction_limit.admit(scans, now)
    }

    pub(super) fn key_of(&self, source: &Source) -> Option<SourceKey> {
        self.keys.get(source).copied()
    }

    pub(super) fn largest_user(&self, resource: Resource) -> Option<SourceKey> {
        self.keys.values().copied().max_by_key(|&key| self.usage(key).of(resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::network::Network;

    #[test]
    fn share_is_four_times_free_rest() {
        assert!(
            within_share(3, 1, 4, 5)
                && !within_share(4, 1, 4, 5)
                && !within_share(0, 1, 5, 5)
                && within_share(0, 1, 0, 1)
        );
    }

    #[test]
    fn reservation_keeps_source_entry() {
        let mut table = SourceTable::new(Seed(1));
        let (one, two) = (
            Source::Network(Network::V4([192, 0, 2, 1])),
            Source::Network(Network::V4([192, 0, 2, 2])),
        );
        let key = table.add_client(&one);
        assert_eq!((table.add_client(&one), table.clients_of(&one)), (key, 2));
        table.remove_client(key);
        table.reserve(key, 10);
        table.remove_client(key);
        assert_ne!(table.add_client(&two), key);
        table.unreserve(key, 10);
        assert_eq!((table.clients_of(&one), table.keys.len()), (0, 1));
        assert_eq!(table.add_client(&one), key);
    }
}
