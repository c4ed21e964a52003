//! Reduces a history of one object to the calls that contradict each other. Each step is sound: a
//! right server can give none of the reduced histories. An observer may be removed. Another call
//! may be removed only if the contradiction stays when the call can have happened at any time or
//! never, so its effect does not matter.

use crate::checker::{LINEARIZABLE, Search, Violation, linearize};
use crate::history::{Operation, Outcome};

/// Configurations of one trial. A trial beyond it counts as no violation.
const TRIAL_MAX: usize = 20_000;

pub fn shrink(violation: Violation) -> Violation {
    if violation.rule != LINEARIZABLE {
        return violation;
    }
    let mut operations = shortest_prefix(violation.operations.clone());
    remove_observers(&mut operations);
    weaken_irrelevant(&mut operations);
    remove_observers(&mut operations);
    match linearize(&operations, TRIAL_MAX) {
        Search::Impossible { marked, state } => Violation {
            explanation: format!("possible until then: {state}"),
            operations: operations.into_iter().filter(|op| !is_weak(op)).collect(),
            marked,
            ..violation
        },
        _ => violation,
    }
}

fn is_weak(op: &Operation) -> bool {
    op.end.is_none() && op.start == 0
}

fn is_violation(operations: &[Operation]) -> bool {
    matches!(linearize(operations, TRIAL_MAX), Search::Impossible { .. })
}

/// The history as it was after its first `count` replies.
fn prefix(operations: &[Operation], ends: &[u64], count: usize) -> Vec<Operation> {
    let last = ends[count - 1];
    let mut cut: Vec<Operation> =
        operations.iter().filter(|op| op.start <= last).cloned().collect();
    for op in cut.iter_mut().filter(|op| op.end.is_some_and(|end| end > last)) {
        (op.end, op.outcome) = (None, Outcome::Unknown);
    }
    cut
}

fn shortest_prefix(operations: Vec<Operation>) -> Vec<Operation> {
    let mut ends: Vec<u64> = operations.iter().filter_map(|op| op.end).collect();
    ends.sort_unstable();
    let (mut right, mut violated) = (0, ends.len());
    while right + 1 < violated {
        let middle = right.midpoint(violated);
        match is_violation(&prefix(&operations, &ends, middle)) {
            true => violated = middle,
            false => right = middle,
        }
    }
    let cut = prefix(&operations, &ends, violated);
    if is_violation(&cut) { cut } else { operations }
}

/// In halves, then in smaller parts.
fn remove_observers(operations: &mut Vec<Operation>) {
    let mut observers: Vec<u32> =
        operations.iter().filter(|op| op.call.is_observer()).map(|op| op.id).collect();
    let mut step = observers.len().div_ceil(2);
    while step > 0 {
        let mut at = 0;
        while at < observers.len() {
            let part = &observers[at..(at + step).min(observers.len())];
            let fewer: Vec<Operation> =
                operations.iter().filter(|op| !part.contains(&op.id)).cloned().collect();
            match is_violation(&fewer) {
                true => {
                    *operations = fewer;
                    observers.drain(at..(at + step).min(observers.len()));
                }
                false => at += step,
            }
        }
        step = if step == 1 { 0 } else { step.div_ceil(2) };
    }
}

/// One by one: each call that may happen at any time doubles the search.
fn weaken_irrelevant(operations: &mut Vec<Operation>) {
    for at in (0..operations.len()).rev() {
        let mut weaker = operations.clone();
        let op = &mut weaker[at];
        (op.start, op.end, op.outcome) = (0, None, Outcome::Unknown);
        if is_violation(&weaker) {
            // It stays, as a call that may happen: the proof must not depend on its absence.
            *operations = weaker;
        }
    }
}
