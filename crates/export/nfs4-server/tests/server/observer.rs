use vouch_nfs4::op::{Access, AccessArgs};
use vouch_nfs4_server::testing::LEASE_MS;
use vouch_nfs4_server::{
    CallOrigin, CompletedOp, Denial, EndedState, Job, JobProgress, Loss, Observer, Stage, Totals,
    requested,
};

use crate::prelude::*;

type Transfer = (u32, u32, Stage, (u64, u64), u32);

#[derive(Default)]
struct RecordingObserver {
    operations: Mutex<Vec<(String, u32)>>,
    totals: Mutex<Vec<Totals>>,
    granted: Mutex<Vec<u32>>,
    ended: Mutex<Vec<(u16, Loss, Totals)>>,
    transfers: Mutex<Vec<Transfer>>,
    denied: Mutex<Vec<(String, Denial)>>,
    commits: Mutex<Vec<(u32, u64)>>,
    set_access: Mutex<Vec<(u32, u32)>>,
    opens: Mutex<Vec<(u32, u32)>>,
    may_block: Mutex<Vec<bool>>,
}

impl Observer for RecordingObserver {
    fn wants(&self, _: Op) -> bool {
        true
    }

    fn operation(&self, _: &CallOrigin, done: &CompletedOp<'_>) -> bool {
        let (op, status) = (done.op, done.status.0);
        let (details, arguments) =
            (&done.details, done.arguments.as_ref().expect("details were requested"));
        let name = arguments
            .name
            .as_ref()
            .map_or_else(String::new, |name| format!(" {}", String::from_utf8_lossy(name)));
        self.operations.lock().push((format!("{}{name}", name_of(op)), status));
        self.totals.lock().extend(details.totals);
        if [Op::READ, Op::WRITE, Op::COPY, Op::CLONE].contains(&op) {
            let access = arguments.access.expect("requested access");
            assert!(done.saved_file().is_some() || ![Op::COPY, Op::CLONE].contains(&op));
            self.transfers.lock().push((
                op.0,
                access,
                details.stage,
                (details.bytes_read, details.bytes_written),
                status,
            ));
        }
        self.granted.lock().extend(details.granted);
        if op == Op::COMMIT {
            self.commits.lock().extend(arguments.access.zip(arguments.offset));
        }
        if [Op::SETATTR, Op::CREATE].contains(&op) {
            self.set_access.lock().extend(arguments.access.map(|access| (op.0, access)));
        }
        if op == Op::OPEN {
            self.opens.lock().extend(arguments.access.zip(details.granted));
        }
        false
    }

    fn denied(&self, origin: &CallOrigin, export: &Export, why: Denial) {
        if why != Denial::NameService {
            assert_eq!((&origin.principal, origin.flavour), (&user(0), Flavour::Sys));
        }
        self.denied.lock().push((export.source.to_string(), why));
    }

    fn state_ended(&self, ended: &EndedState<'_>) {
        let opener = ended.opener;
        assert_eq!((&opener.principal, opener.flavour), (&user(0), Flavour::Sys));
        assert!(!ended.delegation);
        self.ended.lock().push((opener.peer.port(), ended.why, ended.totals));
        self.may_block.lock().push(ended.may_block);
    }
}

fn fixture() -> (Fixture, Arc<RecordingObserver>) {
    let (files, recorder) = (Arc::new(MemoryFs::new()), Arc::new(RecordingObserver::default()));
    let exports = vec![export(7, &["export"], &files, sys_access())];
    (Fixture::with_observer(files, exports, recorder.clone()), recorder)
}

#[test]
fn operation_is_reported_once_with_status_of_sync() {
    let (fixture, recorder) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    fixture.files.set_slow_sync(true);
    recorder.operations.lock().clear();
    let mode = mode(0o644);
    let mut call = client.begin(&[open_by_name("a", Some(&mode)), Args::Getfh, getattr(&[1])]);
    assert!(fixture.blocks(&mut call));
    let reported: Vec<_> =
        recorder.operations.lock().iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(reported, ["SEQUENCE", "PUTROOTFH", "LOOKUP export"]);
    fixture.fail_with_io(Call::SyncMetadata);
    let vouch_nfs4_server::Progress::Done(Some(reply)) =
        call.run(&fixture.server, Blocking::Allowed).progress
    else {
        panic!("not done")
    };
    assert_eq!(results(reply.bytes[28..].to_vec()).0, Status::IO);
    let seen = std::mem::take(&mut *recorder.operations.lock());
    let after: Vec<_> = seen[3..].iter().map(|(name, status)| (name.as_str(), *status)).collect();
    assert_eq!(after, [("OPEN a", Status::IO.0), ("GETFH", 0), ("GETATTR", 0)]);
    fixture.files.clear_fault();
    assert_eq!(client.status(&["export"], &[open_by_name("a", Some(&mode))]), Status::OK);
    assert_eq!(recorder.operations.lock().last(), Some(&("OPEN a".to_owned(), 0)));
}

#[test]
fn close_reports_bytes_moved_by_its_open() {
    let (fixture, recorder) = fixture();
    let [mut one, mut two] = fixture.clients(["one", "two"]);
    let (own_stateid, other) = (one.create("a"), two.create("a"));
    let at = ["export", "a"];
    assert_eq!(one.status(&at, &[write(own_stateid, 0, &[1; 5000])]), Status::OK);
    assert_eq!(one.status(&at, &[read(own_stateid, 0, 100)]), Status::OK);
    assert_eq!(two.status(&at, &[read(other, 0, 4000)]), Status::OK);
    let second_open = one.create("a");
    assert_eq!(one.status(&at, &[read(second_open, 0, 11)]), Status::OK);
    assert_eq!(one.status(&at, &[read(Stateid::ANONYMOUS, 0, 77)]), Status::OK);
    fixture.now_ms.fetch_add(1500, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(one.status(&at, &[close(second_open)]), Status::OK);
    assert_eq!(two.status(&at, &[close(other)]), Status::OK);
    let totals = recorder.totals.lock().clone();
    assert_eq!(
        totals,
        [
            Totals { read: 111, written: 5000, open_ms: 1500 },
            Totals { read: 4000, written: 0, open_ms: 1500 }
        ]
    );
    let third = one.create("a");
    assert_eq!(one.status(&at, &[close(third)]), Status::OK);
    assert_eq!(recorder.totals.lock().last(), Some(&Totals { read: 0, written: 0, open_ms: 0 }));
}

#[test]
fn unclosed_open_is_reported_once_with_its_bytes() {
    let (fixture, recorder) = fixture();
    let [mut silent, mut restarting] = fixture.clients(["silent", "restarting"]);
    let (first, second) = (silent.create("a"), restarting.create("b"));
    assert_eq!(silent.status(&["export", "a"], &[write(first, 0, &[1; 5000])]), Status::OK);
    assert_eq!(restarting.status(&["export", "b"], &[write(second, 0, &[2; 70])]), Status::OK);
    let peers = [silent.connection.peer().port(), restarting.connection.peer().port()];
    fixture.advance(500);
    Client::rebooted(&fixture, "restarting", 0);
    assert_eq!(
        *recorder.ended.lock(),
        [(peers[1], Loss::Restarted, Totals { read: 0, written: 70, open_ms: 500 })]
    );
    fixture.advance(LEASE_MS);
    fixture.advance(LEASE_MS);
    assert_eq!(recorder.ended.lock().len(), 1);
    fixture.server.connection_closed(&silent.connection, fixture.now());
    fixture.advance(25 * 3600 * 1000);
    let open_ms = 500 + 2 * LEASE_MS + 25 * 3600 * 1000;
    assert_eq!(
        recorder.ended.lock()[1..],
        [(peers[0], Loss::Expired, Totals { read: 0, written: 5000, open_ms })]
    );
    let mut later = Client::new(&fixture, "later", 0);
    let third = later.create("c");
    assert_eq!(later.status(&["export", "c"], &[close(third)]), Status::OK);
    fixture.advance(LEASE_MS);
    fixture.advance(25 * 3600 * 1000);
    assert_eq!(recorder.ended.lock().len(), 2);
}

fn jobs_of_lost_open(fixture: &Fixture, recorder: &RecordingObserver) -> Vec<Job> {
    let mut client = Client::new(fixture, "silent", 0);
    client.create("a");
    fixture.files.set_remote();
    fixture.server.connection_closed(&client.connection, fixture.now());
    let effects = [LEASE_MS, 25 * 3600 * 1000].into_iter().flat_map(|ms| fixture.advance(ms));
    let jobs = effects
        .filter_map(|effect| if let Effect::Background(job) = effect { Some(job) } else { None })
        .collect();
    assert!(recorder.ended.lock().is_empty());
    jobs
}

/// The observer may ask the file system for a path, and no lock or timer may wait for it.
#[test]
fn lost_open_of_remote_file_is_reported_by_background_job() {
    let (fixture, recorder) = fixture();
    jobs_of_lost_open(&fixture, &recorder).into_iter().for_each(|job| {
        assert!(job.remote_system().is_some());
        run_to_end(&fixture, job);
    });
    assert_eq!(
        recorder.ended.lock().iter().map(|(_, why, _)| *why).collect::<Vec<_>>(),
        [Loss::Expired]
    );
    assert_eq!((fixture.files.open_count(), &recorder.may_block.lock()[..]), (0, &[true][..]));
}

#[test]
fn lost_open_is_reported_without_blocking_if_its_job_is_dropped() {
    let (fixture, recorder) = fixture();
    drop(jobs_of_lost_open(&fixture, &recorder));
    assert_eq!(
        recorder.ended.lock().iter().map(|(_, why, _)| *why).collect::<Vec<_>>(),
        [Loss::Expired]
    );
    assert_eq!((fixture.files.open_count(), &recorder.may_block.lock()[..]), (0, &[false][..]));
}

#[test]
fn access_and_open_report_granted_access() {
    let (fixture, recorder) = fixture();
    let mut root = Client::new(&fixture, "one", 0);
    root.create("a");
    let mut other_user = Client::new(&fixture, "two", 4000);
    recorder.granted.lock().clear();
    let requested = Access::READ | Access::MODIFY | Access::EXTEND;
    let list = expect_ok(
        other_user.run_at(&["export", "a"], &[Args::Access(AccessArgs { access: requested })]),
    );
    let [Results::Access(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    assert_eq!((ok.access, recorder.granted.lock().clone()), (Access::READ, vec![Access::READ.0]));
    recorder.granted.lock().clear();
    root.create("b");
    assert_eq!(*recorder.granted.lock(), [requested.0 | requested::CREATE]);
}

#[test]
fn open_reports_truncation_and_creation() {
    let (fixture, recorder) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    let (mode, empty) = (mode(0o644), size(0));
    let both = (Access::READ | Access::MODIFY | Access::EXTEND).0;
    let with_create = both | requested::CREATE;
    for (name, attrs, requested, outcome_bits) in [
        ("a", &mode, with_create, requested::CREATE),
        ("a", &mode, with_create, 0),
        ("a", &empty, with_create | requested::TRUNCATE, requested::TRUNCATE),
        ("b", &empty, with_create | requested::TRUNCATE, requested::CREATE),
    ] {
        recorder.opens.lock().clear();
        assert_eq!(client.status(&["export"], &[open_by_name(name, Some(attrs))]), Status::OK);
        assert_eq!(*recorder.opens.lock(), [(requested, both | outcome_bits)], "{name}");
    }
}

impl RecordingObserver {
    fn take_unopened_flags(&self) -> Vec<bool> {
        std::mem::take(&mut *self.transfers.lock())
            .into_iter()
            .map(|(_, access, ..)| access & requested::UNOPENED != 0)
            .collect()
    }
}

#[test]
fn io_by_stateid_of_other_user_is_reported_unopened() {
    let (fixture, recorder) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    let own_stateid = client.create("a");
    let at = ["export", "a"];
    assert_eq!(
        client.status(&at, &[write(own_stateid, 0, b"secret"), read(own_stateid, 0, 6)]),
        Status::OK
    );
    assert_eq!(recorder.take_unopened_flags(), [false, false]);
    client.principal = user(1000);
    assert_eq!(client.status(&at, &[read(own_stateid, 0, 6)]), Status::OK);
    assert_eq!(client.status(&at, &[write(own_stateid, 0, b"x")]), Status::ACCESS);
    assert_eq!(recorder.take_unopened_flags(), [true, true]);
    client.principal = user(0);
    assert_eq!(
        client.status(&at, &[read(own_stateid, 0, 6), read(Stateid::ANONYMOUS, 0, 6)]),
        Status::OK
    );
    assert_eq!(recorder.take_unopened_flags(), [false, true]);
}

#[test]
fn first_io_by_delegation_is_reported_unopened() {
    let (fixture, recorder) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    crate::delegations::bind_backchannel(&client);
    let (own_stateid, _, delegation) = crate::delegations::open_with_want(
        &mut client,
        op::ShareAccess::WANT_WRITE_DELEG,
        Some(&mode(0o644)),
    );
    let op::Delegation::Write(op::WriteDelegation { stateid, .. }) = delegation else {
        panic!("{delegation:?}")
    };
    let at = ["export", "f"];
    assert_eq!(
        client.status(
            &at,
            &[
                write(own_stateid, 0, b"x"),
                write(stateid, 0, b"y"),
                write(stateid, 0, b"z"),
                read(stateid, 0, 1),
                read(stateid, 0, 1)
            ]
        ),
        Status::OK
    );
    assert_eq!(recorder.take_unopened_flags(), [false, true, false, true, false]);
    assert_eq!(client.status(&at, &[close(own_stateid)]), Status::OK);
    assert_eq!(client.status(&at, &[read(stateid, 0, 1), read(stateid, 0, 1)]), Status::OK);
    assert_eq!(recorder.take_unopened_flags(), [true, false]);
    client.principal = user(1000);
    assert_eq!(client.status(&at, &[read(stateid, 0, 1), read(stateid, 0, 1)]), Status::OK);
    assert_eq!(recorder.take_unopened_flags(), [true, true]);
}

const LONG: u64 = 65 << 20;

fn begin_copy(client: &mut Client<'_>) -> (vouch_nfs4_server::Job, Stateid, Stateid) {
    let (from, to) = (client.create("from"), client.create("to"));
    let last = write(from, LONG - 1, b"x");
    assert_eq!(client.status(&["export", "from"], &[last]), Status::OK);
    let path_to = |name| [Args::Putrootfh, lookup("export"), lookup(name)];
    let mut ops = vec![client.next_sequence(false)];
    ops.extend(path_to("from"));
    ops.push(Args::Savefh);
    ops.extend(path_to("to"));
    ops.push(copy((Stateid::ANONYMOUS, 0), (to, 0), 0, false));
    let (reply, effects) = client.call(&ops);
    let list = expect_ok(results(reply));
    let Some(Results::Copy(Ok(copy))) = list.last() else { panic!("{list:?}") };
    let job = effects
        .into_iter()
        .find_map(|effect| if let Effect::Background(job) = effect { Some(job) } else { None });
    (
        job.expect("a background copy"),
        to,
        copy.response.callback.expect("an asynchronous copy has a stateid"),
    )
}

fn run_to_end(fixture: &Fixture, mut job: vouch_nfs4_server::Job) {
    while !matches!(job.step(&fixture.server, fixture.now()), JobProgress::Done(_)) {}
}

#[test]
fn background_copy_is_reported_with_bytes_or_error() {
    let (fixture, recorder) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    let (job, to, _) = begin_copy(&mut client);
    let access = requested::UNOPENED | Access::READ.0 | Access::MODIFY.0;
    let copies = || {
        recorder
            .transfers
            .lock()
            .iter()
            .filter(|(op, ..)| *op == Op::COPY.0)
            .copied()
            .collect::<Vec<_>>()
    };
    let started = (Op::COPY.0, access, Stage::Started, (0, 0), 0);
    assert_eq!(copies(), [started]);
    run_to_end(&fixture, job);
    let opened = Access::READ.0 | Access::MODIFY.0;
    assert_eq!(copies(), [started, (Op::COPY.0, opened, Stage::Ended, (LONG, LONG), 0)]);
    assert_eq!(client.status(&["export", "to"], &[close(to)]), Status::OK);
    assert_eq!(recorder.totals.lock().last().map(|totals| totals.written), Some(LONG));
    recorder.transfers.lock().clear();
    let (job, ..) = begin_copy(&mut client);
    fixture.fail_with_io(Call::Region);
    run_to_end(&fixture, job);
    assert_eq!(copies(), [started, (Op::COPY.0, opened, Stage::Ended, (0, 0), Status::IO.0)]);
}

#[test]
fn background_copy_ends_only_after_observer_event() {
    let (fixture, recorder) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    for fails in [false, true] {
        let (mut job, _, stateid) = begin_copy(&mut client);
        if fails {
            fixture.files.set_fault(|call, _| {
                if call == Call::Region { panic!("injected panic") } else { None }
            });
        }
        while matches!(job.step(&fixture.server, fixture.now()), JobProgress::More) {}
        fixture.files.clear_fault();
        let reported = recorder.transfers.lock().last().map(|&(op, _, stage, ..)| (op, stage));
        assert_eq!(reported, Some((Op::COPY.0, Stage::Ended)));
        recorder.transfers.lock().clear();
        let mut offload_status = || {
            let (_, list) = client.run_at(
                &["export", "to"],
                &[Args::OffloadStatus(op::OffloadStatusArgs { stateid })],
            );
            let Some(Results::OffloadStatus(Ok(ok))) = list.last() else { panic!("{list:?}") };
            ok.complete
        };
        assert_eq!(offload_status(), None);
        assert!(matches!(job.step(&fixture.server, fixture.now()), JobProgress::Done(_)));
        assert_eq!(offload_status(), Some(if fails { Status::SERVERFAULT } else { Status::OK }));
        assert!(
            recorder.transfers.lock().iter().all(|(op, ..)| *op != Op::COPY.0),
            "reported once"
        );
    }
}

#[test]
fn panic_in_background_copy_ends_it_with_serverfault() {
    let (fixture, recorder) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    let (job, ..) = begin_copy(&mut client);
    fixture
        .files
        .set_fault(|call, _| if call == Call::Region { panic!("injected panic") } else { None });
    run_to_end(&fixture, job);
    fixture.files.clear_fault();
    let reported = recorder.transfers.lock().iter().rfind(|(op, ..)| *op == Op::COPY.0).copied();
    assert_eq!(
        reported.map(|(_, _, stage, bytes, status)| (stage, bytes, status)),
        Some((Stage::Ended, (0, 0), Status::SERVERFAULT.0))
    );
    let errors = fixture.server.status(fixture.now()).recent_errors;
    assert!(errors[0].message.contains("panic") && errors[0].operation == "COPY", "{errors:?}");
    let copies = || fixture.server.totals(fixture.now()).0.copies;
    assert_eq!(copies(), 1);
    fixture.advance(3_600_000);
    assert_eq!(copies(), 0);
}

struct DenyAll;

impl ClientMatcher for DenyAll {
    fn access_for(&self, _: std::net::SocketAddr) -> Option<Arc<ClientAccess>> {
        None
    }
}

#[test]
fn lookup_of_export_denied_to_client_is_reported() {
    let (files, recorder) = (Arc::new(MemoryFs::new()), Arc::new(RecordingObserver::default()));
    let hidden = vouch_nfs4_server::Export {
        clients: Arc::new(DenyAll),
        ..export(8, &["hidden"], &files, sys_access())
    };
    let source = hidden.source.to_string();
    let fixture = Fixture::with_observer(
        files.clone(),
        vec![export(7, &["export"], &files, sys_access()), hidden],
        recorder.clone(),
    );
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(client.run(&[Args::Putrootfh, lookup("hidden")]).0, Status::NOENT);
    assert_eq!(client.run(&[Args::Putrootfh, lookup("no such")]).0, Status::NOENT);
    assert_eq!(client.run(&[Args::Putrootfh, lookup("export")]).0, Status::OK);
    assert_eq!(*recorder.denied.lock(), [(source, Denial::Client)]);
}

#[test]
fn caller_without_answer_of_the_name_service_is_reported() {
    let (files, recorder) = (Arc::new(MemoryFs::new()), Arc::new(RecordingObserver::default()));
    let exported = export(7, &["export"], &files, flavours_access(&[Flavour::Krb5p]));
    let source = exported.source.to_string();
    let fixture = Fixture::with_observer(files.clone(), vec![exported], recorder.clone());
    let mut client = Client::new(&fixture, "one", 0);
    (client.flavour, client.principal) = (Flavour::Krb5p, gss("unanswered@EXAMPLE.ORG"));
    assert_eq!(client.run(&[Args::Putrootfh, lookup("export")]).0, Status::DELAY);
    assert_eq!(*recorder.denied.lock(), [(source, Denial::NameService)]);
}

#[test]
fn setattr_and_create_report_requested_access() {
    let (fixture, recorder) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    client.create("a");
    let attrs = mode(0o600);
    let set = setattr(&attrs);
    assert_eq!(client.status(&["export", "a"], &[set]), Status::OK);
    let make = mkdir("d", &attrs);
    assert_eq!(client.status(&["export"], &[make]), Status::OK);
    let wanted = [(Op::SETATTR.0, requested::MODE), (Op::CREATE.0, 2 << requested::TYPE_SHIFT)];
    assert_eq!(*recorder.set_access.lock(), wanted);
}

// RFC 8881 §18.3.4.
#[test]
fn refused_commit_is_reported_with_requested_access() {
    let (fixture, recorder) = fixture();
    let mut root = Client::new(&fixture, "one", 0);
    root.create("a");
    let mut alice = Client::new(&fixture, "two", 1000);
    recorder.operations.lock().clear();
    let commit = || Args::Commit(op::CommitArgs { offset: 4096, count: 0 });
    assert_eq!(alice.status(&["export", "a"], &[commit()]), Status::ACCESS);
    assert_eq!(root.status(&["export", "a"], &[commit()]), Status::OK);
    let commits: Vec<u32> = recorder
        .operations
        .lock()
        .iter()
        .filter(|(name, _)| name == "COMMIT")
        .map(|(_, status)| *status)
        .collect();
    assert_eq!(commits, [Status::ACCESS.0, Status::OK.0]);
    let modify = vouch_vfs::Access::MODIFY.0;
    assert_eq!(*recorder.commits.lock(), [(modify, 4096), (modify, 4096)]);
}
