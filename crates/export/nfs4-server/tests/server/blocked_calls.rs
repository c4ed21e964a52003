use vouch_vfs::Error;

use crate::prelude::*;

fn begin_create(client: &mut Client<'_>, name: &str) -> Compound {
    let mode = mode(0o644);
    let mut call = client.begin(&[open_by_name(name, Some(&mode))]);
    assert!(client.fixture.blocks(&mut call));
    call
}

#[test]
fn create_and_rename_in_cold_directory_block() {
    let (fixture, mut client) = Client::with_fixture();
    let mode = mode(0o755);
    let mkdir = |name: &'static str| [mkdir(name, &mode), Args::Getfh];
    let rename = |old: &'static str, new: &'static str| [Args::Savefh, rename(old, new)];
    let steps = [
        (false, mkdir("a")),
        (false, rename("a", "c")),
        (true, mkdir("b")),
        (true, rename("b", "d")),
        (false, mkdir("e")),
    ];
    for (is_cold, [first, second]) in steps {
        let op = first.op();
        if is_cold {
            fixture.files.evict_caches();
        }
        let mut call = client.begin(&[first, second]);
        if is_cold {
            assert!(fixture.blocks(&mut call), "{:?}", op);
            assert_eq!(fixture.run_to_status(&mut call, Blocking::Allowed), Status::OK);
        } else {
            assert_eq!(
                fixture.run_to_status(&mut call, Blocking::Forbidden),
                Status::OK,
                "{:?}",
                op
            );
        }
    }
}

#[test]
fn one_sync_serves_all_calls_of_a_file_system() {
    let fixture = Fixture::new();
    let [mut one, mut two] = fixture.clients(["one", "two"]);
    fixture.files.set_slow_sync(true);
    let mut calls = [begin_create(&mut one, "a"), begin_create(&mut two, "b")];
    assert!(calls.iter_mut().all(|call| call.waits_for_sync() == Some(ExportId(7))));
    let sync_count = Arc::new(AtomicUsize::new(0));
    let counter = sync_count.clone();
    fixture.files.set_fault(move |call, _| {
        counter.fetch_add(usize::from(call == Call::SyncMetadata), Ordering::Relaxed);
        None
    });
    Compound::sync_batch(&fixture.server, &mut calls);
    assert_eq!(sync_count.load(Ordering::Relaxed), 4, "two files, and their directory twice");
    for call in &mut calls {
        assert_eq!(call.waits_for_sync(), None);
        assert_eq!(fixture.run_to_status(call, Blocking::Forbidden), Status::OK);
    }
    assert_eq!(sync_count.load(Ordering::Relaxed), 4, "no further sync");
}

#[test]
fn async_export_does_not_wait_for_sync() {
    let files = Arc::new(MemoryFs::new());
    let fixture = Fixture::with_exports(
        files.clone(),
        vec![Export { sync: false, ..export(7, &["export"], &files, sys_access()) }],
    );
    let mut client = Client::new(&fixture, "one", 0);
    files.set_slow_sync(true);
    files.set_fault(|call, _| {
        (call == Call::SyncMetadata).then(|| Error::Io(std::io::Error::other("unexpected sync")))
    });
    let mode = mode(0o644);
    let mut call = client.begin(&[open_by_name("a", Some(&mode))]);
    assert_eq!(fixture.run_to_status(&mut call, Blocking::Forbidden), Status::OK);
}

// A client retries only after its connection broke (RFC 7530 §3.1.1).
#[test]
fn retry_of_call_in_progress_closes_its_connection() {
    let fixture = Fixture::new();
    let connection = fixture.connect();
    let mode = mode(0o755);
    let make = mkdir("d", &mode);
    let ops = [Args::Putrootfh, lookup("export"), make];
    let call = || fixture.begin(Flavour::Sys, &connection, &user(0), compound(0, &ops));
    fixture.files.set_slow_sync(true);
    let mut first = call();
    assert!(fixture.blocks(&mut first));
    let mut again = call();
    let RunResult { effects, progress } = again.run(&fixture.server, Blocking::Forbidden);
    assert!(matches!(progress, Progress::Done(None)));
    assert!(matches!(effects[..], [Effect::Disconnect(id)] if id == connection.id()));
    assert_eq!(fixture.run_to_status(&mut first, Blocking::Allowed), Status::OK);
    assert_eq!(fixture.run_to_status(&mut call(), Blocking::Forbidden), Status::OK);
}

#[test]
fn resumed_call_renews_lease_at_resume_time() {
    let (fixture, mut client) = Client::with_fixture();
    fixture.files.set_slow_sync(true);
    let mut call = begin_create(&mut client, "a");
    fixture.now_ms.store(9_000, Ordering::Relaxed);
    call.resume_at(fixture.now());
    call.resume_at(vouch_nfs4_server::testing::time_at(2_000));
    assert_eq!(fixture.run_to_status(&mut call, Blocking::Allowed), Status::OK);
    assert_eq!(fixture.server.status(fixture.now()).clients[0].silent_ms, 0);
}
