//! Linearizability of each object, by the algorithm of Wing and Gong with Lowe's cache of visited
//! configurations ("Testing for linearizability", 2017), and the rules that need no search.
//! Time and memory are bounded by [`CONFIGURATIONS_MAX`]: a history that needs more is undecided.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::history::{Call, History, Operation, Outcome};
use crate::model::State;
use crate::rng::Rng;
use crate::rules;

/// Visited configurations of one object: 16 bytes each.
pub const CONFIGURATIONS_MAX: usize = 2_000_000;

#[derive(Debug, Clone)]
pub struct Violation {
    pub object: String,
    pub rule: String,
    pub explanation: String,
    /// Calls of the contradiction, smallest first known set.
    pub operations: Vec<Operation>,
    /// The call that no right server could have answered so.
    pub marked: u32,
}

#[derive(Debug, Clone)]
pub enum Verdict {
    Right,
    Violated(Box<Violation>),
    /// The search was ended at its limit.
    Undecided(String),
}

/// Checks all objects, and returns the first violation.
pub fn check(history: &History) -> Verdict {
    let operations = history.expanded();
    if let Some(violation) = rules::check(history, &operations) {
        return Verdict::Violated(Box::new(violation));
    }
    let mut objects: BTreeMap<&str, Vec<Operation>> = BTreeMap::new();
    for operation in &operations {
        objects.entry(&operation.object).or_default().push(operation.clone());
    }
    let mut undecided = None;
    for (object, operations) in objects {
        match linearize(&operations, CONFIGURATIONS_MAX) {
            Search::Found => {}
            Search::Limit => undecided = Some(object.to_owned()),
            Search::Impossible { marked, state } => {
                return Verdict::Violated(Box::new(Violation {
                    object: object.to_owned(),
                    rule: LINEARIZABLE.into(),
                    explanation: format!("at the latest possible order: {state}"),
                    operations,
                    marked,
                }));
            }
        }
    }
    undecided.map_or(Verdict::Right, Verdict::Undecided)
}

pub(crate) const LINEARIZABLE: &str = "no order of the calls explains all replies";

#[derive(Debug)]
pub(crate) enum Search {
    Found,
    Impossible { marked: u32, state: String },
    Limit,
}

/// Searches an order of `operations` of one object that respects real time and the model.
pub(crate) fn linearize(operations: &[Operation], limit: usize) -> Search {
    match operations.iter().find_map(|op| State::of(&op.call)) {
        Some(state) => linearize_from(state, operations, limit),
        None => Search::Found,
    }
}

pub(crate) fn linearize_from(mut state: State, operations: &[Operation], limit: usize) -> Search {
    let mut ops: Vec<&Operation> = operations
        .iter()
        .filter(|op| !matches!(op.call, Call::Change | Call::List))
        // Without a reply, an observer observes nothing.
        .filter(|op| op.outcome != Outcome::Unknown || !op.is_observer())
        .collect();
    ops.sort_by_key(|op| (op.start, op.id));
    let required = ops.iter().filter(|op| op.end.is_some()).count();
    let ends: Vec<u64> = ops.iter().map(|op| op.end.unwrap_or(u64::MAX)).collect();
    let mut rng = Rng(7);
    let keys: Vec<u128> =
        ops.iter().map(|_| u128::from(rng.next()) << 64 | u128::from(rng.next())).collect();

    // A linked list of the calls that are not placed yet, in order of their start.
    let n = ops.len();
    let mut next: Vec<usize> = (1..=n + 1).collect();
    let mut prev: Vec<usize> = (0..=n + 1).map(|at: usize| at.saturating_sub(1)).collect();
    let mut visited: HashSet<u128> = HashSet::new();
    let (mut stack, mut placed, mut done) = (Vec::<(usize, State)>::new(), 0_u128, 0);
    let (mut best, mut best_state, mut marked) = (0, state.clone(), None);
    let mut at = next[0];
    let mut first_end = u64::MAX;
    while done < required {
        // A call that starts after the end of an unplaced call comes after it.
        let is_candidate = at <= n && ops[at - 1].start <= first_end;
        if is_candidate {
            let op = ops[at - 1];
            first_end = first_end.min(ends[at - 1]);
            if let Some(after) = state.step(op.id, &op.call, &op.outcome) {
                let mut hasher = DefaultHasher::new();
                after.hash(&mut hasher);
                let configuration = placed ^ keys[at - 1];
                if visited.insert(configuration ^ u128::from(hasher.finish()) << 32) {
                    if visited.len() > limit {
                        return Search::Limit;
                    }
                    placed = configuration;
                    done += usize::from(op.end.is_some());
                    stack.push((at, std::mem::replace(&mut state, after)));
                    let (before, behind) = (prev[at], next[at]);
                    (next[before], prev[behind]) = (behind, before);
                    (at, first_end) = (next[0], u64::MAX);
                    if done > best {
                        (best, best_state, marked) = (done, state.clone(), None);
                    }
                    continue;
                }
            }
            if done == best && op.end.is_some() {
                // Of the calls that cannot follow the longest order, the one that ended first.
                let earlier = marked.is_none_or(|m: usize| ends[at - 1] < ends[m - 1]);
                marked = if earlier { Some(at) } else { marked };
            }
            at = next[at];
            continue;
        }
        let Some((last, before)) = stack.pop() else {
            let at = marked.unwrap_or(1);
            return Search::Impossible { marked: ops[at - 1].id, state: best_state.explain() };
        };
        state = before;
        placed ^= keys[last - 1];
        done -= usize::from(ops[last - 1].end.is_some());
        (next[prev[last]], prev[next[last]]) = (last, last);
        // `first_end` of the calls before the next candidate.
        first_end = u64::MAX;
        let mut earlier = next[0];
        while earlier <= last {
            first_end = first_end.min(ends[earlier - 1]);
            earlier = next[earlier];
        }
        at = next[last];
    }
    Search::Found
}
