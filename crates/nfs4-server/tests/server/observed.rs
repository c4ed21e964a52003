//! What an observer is told: of each operation once, what came of it in the end, and of closes what
//! was done since the open.

use std::sync::Arc;

use parking_lot::Mutex;
use vouch_nfs4::op::{self, Access, AccessArgs, Args, CloseArgs, Op, Results};
use vouch_nfs4::{Attributes, Bytes, OwnerSeq, Stateid, Status};
use vouch_nfs4_server::testing::LEASE_MS;
use vouch_nfs4_server::{
    ClientAccess, ClientMatcher, Denial, Denied, Effect, EndedState, Flavour, JobProgress, Loss, Observation, Observer, Stage, Totals,
    requested,
};
use vouch_vfs::memory::Call;
use vouch_vfs::{Error, Patience};

use crate::world::{Client, MemoryFs, Packed, World, access, compound, export, getattr, lookup, mode, name_of, open_args, results, user};

/// Operation, access asked for, how far it is, bytes read and written, status.
type Moved = (u32, u32, Stage, (u64, u64), u32);

/// Writes down what it sees.
#[derive(Default)]
struct Notes {
    seen: Mutex<Vec<(String, u32)>>,
    totals: Mutex<Vec<Totals>>,
    granted: Mutex<Vec<u32>>,
    lost: Mutex<Vec<(u16, Loss, Totals)>>,
    /// Of READ, WRITE, COPY and CLONE.
    moved: Mutex<Vec<Moved>>,
    denied: Mutex<Vec<(String, Denial)>>,
    /// Access asked for and offset of each COMMIT.
    commits: Mutex<Vec<(u32, u64)>>,
    /// Access asked for, by operation, where it is asked for in bits beyond those of ACCESS.
    sets: Mutex<Vec<(u32, u32)>>,
    /// Access asked for and granted by each OPEN that was done.
    opens: Mutex<Vec<(u32, u32)>>,
}

impl Observer for Notes {
    fn wants(&self, _: u32) -> bool {
        true
    }

    fn operation(&self, seen: &Observation<'_>) {
        let told = seen.details.as_ref().expect("it was wanted");
        let name = told.arguments.name.map_or_else(String::new, |name| format!(" {}", String::from_utf8_lossy(name)));
        self.seen.lock().push((format!("{}{name}", name_of(Op(seen.op))), seen.status));
        self.totals.lock().extend(told.totals);
        if [Op::READ, Op::WRITE, Op::COPY, Op::CLONE].contains(&Op(seen.op)) {
            let access = told.arguments.access.expect("it asks for some");
            assert!(told.saved.is_some() || ![Op::COPY, Op::CLONE].contains(&Op(seen.op)));
            self.moved.lock().push((seen.op, access, told.stage, (seen.bytes_read, seen.bytes_written), seen.status));
        }
        self.granted.lock().extend(told.granted);
        if Op(seen.op) == Op::COMMIT {
            self.commits.lock().extend(told.arguments.access.zip(told.arguments.offset));
        }
        if [Op::SETATTR, Op::CREATE].contains(&Op(seen.op)) {
            self.sets.lock().extend(told.arguments.access.map(|access| (seen.op, access)));
        }
        if Op(seen.op) == Op::OPEN {
            self.opens.lock().extend(told.arguments.access.zip(told.granted));
        }
    }

    fn denied(&self, denied: &Denied<'_>) {
        assert_eq!((denied.principal, denied.flavour), (&user(0), Flavour::Sys));
        self.denied.lock().push((denied.export.source.to_string(), denied.why));
    }

    fn state_ended(&self, lost: &EndedState<'_>) {
        assert_eq!((lost.principal, lost.flavour, lost.delegation), (&user(0), Flavour::Sys, false));
        self.lost.lock().push((lost.peer.port(), lost.why, lost.totals));
    }
}

fn world() -> (World, Arc<Notes>) {
    let (files, notes) = (Arc::new(MemoryFs::new()), Arc::new(Notes::default()));
    let exports = vec![export(7, &["export"], &files, access())];
    (World::observed(files, exports, notes.clone()), notes)
}

fn read(stateid: Stateid, count: u32) -> Args<'static> {
    Args::Read(op::ReadArgs { stateid, offset: 0, count })
}

fn write(stateid: Stateid, data: &[u8]) -> Args<'_> {
    Args::Write(op::WriteArgs { stateid, offset: 0, stable: op::StableHow::Unstable, data: Bytes(data) })
}

fn close(stateid: Stateid) -> Args<'static> {
    Args::Close(CloseArgs { seq: OwnerSeq(0), stateid })
}

#[test]
fn what_did_not_become_durable_is_told_as_failed_and_only_once() {
    let (world, notes) = world();
    let mut client = Client::new(&world, "one", 0);
    world.files.set_slow_sync(true);
    notes.seen.lock().clear();
    let mode = mode(0o644);
    let ops = [client.sequence(false), Args::Putrootfh, lookup("export"), open_args("a", Some(&mode)), Args::Getfh, getattr(&[1])];
    let mut call = world.begin(client.flavour, &client.connection, &client.principal, compound(2, &ops));
    // It has to wait for the disk: by now the file is made, and nobody is told so.
    assert!(matches!(call.run(&world.server, Patience::None), vouch_nfs4_server::Progress::Blocked));
    let told: Vec<_> = notes.seen.lock().iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(told, ["SEQUENCE", "PUTROOTFH", "LOOKUP export"]);
    world.files.set_fault(|call, _| (call == Call::SyncMetadata).then(|| Error::Io(std::io::Error::other("a bad block"))));
    let vouch_nfs4_server::Progress::Done(Some(reply)) = call.run(&world.server, Patience::Any) else { panic!("not done") };
    assert_eq!(results(reply.bytes[28..].to_vec()).0, Status::IO);
    let seen = std::mem::take(&mut *notes.seen.lock());
    // What followed was done, and saw a file that may be gone after a power cut.
    let after: Vec<_> = seen[3..].iter().map(|(name, status)| (name.as_str(), *status)).collect();
    assert_eq!(after, [("OPEN a", Status::IO.0), ("GETFH", 0), ("GETATTR", 0)]);
    world.files.clear_fault();
    assert_eq!(client.status(&["export"], &[open_args("a", Some(&mode))]), Status::OK);
    assert_eq!(notes.seen.lock().last(), Some(&("OPEN a".to_owned(), 0)));
}

#[test]
fn a_close_tells_what_its_own_open_has_moved() {
    let (world, notes) = world();
    let (mut one, mut two) = (Client::new(&world, "one", 0), Client::new(&world, "two", 0));
    // The same user of the same machine, twice.
    let (mine, other) = (one.create("a"), two.create("a"));
    let at = ["export", "a"];
    assert_eq!(one.status(&at, &[write(mine, &[1; 5000])]), Status::OK);
    assert_eq!(one.status(&at, &[read(mine, 100)]), Status::OK);
    assert_eq!(two.status(&at, &[read(other, 4000)]), Status::OK);
    // Through an open that is widened meanwhile.
    let again = one.create("a");
    assert_eq!(one.status(&at, &[read(again, 11)]), Status::OK);
    // By no open: nobody's.
    assert_eq!(one.status(&at, &[read(Stateid::ANONYMOUS, 77)]), Status::OK);
    world.now_ms.fetch_add(1500, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(one.status(&at, &[close(again)]), Status::OK);
    assert_eq!(two.status(&at, &[close(other)]), Status::OK);
    let totals = notes.totals.lock().clone();
    assert_eq!(totals, [Totals { read: 111, written: 5000, open_ms: 1500 }, Totals { read: 4000, written: 0, open_ms: 1500 }]);
    // Anew after that.
    let third = one.create("a");
    assert_eq!(one.status(&at, &[close(third)]), Status::OK);
    assert_eq!(notes.totals.lock().last(), Some(&Totals { read: 0, written: 0, open_ms: 0 }));
}

#[test]
fn an_open_that_its_client_never_closes_is_told_once_with_what_it_has_moved() {
    let (world, notes) = world();
    let (mut gone, mut again) = (Client::new(&world, "gone", 0), Client::new(&world, "again", 0));
    let (first, second) = (gone.create("a"), again.create("b"));
    assert_eq!(gone.status(&["export", "a"], &[write(first, &[1; 5000])]), Status::OK);
    assert_eq!(again.status(&["export", "b"], &[write(second, &[2; 70])]), Status::OK);
    let peers = [gone.connection.peer().port(), again.connection.peer().port()];
    let pass = |ms: u64| {
        world.now_ms.fetch_add(ms, std::sync::atomic::Ordering::Relaxed);
        world.server.tick(world.now());
    };
    pass(500);
    // One begins anew, and its life before ends with its first session.
    Client::restarted(&world, "again", 0);
    assert_eq!(*notes.lost.lock(), [(peers[1], Loss::Restarted, Totals { read: 0, written: 70, open_ms: 500 })]);
    // The other is silent: nobody is in need of its lease, and it may come back for a day.
    pass(LEASE_MS);
    pass(LEASE_MS);
    assert_eq!(notes.lost.lock().len(), 1);
    world.server.connection_closed(&gone.connection, world.now());
    pass(25 * 3600 * 1000);
    let open_ms = 500 + 2 * LEASE_MS + 25 * 3600 * 1000;
    assert_eq!(notes.lost.lock()[1..], [(peers[0], Loss::Expired, Totals { read: 0, written: 5000, open_ms })]);
    // What is closed is not lost, also when its client then goes.
    let mut later = Client::new(&world, "later", 0);
    let third = later.create("c");
    assert_eq!(later.status(&["export", "c"], &[close(third)]), Status::OK);
    pass(LEASE_MS);
    pass(25 * 3600 * 1000);
    assert_eq!(notes.lost.lock().len(), 2);
}

#[test]
fn what_was_granted_is_told() {
    let (world, notes) = world();
    let mut root = Client::new(&world, "one", 0);
    root.create("a");
    let mut nobody = Client::new(&world, "two", 4000);
    notes.granted.lock().clear();
    let asked = Access::READ | Access::MODIFY | Access::EXTEND;
    let (status, list) = nobody.at(&["export", "a"], &[Args::Access(AccessArgs { access: asked })]);
    assert_eq!(status, Status::OK);
    let [Results::Access(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    assert_eq!((ok.access, notes.granted.lock().clone()), (Access::READ, vec![Access::READ.0]));
    notes.granted.lock().clear();
    root.create("b");
    assert_eq!(*notes.granted.lock(), [asked.0 | requested::CREATE]);
}

#[test]
fn an_open_that_empties_a_file_or_makes_one_is_told_so() {
    let (world, notes) = world();
    let mut client = Client::new(&world, "one", 0);
    let (mode, empty) = (mode(0o644), Packed::new(&[4], &Attributes { size: Some(0), ..Attributes::default() }));
    let both = (Access::READ | Access::MODIFY | Access::EXTEND).0;
    let may_make = both | requested::CREATE;
    // Makes the file; finds it; empties it; may empty one, and makes it.
    for (name, attrs, asked, done) in [
        ("a", &mode, may_make, requested::CREATE),
        ("a", &mode, may_make, 0),
        ("a", &empty, may_make | requested::TRUNCATE, requested::TRUNCATE),
        ("b", &empty, may_make | requested::TRUNCATE, requested::CREATE),
    ] {
        notes.opens.lock().clear();
        assert_eq!(client.status(&["export"], &[open_args(name, Some(attrs))]), Status::OK);
        assert_eq!(*notes.opens.lock(), [(asked, both | done)], "{name}");
    }
}

impl Notes {
    /// Whether the uses that were told since are such that no OPEN has told of.
    fn unopened(&self) -> Vec<bool> {
        std::mem::take(&mut *self.moved.lock()).into_iter().map(|(_, access, ..)| access & requested::UNOPENED != 0).collect()
    }
}

#[test]
fn a_use_by_anothers_open_is_told_as_one_without() {
    let (world, notes) = world();
    let mut client = Client::new(&world, "one", 0);
    let mine = client.create("a");
    let at = ["export", "a"];
    assert_eq!(client.status(&at, &[write(mine, b"secret"), read(mine, 6)]), Status::OK);
    assert_eq!(notes.unopened(), [false, false]);
    // Another user of that machine, over the same session, who may read the file; and one who may not.
    client.principal = user(1000);
    assert_eq!(client.status(&at, &[read(mine, 6)]), Status::OK);
    assert_eq!(client.status(&at, &[write(mine, b"x")]), Status::ACCESS);
    assert_eq!(notes.unopened(), [true, true]);
    client.principal = user(0);
    assert_eq!(client.status(&at, &[read(mine, 6), read(Stateid::ANONYMOUS, 6)]), Status::OK);
    assert_eq!(notes.unopened(), [false, true]);
}

#[test]
fn the_first_use_by_a_delegation_is_told_as_one_without_an_open() {
    let (world, notes) = world();
    let mut client = Client::new(&world, "one", 0);
    crate::delegated::bind(&client);
    let (mine, _, delegation) = crate::delegated::open(&mut client, op::ShareAccess::WANT_WRITE_DELEG, Some(&mode(0o644)));
    let op::Delegation::Write(op::WriteDelegation { stateid, .. }) = delegation else { panic!("{delegation:?}") };
    let at = ["export", "f"];
    assert_eq!(
        client.status(&at, &[write(mine, b"x"), write(stateid, b"y"), write(stateid, b"z"), read(stateid, 1), read(stateid, 1)]),
        Status::OK
    );
    assert_eq!(notes.unopened(), [false, true, false, true, false]);
    // What comes after the close is another open, which the server is not told of.
    assert_eq!(client.status(&at, &[close(mine)]), Status::OK);
    assert_eq!(client.status(&at, &[read(stateid, 1), read(stateid, 1)]), Status::OK);
    assert_eq!(notes.unopened(), [true, false]);
    client.principal = user(1000);
    assert_eq!(client.status(&at, &[read(stateid, 1), read(stateid, 1)]), Status::OK);
    assert_eq!(notes.unopened(), [true, true]);
}

const LONG: u64 = 65 << 20;

fn copy(source: Stateid, destination: Stateid) -> Args<'static> {
    Args::Copy(op::CopyArgs {
        source,
        destination,
        source_offset: 0,
        destination_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: false,
        source_server: vouch_nfs4::List::default(),
    })
}

/// Begins a copy of a long file in the background, by the anonymous stateid of its source: the job,
/// and the stateids of the destination's open and of the copy.
fn begin_copy(world: &World, client: &mut Client<'_>) -> (vouch_nfs4_server::Job, Stateid, Stateid) {
    let (from, to) = (client.create("from"), client.create("to"));
    let last = Args::Write(op::WriteArgs { stateid: from, offset: LONG - 1, stable: op::StableHow::Unstable, data: Bytes(b"x") });
    assert_eq!(client.status(&["export", "from"], &[last]), Status::OK);
    let walk = |name| [Args::Putrootfh, lookup("export"), lookup(name)];
    let mut ops = vec![client.sequence(false)];
    ops.extend(walk("from"));
    ops.push(Args::Savefh);
    ops.extend(walk("to"));
    ops.push(copy(Stateid::ANONYMOUS, to));
    let (reply, effects) = world.call(&client.connection, &client.principal, compound(2, &ops));
    let (status, list) = results(reply);
    assert_eq!(status, Status::OK);
    let Some(Results::Copy(Ok(copy))) = list.last() else { panic!("{list:?}") };
    let job = effects.into_iter().find_map(|effect| if let Effect::Background(job) = effect { Some(job) } else { None });
    (job.expect("it goes on in the background"), to, copy.response.callback.expect("what goes on has a name"))
}

fn end(world: &World, mut job: vouch_nfs4_server::Job) {
    while !matches!(job.step(&world.server, world.now()), JobProgress::Done(_)) {}
}

#[test]
fn a_copy_in_the_background_is_told_at_its_end_with_what_it_has_moved_or_why_it_failed() {
    let (world, notes) = world();
    let mut client = Client::new(&world, "one", 0);
    let (job, to, _) = begin_copy(&world, &mut client);
    let access = requested::UNOPENED | Access::READ.0 | Access::MODIFY.0;
    let copies = || notes.moved.lock().iter().filter(|(op, ..)| *op == Op::COPY.0).copied().collect::<Vec<_>>();
    let begun = (Op::COPY.0, access, Stage::Begun, (0, 0), 0);
    assert_eq!(copies(), [begun]);
    end(&world, job);
    let plain = Access::READ.0 | Access::MODIFY.0;
    assert_eq!(copies(), [begun, (Op::COPY.0, plain, Stage::Ended, (LONG, LONG), 0)]);
    // What it wrote was by that open.
    assert_eq!(client.status(&["export", "to"], &[close(to)]), Status::OK);
    assert_eq!(notes.totals.lock().last().map(|totals| totals.written), Some(LONG));
    notes.moved.lock().clear();
    let (job, ..) = begin_copy(&world, &mut client);
    world.files.set_fault(|call, _| (call == Call::Region).then(|| Error::Io(std::io::Error::other("a bad block"))));
    end(&world, job);
    assert_eq!(copies(), [begun, (Op::COPY.0, plain, Stage::Ended, (0, 0), Status::IO.0)]);
}

#[test]
fn the_end_of_a_copy_in_the_background_is_known_to_nobody_in_the_step_that_tells_the_observer() {
    let (world, notes) = world();
    let mut client = Client::new(&world, "one", 0);
    for fails in [false, true] {
        let (mut job, _, stateid) = begin_copy(&world, &mut client);
        if fails {
            world.files.set_fault(|call, _| if call == Call::Region { panic!("as the test wants it") } else { None });
        }
        while matches!(job.step(&world.server, world.now()), JobProgress::More) {}
        world.files.clear_fault();
        let told = notes.moved.lock().last().map(|&(op, _, stage, ..)| (op, stage));
        assert_eq!(told, Some((Op::COPY.0, Stage::Ended)));
        notes.moved.lock().clear();
        let mut end = || {
            let (_, list) = client.at(&["export", "to"], &[Args::OffloadStatus(op::OffloadStatusArgs { stateid })]);
            let Some(Results::OffloadStatus(Ok(ok))) = list.last() else { panic!("{list:?}") };
            ok.complete
        };
        assert_eq!(end(), None);
        assert!(matches!(job.step(&world.server, world.now()), JobProgress::Done(_)));
        assert_eq!(end(), Some(if fails { Status::SERVERFAULT } else { Status::OK }));
        assert!(notes.moved.lock().iter().all(|(op, ..)| *op != Op::COPY.0), "told once");
    }
}

#[test]
fn a_copy_in_the_background_that_panics_is_at_its_end_and_its_client_hears_of_it() {
    let (world, notes) = world();
    let mut client = Client::new(&world, "one", 0);
    let (job, ..) = begin_copy(&world, &mut client);
    world.files.set_fault(|call, _| if call == Call::Region { panic!("as the test wants it") } else { None });
    end(&world, job);
    world.files.clear_fault();
    let told = notes.moved.lock().iter().rfind(|(op, ..)| *op == Op::COPY.0).copied();
    assert_eq!(told.map(|(_, _, stage, bytes, status)| (stage, bytes, status)), Some((Stage::Ended, (0, 0), Status::SERVERFAULT.0)));
    let errors = world.server.status(world.now()).recent_errors;
    assert!(errors[0].message.contains("panic") && errors[0].operation == "COPY", "{errors:?}");
    // It is remembered for a while, as one that has ended otherwise, and then no more.
    let copies = || world.server.totals(world.now()).0.copies;
    assert_eq!(copies(), 1);
    world.now_ms.fetch_add(3_600_000, std::sync::atomic::Ordering::Relaxed);
    world.server.tick(world.now());
    assert_eq!(copies(), 0);
}

/// Lets nobody in.
struct NoClient;

impl ClientMatcher for NoClient {
    fn access_for(&self, _: std::net::SocketAddr) -> Option<Arc<ClientAccess>> {
        None
    }
}

#[test]
fn who_asks_for_an_export_that_is_not_for_its_client_is_told() {
    let (files, notes) = (Arc::new(MemoryFs::new()), Arc::new(Notes::default()));
    let hidden = vouch_nfs4_server::Export { clients: Arc::new(NoClient), ..export(8, &["hidden"], &files, access()) };
    let source = hidden.source.to_string();
    let world = World::observed(files.clone(), vec![export(7, &["export"], &files, access()), hidden], notes.clone());
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(client.run(&[Args::Putrootfh, lookup("hidden")]).0, Status::NOENT);
    assert_eq!(client.run(&[Args::Putrootfh, lookup("no such")]).0, Status::NOENT);
    assert_eq!(client.run(&[Args::Putrootfh, lookup("export")]).0, Status::OK);
    assert_eq!(*notes.denied.lock(), [(source, Denial::Client)]);
}

#[test]
fn what_is_set_and_made_is_told() {
    let (world, notes) = world();
    let mut client = Client::new(&world, "one", 0);
    client.create("a");
    let attrs = mode(0o600);
    let set = Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: attrs.fattr() });
    assert_eq!(client.status(&["export", "a"], &[set]), Status::OK);
    let kind = op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory);
    let make = Args::Create(op::CreateArgs { kind, name: vouch_nfs4::Name(b"d"), attrs: attrs.fattr() });
    assert_eq!(client.status(&["export"], &[make]), Status::OK);
    let wanted = [(Op::SETATTR.0, requested::MODE), (Op::CREATE.0, 2 << requested::TYPE_SHIFT)];
    assert_eq!(*notes.sets.lock(), wanted);
}

// RFC 8881, section 18.3.4: who may not write to a file may not commit it; he has tried.
#[test]
fn a_commit_that_is_refused_is_told_with_what_it_asked_for() {
    let (world, notes) = world();
    let mut root = Client::new(&world, "one", 0);
    root.create("a");
    let mut alice = Client::new(&world, "two", 1000);
    notes.seen.lock().clear();
    let commit = || Args::Commit(op::CommitArgs { offset: 4096, count: 0 });
    assert_eq!(alice.status(&["export", "a"], &[commit()]), Status::ACCESS);
    assert_eq!(root.status(&["export", "a"], &[commit()]), Status::OK);
    let commits: Vec<u32> = notes.seen.lock().iter().filter(|(name, _)| name == "COMMIT").map(|(_, status)| *status).collect();
    assert_eq!(commits, [Status::ACCESS.0, Status::OK.0]);
    let modify = vouch_vfs::Access::MODIFY.0;
    assert_eq!(*notes.commits.lock(), [(modify, 4096), (modify, 4096)]);
}
