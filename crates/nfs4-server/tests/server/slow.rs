//! What takes its time is not done by a thread that must not wait.

use vouch_nfs4::op::{self, Args, CreateHow, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use vouch_nfs4::{Attributes, Bytes, ClientId, Name, OwnerSeq, StateOwner, Stateid, Status};
use vouch_nfs4_server::{Effect, Flavour, JobProgress, Progress};
use vouch_vfs::Patience;

use crate::world::{Client, Packed, World, compound, lookup, results};

const BIG: u64 = 1 << 30;

/// The operations in /export, as a thread that must not wait has them; whether it stopped. Then
/// they are done to the end, which must be a good one.
fn stops(client: &mut Client<'_>, ops: &[Args<'_>]) -> (bool, Vec<Effect>) {
    let mut all = vec![client.sequence(false), Args::Putrootfh, lookup("export")];
    all.extend_from_slice(ops);
    let world = client.world;
    let mut call = world.begin(Flavour::Sys, &client.connection, &client.principal, compound(2, &all));
    let first = call.run(&world.server, Patience::None);
    let stopped = matches!(first, Progress::Blocked);
    let last = if stopped { call.run(&world.server, Patience::Any) } else { first };
    let Progress::Done(Some(reply)) = last else { panic!("neither done nor answered") };
    let (status, list) = results(reply.bytes[28..].to_vec());
    assert_eq!(status, Status::OK, "{list:?}");
    (stopped, call.take_effects())
}

fn sized(size: u64) -> Packed {
    Packed::new(&[4], &Attributes { size: Some(size), ..Attributes::default() })
}

fn set_size(client: &mut Client<'_>, name: &str, stateid: Stateid, size: u64) -> bool {
    let attrs = sized(size);
    // RFC 8881, section 8.2.2: of whatever number.
    let stateid = Stateid { seq: vouch_nfs4::StateSeq(0), ..stateid };
    stops(client, &[lookup(name), Args::Setattr(op::SetattrArgs { stateid, attrs: attrs.fattr() })]).0
}

fn rename<'a>(old: &'a str, new: &'a str) -> [Args<'a>; 2] {
    [Args::Savefh, Args::Rename(op::RenameArgs { old: Name(old.as_bytes()), new: Name(new.as_bytes()) })]
}

#[test]
fn giving_much_of_a_file_back_waits_and_giving_little_does_not() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let stateid = client.create("f");
    assert!(!set_size(&mut client, "f", stateid, BIG), "a file that grows gives nothing back");
    assert!(!set_size(&mut client, "f", stateid, BIG - 4096));
    assert!(set_size(&mut client, "f", stateid, 4096));
    assert!(!set_size(&mut client, "f", stateid, 0));
    // UNCHECKED4 cuts as well.
    let cut = sized(0);
    let open = || {
        Args::Open(op::OpenArgs {
            seq: OwnerSeq(0),
            access: ShareAccess::BOTH,
            deny: ShareDeny(0),
            owner: StateOwner { client: ClientId(0), owner: Bytes(b"owner") },
            how: OpenHow::Create(CreateHow::Unchecked(cut.fattr())),
            claim: OpenClaim::Null(Name(b"f")),
        })
    };
    assert!(!stops(&mut client, &[open()]).0);
    set_size(&mut client, "f", stateid, BIG);
    assert!(stops(&mut client, &[open()]).0);
}

#[test]
fn what_takes_the_place_of_a_big_file_waits() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    for name in ["a", "b", "c"] {
        client.create(name);
    }
    assert!(!stops(&mut client, &rename("a", "b")).0);
    let stateid = client.create("c");
    set_size(&mut client, "c", stateid, BIG);
    assert!(stops(&mut client, &rename("b", "c")).0);
    // A big one that only gets another name gives nothing back.
    let stateid = client.create("d");
    set_size(&mut client, "d", stateid, BIG);
    assert!(!stops(&mut client, &rename("d", "e")).0);
}

#[test]
fn a_clone_waits() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let (source, destination) = (client.create("f"), client.create("g"));
    set_size(&mut client, "f", source, 8192);
    let clone = Args::Clone(op::CloneArgs { source, destination, source_offset: 0, destination_offset: 0, count: 8192 });
    let ops = [lookup("f"), Args::Savefh, Args::Putrootfh, lookup("export"), lookup("g"), clone];
    assert!(stops(&mut client, &ops).0);
}

#[test]
fn the_last_close_of_a_big_file_without_a_name_is_done_apart() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let close = |stateid| Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid });
    let stateid = client.create("small");
    assert_eq!(client.status(&["export"], &[lookup("small"), close(stateid)]), Status::OK);
    assert_eq!(world.files.open_count(), 0);

    let stateid = client.create("big");
    set_size(&mut client, "big", stateid, BIG);
    let (_, list) = client.at(&["export", "big"], &[Args::Getfh]);
    let op::Results::Getfh(Ok(got)) = &list[0] else { panic!("{list:?}") };
    let handle = got.handle;
    assert_eq!(client.status(&["export"], &[Args::Remove(op::RemoveArgs { name: Name(b"big") })]), Status::OK);
    assert_eq!(world.files.open_count(), 1);
    let ops = [Args::Putfh(op::PutfhArgs { handle }), close(stateid)];
    let (stopped, effects) = stops(&mut client, &ops);
    assert!(!stopped);
    assert_eq!(world.files.open_count(), 1, "whoever serves has not closed it");
    let mut jobs: Vec<_> =
        effects.into_iter().filter_map(|effect| if let Effect::Background(job) = effect { Some(job) } else { None }).collect();
    let [job] = &mut jobs[..] else { panic!("one is to be closed") };
    assert_eq!(job.address(), world.connect().peer().ip(), "it is the work of who had it open");
    assert!(matches!(job.step(&world.server, world.now()), JobProgress::Done(effects) if effects.is_empty()));
    assert_eq!((world.files.open_count(), world.files.file_count()), (0, 2), "the root and the small one are left");
}

#[test]
fn thousands_of_opens_that_end_at_once_are_closed_apart() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let count = 1000;
    for number in 0..count {
        client.create(&number.to_string());
    }
    assert_eq!(world.files.open_count(), count);
    let tick = |ms: u64| {
        world.now_ms.fetch_add(ms, std::sync::atomic::Ordering::Relaxed);
        world.server.tick(world.now()).effects
    };
    // The client is silent for a day.
    let lease = 200_000;
    assert!(tick(lease).is_empty());
    let effects = tick(24 * 3600 * 1000 + lease);
    let left = world.files.open_count();
    assert!((1..count).contains(&left), "{left}");
    let job = effects.into_iter().find_map(|effect| if let Effect::Background(job) = effect { Some(job) } else { None });
    let mut job = job.expect("the rest is closed by a thread that may sleep");
    let mut steps = 0;
    while matches!(job.step(&world.server, world.now()), JobProgress::More) {
        steps += 1;
    }
    assert!(steps > 0 && world.files.open_count() == 0, "{steps}");
}
