//! Which hosts may be clients, whose names they may use, and what they keep when the list of
//! exports changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use vouch_nfs4::Name as WireName;
use vouch_nfs4::op::{self, Args, Results};
use vouch_nfs4::{
    Attributes, Bytes, ClientId, ClientOwner, CreateSeq, NetAddr, OwnerSeq, StateOwner, StateProtect, Stateid, Status, Verifier,
};
use vouch_nfs4_server::testing::LEASE_MS;
use vouch_nfs4_server::{ClientAccess, ClientMatcher, Connection, Export, Exports, Flavour, Progress};
use vouch_vfs::{FileSystem as _, Name};

use crate::world::{Client, MemoryFs, Packed, World, access, compound, export, getattr, lookup, open_args, results, session_args, user};

/// Lets in whom it knows, and does not know yet whom it is to look for.
#[derive(Default)]
pub(crate) struct Chosen {
    pub(crate) known: Mutex<Vec<IpAddr>>,
    pub(crate) sought: Mutex<Vec<IpAddr>>,
}

impl ClientMatcher for Chosen {
    fn access_for(&self, peer: SocketAddr) -> Option<Arc<ClientAccess>> {
        self.known.lock().contains(&peer.ip()).then(|| Arc::new(access()))
    }

    fn is_undecided(&self, peer: SocketAddr) -> bool {
        self.sought.lock().contains(&peer.ip())
    }
}

pub(crate) const HOME: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 9];

pub(crate) fn for_chosen(files: &Arc<MemoryFs>, chosen: &Arc<Chosen>) -> Export {
    Export { clients: chosen.clone(), ..export(7, &["export"], files, access()) }
}

fn connect(world: &World, from: [u8; 4]) -> Arc<Connection> {
    world.server.connection_opened(SocketAddr::from((from, 700)))
}

fn one(world: &World, from: &Arc<Connection>, minor: u32, args: Args<'_>) -> (Status, Vec<Results<'static>>) {
    let (reply, _) = world.call_under(Flavour::Sys, from, &user(0), compound(minor, &[args]));
    results(reply)
}

/// EXCHANGE_ID of the machine "one", in one of its lives.
fn introduce(world: &World, from: &Arc<Connection>, life: u8) -> Result<(ClientId, CreateSeq), Status> {
    let args = op::ExchangeIdArgs {
        owner: ClientOwner { verifier: Verifier([life; 8]), id: Bytes(b"one") },
        flags: op::ExchangeIdFlags(0),
        state_protect: StateProtect::None,
        impl_id: None,
    };
    match &one(world, from, 2, Args::ExchangeId(args)).1[0] {
        Results::ExchangeId(result) => result.as_ref().map(|ok| (ok.client, CreateSeq(ok.seq.0))).map_err(|status| *status),
        other => panic!("{other:?}"),
    }
}

fn make_session(world: &World, from: &Arc<Connection>, (client, seq): (ClientId, CreateSeq)) -> Status {
    one(world, from, 2, Args::CreateSession(session_args(client, seq))).0
}

fn set_client(world: &World, from: &Arc<Connection>) -> Status {
    let args = op::SetclientidArgs {
        client: ClientOwner { verifier: Verifier([1; 8]), id: Bytes(b"one") },
        callback: op::CallbackClient { program: 0x4000_0000, location: NetAddr { netid: Bytes(b"tcp"), address: Bytes(b"127.0.0.1.3.3") } },
        callback_ident: 1,
    };
    one(world, from, 0, Args::Setclientid(args)).0
}

// RFC 8881, section 18.35.4, case 5, where the principal is a number that anybody claims.
#[test]
fn a_restart_that_comes_from_elsewhere_takes_nothing_from_a_client_that_lives() {
    let world = World::new();
    let mut victim = Client::new(&world, "one", 0);
    victim.create("f");
    let (thief, home) = (connect(&world, ELSEWHERE), connect(&world, HOME));
    assert_eq!(introduce(&world, &thief, 2), Err(Status::CLID_INUSE));
    assert_eq!(victim.status(&["export", "f"], &[getattr(&[1])]), Status::OK);
    // The machine itself may begin anew at once.
    let again = introduce(&world, &home, 2).unwrap();
    assert_eq!(make_session(&world, &home, again), Status::OK);
}

#[test]
fn a_client_whose_address_has_changed_waits_for_a_lease_and_one_that_comes_back_before_keeps_what_it_has() {
    let world = World::new();
    let mut victim = Client::new(&world, "one", 0);
    victim.create("f");
    let moved = connect(&world, ELSEWHERE);
    let pass = || {
        world.now_ms.fetch_add(LEASE_MS + 1_000, std::sync::atomic::Ordering::Relaxed);
        world.server.tick(world.now());
    };
    pass();
    let begun = introduce(&world, &moved, 2).unwrap();
    // It was only silent.
    assert_eq!(victim.status(&["export", "f"], &[getattr(&[1])]), Status::OK);
    assert_eq!(make_session(&world, &moved, begun), Status::CLID_INUSE);
    assert_eq!(victim.status(&["export", "f"], &[getattr(&[1])]), Status::OK);
    pass();
    let begun = introduce(&world, &moved, 2).unwrap();
    assert_eq!(make_session(&world, &moved, begun), Status::OK);
}

#[test]
fn a_host_that_no_export_is_for_makes_no_client_and_a_reload_is_followed() {
    let (files, chosen) = (Arc::new(MemoryFs::new()), Arc::new(Chosen::default()));
    chosen.known.lock().push(HOME.into());
    let world = World::with(files.clone(), vec![for_chosen(&files, &chosen)]);
    let (home, stranger) = (connect(&world, HOME), connect(&world, ELSEWHERE));
    let known = introduce(&world, &home, 1).unwrap();
    assert_eq!(introduce(&world, &stranger, 1), Err(Status::ACCESS));
    assert_eq!(set_client(&world, &stranger), Status::ACCESS);
    assert_eq!(set_client(&world, &home), Status::OK);
    assert_eq!(make_session(&world, &stranger, known), Status::ACCESS);
    let confirm = op::SetclientidConfirmArgs { client: ClientId(1), confirm: Verifier([0; 8]) };
    assert_eq!(one(&world, &stranger, 0, Args::SetclientidConfirm(confirm)).0, Status::ACCESS);
    assert_eq!(make_session(&world, &home, known), Status::OK);
    let everybody = || export(7, &["export"], &files, access());
    drop(world.server.replace_exports(Exports::new([everybody()]).unwrap()));
    assert_eq!(set_client(&world, &stranger), Status::OK);
    drop(world.server.replace_exports(Exports::new([for_chosen(&files, &chosen)]).unwrap()));
    assert_eq!(introduce(&world, &stranger, 1), Err(Status::ACCESS));
}

#[test]
fn who_may_be_let_in_comes_again_and_is_not_told_that_there_is_nothing() {
    let (files, chosen) = (Arc::new(MemoryFs::new()), Arc::new(Chosen::default()));
    chosen.known.lock().push(HOME.into());
    let world = World::with(files.clone(), vec![for_chosen(&files, &chosen)]);
    let mut client = Client::new(&world, "one", 0);
    client.create("f");
    let (_, list) = client.at(&["export", "f"], &[Args::Getfh]);
    let [Results::Getfh(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    let handle = ok.handle;
    // Its name was forgotten.
    chosen.sought.lock().append(&mut chosen.known.lock());
    let replaced = world.server.replace_exports(Exports::new([for_chosen(&files, &chosen)]).unwrap());
    assert_eq!((replaced.ended, files.open_count()), (0, 1), "it may be one of the export's clients");
    let touch = |client: &mut Client<'_>| client.run(&[Args::Putfh(op::PutfhArgs { handle }), getattr(&[1])]).0;
    assert_eq!(touch(&mut client), Status::DELAY);
    assert_eq!(client.status(&["export"], &[]), Status::DELAY);
    assert_eq!(introduce(&world, &connect(&world, HOME), 2), Err(Status::DELAY));
    chosen.known.lock().append(&mut chosen.sought.lock());
    assert_eq!(touch(&mut client), Status::OK);
    assert_eq!(client.status(&["export", "f"], &[]), Status::OK);
}

#[test]
fn what_a_client_holds_ends_when_an_export_is_not_for_it_any_more() {
    let (files, chosen) = (Arc::new(MemoryFs::new()), Arc::new(Chosen::default()));
    chosen.known.lock().push(HOME.into());
    let other = || export(8, &["other"], &files, access());
    let world = World::with(files.clone(), vec![for_chosen(&files, &chosen), other()]);
    let mut client = Client::new(&world, "one", 0);
    client.create("f");
    let (status, _) = client.at(&["other"], &[crate::world::open_args("f", None)]);
    assert_eq!((status, files.open_count()), (Status::OK, 2));
    chosen.known.lock().clear();
    let replaced = world.server.replace_exports(Exports::new([for_chosen(&files, &chosen), other()]).unwrap());
    assert_eq!((replaced.ended, files.open_count()), (1, 1), "what it holds by the other stays");
    // Also of one that has no connection now.
    world.server.connection_closed(&client.connection, world.now());
    let hidden = Export { clients: chosen.clone(), ..other() };
    let replaced = world.server.replace_exports(Exports::new([for_chosen(&files, &chosen), hidden]).unwrap());
    assert_eq!((replaced.ended, files.open_count()), (1, 0));
}

#[test]
fn what_is_held_of_a_file_ends_when_its_export_does_not_show_it_any_more() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![export(7, &["export"], &files, access())]);
    let mut client = Client::new(&world, "one", 0);
    let inside = client.create("inside");
    client.create("behind");
    assert_eq!(files.open_count(), 2);
    let find =
        |name: &str| files.lookup(&vouch_vfs::Caller::root(), &files.root(), Name::new(name.as_bytes()).unwrap(), vouch_vfs::Patience::Any);
    let behind = Arc::new(files.without(find("behind").unwrap().0));
    let replaced = world.server.replace_exports(Exports::new([export(7, &["export"], &behind, access())]).unwrap());
    assert_eq!((replaced.ended, files.open_count()), (1, 1));
    let read = Args::Read(op::ReadArgs { stateid: inside, offset: 0, count: 1 });
    assert_eq!(client.status(&["export", "inside"], &[read]), Status::OK);
}

/// A file that is long enough for a copy in the background, and for a thread that must not wait to
/// leave it to another.
const LONG: u64 = 1 << 30;

#[test]
fn a_call_that_goes_on_over_a_reload_is_granted_nothing_of_what_has_ended() {
    let files = Arc::new(MemoryFs::new());
    let here = || export(7, &["export"], &files, access());
    let chosen = Arc::new(Chosen::default());
    let find =
        |name: &str| files.lookup(&vouch_vfs::Caller::root(), &files.root(), Name::new(name.as_bytes()).unwrap(), vouch_vfs::Patience::Any);
    // What comes of an OPEN, and of a COPY, that began before the reload.
    let over = |after: Vec<Export>| {
        [true, false].map(|opens| {
            let world = World::with(files.clone(), vec![here()]);
            let mut client = Client::new(&world, "one", 0);
            let stateid = client.create("f");
            let size = |size| Packed::new(&[4], &Attributes { size: Some(size), ..Attributes::default() });
            let (long, none) = (size(LONG), size(0));
            let set = Args::Setattr(op::SetattrArgs { stateid, attrs: long.fattr() });
            assert_eq!(client.status(&["export", "f"], &[set]), Status::OK);
            let cut = op::OpenHow::Create(op::CreateHow::Unchecked(none.fattr()));
            let open = Args::Open(op::OpenArgs {
                seq: OwnerSeq(0),
                access: op::ShareAccess::BOTH,
                deny: op::ShareDeny(0),
                owner: StateOwner { client: ClientId(0), owner: Bytes(b"another") },
                how: cut,
                claim: op::OpenClaim::Null(WireName(b"f")),
            });
            let copy = Args::Copy(op::CopyArgs {
                source: Stateid::ANONYMOUS,
                destination: Stateid::ANONYMOUS,
                source_offset: 0,
                destination_offset: LONG,
                count: LONG,
                consecutive: true,
                synchronous: false,
                source_server: vouch_nfs4::List(vec![]),
            });
            let mut ops = vec![client.sequence(false), Args::Putrootfh, lookup("export")];
            ops.extend(if opens { vec![open] } else { vec![lookup("f"), Args::Savefh, copy] });
            let mut call = world.begin(Flavour::Sys, &client.connection, &client.principal, compound(2, &ops));
            assert!(matches!(call.run(&world.server, vouch_vfs::Patience::None), Progress::Blocked));
            let replaced = world.server.replace_exports(Exports::new(after.iter().cloned()).unwrap());
            let Progress::Done(Some(reply)) = call.run(&world.server, vouch_vfs::Patience::Any) else { panic!("it does not end") };
            let totals = world.server.totals(world.now()).0;
            (results(reply.bytes[28..].to_vec()).0, replaced.ended, totals.opens + totals.copies)
        })
    };
    let elsewhere = Arc::new(MemoryFs::new());
    let gone = [(Status::STALE, 1, 0); 2];
    assert_eq!(over(vec![]), gone);
    assert_eq!(over(vec![export(7, &["export"], &elsewhere, access())]), gone, "it shows another directory");
    assert_eq!(over(vec![for_chosen(&files, &chosen)]), gone, "it is not for the client");
    chosen.sought.lock().push(HOME.into());
    assert_eq!(over(vec![for_chosen(&files, &chosen)]), [(Status::DELAY, 0, 1); 2], "whether it is can't be told");
    assert_eq!(over(vec![here()]), [(Status::OK, 0, 2); 2]);
    let hidden = Arc::new(files.without(find("f").unwrap().0));
    assert_eq!(over(vec![export(7, &["export"], &hidden, access())]), gone, "the file is not shown");
}

#[test]
fn a_file_that_was_made_by_a_call_over_a_reload_is_not_left_behind() {
    let files = Arc::new(MemoryFs::new());
    let here = || export(7, &["export"], &files, access());
    let world = World::with(files.clone(), vec![here()]);
    let mut client = Client::new(&world, "one", 0);
    client.create("long");
    let mode = crate::world::mode(0o644);
    let big = Packed::new(&[4], &Attributes { size: Some(LONG), ..Attributes::default() });
    let none = Packed::new(&[4], &Attributes { size: Some(0), ..Attributes::default() });
    assert_eq!(
        client.status(&["export", "long"], &[Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: big.fattr() })]),
        Status::OK
    );
    let before = files.file_count();
    // It stops at what gives much back, and then makes a file.
    let cut = Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: none.fattr() });
    let ops = [client.sequence(false), Args::Putrootfh, lookup("export"), Args::Savefh, lookup("long"), cut, Args::Restorefh];
    let ops: Vec<Args<'_>> = ops.into_iter().chain([open_args("made", Some(&mode))]).collect();
    let mut call = world.begin(Flavour::Sys, &client.connection, &client.principal, compound(2, &ops));
    assert!(matches!(call.run(&world.server, vouch_vfs::Patience::None), Progress::Blocked));
    drop(world.server.replace_exports(Exports::new([]).unwrap()));
    let Progress::Done(Some(reply)) = call.run(&world.server, vouch_vfs::Patience::Any) else { panic!("it does not end") };
    assert_eq!(results(reply.bytes[28..].to_vec()).0, Status::STALE);
    assert_eq!((files.file_count(), files.open_count()), (before, 0));
}

/// Lets one host in, and counts how often it is asked.
struct Counted(Option<IpAddr>, Arc<AtomicUsize>);

impl ClientMatcher for Counted {
    fn access_for(&self, peer: SocketAddr) -> Option<Arc<ClientAccess>> {
        self.1.fetch_add(1, Relaxed);
        (self.0 == Some(peer.ip())).then(|| Arc::new(access()))
    }

    fn is_undecided(&self, _: SocketAddr) -> bool {
        self.1.fetch_add(1, Relaxed);
        false
    }
}

#[test]
fn a_name_above_exports_costs_the_same_however_many_there_are() {
    const EXPORTS: u32 = 1000;
    let (files, asked) = (Arc::new(MemoryFs::new()), Arc::new(AtomicUsize::new(0)));
    let of = |id: u32, path: &[&str], host: Option<IpAddr>| Export {
        clients: Arc::new(Counted(host, asked.clone())),
        ..export(id, path, &files, access())
    };
    let home: IpAddr = HOME.into();
    let list = |last: Option<IpAddr>| {
        let others = (1..EXPORTS).map(|id| of(id, &["home", &id.to_string()], None));
        // Of the exports in the last one, none is for the client.
        let more = [
            of(EXPORTS, &["home", "ours"], last),
            of(EXPORTS + 1, &["home", "ours", "covered"], None),
            of(EXPORTS + 2, &["own"], Some(home)),
        ];
        Exports::new(others.chain(more)).unwrap()
    };
    let world = World::with(files.clone(), list(Some(home)).all().iter().map(|export| Export::clone(export)).collect());
    let mut client = Client::new(&world, "one", 0);
    asked.store(0, Relaxed);
    for _ in 0..100 {
        assert_eq!(client.status(&["home", "ours"], &[]), Status::OK);
        assert_eq!(client.status(&["home", "1"], &[]), Status::NOENT);
        assert_eq!(client.status(&["home", "ours", "covered"], &[]), Status::NOENT);
    }
    let count = asked.load(Relaxed);
    assert!(count < 20 * EXPORTS as usize, "{count}");
    // A reload is followed at once, and what changes otherwise before long.
    drop(world.server.replace_exports(list(None)));
    assert_eq!(client.status(&["home"], &[]), Status::NOENT);
    drop(world.server.replace_exports(list(Some(home))));
    assert_eq!(client.status(&["home", "ours"], &[]), Status::OK);
}
