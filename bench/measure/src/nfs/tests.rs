use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::Duration;

use vouch_nfs4::{Filehandle, Status};

use self::server::{ServerState, Shared, start};
use super::metadata::Getattr;
use super::session::SessionOptions;
use super::{NfsOptions, NfsSubject, Pace, Session};
use crate::case::{Content, Copy, Load, Order, Read};
use crate::target::{NfsTarget, Sec};
use crate::{Case, Error, StopFlag, Subject};

mod server;

fn target(address: SocketAddr) -> NfsTarget {
    NfsTarget { host: address.ip().to_string(), port: address.port(), path: Vec::new() }
}

fn subject(address: SocketAddr) -> NfsSubject {
    subject_of(address, 1, &StopFlag::default())
}

fn session(address: SocketAddr, slots: usize) -> Session {
    let options = SessionOptions {
        target: target(address),
        sec: Sec::Sys,
        service: None,
        tls: None,
        connections: 1,
        slots,
        source: None,
    };
    Session::connect(options, &StopFlag::default()).expect("a session")
}

fn connected() -> (NfsSubject, Shared) {
    let (address, state) = start();
    (subject(address), state)
}

fn subject_of(address: SocketAddr, sessions: usize, stop: &StopFlag) -> NfsSubject {
    let options = NfsOptions {
        label: "in memory".into(),
        target: target(address),
        sec: Sec::Sys,
        service: None,
        tls: None,
        sessions,
        connections: 1,
        slots: 8,
        server_cpu: None,
        not_empty: false,
    };
    NfsSubject::connect(options, stop).expect("a session")
}

fn refuse(state: &Shared, with: impl IntoIterator<Item = Status>) {
    lock_state(state).refuse = with.into_iter().collect();
}

#[test]
fn delayed_writes_are_retried_without_hole() {
    let (mut subject, state) = connected();
    for (files, len) in [(1, (2 << 20) + 4096), (3, 100)] {
        let copy = Copy { files, len, content: Content::Random, streams: 2, depth: 4 };
        refuse(&state, [Status::DELAY, Status::DELAY]);
        let sample = subject.measure(&Case::Put(copy)).expect("the write ends");
        assert_eq!((sample.operations, sample.errors, sample.bytes), (files, 2, files * len));
        assert!(sample.seconds >= 0.2, "the pause is on the clock: {}", sample.seconds);
        let sample = subject.measure(&Case::Get(copy)).expect("the record is complete");
        assert_eq!((sample.operations, sample.errors, sample.bytes), (files, 0, files * len));
    }
    subject.clean().expect("removal succeeds");
    assert!(lock_state(&state).files.is_empty());
}

#[test]
fn incomplete_copy_is_removed_and_not_read() {
    let (mut subject, state) = connected();
    for (files, len, content) in
        [(1, 3 << 20, Content::Random), (1, 3 << 20, Content::Zeros), (3, 100, Content::Random)]
    {
        let copy = Copy { files, len, content, streams: 2, depth: 4 };
        refuse(&state, [Status::NOSPC]);
        let refused = subject.measure(&Case::Put(copy)).expect_err("a part is missing");
        assert!(
            matches!(&refused, Error::Nfs { source, .. } if source.status() == Some(Status::NOSPC)),
            "{refused}"
        );
        let message = refused.with_hint();
        let part = if files == 1 { "2097152 of 3145728 bytes" } else { "2 of 3 files" };
        assert!(message.contains(part) && message.contains("no space is left"), "{message}");
        let left = lock_state(&state).files.len();
        assert_eq!(left, 1, "only the probe file is left");
        assert!(matches!(subject.measure(&Case::Get(copy)), Err(Error::NotFound(_))));
        subject.prepare(&Case::Get(copy)).expect("the agent is reserved");
        assert_eq!(
            subject.measure(&Case::Get(copy)).expect("the record is complete").bytes,
            files * len
        );
        subject.tidy().expect("removal succeeds");
    }
}

#[test]
fn silent_server_is_not_counted_as_fast() {
    let (address, state) = start();
    lock_state(&state).answers = Some(10);
    let mut session = session(address, 8);
    session.blocking = Duration::from_secs(1);
    let mut work = Getattr { handle: Filehandle::new(b"").expect("the handle is short") };
    let limit = Duration::from_secs(60);
    let tally = session
        .run(&mut work, 4, Pace::Closed, Some(limit), &StopFlag::default())
        .expect("errors, and no end");
    assert_eq!((tally.unanswered, tally.errors), (4, 4));
    assert!(tally.operations <= 10 && tally.seconds >= limit.as_secs_f64(), "{tally:?}");
    assert_eq!(tally.latency.count(), tally.operations + 4);
    assert!(tally.latency.quantile_us(0.8) > 500_000.0, "{}", tally.latency.quantile_us(0.8));
}

#[test]
fn unreadable_reply_is_a_lost_call_and_the_run_goes_on() {
    let (address, state) = start();
    let mut session = session(address, 8);
    lock_state(&state).garbled = 1;
    let mut work = Getattr { handle: Filehandle::new(b"").expect("the handle is short") };
    let limit = Some(Duration::from_millis(200));
    let tally = session
        .run(&mut work, 4, Pace::Closed, limit, &StopFlag::default())
        .expect("errors, and no end");
    assert_eq!((tally.unanswered, tally.errors), (1, 1));
    assert!(tally.operations > 4, "{tally:?}");
}

fn getattrs_of(address: SocketAddr, pace: Pace, seconds: f64) -> super::Tally {
    let mut session = session(address, 64);
    let mut work = Getattr { handle: Filehandle::new(b"").expect("the handle is short") };
    session
        .run(&mut work, 64, pace, Some(Duration::from_secs_f64(seconds)), &StopFlag::default())
        .expect("a server that answers")
}

#[test]
fn open_loop_waits_for_next_due_call() {
    let (address, _world) = start();
    let tally = getattrs_of(address, Pace::Open(50.0), 2.0);
    assert!((95..=100).contains(&tally.operations), "{} of 100 that are due", tally.operations);
    assert_eq!((tally.unsent, tally.errors, tally.latency.count()), (0, 0, tally.operations));
    assert!(tally.seconds >= 2.0, "the load ended early: {} s", tally.seconds);
    // A call that was never sent would count with half of the time.
    assert!(tally.latency.quantile_us(0.5) < 400_000.0, "{}", tally.latency.quantile_us(0.5));
}

#[test]
fn silence_counts_only_while_calls_are_due() {
    let (address, _world) = start();
    let mut session = session(address, 8);
    session.blocking = Duration::from_millis(300);
    let mut work = Getattr { handle: Filehandle::new(b"").expect("the handle is short") };
    let tally = session
        .run(&mut work, 4, Pace::Open(1.0), Some(Duration::from_secs(3)), &StopFlag::default())
        .expect("a server that answers");
    assert_eq!((tally.operations, tally.unanswered, tally.unsent), (3, 0, 0));
}

#[test]
fn detects_acknowledged_writes_that_were_lost() {
    for read_percent in [0, 50] {
        let (mut subject, state) = connected();
        let load = |rate| Load {
            block: 8192,
            read_percent,
            rate,
            seconds: 0.3,
            file_len: 1 << 18,
            ..Load::READS
        };
        for rate in [None, Some(200.0)] {
            let case = Case::Load(load(rate));
            subject.prepare(&case).expect("a file");
            assert!(subject.measure(&case).expect("written data is read").operations > 0);
            let case = Case::Load(Load { block: 4096, order: Order::Sequential, ..load(rate) });
            assert!(subject.measure(&case).expect("written data is read").operations > 0);
        }
        refuse(&state, [Status::DELAY, Status::DELAY, Status::DELAY]);
        let refused = subject.measure(&Case::Load(load(None))).expect("the server continues");
        assert_eq!(refused.errors, 3);
        lock_state(&state).forgets = true;
        let lost = subject.measure(&Case::Load(load(None)));
        assert!(matches!(lost, Err(Error::Corrupt(_))), "{read_percent}: {lost:?}");
        lock_state(&state).forgets = false;
        subject.clean().expect("removal succeeds");
    }
}

#[test]
fn writes_have_at_most_one_call_per_block() {
    let (address, state) = start();
    let mut subject = subject_of(address, 2, &StopFlag::default());
    let load = |read_percent, rate| {
        Case::Load(Load {
            read_percent,
            depth: 8,
            rate,
            seconds: 0.2,
            file_len: 3 * 4096,
            ..Load::READS
        })
    };
    lock_state(&state).tears = true;
    for (read_percent, depth) in [(50, Some(3)), (0, Some(3)), (100, None)] {
        for rate in [None, Some(500.0)] {
            subject.prepare(&load(read_percent, rate)).expect("a file");
            let sample = subject.measure(&load(read_percent, rate)).expect("a healthy server");
            assert!(sample.operations > 0 && sample.errors == 0, "{sample:?}");
            assert_eq!(sample.depth, depth, "{read_percent}% reads");
        }
    }
    subject.clean().expect("removal succeeds");
}

#[test]
fn metadata_files_are_recreated_after_lost_call() {
    let (mut subject, state) = connected();
    subject.sessions[0].blocking = Duration::from_millis(300);
    lock_state(&state).drop_open = Some(997);
    let case = Case::Metadata { depth: 1, seconds: 0.05 };
    subject.prepare(&case).expect("a lost call is retried");
    let (files, directories) = {
        let state = lock_state(&state);
        assert!(state.drop_open.is_none(), "the entry was dropped");
        (state.files.len(), state.directories.len())
    };
    assert_eq!((files, directories), (1001, 2));
    subject.clean().expect("removal succeeds");
}

#[test]
fn session_reconnects_after_expired_lease() {
    let (mut subject, state) = connected();
    subject.sessions[0].idle = Duration::ZERO;
    let terminate_all = || {
        let mut state = lock_state(&state);
        state.ended = state.sessions;
    };
    let load = Load { seconds: 0.05, file_len: 1 << 15, ..Load::READS };
    let case = Case::Load(load);
    subject.prepare(&case).expect("a file");
    for _ in 0..2 {
        terminate_all();
        let sample = subject.measure(&case).expect("the file is opened again");
        assert!(sample.operations > 0 && sample.errors == 0, "{sample:?}");
    }
    terminate_all();
    subject.clean().expect("removal succeeds");
    let state = lock_state(&state);
    assert!(state.files.is_empty());
    // RFC 8881 §18.35.4: the same owner again, so that the server discards the old opens.
    assert_eq!(state.owners.len(), 1);
}

#[test]
fn lost_call_ends_case_soon_after_its_time() {
    let (mut subject, state) = connected();
    lock_state(&state).drop_getattr = Some(10);
    let case = Case::Getattr { depth: 4, seconds: 0.6 };
    let begun = std::time::Instant::now();
    let sample = subject.measure(&case).expect("the other lanes go on");
    assert_eq!((sample.unanswered, sample.errors), (1, 1));
    assert!(sample.operations > 100, "{}", sample.operations);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let again = subject.measure(&case).expect("the session connects again");
    assert_eq!(again.errors, 0);
    subject.clean().expect("removal succeeds");
}

#[test]
fn read_back_is_repeated_when_a_call_is_lost() {
    let (mut subject, state) = connected();
    let load = Load { read_percent: 0, seconds: 0.2, ..Load::READS };
    subject.prepare(&Case::Load(load)).expect("a file");
    lock_state(&state).drop_read = Some(3);
    let begun = std::time::Instant::now();
    assert!(subject.measure(&Case::Load(load)).expect("the second try reads all").operations > 100);
    assert!(lock_state(&state).drop_read.is_none(), "a call was lost");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    subject.clean().expect("removal succeeds");
}

#[test]
fn metadata_load_leaves_no_open_file() {
    let (mut subject, state) = connected();
    let case = Case::Metadata { depth: 16, seconds: 0.2 };
    subject.prepare(&case).expect("files");
    for _ in 0..3 {
        assert!(subject.measure(&case).expect("a healthy server").operations > 100);
        assert_eq!(lock_state(&state).open, 0);
    }
    subject.clean().expect("removal succeeds");
}

#[test]
fn files_of_a_tree_are_read_whole_and_compared() {
    let (mut subject, state) = connected();
    for order in [Order::Sequential, Order::Random] {
        for (files, len) in [(20, 1024), (1, 100_000)] {
            let case =
                Case::Read(Read { files, len, block: 8192, content: Content::Random, order });
            subject.prepare(&case).expect("a copy");
            let sample = subject.measure(&case).expect("what was written");
            assert_eq!(sample.bytes, files * len);
            assert_eq!(lock_state(&state).open, 0);
            let flip = || {
                let mut state = lock_state(&state);
                state.open = 0;
                let file = state.files.values_mut().find(|file| file.len() as u64 == len);
                file.expect("the copy")[77] ^= 1;
            };
            flip();
            assert!(matches!(subject.measure(&case), Err(Error::Corrupt(_))), "{files} files");
            flip();
        }
    }
    subject.clean().expect("removal succeeds");
}

fn lock_state(state: &Shared) -> std::sync::MutexGuard<'_, ServerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn depth_is_shared_by_all_sessions() {
    let (address, state) = start();
    let mut subject = subject_of(address, 4, &StopFlag::default());
    for (depth, sessions) in [(1, 1), (3, 3), (64, 4)] {
        lock_state(&state).asked_on.clear();
        let sample =
            subject.measure(&Case::Getattr { depth, seconds: 0.2 }).expect("a server that answers");
        assert!(sample.operations > 0);
        assert_eq!(lock_state(&state).asked_on.len(), sessions, "{depth} calls in flight");
    }
    subject.clean().expect("removal succeeds");
}

#[test]
fn stop_request_does_not_wait_for_silent_server() {
    let (address, state) = start();
    let stop = StopFlag::default();
    let mut subject = subject_of(address, 1, &stop);
    lock_state(&state).silent = true;
    stop.set();
    let begun = std::time::Instant::now();
    assert!(subject.place().is_some_and(|place| place.contains("vouch-bench-")));
    assert!(matches!(subject.clean(), Err(Error::Unreachable(_))), "the server is silent");
    let options = SessionOptions {
        target: target(address),
        sec: Sec::Sys,
        service: None,
        tls: None,
        connections: 1,
        slots: 8,
        source: None,
    };
    assert!(
        matches!(Session::connect(options, &stop), Err(Error::Unreachable(_))),
        "a new session gets no answer"
    );
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
}
