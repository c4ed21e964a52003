//! All contexts of a server, and those that are being made: bounded in number, gone at the ticket's
//! end. In a full table who has more than his share makes room, else what was used longest ago;
//! only what a call has proven is use ([`check_many`](crate::check_many)). Belongs to no
//! connection: a client that comes back over another one goes on with what it has. Time and
//! randomness are handed in.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::{ContextHandle, EstablishedContext, HANDLE_LEN, ServerContext};

/// Bounds of [`Contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimits {
    /// Contexts in all: each costs eight kilobytes. A cluster of ten thousand nodes has a few on
    /// each.
    pub contexts_max: usize,
    /// Contexts of one principal beyond which, in a full table, it makes room for its own and for
    /// those of others.
    pub principal_share: usize,
    /// Contexts that are being made: each is held for nobody that has proven anything.
    pub partial_max: usize,
    /// How long one may be in the making, milliseconds.
    pub partial_ms_max: u64,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self { contexts_max: 32_768, principal_share: 4096, partial_max: 1024, partial_ms_max: 30_000 }
    }
}

/// The table. `P` is what the mechanism keeps between two exchanges.
pub struct Contexts<P> {
    limits: ContextLimits,
    /// Each with the time of use that its place in `order` is for.
    whole: HashMap<ContextHandle, (Arc<ServerContext>, u64)>,
    /// Each whole context once, by a time at or before its last use; one that has been used since
    /// gets a new place when it comes to the front.
    order: BTreeSet<(u64, ContextHandle)>,
    /// The same places, of each principal.
    of: HashMap<Arc<str>, BTreeSet<(u64, ContextHandle)>>,
    /// Principals that have more than their share, by how many.
    above: BTreeSet<(usize, Arc<str>)>,
    /// Those that left and are not dropped yet.
    gone: Gone<P>,
    partial: HashMap<ContextHandle, P>,
    /// Each context in the making, oldest first; those that were completed or given up are passed
    /// over.
    partial_order: VecDeque<(ContextHandle, u64)>,
    evicted: u64,
}

/// What has left the table. Dropping it takes time: keys are wiped, and the mechanism frees what it
/// kept.
#[must_use = "what is dropped here is wiped here"]
pub struct Gone<P> {
    /// Whole contexts.
    pub whole: Vec<Arc<ServerContext>>,
    /// What was kept of some in the making.
    pub partial: Vec<P>,
}

impl<P> Default for Gone<P> {
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
            gone: Gone::default(),
            partial: HashMap::new(),
            partial_order: VecDeque::new(),
            evicted: 0,
        }
    }

    /// The context of this name, if calls may use it. Who asks has proven nothing: it is as old as
    /// before.
    pub fn find(&mut self, handle: &[u8], now_ms: u64) -> Option<Arc<ServerContext>> {
        let handle = ContextHandle(<[u8; HANDLE_LEN]>::try_from(handle).ok()?);
        let (context, _) = self.whole.get(&handle)?;
        if !context.has_ended(now_ms) {
            return Some(context.clone());
        }
        self.remove(handle);
        None
    }

    /// Takes in a context that is complete, under a name that nobody has. In a full table another
    /// makes room: one of the same principal if it has its share, so that one who makes context
    /// after context takes away his own; else one of the principal that has most, if that is more
    /// than its share; else any. Of these the one that was used longest ago, or of the first 64
    /// if all of them have been used since they got their places. O(log n).
    pub fn insert(&mut self, handle: ContextHandle, established: EstablishedContext, now_ms: u64) -> Arc<ServerContext> {
        while self.whole.len() >= self.limits.contexts_max.max(1)
            && let Some(unused) = self.longest_unused(&established.principal, now_ms)
        {
            self.remove(unused);
            self.evicted += 1;
        }
        self.remove(handle);
        let context = Arc::new(ServerContext::new(handle, established, now_ms));
        self.place(context.clone(), now_ms);
        context
    }

    /// The one that makes room for another of this principal.
    fn longest_unused(&mut self, principal: &str, now_ms: u64) -> Option<ContextHandle> {
        let mut least: Option<(u64, ContextHandle)> = None;
        for _ in 0..LOOKS_MAX {
            let (placed_ms, handle) = *self.making_room(principal).first()?;
            let (context, _) = &self.whole[&handle];
            let used_ms = context.used_ms();
            if used_ms <= placed_ms || context.has_ended(now_ms) {
                return Some(handle);
            }
            self.replace(handle, used_ms);
            least = least.into_iter().chain([(used_ms, handle)]).min();
        }
        least.map(|(_, handle)| handle)
    }

    /// The places among which room is made for another context of this principal.
    fn making_room(&self, principal: &str) -> &BTreeSet<(u64, ContextHandle)> {
        let own = self.of.get(principal).filter(|own| own.len() >= self.share());
        let most = || self.above.last().map(|(_, principal)| &self.of[principal]);
        own.or_else(most).unwrap_or(&self.order)
    }

    fn share(&self) -> usize {
        self.limits.principal_share.max(1)
    }

    fn place(&mut self, context: Arc<ServerContext>, placed_ms: u64) {
        let (handle, principal) = (context.handle(), context.principal().clone());
        self.order.insert((placed_ms, handle));
        let own = self.of.entry(principal.clone()).or_default();
        own.insert((placed_ms, handle));
        let count = own.len();
        self.count(principal, count - 1, count);
        self.whole.insert(handle, (context, placed_ms));
    }

    fn unplace(&mut self, principal: &Arc<str>, placed_ms: u64, handle: ContextHandle) {
        self.order.remove(&(placed_ms, handle));
        let Some(own) = self.of.get_mut(principal) else { return };
        own.remove(&(placed_ms, handle));
        let count = own.len();
        if own.is_empty() {
            self.of.remove(principal);
        }
        self.count(principal.clone(), count + 1, count);
    }

    /// One that stays gets a later place.
    fn replace(&mut self, handle: ContextHandle, to_ms: u64) {
        let Some((context, placed_ms)) = self.whole.get_mut(&handle) else { return };
        let from_ms = std::mem::replace(placed_ms, to_ms);
        for places in [Some(&mut self.order), self.of.get_mut(context.principal())].into_iter().flatten() {
            places.remove(&(from_ms, handle));
            places.insert((to_ms, handle));
        }
    }

    /// How many a principal has is another number now.
    fn count(&mut self, principal: Arc<str>, from: usize, to: usize) {
        let share = self.share();
        if from > share {
            self.above.remove(&(from, principal.clone()));
        }
        if to > share {
            self.above.insert((to, principal));
        }
    }

    /// A context ends: no call may use it any more, on whatever connection.
    pub fn remove(&mut self, handle: ContextHandle) {
        if let Some((context, placed_ms)) = self.whole.remove(&handle) {
            context.end();
            self.unplace(context.principal(), placed_ms, handle);
            self.gone.whole.push(context);
        }
    }

    /// Drops what has ended by itself. O(n).
    pub fn expire(&mut self, now_ms: u64) {
        let ended = self.whole.iter().filter(|(_, (context, _))| now_ms >= context.ends_ms()).map(|(handle, _)| *handle);
        ended.collect::<Vec<_>>().into_iter().for_each(|handle| self.remove(handle));
        self.expire_partial(now_ms);
    }

    /// What has left since: to be dropped where no lock is held.
    pub fn take_gone(&mut self) -> Gone<P> {
        std::mem::take(&mut self.gone)
    }

    /// Keeps what the mechanism needs for the next exchange of a context that is being made.
    pub fn keep_partial(&mut self, handle: ContextHandle, partial: P, now_ms: u64) {
        self.expire_partial(now_ms);
        while self.partial.len() >= self.limits.partial_max.max(1) {
            let Some((oldest, _)) = self.partial_order.pop_front() else { break };
            self.gone.partial.extend(self.partial.remove(&oldest));
        }
        self.gone.partial.extend(self.partial.insert(handle, partial));
        self.partial_order.push_back((handle, now_ms));
    }

    /// What was kept for the next exchange: it is given once.
    pub fn take_partial(&mut self, handle: &[u8], now_ms: u64) -> Option<(ContextHandle, P)> {
        self.expire_partial(now_ms);
        let handle = ContextHandle(<[u8; HANDLE_LEN]>::try_from(handle).ok()?);
        Some((handle, self.partial.remove(&handle)?))
    }

    fn expire_partial(&mut self, now_ms: u64) {
        while let Some((handle, placed_ms)) = self.partial_order.front() {
            if self.partial.contains_key(handle) && now_ms.saturating_sub(*placed_ms) < self.limits.partial_ms_max {
                return;
            }
            self.gone.partial.extend(self.partial.remove(handle));
            self.partial_order.pop_front();
        }
    }

    /// Whole contexts.
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Contexts that had to make room for others, ever.
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// Places that are looked at to find one that makes room: each that was used since costs a step
/// where the table is locked.
const LOOKS_MAX: usize = 64;
