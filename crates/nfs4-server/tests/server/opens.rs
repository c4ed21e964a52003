//! Opens: whose rights count, of what is there already (RFC 8881, sections 8.4.2.1, 9.9, 10.2.1 and
//! 18.16).

use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{self, Args, CreateHow, Delegation, DelegationType, OpenClaim, OpenHow, Results, ShareAccess, ShareDeny};
use vouch_nfs4::{Bytes, ClientId, Name, OwnerSeq, StateOwner, Stateid, Status, Verifier};

use crate::world::{Client, World, mode};

const READ: ShareAccess = ShareAccess(1);
const WRITE: ShareAccess = ShareAccess(2);
/// A directory in which everybody may make files.
const COMMON: &[&str] = &["export", "d"];
const FILE: &[&str] = &["export", "d", "f"];

fn open<'a>(access: ShareAccess, how: OpenHow<'a>, claim: OpenClaim<'a>) -> Args<'a> {
    let owner = StateOwner { client: ClientId(0), owner: Bytes(b"owner") };
    Args::Open(op::OpenArgs { seq: OwnerSeq(0), access, deny: ShareDeny(0), owner, how, claim })
}

fn opened(client: &mut Client<'_>, path: &[&str], args: Args<'_>) -> Result<(Stateid, Delegation<'static>), Status> {
    match &client.at(path, &[args]).1[..] {
        [Results::Open(Ok(ok))] => Ok((ok.stateid, ok.delegation)),
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

fn write(stateid: Stateid) -> Args<'static> {
    Args::Write(op::WriteArgs { stateid, offset: 0, stable: op::StableHow::FileSync, data: Bytes(b"data") })
}

fn common(world: &World) {
    let (kind, mode) = (op::CreateType::Plain(FileType::Directory), mode(0o777));
    let args = Args::Create(op::CreateArgs { kind, name: Name(b"d"), attrs: mode.fattr() });
    assert_eq!(Client::new(world, "root", 0).status(&["export"], &[args]), Status::OK);
}

const NAMED: OpenClaim<'static> = OpenClaim::Null(Name(b"f"));

// RFC 8881, section 9.9: the second open widens the first; each has been let in by itself.
#[test]
fn an_open_is_widened_by_what_is_asked_for_now() {
    let world = World::new();
    common(&world);
    let mut client = Client::new(&world, "one", 1000);
    let closed = mode(0o444);
    let made = open(WRITE, OpenHow::Create(CreateHow::Unchecked(closed.fattr())), NAMED);
    let (first, _) = opened(&mut client, COMMON, made).unwrap();
    let (second, _) = opened(&mut client, COMMON, open(READ, OpenHow::NoCreate, NAMED)).unwrap();
    assert_eq!(first.other, second.other);
    let read = Args::Read(op::ReadArgs { stateid: second, offset: 0, count: 9 });
    assert_eq!(client.status(FILE, &[write(second), read]), Status::OK);
    // What it has open is no right to open it so again.
    assert_eq!(opened(&mut client, COMMON, open(WRITE, OpenHow::NoCreate, NAMED)).unwrap_err(), Status::ACCESS);
    let mut other = Client::new(&world, "two", 2000);
    opened(&mut other, COMMON, open(READ, OpenHow::NoCreate, NAMED)).unwrap();
    assert_eq!(opened(&mut other, COMMON, open(WRITE, OpenHow::NoCreate, NAMED)).unwrap_err(), Status::ACCESS);
}

// As the kernel's server does, which opens for each kind of access apart: who goes on with what he
// has proven need not prove it again.
#[test]
fn an_open_is_widened_for_one_who_has_lost_the_right_to_what_he_has_open() {
    let world = World::new();
    common(&world);
    let (mut owner, mut user) = (Client::new(&world, "owner", 1000), Client::new(&world, "user", 2000));
    let all = mode(0o666);
    opened(&mut owner, COMMON, open(WRITE, OpenHow::Create(CreateHow::Unchecked(all.fattr())), NAMED)).unwrap();
    let (reading, _) = opened(&mut user, COMMON, open(READ, OpenHow::NoCreate, NAMED)).unwrap();
    let set = |client: &mut Client<'_>, bits| {
        let mode = mode(bits);
        client.status(FILE, &[Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode.fattr() })])
    };
    assert_eq!(set(&mut owner, 0o602), Status::OK);
    let (both, _) = opened(&mut user, COMMON, open(WRITE, OpenHow::NoCreate, NAMED)).unwrap();
    assert_eq!(reading.other, both.other);
    let read = Args::Read(op::ReadArgs { stateid: both, offset: 0, count: 9 });
    assert_eq!(user.status(FILE, &[write(both), read.clone()]), Status::OK);
    // Another of the same client who says to be the same owner has proven nothing, and gets no more
    // than is his.
    user.principal = crate::world::user(3000);
    assert_eq!(user.status(FILE, std::slice::from_ref(&read)), Status::ACCESS);
    assert_eq!(set(&mut owner, 0o604), Status::OK);
    assert_eq!(user.status(FILE, &[read]), Status::OK);
    let mut third = Client::new(&world, "third", 3000);
    opened(&mut third, COMMON, open(READ, OpenHow::NoCreate, NAMED)).unwrap();
    assert_eq!(set(&mut owner, 0o602), Status::OK);
    third.principal = crate::world::user(4000);
    assert_eq!(opened(&mut third, COMMON, open(WRITE, OpenHow::NoCreate, NAMED)).unwrap_err(), Status::ACCESS);
}

// RFC 8881, sections 9.7 and 10.4: what is cut is changed.
#[test]
fn an_open_that_cuts_is_a_change_whatever_it_is_for() {
    let world = World::new();
    common(&world);
    let (mut one, mut two) = (Client::new(&world, "one", 1000), Client::new(&world, "two", 1000));
    let empty = crate::world::Packed::new(&[4], &vouch_nfs4::Attributes { size: Some(0), ..Default::default() });
    let cut = || open(READ, OpenHow::Create(CreateHow::Unchecked(empty.fattr())), NAMED);
    let made = mode(0o666);
    opened(&mut one, COMMON, open(WRITE, OpenHow::Create(CreateHow::Unchecked(made.fattr())), NAMED)).unwrap();
    let denying = op::OpenArgs {
        seq: OwnerSeq(0),
        access: READ,
        deny: ShareDeny(2),
        owner: StateOwner { client: ClientId(0), owner: Bytes(b"denying") },
        how: OpenHow::NoCreate,
        claim: NAMED,
    };
    let closed = |client: &mut Client<'_>, stateid| client.status(FILE, &[Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid })]);
    let (writing, _) = opened(&mut one, COMMON, open(WRITE, OpenHow::NoCreate, NAMED)).unwrap();
    assert_eq!(one.status(FILE, &[write(writing)]), Status::OK);
    assert_eq!(closed(&mut one, writing), Status::OK);
    let (held, _) = opened(&mut one, COMMON, Args::Open(denying)).unwrap();
    assert_eq!(opened(&mut two, COMMON, cut()).unwrap_err(), Status::SHARE_DENIED);
    assert_eq!(closed(&mut one, held), Status::OK);
    opened(&mut two, COMMON, cut()).unwrap();
    let (_, list) = two.at(FILE, &[crate::world::getattr(&[4])]);
    assert_eq!(crate::world::attributes(&list[0]).size, Some(0));
}

// RFC 8881, section 18.16.3: a retry of an exclusive create is answered as the first call was,
// whatever mode the file has.
#[test]
fn an_exclusive_create_that_comes_again_is_the_same() {
    let world = World::new();
    common(&world);
    let (mut client, mut other) = (Client::new(&world, "one", 1000), Client::new(&world, "two", 2000));
    for bits in [0o444, 0] {
        let attrs = mode(bits);
        let make = |verifier| {
            let how = op::CreateVerifierAttrs { verifier: Verifier([verifier; 8]), attrs: attrs.fattr() };
            open(ShareAccess::BOTH, OpenHow::Create(CreateHow::Exclusive41(how)), NAMED)
        };
        let (first, _) = opened(&mut client, COMMON, make(1)).unwrap();
        let (again, _) = opened(&mut client, COMMON, make(1)).unwrap();
        assert_eq!(first.other, again.other);
        // And when the first is not known any more.
        assert_eq!(client.status(FILE, &[Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid: again })]), Status::OK);
        let (third, _) = opened(&mut client, COMMON, make(1)).unwrap();
        assert_eq!(opened(&mut client, COMMON, make(2)).unwrap_err(), Status::EXIST);
        assert!(opened(&mut other, COMMON, make(1)).is_err(), "it is another's");
        assert_eq!(client.status(FILE, &[write(third)]), Status::OK);
        assert_eq!(client.status(FILE, &[Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid: third })]), Status::OK);
        assert_eq!(client.status(COMMON, &[Args::Remove(op::RemoveArgs { name: Name(b"f") })]), Status::OK);
    }
}

// RFC 8881, section 10.2.1.
#[test]
fn a_delegation_that_is_reclaimed_can_be_used_for_what_it_allows() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    client.create("a");
    client.create("b");
    Client::new(&world, "two", 1000);
    let world = world.restarted();
    let (mut one, mut two) = (Client::returning(&world, "one", 0), Client::returning(&world, "two", 1000));
    let reclaim = || open(READ, OpenHow::NoCreate, OpenClaim::Previous(DelegationType::Write));
    let (_, Delegation::Write(delegation)) = opened(&mut one, &["export", "a"], reclaim()).unwrap() else { panic!("it is given again") };
    // One who may not write has no use for it.
    let (open, none) = opened(&mut two, &["export", "b"], reclaim()).unwrap();
    assert!(matches!(none, Delegation::None), "{none:?}");
    one.reclaim_complete();
    two.reclaim_complete();
    assert_eq!(one.status(&["export", "a"], &[write(delegation.stateid)]), Status::OK);
    let read = Args::Read(op::ReadArgs { stateid: open, offset: 0, count: 9 });
    assert_eq!(two.status(&["export", "b"], &[read]), Status::OK);
}

// RFC 8881, section 18.48.
#[test]
fn as_many_stateids_as_a_call_carries_are_tested_in_order() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let good = client.create("f");
    let places = [0, 511, 512, 1024, 1299];
    let stateids: Vec<Stateid> = (0..1300).map(|at| if places.contains(&at) { good } else { Stateid::ANONYMOUS }).collect();
    let test = Args::TestStateid(op::TestStateidArgs { stateids: vouch_nfs4::List(stateids) });
    let (_, list) = client.run(&[test]);
    let Some(Results::TestStateid(Ok(ok))) = list.last() else { panic!("{list:?}") };
    let found: Vec<usize> = (0..1300).filter(|&at| ok.statuses[at] == Status::OK).collect();
    assert_eq!((ok.statuses.len(), found), (1300, places.to_vec()));
}
