//! Access checks and existing opens (RFC 8881 §8.4.2.1, 9.9, 10.2.1 and 18.16).

use vouch_nfs4::op::{Delegation, DelegationType, ShareDeny};

use crate::prelude::*;

const READ: ShareAccess = ShareAccess(1);
const WRITE: ShareAccess = ShareAccess(2);
const SHARED_DIR: &[&str] = &["export", "d"];
const FILE: &[&str] = &["export", "d", "f"];

fn try_open(
    client: &mut Client<'_>,
    path: &[&str],
    args: Args<'_>,
) -> Result<(Stateid, Delegation<'static>), Status> {
    match &client.run_at(path, &[args]).1[..] {
        [Results::Open(Ok(ok))] => Ok((ok.stateid, ok.delegation)),
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

fn write(stateid: Stateid) -> Args<'static> {
    write_stable(stateid, 0, b"data")
}

fn make_shared_dir(fixture: &Fixture) {
    assert_eq!(
        Client::new(fixture, "root", 0).status(&["export"], &[mkdir("d", &mode(0o777))]),
        Status::OK
    );
}

const BY_NAME: OpenClaim<'static> = OpenClaim::Null(Name(b"f"));

#[test]
fn second_open_adds_only_requested_access() {
    let fixture = Fixture::new();
    make_shared_dir(&fixture);
    let mut client = Client::new(&fixture, "one", 1000);
    let closed = mode(0o444);
    let created = open(WRITE, OpenHow::Create(CreateHow::Unchecked(closed.fattr())), BY_NAME);
    let (first, _) = try_open(&mut client, SHARED_DIR, created).unwrap();
    let (second, _) =
        try_open(&mut client, SHARED_DIR, open(READ, OpenHow::NoCreate, BY_NAME)).unwrap();
    assert_eq!(first.other, second.other);
    assert_eq!(client.status(FILE, &[write(second), read(second, 0, 9)]), Status::OK);
    assert_eq!(
        try_open(&mut client, SHARED_DIR, open(WRITE, OpenHow::NoCreate, BY_NAME)).unwrap_err(),
        Status::ACCESS
    );
    let mut other = Client::new(&fixture, "two", 2000);
    try_open(&mut other, SHARED_DIR, open(READ, OpenHow::NoCreate, BY_NAME)).unwrap();
    assert_eq!(
        try_open(&mut other, SHARED_DIR, open(WRITE, OpenHow::NoCreate, BY_NAME)).unwrap_err(),
        Status::ACCESS
    );
}

// As in Linux nfsd: reading stays valid when an OPEN for writing widens the open.
#[test]
fn widening_open_keeps_access_that_user_has_lost() {
    let fixture = Fixture::new();
    make_shared_dir(&fixture);
    let (mut owner, mut reader) =
        (Client::new(&fixture, "owner", 1000), Client::new(&fixture, "reader", 2000));
    let all = mode(0o666);
    try_open(
        &mut owner,
        SHARED_DIR,
        open(WRITE, OpenHow::Create(CreateHow::Unchecked(all.fattr())), BY_NAME),
    )
    .unwrap();
    let (reading, _) =
        try_open(&mut reader, SHARED_DIR, open(READ, OpenHow::NoCreate, BY_NAME)).unwrap();
    let set = |client: &mut Client<'_>, bits| {
        let mode = mode(bits);
        client.status(FILE, &[setattr(&mode)])
    };
    assert_eq!(set(&mut owner, 0o602), Status::OK);
    let (both, _) =
        try_open(&mut reader, SHARED_DIR, open(WRITE, OpenHow::NoCreate, BY_NAME)).unwrap();
    assert_eq!(reading.other, both.other);
    let read = read(both, 0, 9);
    assert_eq!(reader.status(FILE, &[write(both), read.clone()]), Status::OK);
    reader.principal = user(3000);
    assert_eq!(reader.status(FILE, std::slice::from_ref(&read)), Status::ACCESS);
    assert_eq!(set(&mut owner, 0o604), Status::OK);
    assert_eq!(reader.status(FILE, &[read]), Status::OK);
    let mut third = Client::new(&fixture, "third", 3000);
    try_open(&mut third, SHARED_DIR, open(READ, OpenHow::NoCreate, BY_NAME)).unwrap();
    assert_eq!(set(&mut owner, 0o602), Status::OK);
    third.principal = user(4000);
    assert_eq!(
        try_open(&mut third, SHARED_DIR, open(WRITE, OpenHow::NoCreate, BY_NAME)).unwrap_err(),
        Status::ACCESS
    );
}

// §9.7 and 10.4.
#[test]
fn truncating_open_conflicts_with_deny_write() {
    let fixture = Fixture::new();
    make_shared_dir(&fixture);
    let (mut one, mut two) =
        (Client::new(&fixture, "one", 1000), Client::new(&fixture, "two", 1000));
    let empty = size(0);
    let truncate = || open(READ, OpenHow::Create(CreateHow::Unchecked(empty.fattr())), BY_NAME);
    let created = mode(0o666);
    try_open(
        &mut one,
        SHARED_DIR,
        open(WRITE, OpenHow::Create(CreateHow::Unchecked(created.fattr())), BY_NAME),
    )
    .unwrap();
    let denying = op::OpenArgs {
        seq: OwnerSeq(0),
        access: READ,
        deny: ShareDeny(2),
        owner: StateOwner { client: ClientId(0), owner: Bytes(b"denying") },
        how: OpenHow::NoCreate,
        claim: BY_NAME,
    };
    let closed = |client: &mut Client<'_>, stateid| client.status(FILE, &[close(stateid)]);
    let (writing, _) =
        try_open(&mut one, SHARED_DIR, open(WRITE, OpenHow::NoCreate, BY_NAME)).unwrap();
    assert_eq!(one.status(FILE, &[write(writing)]), Status::OK);
    assert_eq!(closed(&mut one, writing), Status::OK);
    let (denying_open, _) = try_open(&mut one, SHARED_DIR, Args::Open(denying)).unwrap();
    assert_eq!(try_open(&mut two, SHARED_DIR, truncate()).unwrap_err(), Status::SHARE_DENIED);
    assert_eq!(closed(&mut one, denying_open), Status::OK);
    try_open(&mut two, SHARED_DIR, truncate()).unwrap();
    let (_, list) = two.run_at(FILE, &[getattr(&[4])]);
    assert_eq!(attributes(&list[0]).size, Some(0));
}

// The mode of the file does not matter (§18.16.3).
#[test]
fn retried_exclusive_create_opens_same_file() {
    let fixture = Fixture::new();
    make_shared_dir(&fixture);
    let (mut client, mut other) =
        (Client::new(&fixture, "one", 1000), Client::new(&fixture, "two", 2000));
    for bits in [0o444, 0] {
        let attrs = mode(bits);
        let make = |verifier| {
            let how =
                op::CreateVerifierAttrs { verifier: Verifier([verifier; 8]), attrs: attrs.fattr() };
            open(ShareAccess::BOTH, OpenHow::Create(CreateHow::Exclusive41(how)), BY_NAME)
        };
        let (first, _) = try_open(&mut client, SHARED_DIR, make(1)).unwrap();
        let (again, _) = try_open(&mut client, SHARED_DIR, make(1)).unwrap();
        assert_eq!(first.other, again.other);
        assert_eq!(client.status(FILE, &[close(again)]), Status::OK);
        let (third, _) = try_open(&mut client, SHARED_DIR, make(1)).unwrap();
        assert_eq!(try_open(&mut client, SHARED_DIR, make(2)).unwrap_err(), Status::EXIST);
        assert!(try_open(&mut other, SHARED_DIR, make(1)).is_err(), "another user's file");
        assert_eq!(client.status(FILE, &[write(third)]), Status::OK);
        assert_eq!(client.status(FILE, &[close(third)]), Status::OK);
        assert_eq!(client.status(SHARED_DIR, &[remove("f")]), Status::OK);
    }
}

#[test]
fn reclaimed_write_delegation_allows_writes() {
    let fixture = Fixture::new();
    let mut client = Client::new(&fixture, "one", 0);
    client.create("a");
    client.create("b");
    Client::new(&fixture, "two", 1000);
    let fixture = fixture.restart();
    let (mut one, mut two) = (
        Client::after_server_restart(&fixture, "one", 0),
        Client::after_server_restart(&fixture, "two", 1000),
    );
    let reclaim = || open(READ, OpenHow::NoCreate, OpenClaim::Previous(DelegationType::Write));
    let (_, Delegation::Write(delegation)) =
        try_open(&mut one, &["export", "a"], reclaim()).unwrap()
    else {
        panic!("no write delegation")
    };
    let (open, none) = try_open(&mut two, &["export", "b"], reclaim()).unwrap();
    assert!(matches!(none, Delegation::None), "{none:?}");
    one.reclaim_complete();
    two.reclaim_complete();
    assert_eq!(one.status(&["export", "a"], &[write(delegation.stateid)]), Status::OK);
    assert_eq!(two.status(&["export", "b"], &[read(open, 0, 9)]), Status::OK);
}

// §18.48.
#[test]
fn test_stateid_checks_many_stateids_in_order() {
    let mut client = Client::alone();
    let good = client.create("f");
    let positions = [0, 511, 512, 1024, 1299];
    let stateids: Vec<Stateid> = (0..1300)
        .map(|at| if positions.contains(&at) { good } else { Stateid::ANONYMOUS })
        .collect();
    let test = Args::TestStateid(op::TestStateidArgs { stateids: vouch_nfs4::List(stateids) });
    let (_, list) = client.run(&[test]);
    let Some(Results::TestStateid(Ok(ok))) = list.last() else { panic!("{list:?}") };
    let found: Vec<usize> = (0..1300).filter(|&at| ok.statuses[at] == Status::OK).collect();
    assert_eq!((ok.statuses.len(), found), (1300, positions.to_vec()));
}
