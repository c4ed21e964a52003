//! The models and the checker, by short histories.

use std::time::Instant;

use vouch_consistency::history::{
    Call, Fault, History, Operation, Outcome, STABLE_NAMES, stable_name,
};
use vouch_consistency::shrink::shrink;
use vouch_consistency::{Verdict, check};

struct Recorder {
    history: History,
}

impl Recorder {
    fn new() -> Self {
        let history = History {
            seed: 0,
            server: String::new(),
            minor: 2,
            sec: "sys".into(),
            changes_grow: true,
            operations: Vec::new(),
            faults: Vec::new(),
        };
        Self { history }
    }

    fn call(mut self, start: u64, end: u64, call: Call, outcome: Outcome) -> Self {
        let id = self.history.operations.len() as u32;
        self.history.operations.push(Operation {
            id,
            client: 0,
            object: "o".into(),
            start,
            end: (end > 0).then_some(end),
            call,
            outcome,
            change: None,
            verifier: None,
        });
        self
    }

    fn with(mut self, edit: impl FnOnce(&mut Operation)) -> Self {
        edit(self.history.operations.last_mut().expect("a call"));
        self
    }

    fn restart(mut self, start: u64, end: u64) -> Self {
        self.history.faults.push(Fault { kind: "restart".into(), start, end });
        self
    }

    fn is_right(&self) -> bool {
        match check(&self.history) {
            Verdict::Right => true,
            Verdict::Violated(_) => false,
            Verdict::Undecided(object) => panic!("{object} is undecided"),
        }
    }
}

fn write(value: u64, stable: bool) -> Call {
    Call::Write { cell: 0, value, stable }
}

const READ: Call = Call::Read { cell: 0, cached: false };

fn lock(owner: u16, first: u8, len: u8) -> Call {
    Call::Lock { owner, write: true, first, len, reclaim: false, waits: false }
}

#[test]
fn read_returns_latest_or_concurrent_write() {
    let base = || {
        Recorder::new().call(1, 2, write(5, true), Outcome::Done).call(
            3,
            9,
            write(6, true),
            Outcome::Done,
        )
    };
    assert!(base().call(4, 5, READ, Outcome::Value(5)).is_right());
    assert!(base().call(4, 5, READ, Outcome::Value(6)).is_right());
    assert!(!base().call(10, 11, READ, Outcome::Value(5)).is_right());
    let back = base().call(4, 5, READ, Outcome::Value(6)).call(6, 7, READ, Outcome::Value(5));
    assert!(!back.is_right());
}

#[test]
fn unanswered_write_may_happen_late_or_never() {
    let base = || {
        Recorder::new().call(1, 2, write(5, true), Outcome::Done).call(
            3,
            0,
            write(6, false),
            Outcome::Unknown,
        )
    };
    assert!(base().call(10, 11, READ, Outcome::Value(5)).is_right());
    let late = base().call(10, 11, READ, Outcome::Value(5)).call(12, 13, READ, Outcome::Value(6));
    assert!(late.is_right());
    let twice = base().call(10, 11, READ, Outcome::Value(6)).call(12, 13, READ, Outcome::Value(5));
    assert!(!twice.is_right());
}

#[test]
fn only_uncommitted_data_vanishes_in_restart() {
    let base = || {
        Recorder::new().call(1, 2, write(5, true), Outcome::Done).call(
            3,
            4,
            write(6, false),
            Outcome::Done,
        )
    };
    assert!(base().restart(5, 6).call(7, 8, READ, Outcome::Value(5)).is_right());
    let committed = base().call(5, 6, Call::Commit, Outcome::Done).restart(7, 8);
    assert!(!committed.call(9, 10, READ, Outcome::Value(5)).is_right());
    let flips = base().restart(5, 6).call(7, 8, READ, Outcome::Value(5));
    assert!(!flips.call(9, 10, READ, Outcome::Value(6)).is_right());
    // It was in the page cache, and the second time the power failed.
    let kept = base().restart(5, 6).call(7, 8, READ, Outcome::Value(6)).restart(9, 10);
    assert!(kept.call(11, 12, READ, Outcome::Value(5)).is_right());
}

#[test]
fn loss_of_a_write_before_a_stable_one_leaves_a_hole() {
    let base = |stable| {
        Recorder::new()
            .call(1, 2, write(5, stable), Outcome::Done)
            .call(3, 4, Call::Write { cell: 1, value: 6, stable: true }, Outcome::Done)
            .restart(5, 6)
            .call(7, 8, READ, Outcome::Value(0))
    };
    assert!(base(false).is_right());
    assert!(!base(true).is_right());
}

#[test]
fn remove_executes_once() {
    let create = || Recorder::new().call(1, 2, Call::Create { name: 0 }, Outcome::Value(7));
    let remove = Call::Remove { name: 0 };
    assert!(create().call(3, 4, remove.clone(), Outcome::Done).is_right());
    assert!(!create().call(3, 4, remove, Outcome::NotFound).is_right());
}

#[test]
fn rename_over_is_atomic() {
    let base = || {
        Recorder::new()
            .call(1, 2, Call::Create { name: 0 }, Outcome::Value(7))
            .call(3, 4, Call::Create { name: 1 }, Outcome::Value(8))
            .call(5, 9, Call::Rename { from: 0, to: 1 }, Outcome::Done)
    };
    assert!(
        base().call(6, 7, Call::Lookup { name: 1, cached: false }, Outcome::Value(8)).is_right()
    );
    assert!(
        !base().call(6, 7, Call::Lookup { name: 1, cached: false }, Outcome::NotFound).is_right()
    );
}

#[test]
fn locks_exclude_also_through_restart() {
    let base = || Recorder::new().call(1, 2, lock(1, 0, 4), Outcome::Done).restart(3, 4);
    let reclaim =
        Call::Lock { owner: 1, write: true, first: 0, len: 4, reclaim: true, waits: false };
    assert!(base().call(5, 6, reclaim.clone(), Outcome::Done).is_right());
    let stolen = base().call(5, 6, lock(2, 3, 2), Outcome::Done);
    assert!(!stolen.call(7, 8, reclaim, Outcome::Done).is_right());
    assert!(base().call(5, 6, lock(2, 4, 2), Outcome::Done).is_right());
}

#[test]
fn freed_range_may_be_kept_for_a_waiter() {
    let waiting =
        Call::Lock { owner: 2, write: true, first: 0, len: 4, reclaim: false, waits: true };
    let held = || Recorder::new().call(1, 2, lock(1, 0, 4), Outcome::Done);
    let freed = |history: Recorder| {
        history.call(5, 6, Call::Unlock { owner: 1, first: 0, len: 4 }, Outcome::Done)
    };
    let awaited = || freed(held().call(3, 4, waiting.clone(), Outcome::Denied));
    for outcome in [Outcome::Denied, Outcome::Done] {
        assert!(awaited().call(7, 8, lock(3, 0, 1), outcome).is_right());
    }
    assert!(!awaited().call(7, 8, lock(3, 4, 1), Outcome::Denied).is_right());
    assert!(!awaited().call(7, 8, waiting.clone(), Outcome::Denied).is_right());
    assert!(!freed(held()).call(7, 8, lock(3, 0, 1), Outcome::Denied).is_right());
    assert!(!held().call(3, 4, waiting.clone(), Outcome::Done).is_right());
    // The lock of another range does not end the wait.
    let elsewhere =
        held().call(3, 4, waiting, Outcome::Denied).call(4, 5, lock(2, 6, 1), Outcome::Done);
    assert!(freed(elsewhere).call(7, 8, lock(3, 0, 1), Outcome::Denied).is_right());
}

#[test]
fn unanswered_lock_may_be_held_although_another_waits() {
    let read =
        |owner, waits| Call::Lock { owner, write: false, first: 0, len: 4, reclaim: false, waits };
    let awaited = || {
        Recorder::new().call(1, 2, lock(1, 0, 4), Outcome::Done).call(
            3,
            4,
            read(2, true),
            Outcome::Denied,
        )
    };
    let freed = |history: Recorder| {
        history.call(5, 6, Call::Unlock { owner: 1, first: 0, len: 4 }, Outcome::Done)
    };
    // Readers do not exclude each other, so a writer without an answer must have the lock.
    let denied = |history: Recorder| history.call(9, 10, read(3, false), Outcome::Denied);
    assert!(denied(freed(awaited()).call(7, 8, lock(4, 0, 4), Outcome::Unknown)).is_right());
    assert!(!denied(freed(awaited())).is_right());
}

#[test]
fn state_of_expired_client_ends_in_time() {
    let base = |end| {
        Recorder::new().call(1, 2, lock(1, 0, 4), Outcome::Done).call(
            3,
            end,
            Call::Drop { owner: 1 },
            Outcome::Done,
        )
    };
    assert!(base(10).call(5, 6, lock(2, 0, 1), Outcome::Denied).is_right());
    assert!(!base(10).call(11, 12, lock(2, 0, 1), Outcome::Denied).is_right());
}

#[test]
fn change_attribute_neither_stays_nor_goes_back() {
    let seen = |first, second| {
        Recorder::new()
            .call(1, 2, Call::Change, Outcome::Done)
            .with(|op| op.change = Some(first))
            .call(3, 4, write(5, true), Outcome::Done)
            .call(5, 6, Call::Change, Outcome::Done)
            .with(|op| op.change = Some(second))
    };
    assert!(seen(1, 2).is_right());
    assert!(!seen(1, 1).is_right());
    assert!(!seen(2, 1).is_right());
}

#[test]
fn write_verifier_differs_after_restart() {
    let seen = |second| {
        Recorder::new()
            .call(1, 2, write(5, false), Outcome::Done)
            .with(|op| op.verifier = Some(1))
            .restart(3, 4)
            .call(5, 6, Call::Commit, Outcome::Done)
            .with(|op| op.verifier = Some(second))
    };
    assert!(seen(2).is_right());
    assert!(!seen(1).is_right());
}

#[test]
fn listing_has_each_stable_name_once() {
    let listed = |edit: fn(&mut Vec<String>)| {
        let mut names: Vec<String> = (0..STABLE_NAMES).map(stable_name).collect();
        edit(&mut names);
        Recorder::new().call(1, 2, Call::Create { name: 0 }, Outcome::Value(7)).call(
            3,
            4,
            Call::List,
            Outcome::Names(names),
        )
    };
    assert!(listed(|names| names.push("n0".into())).is_right());
    assert!(!listed(|_| {}).is_right());
    assert!(!listed(|names| *names = names[1..].to_vec()).is_right());
    assert!(!listed(|names| names.extend(["n0".into(), "s03".into()])).is_right());
}

#[test]
fn shrinking_removes_reads_that_do_not_matter() {
    let mut recorder = Recorder::new();
    for at in 0..20_u64 {
        let value = at + 1;
        recorder = recorder.call(at * 10 + 1, at * 10 + 5, write(value, true), Outcome::Done);
        recorder = recorder.call(at * 10 + 6, at * 10 + 8, READ, Outcome::Value(value));
    }
    recorder = recorder.call(3001, 3002, READ, Outcome::Value(7));
    let Verdict::Violated(violation) = check(&recorder.history) else { panic!("not found") };
    let small = shrink(*violation);
    // A read of 20, then one of 7: no write runs in between, whatever happened before.
    assert_eq!(small.operations.len(), 2, "{:?}", small.operations);
    assert!(small.operations.iter().any(|op| op.id == small.marked));
}

/// Many clients on one file: the search stays near-linear.
#[test]
fn ten_thousand_concurrent_calls_are_decided() {
    let mut recorder = Recorder::new();
    let mut seed = 1_u64;
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    // Each call takes effect at `at`; its interval reaches over some others.
    let mut value = None;
    for at in 1..=10_000_u64 {
        let (start, end) = (at * 10 - below(40).min(at * 10 - 1), at * 10 + below(40));
        recorder = match (below(100) < 50, value) {
            (false, Some(value)) => recorder.call(start, end, READ, Outcome::Value(value)),
            _ => {
                value = Some(at);
                recorder.call(start, end, write(at, below(100) < 50), Outcome::Done)
            }
        };
    }
    let start = Instant::now();
    assert!(recorder.is_right());
    println!("10,000 calls checked in {:?}", start.elapsed());
}

#[test]
fn restart_undoes_unanswered_creation_that_was_seen() {
    let history = |end| {
        Recorder::new()
            .call(
                0,
                end,
                Call::Create { name: 1 },
                if end > 0 { Outcome::Done } else { Outcome::Unknown },
            )
            .call(12, 14, Call::Mkdir { name: 1 }, Outcome::Exists)
            .restart(20, 30)
            .call(40, 50, Call::Remove { name: 1 }, Outcome::NotFound)
    };
    assert!(history(0).is_right());
    assert!(!history(10).is_right());
}
