use std::collections::BTreeMap;

use vouch_nfs4_server::{CallOrigin, CompletedOp, EventPaths, NameChange, NameOrder, Observer};
use vouch_vfs::{FileId, FileSystem as _};

use crate::prelude::*;

#[derive(Default)]
struct NameModel {
    order: NameOrder,
    names: Mutex<BTreeMap<Vec<u8>, FileId>>,
    events: Mutex<Vec<String>>,
}

impl Observer for NameModel {
    fn wants(&self, _: op::Op) -> bool {
        true
    }

    fn name_order(&self, _: ExportId) -> Option<&NameOrder> {
        Some(&self.order)
    }

    fn name_changed(
        &self,
        _: &Export,
        _: op::Op,
        change: &NameChange<'_>,
    ) -> Option<Box<EventPaths>> {
        thread::yield_now();
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let mut names = self.names.lock();
        let event = match *change {
            NameChange::Created(file, (_, name)) => {
                names.insert(name.into(), *file);
                format!("created {}", text(name))
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
        Some(self.note(event))
    }

    fn paths(&self, done: &CompletedOp<'_>) -> Option<Box<EventPaths>> {
        Some(self.note(format!("deferred {}", name_of(done.op))))
    }

    fn operation(&self, _: &CallOrigin, done: &CompletedOp<'_>) -> bool {
        if let Some(paths) = &done.details.paths {
            let event = String::from_utf8_lossy(&paths.path);
            self.events.lock().push(format!("{event}: {}", done.status.0));
        }
        false
    }
}

impl NameModel {
    fn note(&self, event: String) -> Box<EventPaths> {
        self.events.lock().push(event.clone());
        let path = Arc::<[u8]>::from(event.into_bytes()).into();
        Box::new(EventPaths { path, ..EventPaths::default() })
    }
}

fn fixture() -> (Fixture, Arc<NameModel>) {
    let (files, model) = (Arc::new(MemoryFs::new()), Arc::new(NameModel::default()));
    let exports = vec![export(7, &["export"], &files, sys_access())];
    (Fixture::with_observer(files, exports, model.clone()), model)
}

fn take_events(model: &NameModel) -> Vec<String> {
    std::mem::take(&mut *model.events.lock())
}

#[test]
fn names_are_reported_in_change_order_even_if_disk_fails() {
    let (fixture, model) = fixture();
    let mut one = Client::new(&fixture, "one", 0);
    one.create("a");
    let mut clients = [Client::new(&fixture, "two", 0), Client::new(&fixture, "three", 0)];
    fixture.files.set_slow_sync(true);
    take_events(&model);
    let mut calls = Vec::new();
    for (client, (old, new)) in clients.iter_mut().zip([("a", "b"), ("b", "c")]) {
        let mut call = client.begin(&[
            Args::Savefh,
            rename(old, new),
            lookup(new),
            read(Stateid::ANONYMOUS, 0, 1),
        ]);
        assert!(fixture.blocks(&mut call));
        calls.push(call);
    }
    assert_eq!(
        take_events(&model),
        [
            "renamed a b",
            "deferred LOOKUP",
            "deferred READ",
            "renamed b c",
            "deferred LOOKUP",
            "deferred READ"
        ]
    );
    assert!(matches!(calls[1].run(&fixture.server, Blocking::Allowed).progress, Progress::Done(_)));
    fixture.fail_with_io(Call::SyncMetadata);
    assert!(matches!(calls[0].run(&fixture.server, Blocking::Allowed).progress, Progress::Done(_)));
    let io = Status::IO.0;
    let deferred = ["deferred LOOKUP: 0", "deferred READ: 0"];
    assert_eq!(
        take_events(&model),
        [&["renamed b c: 0"], &deferred[..], &[&*format!("renamed a b: {io}")], &deferred].concat()
    );
}

pub(crate) fn with_call_blocked(
    fixture: &Fixture,
    client: &mut Client<'_>,
    call: Call,
    ops: &[Args<'_>],
    meanwhile: impl FnOnce(),
) -> Status {
    let (reached, reached_rx) = mpsc::channel();
    let (thaw, thawed) = mpsc::channel::<()>();
    let frozen = Mutex::new(Some((reached, thawed)));
    fixture.files.set_fault(move |at, _| {
        let first = (at == call).then(|| frozen.lock().take()).flatten();
        if let Some((reached, thawed)) = first {
            reached.send(()).unwrap();
            let _ = thawed.recv_timeout(Duration::from_secs(60));
        }
        None
    });
    thread::scope(|scope| {
        let frozen = scope.spawn(|| client.status(&["export"], ops));
        let thaw = thaw;
        reached_rx.recv_timeout(Duration::from_secs(60)).expect("the call has begun");
        meanwhile();
        drop(thaw);
        frozen.join().unwrap()
    })
}

fn begin_name_changes(fixture: &Fixture) -> Vec<Compound> {
    let mode = mode(0o755);
    let link = [
        lookup("linked"),
        Args::Savefh,
        Args::Putrootfh,
        lookup("export"),
        Args::Link(op::LinkArgs { name: Name(b"link") }),
    ];
    let all: [&[Args<'_>]; 5] = [
        &[open_by_name("opened", Some(&mode))],
        &[mkdir("directory", &mode)],
        &[remove("removed")],
        &[Args::Savefh, rename("old", "new")],
        &link,
    ];
    let begin = |(number, ops): (usize, &&[Args<'_>])| {
        let mut client = Client::new(fixture, &format!("other {number}"), 0);
        let ops = [&[client.next_sequence(true), Args::Putrootfh, lookup("export")], *ops].concat();
        client.begin_call(&ops)
    };
    all.iter().enumerate().map(begin).collect()
}

fn run_without_waiting(fixture: &Fixture, calls: &mut [Compound]) -> Vec<bool> {
    calls.iter_mut().map(|call| fixture.blocks(call)).collect()
}

fn create_files(client: &mut Client<'_>) -> usize {
    let names = ["a", "removed", "old", "linked"];
    for name in names {
        client.create(name);
    }
    client.fixture.files.file_count()
}

#[test]
fn blocked_name_changes_have_no_effect_before_their_turn() {
    let (fixture, model) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    let count = create_files(&mut client);
    let mut calls = begin_name_changes(&fixture);
    take_events(&model);
    let (mut blocks, mut events) = (Vec::new(), Vec::new());
    let status = with_call_blocked(
        &fixture,
        &mut client,
        Call::Rename,
        &[Args::Savefh, rename("a", "b")],
        || {
            blocks = run_without_waiting(&fixture, &mut calls);
            events = take_events(&model);
        },
    );
    assert_eq!((status, blocks), (Status::OK, vec![true; 5]));
    assert_eq!(events, [""; 0]);
    assert_eq!(fixture.files.file_count(), count);
    assert_eq!(take_events(&model), ["renamed a b", "renamed a b: 0"]);
    for (call, event) in calls.iter_mut().zip([
        "created opened",
        "created directory",
        "removed removed",
        "renamed old new",
        "linked link",
    ]) {
        assert_eq!(fixture.run_to_status(call, Blocking::Allowed), Status::OK, "{event}");
        assert_eq!(take_events(&model), [event, &format!("{event}: 0")]);
    }
    assert_eq!(fixture.files.file_count(), count + 2);
}

#[test]
fn slow_create_does_not_block_other_creates_and_removes() {
    let (fixture, _) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    create_files(&mut client);
    let mut calls = begin_name_changes(&fixture);
    let mut blocks = Vec::new();
    let mode = mode(0o644);
    let open = open_by_name("made", Some(&mode));
    let status = with_call_blocked(&fixture, &mut client, Call::Create, &[open], || {
        blocks = run_without_waiting(&fixture, &mut calls)
    });
    assert_eq!((status, blocks), (Status::OK, vec![false, false, false, true, true]));
    assert_eq!(fixture.run_to_status(&mut calls[3], Blocking::Allowed), Status::OK);
    assert_eq!(fixture.run_to_status(&mut calls[4], Blocking::Allowed), Status::OK);
}

#[test]
fn without_observer_name_changes_do_not_block() {
    let (fixture, mut client) = Client::with_fixture();
    create_files(&mut client);
    let mut calls = begin_name_changes(fixture);
    let mut blocks = Vec::new();
    let status = with_call_blocked(
        fixture,
        &mut client,
        Call::Rename,
        &[Args::Savefh, rename("a", "b")],
        || blocks = run_without_waiting(fixture, &mut calls),
    );
    assert_eq!((status, blocks), (Status::OK, vec![false; 5]));
}

#[test]
fn rename_between_links_of_one_file_is_not_reported() {
    let (fixture, model) = fixture();
    let mut client = Client::new(&fixture, "one", 0);
    client.create("a");
    let link = [
        lookup("a"),
        Args::Savefh,
        Args::Putrootfh,
        lookup("export"),
        Args::Link(op::LinkArgs { name: Name(b"b") }),
    ];
    assert_eq!(client.status(&["export"], &link), Status::OK);
    assert_eq!(take_events(&model).last().unwrap(), "linked b: 0");
    assert_eq!(client.status(&["export"], &[Args::Savefh, rename("a", "b")]), Status::OK);
    assert_eq!(client.status(&["export"], &[Args::Savefh, rename("a", "a")]), Status::OK);
    assert_eq!(client.status(&["export"], &[Args::Savefh, rename("none", "a")]), Status::NOENT);
    assert_eq!(client.status(&["export"], &link), Status::EXIST);
    assert_eq!(take_events(&model), [""; 0]);
    assert_eq!(client.status(&["export"], &[remove("a")]), Status::OK);
    assert_eq!(client.status(&["export"], &[Args::Savefh, rename("b", "c")]), Status::OK);
    assert_eq!(take_events(&model), ["removed a", "removed a: 0", "renamed b c", "renamed b c: 0"]);
}

#[test]
fn notifications_match_directory_after_concurrent_renames() {
    let (fixture, model) = fixture();
    let names = ["a", "b", "c", "d"];
    let mut clients: Vec<_> =
        (0..4).map(|number| Client::new(&fixture, &format!("{number}"), 0)).collect();
    let mode = mode(0o644);
    for name in &names[..3] {
        assert_eq!(clients[0].status(&["export"], &[open_by_name(name, Some(&mode))]), Status::OK);
    }
    thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                for step in 0..400 {
                    let (old, new) = (
                        names[(step * 7 + number) % 4],
                        names[(step * 5 + number * 3 + step / 3) % 4],
                    );
                    let status = client.status(&["export"], &[Args::Savefh, rename(old, new)]);
                    // DELAY: other clients have changed the names at each try.
                    let allowed = [Status::OK, Status::NOENT, Status::DELAY];
                    assert!(allowed.contains(&status), "{status:?}");
                    let mode = self::mode(0o644);
                    client.status(&["export"], &[open_by_name(names[step % 4], Some(&mode))]);
                }
            });
        }
    });
    let (root, caller) = (fixture.files.root(), Caller::new(0, 0, []));
    let actual: BTreeMap<Vec<u8>, FileId> = names
        .iter()
        .filter_map(|name| {
            let component = vouch_vfs::Name::new(name.as_bytes()).unwrap();
            let found = fixture.files.lookup(&caller, &root, component, Blocking::Allowed).ok()?;
            Some((name.as_bytes().to_vec(), found.0))
        })
        .collect();
    assert_eq!(*model.names.lock(), actual);
}
