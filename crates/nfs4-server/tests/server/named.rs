//! When an observer is told what becomes of names: as it is done and in that order, whatever
//! becomes of the operation.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{self, Args};
use vouch_nfs4::{Name, Stateid, Status};
use vouch_nfs4_server::{Compound, Export, ExportId, NameChange, NameOrder, Observation, Observer, ObserverNote, Progress};
use vouch_vfs::memory::Call;
use vouch_vfs::{Caller, Error, FileId, FileSystem as _, Patience};

use crate::world::{Client, MemoryFs, World, access, compound, export, lookup, mode, name_of, open_args, results};

/// Which file has which name of one directory, by what is told.
#[derive(Default)]
struct Model {
    order: NameOrder,
    names: Mutex<BTreeMap<Vec<u8>, FileId>>,
    /// What was told of names, and then with which status of the operation: as it came.
    told: Mutex<Vec<String>>,
}

impl Observer for Model {
    fn wants(&self, _: u32) -> bool {
        true
    }

    fn name_order(&self, _: ExportId) -> Option<&NameOrder> {
        Some(&self.order)
    }

    fn name_changed(&self, _: &Export, _: u32, naming: &NameChange<'_>) -> Option<ObserverNote> {
        // Whoever is not kept from it comes between the change and this.
        thread::yield_now();
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let mut names = self.names.lock();
        let told = match *naming {
            NameChange::Created(file, (_, name)) => {
                names.insert(name.into(), *file);
                format!("found {}", text(name))
            }
            NameChange::Linked(file, (_, name)) => {
                names.insert(name.into(), *file);
                format!("linked {}", text(name))
            }
            NameChange::Removed(_, (_, name)) => {
                names.remove(name);
                format!("removed {}", text(name))
            }
            NameChange::Renamed(file, (_, old), (_, new)) => {
                names.remove(old);
                names.insert(new.into(), *file);
                format!("renamed {} {}", text(old), text(new))
            }
        };
        self.told.lock().push(told.clone());
        Some(Box::new(told))
    }

    fn before_deferral(&self, seen: &Observation<'_>) -> Option<ObserverNote> {
        let told = format!("noted {}", name_of(op::Op(seen.op)));
        self.told.lock().push(told.clone());
        Some(Box::new(told))
    }

    fn operation(&self, seen: &Observation<'_>) {
        if let Some(named) = seen.details.as_ref().and_then(|told| told.note) {
            let named = named.downcast_ref::<String>().unwrap();
            self.told.lock().push(format!("{named}: {}", seen.status));
        }
    }
}

fn world() -> (World, Arc<Model>) {
    let (files, model) = (Arc::new(MemoryFs::new()), Arc::new(Model::default()));
    let exports = vec![export(7, &["export"], &files, access())];
    (World::observed(files, exports, model.clone()), model)
}

fn rename<'a>(old: &'a str, new: &'a str) -> [Args<'a>; 2] {
    [Args::Savefh, Args::Rename(op::RenameArgs { old: Name(old.as_bytes()), new: Name(new.as_bytes()) })]
}

fn take(model: &Model) -> Vec<String> {
    std::mem::take(&mut *model.told.lock())
}

#[test]
fn what_becomes_of_names_is_told_before_the_disk_has_it_and_in_its_order_also_where_the_disk_fails() {
    let (world, model) = world();
    let mut one = Client::new(&world, "one", 0);
    one.create("a");
    let mut clients = [Client::new(&world, "two", 0), Client::new(&world, "three", 0)];
    world.files.set_slow_sync(true);
    take(&model);
    let mut calls = Vec::new();
    let read = Args::Read(op::ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 1 });
    for (client, (old, new)) in clients.iter_mut().zip([("a", "b"), ("b", "c")]) {
        let [save, rename] = rename(old, new);
        // What follows a change in its call is told as late.
        let ops = [client.sequence(true), Args::Putrootfh, lookup("export"), save, rename, lookup(new), read.clone()];
        let mut call = world.begin(client.flavour, &client.connection, &client.principal, compound(2, &ops));
        assert!(matches!(call.run(&world.server, Patience::None), Progress::Blocked));
        calls.push(call);
    }
    assert_eq!(take(&model), ["renamed a b", "noted LOOKUP", "noted READ", "renamed b c", "noted LOOKUP", "noted READ"]);
    // The second is on the disk first, and the first fails.
    assert!(matches!(calls[1].run(&world.server, Patience::Any), Progress::Done(_)));
    world.files.set_fault(|call, _| (call == Call::SyncMetadata).then(|| Error::Io(std::io::Error::other("a bad block"))));
    assert!(matches!(calls[0].run(&world.server, Patience::Any), Progress::Done(_)));
    let io = Status::IO.0;
    let late = ["noted LOOKUP: 0", "noted READ: 0"];
    assert_eq!(take(&model), [&["renamed b c: 0"], &late[..], &[&*format!("renamed a b: {io}")], &late].concat());
}

/// Has `op` begin, and the file system not answer it until `meanwhile` is done; its status.
fn while_frozen(world: &World, client: &mut Client<'_>, call: Call, ops: &[Args<'_>], meanwhile: impl FnOnce()) -> Status {
    let (began, has_begun) = mpsc::channel();
    let (thaw, thawed) = mpsc::channel::<()>();
    let frozen = Mutex::new(Some((began, thawed)));
    world.files.set_fault(move |at, _| {
        let first = (at == call).then(|| frozen.lock().take()).flatten();
        if let Some((began, thawed)) = first {
            began.send(()).unwrap();
            // Where the test fails it goes on.
            let _ = thawed.recv_timeout(Duration::from_secs(60));
        }
        None
    });
    thread::scope(|scope| {
        let frozen = scope.spawn(|| client.status(&["export"], ops));
        // Whatever happens to the test, that thread ends.
        let thaw = thaw;
        has_begun.recv_timeout(Duration::from_secs(60)).expect("it has begun");
        meanwhile();
        drop(thaw);
        frozen.join().unwrap()
    })
}

/// What changes names: OPEN, CREATE, REMOVE, RENAME and LINK, each in a call of its own client that
/// has not been run.
fn changes(world: &World) -> Vec<Compound> {
    let mode = mode(0o755);
    let directory = op::CreateArgs { kind: op::CreateType::Plain(FileType::Directory), name: Name(b"directory"), attrs: mode.fattr() };
    let link = [lookup("linked"), Args::Savefh, Args::Putrootfh, lookup("export"), Args::Link(op::LinkArgs { name: Name(b"link") })];
    let all: [&[Args<'_>]; 5] = [
        &[open_args("opened", Some(&mode))],
        &[Args::Create(directory)],
        &[Args::Remove(op::RemoveArgs { name: Name(b"removed") })],
        &rename("old", "new"),
        &link,
    ];
    let begin = |(number, ops): (usize, &&[Args<'_>])| {
        let mut client = Client::new(world, &format!("other {number}"), 0);
        let ops = [&[client.sequence(true), Args::Putrootfh, lookup("export")], *ops].concat();
        world.begin(client.flavour, &client.connection, &client.principal, compound(2, &ops))
    };
    all.iter().enumerate().map(begin).collect()
}

/// Runs them without patience; which would block.
fn blocked(world: &World, calls: &mut [Compound]) -> Vec<bool> {
    calls.iter_mut().map(|call| matches!(call.run(&world.server, Patience::None), Progress::Blocked)).collect()
}

/// Runs one on to its end.
fn finish(world: &World, call: &mut Compound) -> Status {
    let Progress::Done(Some(reply)) = call.run(&world.server, Patience::Any) else { panic!("neither done nor answered") };
    results(reply.bytes[28..].to_vec()).0
}

fn make(client: &mut Client<'_>) -> usize {
    let names = ["a", "removed", "old", "linked"];
    for name in names {
        client.create(name);
    }
    client.world.files.file_count()
}

#[test]
fn who_must_not_wait_does_not_wait_for_its_turn_to_change_names_and_has_done_nothing_then() {
    let (world, model) = world();
    let mut client = Client::new(&world, "one", 0);
    let count = make(&mut client);
    let mut calls = changes(&world);
    take(&model);
    let (mut blocks, mut told) = (Vec::new(), Vec::new());
    let status = while_frozen(&world, &mut client, Call::Rename, &rename("a", "b"), || {
        blocks = blocked(&world, &mut calls);
        told = take(&model);
    });
    assert_eq!((status, blocks), (Status::OK, vec![true; 5]));
    assert_eq!(told, [""; 0]);
    assert_eq!(world.files.file_count(), count);
    assert_eq!(take(&model), ["renamed a b", "renamed a b: 0"]);
    // Each is done then, and once.
    for (call, told) in calls.iter_mut().zip(["found opened", "found directory", "removed removed", "renamed old new", "linked link"]) {
        assert_eq!(finish(&world, call), Status::OK, "{told}");
        assert_eq!(take(&model), [told, &format!("{told}: 0")]);
    }
    // What was removed is still open.
    assert_eq!(world.files.file_count(), count + 2);
}

#[test]
fn what_makes_and_removes_names_goes_on_beside_what_is_long_at_making_one() {
    let (world, _) = world();
    let mut client = Client::new(&world, "one", 0);
    make(&mut client);
    let mut calls = changes(&world);
    let mut blocks = Vec::new();
    let mode = mode(0o644);
    let open = open_args("made", Some(&mode));
    let status = while_frozen(&world, &mut client, Call::Create, &[open], || blocks = blocked(&world, &mut calls));
    assert_eq!((status, blocks), (Status::OK, vec![false, false, false, true, true]));
    assert_eq!(finish(&world, &mut calls[3]), Status::OK);
    assert_eq!(finish(&world, &mut calls[4]), Status::OK);
}

#[test]
fn where_nobody_follows_names_there_are_no_turns() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    make(&mut client);
    let mut calls = changes(&world);
    let mut blocks = Vec::new();
    let status = while_frozen(&world, &mut client, Call::Rename, &rename("a", "b"), || blocks = blocked(&world, &mut calls));
    assert_eq!((status, blocks), (Status::OK, vec![false; 5]));
}

#[test]
fn a_rename_between_two_names_of_one_file_and_what_is_refused_change_no_names() {
    let (world, model) = world();
    let mut client = Client::new(&world, "one", 0);
    client.create("a");
    let link = [lookup("a"), Args::Savefh, Args::Putrootfh, lookup("export"), Args::Link(op::LinkArgs { name: Name(b"b") })];
    assert_eq!(client.status(&["export"], &link), Status::OK);
    assert_eq!(take(&model).last().unwrap(), "linked b: 0");
    assert_eq!(client.status(&["export"], &rename("a", "b")), Status::OK);
    assert_eq!(client.status(&["export"], &rename("a", "a")), Status::OK);
    assert_eq!(client.status(&["export"], &rename("none", "a")), Status::NOENT);
    assert_eq!(client.status(&["export"], &link), Status::EXIST);
    assert_eq!(take(&model), [""; 0]);
    assert_eq!(client.status(&["export"], &[Args::Remove(op::RemoveArgs { name: Name(b"a") })]), Status::OK);
    assert_eq!(client.status(&["export"], &rename("b", "c")), Status::OK);
    assert_eq!(take(&model), ["removed a", "removed a: 0", "renamed b c", "renamed b c: 0"]);
}

#[test]
fn who_follows_what_is_told_of_names_knows_where_each_file_is_however_many_rename_at_once() {
    let (world, model) = world();
    let names = ["a", "b", "c", "d"];
    let mut clients: Vec<_> = (0..4).map(|number| Client::new(&world, &format!("{number}"), 0)).collect();
    let mode = mode(0o644);
    for name in &names[..3] {
        assert_eq!(clients[0].status(&["export"], &[open_args(name, Some(&mode))]), Status::OK);
    }
    thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                for step in 0..400 {
                    let (old, new) = (names[(step * 7 + number) % 4], names[(step * 5 + number * 3 + step / 3) % 4]);
                    let status = client.status(&["export"], &rename(old, new));
                    assert!([Status::OK, Status::NOENT].contains(&status), "{status:?}");
                    // Never fewer than two are left.
                    let mode = self::mode(0o644);
                    client.status(&["export"], &[open_args(names[step % 4], Some(&mode))]);
                }
            });
        }
    });
    let (root, caller) = (world.files.root(), Caller::new(0, 0, []));
    let is: BTreeMap<Vec<u8>, FileId> = names
        .iter()
        .filter_map(|name| {
            let component = vouch_vfs::Name::new(name.as_bytes()).unwrap();
            let found = world.files.lookup(&caller, &root, component, Patience::Any).ok()?;
            Some((name.as_bytes().to_vec(), found.0))
        })
        .collect();
    assert_eq!(*model.names.lock(), is);
}
