//! Sessions and the NFS subject against a server in memory that refuses, delays, drops or loses
//! calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{
    Args, CloseOk, CommitOk, CreateOk, CreateSessionOk, Delegation, ExchangeIdFlags, ExchangeIdOk, GetattrOk, GetfhOk, OpenClaim, OpenHow,
    OpenOk, OpenResultFlags, ReadOk, ReaddirWriter, RemoveOk, Results, SequenceFlags, SequenceOk, WriteOk,
};
use vouch_nfs4::{
    Attributes, Bitmap, Bytes, ChangeInfo, ClientId, CompoundHead, Cookie, CreateSeq, Filehandle, Name, ReplyWriter, ServerOwner,
    SessionId, SlotId, StateProtectReply, StateSeq, Stateid, Status, Verifier,
};
use vouch_oncrpc::{Accepted, Call, RecordReader, Reply, begin_record, end_record};
use vouch_xdr::{Reader, Writer};

use super::metadata::Getattr;
use super::session::SessionOptions;
use super::{NfsOptions, NfsSubject, Pace, Session};
use crate::case::{Content, Copy, Load, Order};
use crate::target::{NfsTarget, Sec};
use crate::{Case, Error, StopFlag, Subject};

#[derive(Default)]
struct World {
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    directories: BTreeSet<Vec<u8>>,
    refuse: VecDeque<Status>,
    forgets: bool,
    tears: bool,
    halves: Vec<(Vec<u8>, usize, Vec<u8>)>,
    answers: Option<u32>,
    drop_open: Option<u32>,
    asked_on: BTreeSet<SocketAddr>,
    silent: bool,
    sessions: u8,
    ended: u8,
}

type Shared = Arc<Mutex<World>>;

fn start() -> (SocketAddr, Shared) {
    let world = Shared::default();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let (address, shared) = (listener.local_addr().expect("a port"), world.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let world = shared.clone();
            std::thread::spawn(move || drop(serve(stream, &world)));
        }
    });
    (address, world)
}

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let (mut reader, mut bytes, peer) = (RecordReader::new(4 << 20), vec![0; 256 * 1024], stream.peer_addr()?);
    loop {
        let n = stream.read(&mut bytes)?;
        if n == 0 {
            return Ok(());
        }
        let (mut input, mut out) = (&bytes[..n], Writer::new());
        while let Ok(Some(record)) = reader.next(&mut input) {
            let call = Call::decode(&record).expect("a call");
            let (mut body, mut world) = (Writer::new(), shared.lock().unwrap_or_else(PoisonError::into_inner));
            let answered = compound(call.args, &mut world, peer, &mut body) && !world.silent;
            for (path, at, half) in std::mem::take(&mut world.halves) {
                drop(world);
                std::thread::sleep(Duration::from_micros(100));
                world = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(data) = world.files.get_mut(&path) {
                    data[at..at + half.len()].copy_from_slice(&half);
                }
            }
            if answered {
                let start = begin_record(&mut out);
                Reply::accepted(call.xid, Accepted::Success(body.as_bytes())).encode(&mut out);
                end_record(out.bytes_mut(), start, 0);
            }
        }
        stream.write_all(out.as_bytes())?;
    }
}

fn compound(args: &[u8], world: &mut World, peer: SocketAddr, out: &mut Writer) -> bool {
    let mut r = Reader::new(args);
    let head = CompoundHead::decode(&mut r).expect("a compound");
    let reply = ReplyWriter::begin(out, head.tag);
    let (mut status, mut count, mut current) = (Status::OK, 0, Vec::new());
    while count < head.count && status.is_ok() {
        count += 1;
        let args = Args::decode(head.minor, &mut r).expect("an operation");
        if let (Args::Getattr(_), Some(answers)) = (&args, &mut world.answers) {
            match answers.checked_sub(1) {
                Some(left) => *answers = left,
                None => return false,
            }
        }
        if let (Args::Open(_), Some(left)) = (&args, &mut world.drop_open) {
            *left -= 1;
            if *left == 0 {
                world.drop_open = None;
                return false;
            }
        }
        if let Args::Getattr(_) = &args {
            world.asked_on.insert(peer);
        }
        let results = operation(&args, world, &mut current);
        status = results.status();
        results.encode(out);
    }
    reply.finish(out, status, count);
    true
}

fn operation(args: &Args<'_>, world: &mut World, current: &mut Vec<u8>) -> Results<'static> {
    let (change, stateid) = (ChangeInfo::default(), Stateid { seq: StateSeq(1), other: [9; 12] });
    let below = |name: &Name<'_>| [&current[..], b"/", name.0].concat();
    match args {
        Args::ExchangeId(_) => Results::ExchangeId(Ok(ExchangeIdOk {
            client: ClientId(1),
            seq: CreateSeq(1),
            flags: ExchangeIdFlags::USE_NON_PNFS,
            state_protect: StateProtectReply::None,
            server_owner: ServerOwner { minor: 0, major: Bytes(b"in memory") },
            server_scope: Bytes(b""),
            impl_id: None,
        })),
        Args::CreateSession(args) => {
            world.sessions += 1;
            let (session, seq, flags) = (SessionId([world.sessions; 16]), args.seq, args.flags);
            Results::CreateSession(Ok(CreateSessionOk { session, seq, flags, fore: args.fore, back: args.back }))
        }
        Args::ReclaimComplete(_) => Results::ReclaimComplete(Ok(())),
        Args::Sequence(args) if args.session.0[0] <= world.ended => Results::Sequence(Err(Status::BADSESSION)),
        Args::Sequence(args) => {
            let highest = SlotId(63);
            Results::Sequence(Ok(SequenceOk {
                session: args.session,
                seq: args.seq,
                slot: args.slot,
                highest_slot: highest,
                target_highest_slot: highest,
                flags: SequenceFlags(0),
            }))
        }
        Args::Putrootfh => {
            current.clear();
            Results::Putrootfh(Ok(()))
        }
        Args::Putfh(args) => {
            *current = args.handle.as_bytes().to_vec();
            Results::Putfh(Ok(()))
        }
        Args::Getfh => Results::Getfh(Ok(GetfhOk { handle: Filehandle::new(current).expect("a short path") })),
        Args::Lookup(args) => {
            let path = below(&args.name);
            match world.directories.contains(&path) || world.files.contains_key(&path) {
                true => {
                    *current = path;
                    Results::Lookup(Ok(()))
                }
                false => Results::Lookup(Err(Status::NOENT)),
            }
        }
        Args::Getattr(args) => {
            let mut w = Writer::new();
            GetattrOk::write(&mut w, args.wanted, &Attributes { file_type: Some(FileType::Directory), ..Attributes::default() });
            Results::decode(&mut Reader::new(w.into_bytes().leak())).expect("encoded data")
        }
        Args::Create(args) => {
            *current = below(&args.name);
            world.directories.insert(current.clone());
            Results::Create(Ok(CreateOk { change, attrs_set: Bitmap::EMPTY }))
        }
        Args::Open(args) => {
            let OpenClaim::Null(name) = args.claim else { return Results::failure(Args::Getfh.op(), Status::NOTSUPP) };
            *current = below(&name);
            match args.how {
                OpenHow::Create(_) => drop(world.files.entry(current.clone()).or_default()),
                OpenHow::NoCreate if world.files.contains_key(current) => {}
                OpenHow::NoCreate => return Results::Open(Err(Status::NOENT)),
            }
            let (flags, attrs_set, delegation) = (OpenResultFlags(0), Bitmap::EMPTY, Delegation::None);
            Results::Open(Ok(OpenOk { stateid, change, flags, attrs_set, delegation }))
        }
        Args::Write(args) => {
            if let Some(status) = world.refuse.pop_front() {
                return Results::Write(Err(status));
            }
            if world.forgets {
                return Results::Write(Ok(WriteOk { count: args.data.len() as u32, committed: args.stable, verifier: Verifier([1; 8]) }));
            }
            let Some(data) = world.files.get_mut(current) else { return Results::Write(Err(Status::STALE)) };
            let end = args.offset as usize + args.data.len();
            data.resize(data.len().max(end), 0);
            let (first, second) = args.data.split_at(if world.tears { args.data.len() / 2 } else { args.data.len() });
            let middle = args.offset as usize + first.len();
            data[args.offset as usize..middle].copy_from_slice(first);
            if !second.is_empty() {
                world.halves.push((current.clone(), middle, second.to_vec()));
            }
            Results::Write(Ok(WriteOk { count: args.data.len() as u32, committed: args.stable, verifier: Verifier([1; 8]) }))
        }
        Args::Read(args) => {
            let data = world.files.get(current).cloned().unwrap_or_default().leak();
            let start = data.len().min(args.offset as usize);
            let end = data.len().min(start + args.count as usize);
            Results::Read(Ok(ReadOk { eof: end == data.len(), data: Bytes(&data[start..end]) }))
        }
        Args::Commit(_) => Results::Commit(Ok(CommitOk { verifier: Verifier([1; 8]) })),
        Args::Close(_) => Results::Close(Ok(CloseOk { stateid })),
        Args::Remove(args) => {
            let path = below(&args.name);
            match world.files.remove(&path).is_some() || world.directories.remove(&path) {
                true => Results::Remove(Ok(RemoveOk { change })),
                false => Results::Remove(Err(Status::NOENT)),
            }
        }
        Args::Readdir(args) => {
            let prefix = below(&Name(b""));
            let all = world.directories.iter().map(|path| (path, FileType::Directory));
            let all = all.chain(world.files.keys().map(|path| (path, FileType::Regular)));
            let names = all.filter_map(|(path, kind)| Some((path.strip_prefix(&prefix[..])?, kind)));
            let mut w = Writer::new();
            let mut list = ReaddirWriter::begin(&mut w, Verifier([2; 8]), 60_000).expect("room for some");
            for (cookie, (name, kind)) in (3..).zip(names.filter(|(name, _)| !name.contains(&b'/'))) {
                let attributes = Attributes { file_type: Some(kind), ..Attributes::default() };
                assert!(list.push(&mut w, Cookie(cookie), Name(name), args.wanted, &attributes), "few files");
            }
            list.finish(&mut w, true);
            Results::decode(&mut Reader::new(w.into_bytes().leak())).expect("encoded data")
        }
        other => Results::failure(other.op(), Status::NOTSUPP),
    }
}

fn target(address: SocketAddr) -> NfsTarget {
    NfsTarget { host: address.ip().to_string(), port: address.port(), path: Vec::new() }
}

fn subject(address: SocketAddr) -> NfsSubject {
    subject_of(address, 1, &StopFlag::default())
}

fn subject_of(address: SocketAddr, sessions: usize, stop: &StopFlag) -> NfsSubject {
    let options = NfsOptions {
        label: "in memory".into(),
        target: target(address),
        sec: Sec::Sys,
        service: None,
        sessions,
        connections: 1,
        slots: 8,
        server_cpu: None,
        not_empty: false,
    };
    NfsSubject::connect(options, stop).expect("a session")
}

fn refuse(world: &Shared, with: impl IntoIterator<Item = Status>) {
    world.lock().unwrap_or_else(PoisonError::into_inner).refuse = with.into_iter().collect();
}

#[test]
fn delayed_writes_are_retried_without_hole() {
    let (address, world) = start();
    let mut subject = subject(address);
    for (files, len) in [(1, (2 << 20) + 4096), (3, 100)] {
        let copy = Copy { files, len, content: Content::Random, streams: 2, depth: 4 };
        refuse(&world, [Status::DELAY, Status::DELAY]);
        let sample = subject.measure(&Case::Put(copy)).expect("the write ends");
        assert_eq!((sample.operations, sample.errors, sample.bytes), (files, 2, files * len));
        assert!(sample.seconds >= 0.2, "the pause is on the clock: {}", sample.seconds);
        let sample = subject.measure(&Case::Get(copy)).expect("the record is complete");
        assert_eq!((sample.operations, sample.errors, sample.bytes), (files, 0, files * len));
    }
    subject.clean().expect("removal succeeds");
    assert!(world.lock().unwrap_or_else(PoisonError::into_inner).files.is_empty());
}

#[test]
fn incomplete_copy_is_removed_and_not_read() {
    let (address, world) = start();
    let mut subject = subject(address);
    for (files, len, content) in [(1, 3 << 20, Content::Random), (1, 3 << 20, Content::Zeros), (3, 100, Content::Random)] {
        let copy = Copy { files, len, content, streams: 2, depth: 4 };
        refuse(&world, [Status::NOSPC]);
        let refused = subject.measure(&Case::Put(copy)).expect_err("a part is missing");
        assert!(matches!(&refused, Error::Nfs { source, .. } if source.status() == Some(Status::NOSPC)), "{refused}");
        let message = refused.with_hint();
        let part = if files == 1 { "2097152 of 3145728 bytes" } else { "2 of 3 files" };
        assert!(message.contains(part) && message.contains("no space is left"), "{message}");
        let left = world.lock().unwrap_or_else(PoisonError::into_inner).files.len();
        assert_eq!(left, 1, "only the probe file is left");
        assert!(matches!(subject.measure(&Case::Get(copy)), Err(Error::NotFound(_))));
        subject.prepare(&Case::Get(copy)).expect("the agent is reserved");
        assert_eq!(subject.measure(&Case::Get(copy)).expect("the record is complete").bytes, files * len);
        subject.tidy().expect("removal succeeds");
    }
}

#[test]
fn silent_server_is_not_counted_as_fast() {
    let (address, world) = start();
    world.lock().unwrap_or_else(PoisonError::into_inner).answers = Some(10);
    let options = SessionOptions { target: target(address), sec: Sec::Sys, service: None, connections: 1, slots: 8 };
    let mut session = Session::connect(options, &StopFlag::default()).expect("a session");
    session.blocking = Duration::from_secs(1);
    let mut work = Getattr { handle: Filehandle::new(b"").expect("the handle is short") };
    let limit = Duration::from_secs(60);
    let tally = session.run(&mut work, 4, Pace::Closed, Some(limit), &StopFlag::default()).expect("errors, and no end");
    assert_eq!((tally.unanswered, tally.errors), (4, 4));
    // The last reply came early, and four calls waited for a second.
    assert!(tally.operations <= 10 && tally.seconds >= limit.as_secs_f64(), "{tally:?}");
    assert_eq!(tally.latency.count(), tally.operations + 4);
    assert!(tally.latency.quantile_us(0.8) > 500_000.0, "{}", tally.latency.quantile_us(0.8));
}

fn getattrs_of(address: SocketAddr, pace: Pace, seconds: f64) -> super::Tally {
    let options = SessionOptions { target: target(address), sec: Sec::Sys, service: None, connections: 1, slots: 64 };
    let mut session = Session::connect(options, &StopFlag::default()).expect("a session");
    let mut work = Getattr { handle: Filehandle::new(b"").expect("the handle is short") };
    session.run(&mut work, 64, pace, Some(Duration::from_secs_f64(seconds)), &StopFlag::default()).expect("a server that answers")
}

#[test]
fn open_loop_waits_for_next_due_call() {
    let (address, _world) = start();
    // Far below capacity: no call is in flight between two due times.
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
    let options = SessionOptions { target: target(address), sec: Sec::Sys, service: None, connections: 1, slots: 8 };
    let mut session = Session::connect(options, &StopFlag::default()).expect("a session");
    session.blocking = Duration::from_millis(300);
    let mut work = Getattr { handle: Filehandle::new(b"").expect("the handle is short") };
    let tally =
        session.run(&mut work, 4, Pace::Open(1.0), Some(Duration::from_secs(3)), &StopFlag::default()).expect("a server that answers");
    assert_eq!((tally.operations, tally.unanswered, tally.unsent), (3, 0, 0));
}

#[test]
fn detects_acknowledged_writes_that_were_lost() {
    for read_percent in [0, 50] {
        let (address, world) = start();
        let mut subject = subject(address);
        let load = |rate| Load { order: Order::Random, block: 8192, read_percent, depth: 4, rate, seconds: 0.3, file_len: 1 << 18 };
        for rate in [None, Some(200.0)] {
            let case = Case::Load(load(rate));
            subject.prepare(&case).expect("a file");
            assert!(subject.measure(&case).expect("written data is read").operations > 0);
            let case = Case::Load(Load { block: 4096, order: Order::Sequential, ..load(rate) });
            assert!(subject.measure(&case).expect("written data is read").operations > 0);
        }
        refuse(&world, [Status::DELAY, Status::DELAY, Status::DELAY]);
        let refused = subject.measure(&Case::Load(load(None))).expect("the server continues");
        assert_eq!(refused.errors, 3);
        world.lock().unwrap_or_else(PoisonError::into_inner).forgets = true;
        let lost = subject.measure(&Case::Load(load(None)));
        assert!(matches!(lost, Err(Error::Corrupt(_))), "{read_percent}: {lost:?}");
        world.lock().unwrap_or_else(PoisonError::into_inner).forgets = false;
        subject.clean().expect("removal succeeds");
    }
}

#[test]
fn writes_have_at_most_one_call_per_block() {
    let (address, world) = start();
    let mut subject = subject_of(address, 2, &StopFlag::default());
    let load = |read_percent, rate| {
        Case::Load(Load { order: Order::Random, block: 4096, read_percent, depth: 8, rate, seconds: 0.2, file_len: 3 * 4096 })
    };
    world.lock().unwrap_or_else(PoisonError::into_inner).tears = true;
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
    let (address, world) = start();
    let mut subject = subject(address);
    subject.sessions[0].blocking = Duration::from_millis(300);
    world.lock().unwrap_or_else(PoisonError::into_inner).drop_open = Some(997);
    let case = Case::Metadata { depth: 1, seconds: 0.05 };
    subject.prepare(&case).expect("a lost call is retried");
    let (files, directories) = {
        let world = world.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(world.drop_open.is_none(), "the entry was dropped");
        (world.files.len(), world.directories.len())
    };
    assert_eq!((files, directories), (1001, 2));
    subject.clean().expect("removal succeeds");
}

#[test]
fn session_reconnects_after_expired_lease() {
    let (address, world) = start();
    let mut subject = subject(address);
    subject.sessions[0].idle = Duration::ZERO;
    let terminate_all = || {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        world.ended = world.sessions;
    };
    let load = Load { order: Order::Random, block: 4096, read_percent: 100, depth: 4, rate: None, seconds: 0.05, file_len: 1 << 15 };
    let case = Case::Load(load);
    subject.prepare(&case).expect("a file");
    for _ in 0..2 {
        terminate_all();
        let sample = subject.measure(&case).expect("the file is opened again");
        assert!(sample.operations > 0 && sample.errors == 0, "{sample:?}");
    }
    terminate_all();
    subject.clean().expect("removal succeeds");
    assert!(world.lock().unwrap_or_else(PoisonError::into_inner).files.is_empty());
}

#[test]
fn depth_is_shared_by_all_sessions() {
    let (address, world) = start();
    let mut subject = subject_of(address, 4, &StopFlag::default());
    for (depth, sessions) in [(1, 1), (3, 3), (64, 4)] {
        world.lock().unwrap_or_else(PoisonError::into_inner).asked_on.clear();
        let sample = subject.measure(&Case::Getattr { depth, seconds: 0.2 }).expect("a server that answers");
        assert!(sample.operations > 0);
        assert_eq!(world.lock().unwrap_or_else(PoisonError::into_inner).asked_on.len(), sessions, "{depth} calls in flight");
    }
    subject.clean().expect("removal succeeds");
}

#[test]
fn stop_request_does_not_wait_for_silent_server() {
    let (address, world) = start();
    let stop = StopFlag::default();
    let mut subject = subject_of(address, 1, &stop);
    world.lock().unwrap_or_else(PoisonError::into_inner).silent = true;
    stop.set();
    // Each step took more than a minute without the stop request.
    let begun = std::time::Instant::now();
    assert!(subject.place().is_some_and(|place| place.contains("vouch-bench-")));
    assert!(matches!(subject.clean(), Err(Error::Unreachable(_))), "the server is silent");
    let options = SessionOptions { target: target(address), sec: Sec::Sys, service: None, connections: 1, slots: 8 };
    assert!(matches!(Session::connect(options, &stop), Err(Error::Unreachable(_))), "a new session gets no answer");
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
}
