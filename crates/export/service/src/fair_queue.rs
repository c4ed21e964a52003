//! Waiting items of several owners by start-time fair queueing (Goyal, Vin and Cheng, 1996): next is
//! the owner that used the least time for its weight. An owner that was idle starts a little before
//! the others, so its next calls go before those of busy owners. It cannot save more time up. Never
//! reads the clock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) struct FairQueue<K, T> {
    flows: HashMap<K, Flow<T>>,
    /// Owners with items, by the time that they used.
    order: BTreeSet<(u64, K)>,
    /// Virtual time: what the owner of the latest turn had used.
    now_ns: u64,
    len: usize,
}

struct Flow<T> {
    items: VecDeque<T>,
    weight: u32,
    used_ns: u64,
    /// The owner's time in all queues, when it was charged last.
    total_ns: Option<u64>,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        FairQueue { flows: HashMap::new(), order: BTreeSet::new(), now_ns: 0, len: 0 }
    }
}

impl<K: Copy + Ord + Hash, T> FairQueue<K, T> {
    pub(crate) fn push(&mut self, owner: K, weight: u32, item: T) {
        let start_ns = self.now_ns.saturating_sub(SAVED_NS_MAX);
        // Amortised O(1): only before the map would grow.
        if self.flows.len() == self.flows.capacity() {
            self.flows.retain(|_, flow| !flow.items.is_empty() || flow.used_ns > start_ns);
            if self.flows.len() > IDLE_FLOWS_MAX {
                self.flows.retain(|_, flow| !flow.items.is_empty());
            }
        }
        let flow = self.flows.entry(owner).or_insert_with(|| Flow {
            items: VecDeque::new(),
            weight,
            used_ns: 0,
            total_ns: None,
        });
        flow.weight = weight.max(1);
        if flow.items.is_empty() {
            flow.used_ns = flow.used_ns.max(start_ns);
            self.order.insert((flow.used_ns, owner));
        }
        flow.items.push_back(item);
        self.len += 1;
    }

    /// The caller then charges the time of the turn. O(n) in owners that may not run.
    pub(crate) fn next(&mut self, may_run: impl Fn(K) -> bool) -> Option<(K, T)> {
        let &(used_ns, owner) = self.order.iter().find(|(_, owner)| may_run(*owner))?;
        let flow = self.flows.get_mut(&owner).expect("an owner in the order has a flow");
        let item = flow.items.pop_front().expect("an owner in the order has an item");
        if flow.items.is_empty() {
            self.order.remove(&(used_ns, owner));
        }
        self.now_ns = self.now_ns.max(used_ns);
        self.len -= 1;
        Some((owner, item))
    }

    /// One turn can be long: a disk that stalls. Its owner is not locked out afterwards.
    pub(crate) fn charge(&mut self, owner: K, took: Duration) {
        let Some(flow) = self.flows.get_mut(&owner) else { return };
        let used_ns = flow
            .used_ns
            .saturating_add(nanoseconds(took) / u64::from(flow.weight))
            .min(self.now_ns + DEBT_NS_MAX);
        let before_ns = std::mem::replace(&mut flow.used_ns, used_ns);
        if !flow.items.is_empty() {
            self.order.remove(&(before_ns, owner));
            self.order.insert((used_ns, owner));
        }
    }

    /// Also charges what the owner used in other queues meanwhile, so that several of them get it no
    /// larger share. Bounded, so that it goes on here.
    pub(crate) fn charge_with_others(&mut self, owner: K, took: Duration, total_ns: &AtomicU64) {
        let took_ns = nanoseconds(took);
        let total_ns = total_ns.fetch_add(took_ns, Ordering::Relaxed).saturating_add(took_ns);
        let Some(flow) = self.flows.get_mut(&owner) else { return };
        let last_ns = flow.total_ns.replace(total_ns).unwrap_or(total_ns);
        let since = Duration::from_nanos(total_ns.saturating_sub(last_ns));
        self.charge(owner, since.clamp(took, took * OTHERS_MAX));
    }

    pub(crate) fn any(&self, may_run: impl Fn(K) -> bool) -> bool {
        self.order.iter().any(|(_, owner)| may_run(*owner))
    }

    pub(crate) fn len_of(&self, owner: K) -> usize {
        self.flows.get(&owner).map_or(0, |flow| flow.items.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const DEBT_NS_MAX: u64 = 64_000_000;

/// An owner that was idle uses this much before busy ones: a few calls.
const SAVED_NS_MAX: u64 = 30_000;

/// An owner with work in many queues gets at least this part of its share in each.
const OTHERS_MAX: u32 = 16;

/// With more, what idle owners owe is forgotten.
const IDLE_FLOWS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(queue: &mut FairQueue<u8, u32>, took_us: impl Fn(u8) -> u64) -> (u8, u32) {
        let (owner, item) = queue.next(|_| true).unwrap();
        queue.charge(owner, Duration::from_micros(took_us(owner)));
        (owner, item)
    }

    fn busy_with_turns_of(us: u64) -> FairQueue<u8, u32> {
        let mut queue = FairQueue::default();
        (0..64).for_each(|item| queue.push(0, 1, item));
        (64..128).for_each(|item| queue.push(1, 1, item));
        for _ in 0..10 {
            run(&mut queue, |_| us);
        }
        queue
    }

    #[test]
    fn idle_owner_is_served_before_busy_ones() {
        let mut queue = busy_with_turns_of(10);
        for item in 200..205 {
            queue.push(2, 1, item);
            assert_eq!(run(&mut queue, |_| 8), (2, item));
        }
        let next = std::array::from_fn(|_| {
            queue.push(2, 1, 300);
            run(&mut queue, |_| 10).0
        });
        assert_eq!(next, [0, 1, 2], "in turn, when the saved time is used");
    }

    #[test]
    fn time_of_other_queues_before_the_first_item_is_not_charged() {
        let mut queue = busy_with_turns_of(1000);
        let total = AtomicU64::new(1_000_000_000);
        for item in 200..205 {
            queue.push(2, 1, item);
            assert_eq!(queue.next(|_| true), Some((2, item)));
            queue.charge_with_others(2, Duration::from_micros(100), &total);
        }
    }

    #[test]
    fn items_of_one_owner_keep_their_order() {
        let mut queue = FairQueue::default();
        (0..5).for_each(|item| queue.push(0, 1, item));
        let order: Vec<u32> = (0..5).map(|_| run(&mut queue, |_| 10).1).collect();
        assert_eq!((order, queue.is_empty()), (vec![0, 1, 2, 3, 4], true));
    }

    #[test]
    fn idle_owners_are_forgotten() {
        let mut queue = FairQueue::default();
        for number in 0..100_000_u32 {
            queue.push(number, 1, ());
            let (owner, ()) = queue.next(|_| true).unwrap();
            queue.charge(owner, Duration::from_micros(1));
        }
        assert!(queue.flows.len() < 4 * IDLE_FLOWS_MAX, "{}", queue.flows.len());
    }

    #[test]
    fn long_turn_does_not_lock_its_owner_out() {
        let mut queue = FairQueue::default();
        queue.push(0, 1, 0);
        run(&mut queue, |_| 3_600_000_000);
        queue.push(0, 1, 1);
        let mut waited_ms = 0;
        loop {
            queue.push(1, 1, 2);
            if run(&mut queue, |_| 1000).0 == 0 {
                break;
            }
            waited_ms += 1;
        }
        assert!(waited_ms <= DEBT_NS_MAX / 1_000_000 + 1, "{waited_ms} ms");
    }

    #[test]
    fn owner_of_two_queues_gets_one_share() {
        let (mut queues, totals) =
            ([FairQueue::default(), FairQueue::default()], [(); 2].map(|()| AtomicU64::new(0)));
        queues[0].push(0_u8, 1, ());
        (0..2).for_each(|queue| queues[queue].push(1, 1, ()));
        let mut used_us = [0; 2];
        for _ in 0..10_000 {
            for queue in &mut queues {
                let (owner, ()) = queue.next(|_| true).unwrap();
                queue.push(owner, 1, ());
                let total = &totals[usize::from(owner)];
                queue.charge_with_others(owner, Duration::from_micros(100), total);
                used_us[usize::from(owner)] += 100;
            }
        }
        let share = used_us[0] * 100 / (used_us[0] + used_us[1]);
        assert!((45..=50).contains(&share), "{share} %");
    }

    proptest! {
        /// Against the definition: time by weight among busy owners, whatever each turn costs and
        /// however many items each has; a turn for each owner in bounded time; no turn is lost.
        #[test]
        fn busy_owners_share_time_by_weight(
            owners in prop::collection::vec((1_u32..9, 1_u64..500, 1_u32..20), 2..12),
        ) {
            let mut queue = FairQueue::default();
            for (owner, &(weight, _, items)) in owners.iter().enumerate() {
                (0..items).for_each(|item| queue.push(owner as u8, weight, item));
            }
            let weights: u64 = owners.iter().map(|&(weight, ..)| u64::from(weight)).sum();
            let (mut used, end) = (vec![0; owners.len()], 200 * weights * 50);
            while used.iter().sum::<u64>() < end {
                let len = queue.len();
                let (owner, item) = run(&mut queue, |owner| owners[usize::from(owner)].1);
                let (weight, took, _) = owners[usize::from(owner)];
                used[usize::from(owner)] += took;
                queue.push(owner, weight, item);
                prop_assert_eq!(queue.len(), len);
            }
            for (used, &(weight, ..)) in used.iter().zip(&owners) {
                let fair = end * u64::from(weight) / weights;
                prop_assert!(used.abs_diff(fair) <= fair / 50 + 1000, "{used} beside {fair}");
            }
        }

        #[test]
        fn serves_while_any_owner_may_run(pushes in prop::collection::vec((0_u8..8, 1_u32..5), 1..200)) {
            let mut queue = FairQueue::default();
            for (number, &(owner, weight)) in pushes.iter().enumerate() {
                queue.push(owner, weight, number as u32);
            }
            let odd = pushes.iter().filter(|(owner, _)| owner % 2 == 1).count();
            for _ in 0..odd {
                prop_assert!(queue.any(|owner| owner % 2 == 1));
                let (owner, _) = queue.next(|owner| owner % 2 == 1).unwrap();
                prop_assert_eq!(owner % 2, 1);
                queue.charge(owner, Duration::from_micros(7));
            }
            prop_assert!(queue.next(|owner| owner % 2 == 1).is_none());
            for _ in odd..pushes.len() {
                run(&mut queue, |_| 3);
            }
            prop_assert!(queue.is_empty() && queue.next(|_| true).is_none());
        }
    }
}
