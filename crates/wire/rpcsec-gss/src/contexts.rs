//! A full table evicts from principals above their share, then the least recently used; only
//! verified calls count as use ([`check_many`](crate::check_many)).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::{ContextHandle, EstablishedContext, HANDLE_LEN, ServerContext};

/// Limits of [`Contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimits {
    /// Eight kilobytes each. A cluster of ten thousand nodes has a few on each.
    pub contexts_max: usize,
    /// A full table evicts from principals with more contexts.
    pub principal_share: usize,
    /// Contexts being created, for unproven clients.
    pub partial_max: usize,
    /// Time limit of a creation.
    pub partial_ms_max: u64,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self {
            contexts_max: 32_768,
            principal_share: 4096,
            partial_max: 1024,
            partial_ms_max: 30_000,
        }
    }
}

/// `P`: the mechanism's state between two exchanges.
pub struct Contexts<P> {
    limits: ContextLimits,
    /// Each with its time in `order`.
    whole: HashMap<ContextHandle, (Arc<ServerContext>, u64)>,
    /// By a time not after their last use; moved lazily when they reach the front.
    order: BTreeSet<(u64, ContextHandle)>,
    of: HashMap<Arc<str>, BTreeSet<(u64, ContextHandle)>>,
    above: BTreeSet<(usize, Arc<str>)>,
    removed: RemovedContext<P>,
    partial: HashMap<ContextHandle, P>,
    /// Oldest first; may contain finished contexts.
    partial_order: VecDeque<(ContextHandle, u64)>,
    evicted: u64,
}

/// Drop it outside the lock: keys are wiped, and the mechanism frees its state.
#[must_use = "what is dropped here is wiped here"]
pub struct RemovedContext<P> {
    /// Complete contexts.
    pub whole: Vec<Arc<ServerContext>>,
    /// State of contexts that were being created.
    pub partial: Vec<P>,
}

impl<P> Default for RemovedContext<P> {
    fn default() -> Self {
        Self { whole: Vec::new(), partial: Vec::new() }
    }
}

impl<P> Contexts<P> {
    /// An empty table.
    pub fn new(limits: ContextLimits) -> Self {
        Self {
            limits,
            whole: HashMap::new(),
            order: BTreeSet::new(),
            of: HashMap::new(),
            above: BTreeSet::new(),
            removed: RemovedContext::default(),
            partial: HashMap::new(),
            partial_order: VecDeque::new(),
            evicted: 0,
        }
    }

    /// The caller is unverified, so this does not count as use.
    pub fn find(&mut self, handle: &[u8], now_ms: u64) -> Option<Arc<ServerContext>> {
        let handle = ContextHandle(<[u8; HANDLE_LEN]>::try_from(handle).ok()?);
        let (context, _) = self.whole.get(&handle)?;
        if !context.has_ended(now_ms) {
            return Some(context.clone());
        }
        self.remove(handle);
        None
    }

    /// A full table first evicts: from the same principal if it has its share, else from the
    /// largest above its share, else from all. Evicts the least recently used of at most 64
    /// candidates. O(log n).
    pub fn insert(
        &mut self,
        handle: ContextHandle,
        established: EstablishedContext,
        now_ms: u64,
    ) -> Arc<ServerContext> {
        while self.whole.len() >= self.limits.contexts_max.max(1)
            && let Some(unused) = self.least_recently_used(&established.principal, now_ms)
        {
            self.remove(unused);
            self.evicted += 1;
        }
        self.remove(handle);
        let context = Arc::new(ServerContext::new(handle, established, now_ms));
        self.insert_in_order(context.clone(), now_ms);
        context
    }

    fn least_recently_used(&mut self, principal: &str, now_ms: u64) -> Option<ContextHandle> {
        let mut least: Option<(u64, ContextHandle)> = None;
        for _ in 0..EVICTION_CANDIDATES_MAX {
            let (placed_ms, handle) = *self.eviction_order(principal).first()?;
            let (context, _) = &self.whole[&handle];
            let used_ms = context.used_ms();
            if used_ms <= placed_ms || context.has_ended(now_ms) {
                return Some(handle);
            }
            self.move_in_order(handle, used_ms);
            least = least.into_iter().chain([(used_ms, handle)]).min();
        }
        least.map(|(_, handle)| handle)
    }

    fn eviction_order(&self, principal: &str) -> &BTreeSet<(u64, ContextHandle)> {
        let own = self.of.get(principal).filter(|own| own.len() >= self.share());
        let most = || self.above.last().map(|(_, principal)| &self.of[principal]);
        own.or_else(most).unwrap_or(&self.order)
    }

    fn share(&self) -> usize {
        self.limits.principal_share.max(1)
    }

    fn insert_in_order(&mut self, context: Arc<ServerContext>, placed_ms: u64) {
        let (handle, principal) = (context.handle(), context.principal().clone());
        self.order.insert((placed_ms, handle));
        let own = self.of.entry(principal.clone()).or_default();
        own.insert((placed_ms, handle));
        let count = own.len();
        self.count(principal, count - 1, count);
        self.whole.insert(handle, (context, placed_ms));
    }

    fn remove_from_order(&mut self, principal: &Arc<str>, placed_ms: u64, handle: ContextHandle) {
        self.order.remove(&(placed_ms, handle));
        let Some(own) = self.of.get_mut(principal) else { return };
        own.remove(&(placed_ms, handle));
        let count = own.len();
        if own.is_empty() {
            self.of.remove(principal);
        }
        self.count(principal.clone(), count + 1, count);
    }

    fn move_in_order(&mut self, handle: ContextHandle, to_ms: u64) {
        let Some((context, placed_ms)) = self.whole.get_mut(&handle) else { return };
        let from_ms = std::mem::replace(placed_ms, to_ms);
        for places in
            [Some(&mut self.order), self.of.get_mut(context.principal())].into_iter().flatten()
        {
            places.remove(&(from_ms, handle));
            places.insert((to_ms, handle));
        }
    }

    fn count(&mut self, principal: Arc<str>, from: usize, to: usize) {
        let share = self.share();
        if from > share {
            self.above.remove(&(from, principal.clone()));
        }
        if to > share {
            self.above.insert((to, principal));
        }
    }

    /// Removes a context from use on every connection.
    pub fn remove(&mut self, handle: ContextHandle) {
        if let Some((context, placed_ms)) = self.whole.remove(&handle) {
            context.end();
            self.remove_from_order(context.principal(), placed_ms, handle);
            self.removed.whole.push(context);
        }
    }

    /// O(n).
    pub fn expire(&mut self, now_ms: u64) {
        let ended = self
            .whole
            .iter()
            .filter(|(_, (context, _))| now_ms >= context.ends_ms())
            .map(|(handle, _)| *handle);
        ended.collect::<Vec<_>>().into_iter().for_each(|handle| self.remove(handle));
        self.expire_partial(now_ms);
    }

    /// Removed contexts, to drop without holding a lock.
    pub fn take_removed(&mut self) -> RemovedContext<P> {
        std::mem::take(&mut self.removed)
    }

    pub(crate) fn store_partial(&mut self, handle: ContextHandle, partial: P, now_ms: u64) {
        self.expire_partial(now_ms);
        while self.partial.len() >= self.limits.partial_max.max(1) {
            let Some((oldest, _)) = self.partial_order.pop_front() else { break };
            self.removed.partial.extend(self.partial.remove(&oldest));
        }
        self.removed.partial.extend(self.partial.insert(handle, partial));
        self.partial_order.push_back((handle, now_ms));
    }

    pub(crate) fn take_partial(
        &mut self,
        handle: &[u8],
        now_ms: u64,
    ) -> Option<(ContextHandle, P)> {
        self.expire_partial(now_ms);
        let handle = ContextHandle(<[u8; HANDLE_LEN]>::try_from(handle).ok()?);
        Some((handle, self.partial.remove(&handle)?))
    }

    fn expire_partial(&mut self, now_ms: u64) {
        while let Some((handle, placed_ms)) = self.partial_order.front() {
            if self.partial.contains_key(handle)
                && now_ms.saturating_sub(*placed_ms) < self.limits.partial_ms_max
            {
                return;
            }
            self.removed.partial.extend(self.partial.remove(handle));
            self.partial_order.pop_front();
        }
    }

    /// Complete contexts.
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Whether no context is complete.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Contexts that were removed to make room.
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// Bounds the time under the lock.
const EVICTION_CANDIDATES_MAX: usize = 64;
