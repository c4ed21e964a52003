//! Reduces a history of one object to the calls that contradict each other. Each step is sound: a
//! right server can give none of the reduced histories. An observer may be removed. Another call
//! may be removed only if the contradiction stays when the call can have happened at any time or
//! never, so its effect does not matter. The beginning may be removed if the rest contradicts itself
//! from every state of the object.

use crate::checker::{LINEARIZABLE, Search, Violation, linearize, linearize_from};
use crate::history::{Operation, Outcome};
use crate::model::State;

/// Configurations of one trial. A trial beyond it counts as no violation.
const TRIAL_MAX: usize = 50_000;

pub fn shrink(violation: Violation) -> Violation {
    if violation.rule != LINEARIZABLE {
        return violation;
    }
    let mut trial = Trial { has_beginning: true, operations: violation.operations.clone() };
    trial.shortest_prefix();
    trial.latest_beginning();
    trial.remove_observers();
    trial.weaken_irrelevant();
    trial.remove_observers();
    trial.latest_beginning();
    let from = match trial.has_beginning {
        true => "",
        false => "whatever happened before these calls; ",
    };
    match trial.search() {
        Search::Impossible { marked, state } => Violation {
            explanation: format!("{from}possible until then: {state}"),
            operations: trial.operations.into_iter().filter(|op| !is_weak(op)).collect(),
            marked,
            ..violation
        },
        _ => violation,
    }
}

fn is_weak(op: &Operation) -> bool {
    op.end.is_none() && op.start == 0
}

#[derive(Clone)]
struct Trial {
    /// The object was new when the calls began. If not, it may have had any state.
    has_beginning: bool,
    operations: Vec<Operation>,
}

impl Trial {
    fn search(&self) -> Search {
        match self.operations.iter().find_map(|op| State::of(&op.call)) {
            Some(state) if !self.has_beginning => {
                linearize_from(state.unknown(), &self.operations, TRIAL_MAX)
            }
            _ => linearize(&self.operations, TRIAL_MAX),
        }
    }

    fn is_violation(&self) -> bool {
        matches!(self.search(), Search::Impossible { .. })
    }

    fn replaced(&self, operations: Vec<Operation>) -> Self {
        Self { operations, ..*self }
    }

    /// Takes the other trial if it still is a violation.
    fn improve(&mut self, other: Self) -> bool {
        let is_violation = other.is_violation();
        if is_violation {
            *self = other;
        }
        is_violation
    }

    /// The history as it was after its first `count` replies.
    fn prefix(&self, ends: &[u64], count: usize) -> Self {
        let last = ends[count - 1];
        let mut cut: Vec<Operation> =
            self.operations.iter().filter(|op| op.start <= last).cloned().collect();
        for op in cut.iter_mut().filter(|op| op.end.is_some_and(|end| end > last)) {
            (op.end, op.outcome) = (None, Outcome::Unknown);
        }
        self.replaced(cut)
    }

    fn ends(&self) -> Vec<u64> {
        let mut ends: Vec<u64> = self.operations.iter().filter_map(|op| op.end).collect();
        ends.sort_unstable();
        ends
    }

    fn shortest_prefix(&mut self) {
        let ends = self.ends();
        let (mut right, mut violated) = (0, ends.len());
        while right + 1 < violated {
            let middle = right.midpoint(violated);
            match self.prefix(&ends, middle).is_violation() {
                true => violated = middle,
                false => right = middle,
            }
        }
        self.improve(self.prefix(&ends, violated));
    }

    /// Leaves out the calls that ended by `time`. A call that was running then may have had its effect
    /// before or after.
    fn suffix(&self, time: u64) -> Self {
        let mut rest: Vec<Operation> = self
            .operations
            .iter()
            .filter(|op| {
                op.start > time || !op.is_observer() && op.end.is_none_or(|end| end > time)
            })
            .cloned()
            .collect();
        rest.iter_mut().filter(|op| op.start <= time).for_each(weaken);
        Self { has_beginning: false, operations: rest }
    }

    fn latest_beginning(&mut self) {
        let ends = self.ends();
        let _ = ends.into_iter().rev().any(|end| self.improve(self.suffix(end)));
    }

    /// In halves, then in smaller parts.
    fn remove_observers(&mut self) {
        let mut observers: Vec<u32> =
            self.operations.iter().filter(|op| op.is_observer()).map(|op| op.id).collect();
        let mut step = observers.len().div_ceil(2);
        while step > 0 {
            let mut at = 0;
            while at < observers.len() {
                let part = at..(at + step).min(observers.len());
                let is_kept = |op: &&Operation| !observers[part.clone()].contains(&op.id);
                let fewer = self.operations.iter().filter(is_kept).cloned().collect();
                match self.improve(self.replaced(fewer)) {
                    true => drop(observers.drain(part)),
                    false => at += step,
                }
            }
            step = if step == 1 { 0 } else { step.div_ceil(2) };
        }
    }

    /// One by one: each call that may happen at any time doubles the search.
    fn weaken_irrelevant(&mut self) {
        for at in (0..self.operations.len()).rev() {
            let mut weaker = self.clone();
            weaken(&mut weaker.operations[at]);
            // It stays, as a call that may happen: the proof must not depend on its absence.
            self.improve(weaker);
        }
    }
}

fn weaken(op: &mut Operation) {
    (op.start, op.end, op.outcome) = (0, None, Outcome::Unknown);
}
