//! Rules that need no search: change attributes, write verifiers, directory listings. Each takes
//! time O(n log n).

use std::collections::{BTreeMap, HashMap};

use crate::checker::Violation;
use crate::history::{
    Call, History, Operation, Outcome, RESTART, STABLE_NAMES, stable_name, volatile_name,
};
use crate::model::NAMES;

pub(crate) fn check(history: &History, operations: &[Operation]) -> Option<Violation> {
    let mut objects: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        objects.entry(&operation.object).or_default().push(operation);
    }
    objects
        .values()
        .find_map(|ops| {
            let back = if history.changes_grow { change_goes_back(ops) } else { None };
            back.or_else(|| change_stays(ops)).or_else(|| listing(ops))
        })
        .or_else(|| verifier_survives(history, operations))
}

fn violation(rule: &str, explanation: String, operations: &[&Operation]) -> Option<Violation> {
    let marked = operations.last().map_or(0, |op| op.id);
    let mut operations: Vec<Operation> = operations.iter().map(|op| (*op).clone()).collect();
    operations.sort_by_key(|op| (op.start, op.id));
    let object = operations.first().map(|op| op.object.clone()).unwrap_or_default();
    Some(Violation { object, rule: rule.into(), explanation, operations, marked })
}

/// RFC 7862 §12.2.3, NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR.
fn change_goes_back(ops: &[&Operation]) -> Option<Violation> {
    let seen: Vec<(&Operation, u64)> =
        ops.iter().filter_map(|op| op.change.map(|change| (*op, change))).collect();
    let mut by_start = seen.clone();
    by_start.sort_by_key(|(op, _)| op.start);
    let mut by_end = seen;
    by_end.sort_by_key(|(op, _)| op.end.unwrap_or(u64::MAX));
    let (mut ended, mut newest) = (by_end.into_iter().peekable(), None::<(&Operation, u64)>);
    for (op, change) in by_start {
        while let Some(earlier) =
            ended.next_if(|(earlier, _)| earlier.end.is_some_and(|end| end < op.start))
        {
            newest = newest.filter(|newest| newest.1 >= earlier.1).or(Some(earlier));
        }
        if let Some((earlier, before)) = newest.filter(|newest| newest.1 > change) {
            let text =
                format!("call {} saw {before}, and later call {} {change}", earlier.id, op.id);
            return violation("the change attribute went back", text, &[earlier, op]);
        }
    }
    None
}

/// RFC 8881 §5.8.1.4: the value changes with each change of content or names.
fn change_stays(ops: &[&Operation]) -> Option<Violation> {
    let mut by_value: HashMap<u64, (&Operation, &Operation)> = HashMap::new();
    for op in ops.iter().filter(|op| op.end.is_some()) {
        let Some(change) = op.change else { continue };
        let (first, last) = by_value.entry(change).or_insert((op, op));
        if op.end < first.end {
            *first = op;
        }
        if op.start > last.start {
            *last = op;
        }
    }
    // A loss may undo unstable writes, and the value with them.
    let losses = ops.iter().any(|op| op.call == Call::Loss);
    // Calls that certainly change something: a RENAME between two names of one file does not.
    let mut changes: Vec<&Operation> = ops
        .iter()
        .filter(|op| {
            let is_change = matches!(
                op.call,
                Call::Write { stable: true, .. }
                    | Call::Create { .. }
                    | Call::Mkdir { .. }
                    | Call::Link { .. }
                    | Call::Remove { .. }
            ) || matches!(op.call, Call::Write { .. }) && !losses;
            is_change && matches!(op.outcome, Outcome::Done | Outcome::Value(_))
        })
        .copied()
        .collect();
    changes.sort_by_key(|op| op.start);
    // The earliest end among the changes that start at or after each position.
    let mut earliest: Vec<usize> = (0..changes.len()).collect();
    for at in (0..changes.len().saturating_sub(1)).rev() {
        if changes[earliest[at + 1]].end < changes[at].end {
            earliest[at] = earliest[at + 1];
        }
    }
    let mut pairs: Vec<_> = by_value.into_iter().collect();
    pairs.sort_unstable_by_key(|(_, (first, _))| first.end);
    for (value, (first, last)) in pairs {
        let at = changes.partition_point(|op| Some(op.start) <= first.end);
        let Some(change) = earliest.get(at).map(|&at| changes[at]) else { continue };
        if change.end.is_some_and(|end| end < last.start) {
            let text = format!(
                "calls {} and {} saw {value}; call {} changed the object in between",
                first.id, last.id, change.id
            );
            let rule = "the change attribute stayed the same over a change";
            return violation(rule, text, &[first, change, last]);
        }
    }
    None
}

/// READDIR misses no name that is there all the time, and returns none twice (RFC 8881 §18.23.3).
fn listing(ops: &[&Operation]) -> Option<Violation> {
    let rule = "a directory listing is wrong";
    for op in ops {
        let Outcome::Names(names) = &op.outcome else { continue };
        let mut counts: HashMap<&str, usize> = HashMap::new();
        names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
        for name in (0..STABLE_NAMES).map(stable_name) {
            match counts.remove(name.as_str()) {
                Some(1) => {}
                None => {
                    let text = format!("{name} was there all the time, and is missing");
                    return violation(rule, text, &[op]);
                }
                Some(times) => {
                    let text = format!("{name} appears {times} times");
                    return violation(rule, text, &[op]);
                }
            }
        }
        for name in (0..NAMES as u8).map(volatile_name) {
            let times = counts.remove(name.as_str()).unwrap_or(0);
            let changed = |other: &&Operation| {
                other.call.changes_names()
                    && other.end.is_none_or(|end| end >= op.start)
                    && op.end.is_none_or(|end| other.start <= end)
            };
            if times > 1 && !ops.iter().any(changed) {
                let text = format!("{name} appears {times} times, and no name was changed");
                return violation(rule, text, &[op]);
            }
        }
        if let Some(name) = counts.keys().next() {
            return violation(rule, format!("{name} was never created"), &[op]);
        }
    }
    None
}

/// RFC 8881 §18.32.3: a client finds lost data only by another write verifier.
fn verifier_survives(history: &History, operations: &[Operation]) -> Option<Violation> {
    for restart in history.faults.iter().filter(|fault| fault.kind == RESTART) {
        let mut before: HashMap<u64, &Operation> = HashMap::new();
        for op in operations.iter().filter(|op| op.end.is_some_and(|end| end <= restart.start)) {
            if let Some(verifier) = op.verifier {
                before.insert(verifier, op);
            }
        }
        for op in operations.iter().filter(|op| op.start >= restart.end) {
            if let Some((verifier, earlier)) =
                op.verifier.and_then(|v| before.get(&v).map(|o| (v, o)))
            {
                let text = format!(
                    "calls {} and {} have verifier {verifier:016x}, and the server restarted in \
                     between",
                    earlier.id, op.id
                );
                let rule = "the write verifier survived a restart";
                return violation(rule, text, &[earlier, op]);
            }
        }
    }
    None
}
