use vouch_vfs::{FileId, FileSystem as _, Name};

use crate::client_access::{CLIENT_IP, ListedHosts, restricted_export};
use crate::prelude::*;

fn open_and_lock(client: &mut Client<'_>, path: &str) {
    let (status, list) = client.run_at(&[path], &[open_by_name("f", None)]);
    let [Results::Open(Ok(ok))] = &list[..] else { panic!("{status:?}: {list:?}") };
    assert_eq!(client.status(&[path, "f"], &[lock(ok.stateid, 0, 10)]), Status::OK);
}

fn state_counts(fixture: &Fixture) -> (usize, usize) {
    let totals = fixture.server.totals(fixture.now()).0;
    (totals.opens, totals.locks)
}

fn make_shared_file(files: &MemoryFs) -> FileId {
    let set = vouch_vfs::SetAttributes { mode: Some(0o666), ..vouch_vfs::SetAttributes::default() };
    let access = vouch_vfs::OpenAccess { read: true, write: true };
    let name = Name::new(b"f").unwrap();
    files
        .create(&Caller::root(), &files.root(), name, vouch_vfs::CreateHow::Guarded, &set, access)
        .unwrap()
        .id
}

#[test]
fn state_ends_when_export_drops_its_flavour() {
    let files = Arc::new(MemoryFs::new());
    make_shared_file(&files);
    let exports_for =
        |flavours: &[Flavour]| vec![export(7, &["export"], &files, flavours_access(flavours))];
    let fixture =
        Fixture::with_exports(files.clone(), exports_for(&[Flavour::Sys, Flavour::Krb5p]));
    let [mut one, mut two] = fixture.clients(["one", "two"]);
    open_and_lock(&mut one, "export");
    (two.flavour, two.principal) = (Flavour::Krb5p, gss("alice@EXAMPLE.ORG"));
    let (status, _) = two.run_at(&["export"], &[open_by_name("f", None)]);
    assert_eq!((status, state_counts(&fixture)), (Status::OK, (2, 1)));
    assert_eq!(fixture.replace_exports(exports_for(&[Flavour::Krb5p, Flavour::Sys])), 0);
    assert_eq!(fixture.replace_exports(exports_for(&[Flavour::Krb5p])), 1);
    assert_eq!((state_counts(&fixture), files.open_count()), ((1, 0), 1));
    open_and_lock(&mut two, "export");
}

#[test]
fn state_ends_when_export_requires_secure_port() {
    let files = Arc::new(MemoryFs::new());
    make_shared_file(&files);
    let insecure = || vec![export(7, &["export"], &files, sys_access())];
    let secure = || {
        let flavours = vec![FlavourAccess { secure_port: true, ..flavour_access(Flavour::Sys) }];
        vec![export(7, &["export"], &files, ClientAccess { flavours, qos: None })]
    };
    for (port, disconnected, ended) in
        [(700, false, 0), (700, true, 0), (50_000, false, 1), (50_000, true, 1)]
    {
        let fixture = Fixture::with_exports(files.clone(), insecure());
        fixture.next_port.store(port, Ordering::Relaxed);
        let mut client = Client::new(&fixture, "one", 0);
        open_and_lock(&mut client, "export");
        if disconnected {
            drop(fixture.server.connection_closed(&client.connection, fixture.now()));
        }
        assert_eq!(fixture.replace_exports(insecure()), 0);
        assert_eq!(
            fixture.replace_exports(secure()),
            ended,
            "port {port}, connection disconnected: {disconnected}"
        );
        assert_eq!(state_counts(&fixture), (1 - ended, 1 - ended));
    }
}

#[test]
fn hiding_file_in_one_export_keeps_opens_through_other() {
    let files = Arc::new(MemoryFs::new());
    let file = make_shared_file(&files);
    let other = || export(8, &["other"], &files, sys_access());
    let fixture = Fixture::with_exports(
        files.clone(),
        vec![export(7, &["export"], &files, sys_access()), other()],
    );
    let [mut first, mut second] = fixture.clients(["first", "second"]);
    assert_eq!(first.status(&["other"], &[open_by_name("f", None)]), Status::OK);
    open_and_lock(&mut second, "export");
    let without = Arc::new(files.without(file));
    assert_eq!(
        fixture.replace_exports(vec![export(7, &["export"], &without, sys_access()), other()]),
        1
    );
    assert_eq!(state_counts(&fixture), (1, 0));
    open_and_lock(&mut first, "other");
}

#[test]
fn state_ends_when_undecided_host_is_denied() {
    let (files, hosts) = (Arc::new(MemoryFs::new()), Arc::new(ListedHosts::default()));
    make_shared_file(&files);
    let fixture =
        Fixture::with_exports(files.clone(), vec![export(7, &["export"], &files, sys_access())]);
    let mut client = Client::new(&fixture, "one", 0);
    open_and_lock(&mut client, "export");
    hosts.undecided.lock().push(CLIENT_IP.into());
    assert_eq!(fixture.replace_exports(vec![restricted_export(&files, &hosts)]), 0);
    assert_eq!((fixture.server.clients_changed().ended, state_counts(&fixture)), (0, (1, 1)));
    hosts.allowed.lock().append(&mut hosts.undecided.lock());
    let handle = client.filehandle(&["export"], &[]);
    hosts.allowed.lock().clear();
    assert_eq!((fixture.server.clients_changed().ended, state_counts(&fixture)), (1, (0, 0)));
    let again = [putfh(handle), open_by_name("f", None)];
    assert_eq!((client.run(&again).0, state_counts(&fixture)), (Status::STALE, (0, 0)));
}

#[test]
fn calls_continue_while_reload_waits_for_file_system() {
    let (slow, quick) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let file = make_shared_file(&slow);
    make_shared_file(&quick);
    let other = || export(8, &["other"], &quick, sys_access());
    let fixture = Fixture::with_exports(
        slow.clone(),
        vec![export(7, &["export"], &slow, sys_access()), other()],
    );
    let [mut holder, mut client] = fixture.clients(["holder", "one"]);
    open_and_lock(&mut holder, "export");
    let (query_sent, query_received) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    let release = Some(release);
    slow.set_home_callback(move |sought| {
        if *sought == file && query_sent.send(()).is_ok() {
            let _ = released.lock().recv();
        }
    });
    let without = Arc::new(slow.without(file));
    thread::scope(|scope| {
        let fixture = &fixture;
        let reload = scope.spawn(move || {
            fixture.replace_exports(vec![export(7, &["export"], &without, sys_access()), other()])
        });
        query_received.recv_timeout(Duration::from_secs(60)).unwrap();
        let (done, is_done) = mpsc::channel();
        scope.spawn(move || {
            open_and_lock(&mut client, "other");
            let _ = done.send(());
        });
        let other_call = is_done.recv_timeout(Duration::from_secs(60));
        drop(release);
        assert_eq!(reload.join().unwrap(), 1);
        assert!(other_call.is_ok(), "the call waited for the reload");
    });
    assert_eq!(state_counts(&fixture), (1, 1));
}

struct StalledHosts {
    query_sent: mpsc::Sender<()>,
    released: parking_lot::Mutex<mpsc::Receiver<()>>,
}

impl ClientMatcher for StalledHosts {
    fn access_for(&self, _: SocketAddr) -> Option<Arc<ClientAccess>> {
        let _ = self.query_sent.send(());
        let _ = self.released.lock().recv();
        Some(Arc::new(sys_access()))
    }

    fn is_undecided(&self, _: SocketAddr) -> bool {
        false
    }
}

/// The timer calls it.
#[test]
fn end_of_removed_files_does_not_wait_for_reload() {
    let files = Arc::new(MemoryFs::new());
    let file = make_shared_file(&files);
    let fixture =
        Fixture::with_exports(files.clone(), vec![export(7, &["export"], &files, sys_access())]);
    let mut client = Client::new(&fixture, "one", 0);
    open_and_lock(&mut client, "export");
    files.set_removed(file);
    let (query_sent, query_received) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let hosts = Arc::new(StalledHosts { query_sent, released: parking_lot::Mutex::new(released) });
    let release: Option<mpsc::Sender<()>> = Some(release);
    thread::scope(|scope| {
        let fixture = &fixture;
        let stalled = Export { clients: hosts, ..export(7, &["export"], &files, sys_access()) };
        let reload = scope.spawn(move || fixture.replace_exports(vec![stalled]));
        query_received.recv_timeout(Duration::from_secs(60)).unwrap();
        let (done, is_done) = mpsc::channel();
        scope.spawn(move || done.send(fixture.server.end_state_of_removed_files().ended));
        let ended = is_done.recv_timeout(Duration::from_secs(60));
        drop(release);
        assert_eq!(reload.join().unwrap(), 0);
        assert_eq!(ended, Ok(0), "it waited for the reload");
    });
    assert_eq!(fixture.server.end_state_of_removed_files().ended, 1);
}
