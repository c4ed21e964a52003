//! Locked ranges of one file in one mode: a treap by first byte, with secretly seeded priorities,
//! so that clients cannot make it deep. Each node stores how far its subtree reaches: for the owner
//! that reaches farthest, and for the farthest other owner. A search skips subtrees that end too
//! early or contain only the caller's ranges.

use std::hash::BuildHasher;

use crate::state::hash::Seed;
use crate::state::id::{OwnerKey, StateKey};
use crate::state::lock::range::Range;

pub(in crate::state) type Position = (u64, StateKey);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct Locked {
    pub(in crate::state) range: Range,
    pub(in crate::state) lock: StateKey,
    pub(in crate::state) owner: OwnerKey,
}

impl Locked {
    pub(in crate::state) fn position(&self) -> Position {
        (self.range.first, self.lock)
    }
}

#[derive(Clone, Copy)]
pub(in crate::state) struct Search {
    pub(in crate::state) range: Range,
    pub(in crate::state) except: Option<OwnerKey>,
    pub(in crate::state) after: Option<Position>,
}

#[derive(Default)]
pub(in crate::state) struct IntervalTree {
    root: Link,
    len: usize,
}

type Link = Option<Box<Node>>;

struct Node {
    held: Locked,
    priority: u64,
    reach: Reach,
    left: Link,
    right: Link,
}

#[derive(Clone, Copy)]
struct Reach {
    owner: OwnerKey,
    last: u64,
    next: Option<(OwnerKey, u64)>,
}

impl Reach {
    fn of(held: &Locked) -> Self {
        Reach { owner: held.owner, last: held.range.last, next: None }
    }

    fn add(&mut self, owner: OwnerKey, last: u64) {
        if owner == self.owner {
            self.last = self.last.max(last);
        } else if last > self.last {
            self.next = Some((self.owner, self.last));
            (self.owner, self.last) = (owner, last);
        } else if self.next.is_none_or(|(_, next)| last > next) {
            self.next = Some((owner, last));
        }
    }

    fn join(&mut self, other: &Reach) {
        self.add(other.owner, other.last);
        if let Some((owner, last)) = other.next {
            self.add(owner, last);
        }
    }

    fn reaches(&self, byte: u64, except: Option<OwnerKey>) -> bool {
        match except == Some(self.owner) {
            false => self.last >= byte,
            true => self.next.is_some_and(|(_, last)| last >= byte),
        }
    }
}

impl Node {
    fn update_reach(&mut self) {
        step();
        let mut reach = Reach::of(&self.held);
        for child in [&self.left, &self.right].into_iter().flatten() {
            reach.join(&child.reach);
        }
        self.reach = reach;
    }
}

impl IntervalTree {
    #[cfg(test)]
    pub(in crate::state) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::state) fn add(&mut self, held: Locked, seed: Seed) {
        let priority = seed.hash_one(held.position());
        let node =
            Box::new(Node { held, priority, reach: Reach::of(&held), left: None, right: None });
        let (before, behind) = split(self.root.take(), held.position());
        self.root = merge(merge(before, Some(node)), behind);
        self.len += 1;
    }

    /// One lock state, in order. O(k log n) for k of n, or O(n) if less.
    pub(in crate::state) fn remove(&mut self, lock: StateKey, ranges: &[Range]) {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return };
        if ranges.len().saturating_mul(self.len.ilog2() as usize) < self.len {
            for range in ranges {
                let found = take(&mut self.root, (range.first, lock));
                debug_assert!(found, "the range exists");
            }
        } else {
            self.root = without(self.root.take(), lock, first.first, last.first);
        }
        self.len -= ranges.len();
    }

    pub(in crate::state) fn find(&self, search: &Search) -> Option<Locked> {
        find(self.root.as_deref(), search)
    }
}

/// If the left subtree reaches far enough and has no match, it has a range behind the searched
/// bytes, and so do all later nodes. At most one such descent fails, plus one along the start.
fn find(node: Option<&Node>, search: &Search) -> Option<Locked> {
    let node = node?;
    step();
    if !node.reach.reaches(search.range.first, search.except) {
        return None;
    }
    let held = &node.held;
    let comes = search.after.is_none_or(|after| after < held.position());
    if comes && let Some(found) = find(node.left.as_deref(), search) {
        return Some(found);
    }
    if held.range.first > search.range.last {
        return None;
    }
    if comes && held.range.last >= search.range.first && search.except != Some(held.owner) {
        return Some(*held);
    }
    find(node.right.as_deref(), search)
}

fn split(link: Link, at: Position) -> (Link, Link) {
    let Some(mut node) = link else { return (None, None) };
    if node.held.position() < at {
        let (before, behind) = split(node.right.take(), at);
        node.right = before;
        node.update_reach();
        (Some(node), behind)
    } else {
        let (before, behind) = split(node.left.take(), at);
        node.left = behind;
        node.update_reach();
        (before, Some(node))
    }
}

fn merge(before: Link, behind: Link) -> Link {
    match (before, behind) {
        (None, other) | (other, None) => other,
        (Some(mut before), Some(mut behind)) => Some(if before.priority > behind.priority {
            before.right = merge(before.right.take(), Some(behind));
            before.update_reach();
            before
        } else {
            behind.left = merge(Some(before), behind.left.take());
            behind.update_reach();
            behind
        }),
    }
}

fn take(link: &mut Link, at: Position) -> bool {
    let Some(node) = link else { return false };
    let found = match at.cmp(&node.held.position()) {
        std::cmp::Ordering::Less => take(&mut node.left, at),
        std::cmp::Ordering::Greater => take(&mut node.right, at),
        std::cmp::Ordering::Equal => {
            *link = merge(node.left.take(), node.right.take());
            return true;
        }
    };
    node.update_reach();
    found
}

fn without(link: Link, lock: StateKey, first: u64, last: u64) -> Link {
    let mut node = link?;
    let begins = node.held.range.first;
    if begins >= first {
        node.left = without(node.left.take(), lock, first, last);
    }
    if begins <= last {
        node.right = without(node.right.take(), lock, first, last);
    }
    if node.held.lock == lock && (first..=last).contains(&begins) {
        return merge(node.left.take(), node.right.take());
    }
    node.update_reach();
    Some(node)
}

#[cfg(not(test))]
#[inline(always)]
fn step() {}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn step() {
    STEPS.set(STEPS.get() + 1);
}

#[cfg(test)]
pub(in crate::state) fn take_steps() -> usize {
    STEPS.take()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::slab::SlabKey as _;

    fn held(number: u32, owner: u32, first: u64, len: u64) -> Locked {
        let range = Range { first, last: first.saturating_add(len - 1) };
        Locked { range, lock: StateKey::new(number, 0), owner: OwnerKey::new(owner, 0) }
    }

    fn model_of(model: &[Locked], search: &Search) -> Option<Locked> {
        let found = model
            .iter()
            .filter(|held| held.range.overlaps(search.range) && Some(held.owner) != search.except);
        found
            .filter(|held| search.after.is_none_or(|after| after < held.position()))
            .min_by_key(|held| held.position())
            .copied()
    }

    fn check(link: &Link) -> (Vec<Locked>, Vec<(OwnerKey, u64)>) {
        let Some(node) = link.as_deref() else { return Default::default() };
        for child in [&node.left, &node.right].into_iter().flatten() {
            assert!(child.priority <= node.priority);
        }
        let ((mut all, mut reaches), (right, more)) = (check(&node.left), check(&node.right));
        all.push(node.held);
        all.extend(right);
        reaches.push((node.held.owner, node.held.range.last));
        reaches.extend(more);
        let farthest = reaches.iter().map(|reach| reach.1).max().unwrap();
        assert!(node.reach.last == farthest && reaches.contains(&(node.reach.owner, farthest)));
        let next =
            reaches.iter().filter(|reach| reach.0 != node.reach.owner).map(|reach| reach.1).max();
        assert_eq!(node.reach.next.map(|(_, last)| last), next);
        assert!(node.reach.next.is_none_or(|next| reaches.contains(&next)));
        (all, reaches)
    }

    proptest! {
        #[test]
        fn search_agrees_with_linear_scan(
            steps in prop::collection::vec((0u32..6, 0u64..40, 1u64..12, any::<bool>()), 1..80),
            searches in prop::collection::vec((0u64..50, 1u64..12, prop::option::of(0u32..4), prop::option::of((0u64..40, 0u32..6))), 1..10),
            seed in any::<u64>(),
        ) {
            let (mut overlaps, mut model) = (IntervalTree::default(), Vec::<Locked>::new());
            for (number, first, len, remove) in steps {
                let new = held(number, number.min(4), if first == 39 { u64::MAX - 3 } else { first }, len);
                if remove {
                    let gone: Vec<Locked> = model.iter().filter(|held| held.lock == new.lock && held.range.overlaps(new.range)).copied().collect();
                    let mut ranges: Vec<Range> = gone.iter().map(|held| held.range).collect();
                    ranges.sort();
                    overlaps.remove(new.lock, &ranges);
                    model.retain(|held| !gone.contains(held));
                } else if !model.iter().any(|held| held.lock == new.lock && held.range.overlaps(new.range)) {
                    overlaps.add(new, Seed(seed));
                    model.push(new);
                }
                model.sort_by_key(Locked::position);
                prop_assert_eq!(&check(&overlaps.root).0, &model);
                prop_assert_eq!(overlaps.len(), model.len());
                for &(first, len, except, after) in &searches {
                    let search = Search {
                        range: Range { first, last: if first == 49 { u64::MAX } else { first + len } },
                        except: except.map(|owner| OwnerKey::new(owner, 0)),
                        after: after.map(|(first, number)| (first, StateKey::new(number, 0))),
                    };
                    prop_assert_eq!(overlaps.find(&search), model_of(&model, &search));
                }
            }
        }
    }

    fn cost(count: usize, mut act: impl FnMut(usize)) -> (usize, usize) {
        take_steps();
        let all: Vec<usize> = (0..count).map(|at| (act(at), take_steps()).1).collect();
        (*all.iter().max().unwrap(), all.iter().sum::<usize>() / count)
    }

    #[test]
    fn steps_grow_with_logarithm_of_ranges() {
        const COUNT: usize = 1 << 15;
        let log = COUNT.ilog2() as usize;
        let mut overlaps = IntervalTree::default();
        let search =
            |first, last, except| Search { range: Range { first, last }, except, after: None };
        let number = |at: usize| if at.is_multiple_of(2) { 0 } else { at as u32 };
        let all: Vec<Locked> = (0..COUNT)
            .map(|at| {
                held(number(at), number(at), at as u64 * 4, if at % 2 == 0 { 2 } else { 1 << 20 })
            })
            .collect();
        let (most, average) = cost(COUNT, |at| overlaps.add(all[at], Seed(7)));
        assert!(most < 12 * log && average < 4 * log, "{most} {average}");
        let first = Some(OwnerKey::new(0, 0));
        let (most, average) = cost(COUNT, |at| {
            assert!(overlaps.find(&search(at as u64 * 4, at as u64 * 4 + 1, None)).is_some())
        });
        assert!(most < 12 * log && average < 4 * log, "{most} {average}");
        let (most, _) = cost(COUNT, |at| {
            assert!(
                at + 1 == COUNT || overlaps.find(&search(at as u64 * 4, u64::MAX, first)).is_some()
            )
        });
        assert!(most < 12 * log, "{most}");
        let mut own = IntervalTree::default();
        (0..COUNT).for_each(|at| own.add(held(0, 0, at as u64 * 4, 2), Seed(7)));
        own.add(held(1, 1, COUNT as u64 * 4, 2), Seed(7));
        let (most, _) =
            cost(COUNT, |at| assert!(own.find(&search(at as u64 * 4, u64::MAX, first)).is_some()));
        assert!(most < 12 * log, "{most}");
        let (most, average) =
            cost(COUNT / 4, |at| overlaps.remove(all[at * 2 + 1].lock, &[all[at * 2 + 1].range]));
        assert!(most < 12 * log && average < 4 * log, "{most} {average}");
        let firsts: Vec<Range> =
            all.iter().filter(|held| held.lock.index() == 0).map(|held| held.range).collect();
        let (steps, _) = cost(1, |_| overlaps.remove(StateKey::new(0, 0), &firsts));
        assert!(steps < 8 * COUNT && overlaps.len() == COUNT / 4, "{steps}");
        check(&overlaps.root);
    }

    /// script/prove raises the bounds.
    fn bound(small: usize, large: usize) -> usize {
        if std::env::var_os("VOUCH_PROVE").is_some() { large } else { small }
    }

    /// All trees that a few steps make of three owners' ranges, and all searches in each.
    #[test]
    fn exhaustive_searches_agree_with_linear_scan() {
        const END: u64 = 3;
        let place = |at: u64| if at == END { u64::MAX } else { at };
        let ranges: Vec<Range> = (0..=END)
            .flat_map(|first| (first..=END).map(move |last| (first, last)))
            .map(|(first, last)| Range { first: place(first), last: place(last) })
            .collect();
        let all: Vec<Locked> = ranges
            .iter()
            .flat_map(|&range| (0..3).map(move |owner| (range, owner)))
            .map(|(range, owner)| Locked { range, ..held(owner, owner, 0, 1) })
            .collect();
        let searches: Vec<Search> = ranges
            .iter()
            .flat_map(|&range| [None, Some(0), Some(1), Some(2)].map(|except| (range, except)))
            .flat_map(|(range, except)| {
                let after = [None, Some((0, 0)), Some((0, 2)), Some((1, 1)), Some((2, 0))];
                after.map(|after| Search {
                    range,
                    except: except.map(|owner| OwnerKey::new(owner, 0)),
                    after: after.map(|(first, number)| (first, StateKey::new(number, 0))),
                })
            })
            .collect();
        for depth in 1..=bound(2, 3) as u32 {
            for number in 0..all.len().pow(depth) {
                let (mut tree, mut model) = (IntervalTree::default(), Vec::<Locked>::new());
                for at in 0..depth {
                    let new = all[number / all.len().pow(at) % all.len()];
                    let is_of =
                        |held: &Locked| held.lock == new.lock && held.range.overlaps(new.range);
                    let mut gone: Vec<Range> =
                        model.iter().filter(|held| is_of(held)).map(|held| held.range).collect();
                    gone.sort();
                    tree.remove(new.lock, &gone);
                    model.retain(|held| !is_of(held));
                    if gone.is_empty() {
                        // The number makes the priorities: another shape for each.
                        tree.add(new, Seed(number as u64));
                        model.push(new);
                    }
                }
                model.sort_by_key(Locked::position);
                assert_eq!(check(&tree.root).0, model);
                for search in &searches {
                    assert_eq!(tree.find(search), model_of(&model, search), "{depth} {number}");
                }
            }
        }
    }
}
