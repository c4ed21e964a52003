use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use vouch_nfs4::{CreateSeq, Name as WireName};
use vouch_nfs4_server::testing::LEASE_MS;

use crate::ops::create_session;
use crate::prelude::*;

#[derive(Default)]
pub(crate) struct ListedHosts {
    pub(crate) allowed: Mutex<Vec<IpAddr>>,
    pub(crate) undecided: Mutex<Vec<IpAddr>>,
}

impl ClientMatcher for ListedHosts {
    fn access_for(&self, peer: SocketAddr) -> Option<Arc<ClientAccess>> {
        self.allowed.lock().contains(&peer.ip()).then(|| Arc::new(sys_access()))
    }

    fn is_undecided(&self, peer: SocketAddr) -> bool {
        self.undecided.lock().contains(&peer.ip())
    }
}

pub(crate) const CLIENT_IP: [u8; 4] = [127, 0, 0, 1];
const OTHER_IP: [u8; 4] = [127, 0, 0, 9];

pub(crate) fn restricted_export(files: &Arc<MemoryFs>, hosts: &Arc<ListedHosts>) -> Export {
    Export { clients: hosts.clone(), ..export(7, &["export"], files, sys_access()) }
}

fn connect_from(fixture: &Fixture, from: [u8; 4]) -> Arc<Connection> {
    fixture.server.connection_opened(SocketAddr::from((from, 700)))
}

fn call_op(
    fixture: &Fixture,
    from: &Arc<Connection>,
    minor: u32,
    args: Args<'_>,
) -> (Status, Vec<Results<'static>>) {
    let (reply, _) =
        fixture.call_with_flavour(Flavour::Sys, from, &user(0), compound(minor, &[args]));
    results(reply)
}

fn send_exchange_id(
    fixture: &Fixture,
    from: &Arc<Connection>,
    boot: u8,
) -> Result<(ClientId, CreateSeq), Status> {
    match &call_op(fixture, from, 2, exchange_id("one", boot, StateProtect::None)).1[0] {
        Results::ExchangeId(result) => {
            result.as_ref().map(|ok| (ok.client, CreateSeq(ok.seq.0))).map_err(|status| *status)
        }
        other => panic!("{other:?}"),
    }
}

fn send_create_session(
    fixture: &Fixture,
    from: &Arc<Connection>,
    (client, seq): (ClientId, CreateSeq),
) -> Status {
    call_op(fixture, from, 2, create_session(client, seq)).0
}

fn send_setclientid(fixture: &Fixture, from: &Arc<Connection>) -> Status {
    call_op(fixture, from, 0, setclientid("one")).0
}

// RFC 8881 §18.35.4, case 5.
#[test]
fn restart_from_other_host_keeps_state_of_live_client() {
    let fixture = Fixture::new();
    let mut victim = Client::new(&fixture, "one", 0);
    victim.create("f");
    let (thief, home) = (connect_from(&fixture, OTHER_IP), connect_from(&fixture, CLIENT_IP));
    assert_eq!(send_exchange_id(&fixture, &thief, 2), Err(Status::CLID_INUSE));
    assert_eq!(victim.status(&["export", "f"], &[getattr(&[1])]), Status::OK);
    let new_client = send_exchange_id(&fixture, &home, 2).unwrap();
    assert_eq!(send_create_session(&fixture, &home, new_client), Status::OK);
}

#[test]
fn client_at_new_address_waits_for_lease_of_silent_client() {
    let fixture = Fixture::new();
    let mut victim = Client::new(&fixture, "one", 0);
    victim.create("f");
    let new_address = connect_from(&fixture, OTHER_IP);
    let expire_lease = || fixture.advance(LEASE_MS + 1_000);
    expire_lease();
    let new_client = send_exchange_id(&fixture, &new_address, 2).unwrap();
    assert_eq!(victim.status(&["export", "f"], &[getattr(&[1])]), Status::OK);
    assert_eq!(send_create_session(&fixture, &new_address, new_client), Status::CLID_INUSE);
    assert_eq!(victim.status(&["export", "f"], &[getattr(&[1])]), Status::OK);
    expire_lease();
    let new_client = send_exchange_id(&fixture, &new_address, 2).unwrap();
    assert_eq!(send_create_session(&fixture, &new_address, new_client), Status::OK);
}

#[test]
fn host_without_exports_may_not_register_as_client() {
    let (files, hosts) = (Arc::new(MemoryFs::new()), Arc::new(ListedHosts::default()));
    hosts.allowed.lock().push(CLIENT_IP.into());
    let fixture = Fixture::with_exports(files.clone(), vec![restricted_export(&files, &hosts)]);
    let (home, stranger) = (connect_from(&fixture, CLIENT_IP), connect_from(&fixture, OTHER_IP));
    let client_id = send_exchange_id(&fixture, &home, 1).unwrap();
    assert_eq!(send_exchange_id(&fixture, &stranger, 1), Err(Status::ACCESS));
    assert_eq!(send_setclientid(&fixture, &stranger), Status::ACCESS);
    assert_eq!(send_setclientid(&fixture, &home), Status::OK);
    assert_eq!(send_create_session(&fixture, &stranger, client_id), Status::ACCESS);
    let confirm = op::SetclientidConfirmArgs { client: ClientId(1), confirm: Verifier([0; 8]) };
    assert_eq!(
        call_op(&fixture, &stranger, 0, Args::SetclientidConfirm(confirm)).0,
        Status::ACCESS
    );
    assert_eq!(send_create_session(&fixture, &home, client_id), Status::OK);
    let open_export = || export(7, &["export"], &files, sys_access());
    fixture.replace_exports([open_export()]);
    assert_eq!(send_setclientid(&fixture, &stranger), Status::OK);
    fixture.replace_exports([restricted_export(&files, &hosts)]);
    assert_eq!(send_exchange_id(&fixture, &stranger, 1), Err(Status::ACCESS));
}

#[test]
fn undecided_host_gets_delay_instead_of_noent() {
    let (files, hosts) = (Arc::new(MemoryFs::new()), Arc::new(ListedHosts::default()));
    hosts.allowed.lock().push(CLIENT_IP.into());
    let fixture = Fixture::with_exports(files.clone(), vec![restricted_export(&files, &hosts)]);
    let mut client = Client::new(&fixture, "one", 0);
    client.create("f");
    let handle = client.filehandle(&["export", "f"], &[]);
    hosts.undecided.lock().append(&mut hosts.allowed.lock());
    let replaced = fixture.replace_exports([restricted_export(&files, &hosts)]);
    assert_eq!((replaced, files.open_count()), (0, 1), "the host may still be a client");
    let getattr_by_handle = |client: &mut Client<'_>| client.run(&[putfh(handle), getattr(&[1])]).0;
    assert_eq!(getattr_by_handle(&mut client), Status::DELAY);
    assert_eq!(client.status(&["export"], &[]), Status::DELAY);
    assert_eq!(
        send_exchange_id(&fixture, &connect_from(&fixture, CLIENT_IP), 2),
        Err(Status::DELAY)
    );
    hosts.allowed.lock().append(&mut hosts.undecided.lock());
    assert_eq!(getattr_by_handle(&mut client), Status::OK);
    assert_eq!(client.status(&["export", "f"], &[]), Status::OK);
}

#[test]
fn reload_ends_state_of_hosts_without_access() {
    let (files, hosts) = (Arc::new(MemoryFs::new()), Arc::new(ListedHosts::default()));
    hosts.allowed.lock().push(CLIENT_IP.into());
    let other = || export(8, &["other"], &files, sys_access());
    let fixture =
        Fixture::with_exports(files.clone(), vec![restricted_export(&files, &hosts), other()]);
    let mut client = Client::new(&fixture, "one", 0);
    client.create("f");
    let (status, _) = client.run_at(&["other"], &[open_by_name("f", None)]);
    assert_eq!((status, files.open_count()), (Status::OK, 2));
    hosts.allowed.lock().clear();
    let replaced = fixture.replace_exports([restricted_export(&files, &hosts), other()]);
    assert_eq!((replaced, files.open_count()), (1, 1), "opens through the other export stay");
    fixture.server.connection_closed(&client.connection, fixture.now());
    let hidden = Export { clients: hosts.clone(), ..other() };
    let replaced = fixture.replace_exports([restricted_export(&files, &hosts), hidden]);
    assert_eq!((replaced, files.open_count()), (1, 0));
}

#[test]
fn reload_ends_state_of_hidden_files() {
    let fixture = Fixture::new();
    let files = &fixture.files;
    let mut client = Client::new(&fixture, "one", 0);
    let inside = client.create("inside");
    client.create("hidden");
    assert_eq!(files.open_count(), 2);
    let without_hidden = Arc::new(files.without(fixture.find("hidden")));
    let replaced = fixture.replace_exports([export(7, &["export"], &without_hidden, sys_access())]);
    assert_eq!((replaced, files.open_count()), (1, 1));
    assert_eq!(client.status(&["export", "inside"], &[read(inside, 0, 1)]), Status::OK);
}

#[test]
fn removed_files_lose_their_state_and_are_stale() {
    let fixture = Fixture::new();
    let files = &fixture.files;
    let mut client = Client::new(&fixture, "one", 0);
    let (kept, removed) = (client.create("kept"), client.create("removed"));
    let handle = client.filehandle(&["export", "removed"], &[]);
    let id = fixture.find("removed");
    assert_eq!(fixture.server.end_state_of_removed_files().ended, 0);
    files.set_removed(id);
    assert_eq!(client.run(&[putfh(handle), read(removed, 0, 1)]).0, Status::OK, "it is open");
    let replaced = fixture.server.end_state_of_removed_files();
    assert_eq!((replaced.ended, files.open_count()), (1, 1));
    assert_eq!(client.run(&[putfh(handle), read(removed, 0, 1)]).0, Status::STALE);
    assert_eq!(client.run(&[putfh(handle), close(removed)]).0, Status::ADMIN_REVOKED);
    assert_eq!(fixture.server.end_state_of_removed_files().ended, 0);
    assert_eq!(client.status(&["export", "kept"], &[read(kept, 0, 1), close(kept)]), Status::OK);
}

#[test]
fn removed_file_that_is_open_can_be_closed() {
    let fixture = Fixture::new();
    let files = &fixture.files;
    let mut client = Client::new(&fixture, "one", 0);
    let stateid = client.create("removed");
    let handle = client.filehandle(&["export", "removed"], &[]);
    files.set_removed(fixture.find("removed"));
    assert_eq!(client.run(&[putfh(handle), close(stateid)]).0, Status::OK);
    assert_eq!((fixture.server.end_state_of_removed_files().ended, files.open_count()), (0, 0));
}

const LARGE_LEN: u64 = 1 << 30;

#[test]
fn call_in_progress_fails_if_reload_removes_its_export() {
    let files = Arc::new(MemoryFs::new());
    let original = || export(7, &["export"], &files, sys_access());
    let hosts = Arc::new(ListedHosts::default());
    let outcomes_across_reload = |after: Vec<Export>| {
        [true, false].map(|is_open| {
            let fixture = Fixture::with_exports(files.clone(), vec![original()]);
            let mut client = Client::new(&fixture, "one", 0);
            let stateid = client.create("f");
            let (long, none) = (size(LARGE_LEN), size(0));
            let set = Args::Setattr(op::SetattrArgs { stateid, attrs: long.fattr() });
            assert_eq!(client.status(&["export", "f"], &[set]), Status::OK);
            let truncate = op::OpenHow::Create(op::CreateHow::Unchecked(none.fattr()));
            let open = open_as(
                ClientId(0),
                b"another",
                0,
                op::ShareAccess::BOTH,
                truncate,
                op::OpenClaim::Null(WireName(b"f")),
            );
            let copy =
                copy((Stateid::ANONYMOUS, 0), (Stateid::ANONYMOUS, LARGE_LEN), LARGE_LEN, false);
            let mut ops = vec![client.next_sequence(false), Args::Putrootfh, lookup("export")];
            ops.extend(if is_open { vec![open] } else { vec![lookup("f"), Args::Savefh, copy] });
            let mut call = client.begin_call(&ops);
            assert!(fixture.blocks(&mut call));
            let replaced = fixture.replace_exports(after.iter().cloned());
            let status = fixture.run_to_status(&mut call, vouch_vfs::Blocking::Allowed);
            let totals = fixture.server.totals(fixture.now()).0;
            (status, replaced, totals.opens + totals.copies)
        })
    };
    let other_files = Arc::new(MemoryFs::new());
    let ended = [(Status::STALE, 1, 0); 2];
    assert_eq!(outcomes_across_reload(vec![]), ended);
    assert_eq!(
        outcomes_across_reload(vec![export(7, &["export"], &other_files, sys_access())]),
        ended,
        "another directory"
    );
    assert_eq!(
        outcomes_across_reload(vec![restricted_export(&files, &hosts)]),
        ended,
        "client not allowed"
    );
    hosts.undecided.lock().push(CLIENT_IP.into());
    assert_eq!(
        outcomes_across_reload(vec![restricted_export(&files, &hosts)]),
        [(Status::DELAY, 0, 1); 2],
        "client undecided"
    );
    assert_eq!(outcomes_across_reload(vec![original()]), [(Status::OK, 0, 2); 2]);
    let fixture = Fixture::with_exports(files.clone(), vec![original()]);
    let hidden = Arc::new(files.without(fixture.find("f")));
    assert_eq!(
        outcomes_across_reload(vec![export(7, &["export"], &hidden, sys_access())]),
        ended,
        "file hidden"
    );
}

#[test]
fn call_across_reload_leaves_no_created_file_behind() {
    let files = Arc::new(MemoryFs::new());
    let original = || export(7, &["export"], &files, sys_access());
    let fixture = Fixture::with_exports(files.clone(), vec![original()]);
    let mut client = Client::new(&fixture, "one", 0);
    client.create("long");
    let mode = mode(0o644);
    let big = size(LARGE_LEN);
    let none = size(0);
    assert_eq!(client.status(&["export", "long"], &[setattr(&big)]), Status::OK);
    let before = files.file_count();
    let truncate = setattr(&none);
    let ops = [
        client.next_sequence(false),
        Args::Putrootfh,
        lookup("export"),
        Args::Savefh,
        lookup("long"),
        truncate,
        Args::Restorefh,
    ];
    let ops: Vec<Args<'_>> = ops.into_iter().chain([open_by_name("made", Some(&mode))]).collect();
    let mut call = client.begin_call(&ops);
    assert!(fixture.blocks(&mut call));
    fixture.replace_exports([]);
    assert_eq!(fixture.run_to_status(&mut call, vouch_vfs::Blocking::Allowed), Status::STALE);
    assert_eq!((files.file_count(), files.open_count()), (before, 0));
}

struct CountingMatcher(Option<IpAddr>, Arc<AtomicUsize>);

impl ClientMatcher for CountingMatcher {
    fn access_for(&self, peer: SocketAddr) -> Option<Arc<ClientAccess>> {
        self.1.fetch_add(1, Relaxed);
        (self.0 == Some(peer.ip())).then(|| Arc::new(sys_access()))
    }

    fn is_undecided(&self, _: SocketAddr) -> bool {
        self.1.fetch_add(1, Relaxed);
        false
    }
}

#[test]
fn pseudo_fs_lookup_cost_does_not_grow_with_exports() {
    const EXPORTS: u32 = 1000;
    let (files, queries) = (Arc::new(MemoryFs::new()), Arc::new(AtomicUsize::new(0)));
    let of = |id: u32, path: &[&str], host: Option<IpAddr>| Export {
        clients: Arc::new(CountingMatcher(host, queries.clone())),
        ..export(id, path, &files, sys_access())
    };
    let home: IpAddr = CLIENT_IP.into();
    let list = |last: Option<IpAddr>| {
        let others = (1..EXPORTS).map(|id| of(id, &["home", &id.to_string()], None));
        let last_exports = [
            of(EXPORTS, &["home", "ours"], last),
            of(EXPORTS + 1, &["home", "ours", "covered"], None),
            of(EXPORTS + 2, &["own"], Some(home)),
        ];
        Exports::new(others.chain(last_exports)).unwrap()
    };
    let fixture = Fixture::with_exports(
        files.clone(),
        list(Some(home)).all().iter().map(|export| Export::clone(export)).collect(),
    );
    let mut client = Client::new(&fixture, "one", 0);
    queries.store(0, Relaxed);
    for _ in 0..100 {
        assert_eq!(client.status(&["home", "ours"], &[]), Status::OK);
        assert_eq!(client.status(&["home", "1"], &[]), Status::NOENT);
        assert_eq!(client.status(&["home", "ours", "covered"], &[]), Status::NOENT);
    }
    let count = queries.load(Relaxed);
    assert!(count < 20 * EXPORTS as usize, "{count}");
    drop(fixture.server.replace_exports(list(None)));
    assert_eq!(client.status(&["home"], &[]), Status::NOENT);
    drop(fixture.server.replace_exports(list(Some(home))));
    assert_eq!(client.status(&["home", "ours"], &[]), Status::OK);
}
