use vouch_nfs4::op::{LockType, Locker};

use crate::prelude::*;

const ALICE: &str = "alice@EXAMPLE.ORG";
const MACHINE: &str = "nfs/client.example.org@EXAMPLE.ORG";
const CONFIRM: u32 = 2;

const MALLORY: &str = "nfs/mallory.example.org@EXAMPLE.ORG";

fn owner(client: ClientId) -> StateOwner<'static> {
    StateOwner { client, owner: Bytes(b"owner") }
}

fn open(client: ClientId, seq: u32) -> Args<'static> {
    open_as(
        client,
        b"owner",
        seq,
        op::ShareAccess::BOTH,
        op::OpenHow::NoCreate,
        op::OpenClaim::Null(Name(b"f")),
    )
}

fn lock(client: ClientId, open: Stateid, open_seq: u32) -> Args<'static> {
    let (open_seq, lock_seq) = (OwnerSeq(open_seq), OwnerSeq(50));
    let locker = Locker::New(op::NewLockOwner { open_seq, open, lock_seq, owner: owner(client) });
    Args::Lock(op::LockArgs {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker,
    })
}

fn unlock(stateid: Stateid, seq: u32) -> Args<'static> {
    Args::Locku(op::LockuArgs {
        kind: LockType::Write,
        seq: OwnerSeq(seq),
        stateid,
        offset: 0,
        length: u64::MAX,
    })
}

fn close(stateid: Stateid, seq: u32) -> Args<'static> {
    Args::Close(op::CloseArgs { seq: OwnerSeq(seq), stateid })
}

struct KerberosClient {
    fixture: Fixture,
    connection: Arc<Connection>,
    id: ClientId,
}

impl KerberosClient {
    fn new() -> KerberosClient {
        let fixture = Fixture::exporting(&["e"], flavours_access(&[Flavour::Sys, Flavour::Krb5p]));
        let attrs = mode(0o666);
        assert_eq!(
            Client::new(&fixture, "root", 0).status(&["e"], &[open_by_name("f", Some(&attrs))]),
            Status::OK
        );
        let connection = fixture.connect();
        let mut client = KerberosClient { fixture, connection, id: ClientId(0) };
        let (_, list) = client.call(MACHINE, &[setclientid("c")]);
        let [Results::Setclientid(Ok(ok))] = &list[..] else { panic!("{list:?}") };
        client.id = ok.client;
        let confirm = op::SetclientidConfirmArgs { client: ok.client, confirm: ok.confirm };
        assert_eq!(client.call(MACHINE, &[Args::SetclientidConfirm(confirm)]).0, Status::OK);
        client
    }

    fn call(&self, principal: &str, ops: &[Args<'_>]) -> (Status, Vec<Results<'static>>) {
        results(
            self.fixture
                .call_with_flavour(
                    Flavour::Krb5p,
                    &self.connection,
                    &gss(principal),
                    compound(0, ops),
                )
                .0,
        )
    }

    fn call_on_file(
        &self,
        handle: Filehandle,
        principal: &str,
        op: Args<'_>,
    ) -> (Status, Results<'static>) {
        let (status, mut list) = self.call(principal, &[putfh(handle), op]);
        (status, list.pop().expect("a result"))
    }

    fn open(&self) -> (Filehandle, Stateid) {
        let (_, list) =
            self.call(ALICE, &[Args::Putrootfh, lookup("e"), open(self.id, 1), Args::Getfh]);
        let [.., Results::Open(Ok(opened)), Results::Getfh(Ok(got))] = &list[..] else {
            panic!("{list:?}")
        };
        (got.handle, opened.stateid)
    }
}

#[test]
fn new_lock_owner_restarts_seqid_and_machine_releases_it() {
    let client = KerberosClient::new();
    let id = client.id;
    let (handle, opened) = client.open();
    let confirm = op::OpenConfirmArgs { stateid: opened, seq: OwnerSeq(2) };
    let (_, Results::OpenConfirm(Ok(ok))) =
        client.call_on_file(handle, ALICE, Args::OpenConfirm(confirm))
    else {
        panic!("OPEN_CONFIRM failed")
    };
    let opened = ok.stateid;
    let is_locked = || {
        let all =
            op::LocktArgs { kind: LockType::Write, offset: 0, length: u64::MAX, owner: owner(id) };
        client.call_on_file(handle, MALLORY, Args::Lockt(all)).0 == Status::DENIED
    };
    let release = || {
        client
            .call(MACHINE, &[Args::ReleaseLockowner(op::ReleaseLockownerArgs { owner: owner(id) })])
            .0
    };
    // Linux reuses the lock owner's name and first seqid, even without RELEASE_LOCKOWNER.
    for (turn, is_released) in [(0, true), (1, false), (2, true)] {
        let (_, Results::Lock(Ok(ok))) =
            client.call_on_file(handle, ALICE, lock(id, opened, 3 + turn))
        else {
            panic!("LOCK failed")
        };
        assert!(is_locked());
        assert_eq!(release(), Status::LOCKS_HELD);
        let (_, Results::Locku(Ok(_))) = client.call_on_file(handle, ALICE, unlock(ok.stateid, 51))
        else {
            panic!("LOCKU failed")
        };
        assert!(!is_locked(), "turn {turn}");
        if is_released {
            assert_eq!(release(), Status::OK);
            assert_eq!(
                client.call_on_file(handle, ALICE, unlock(ok.stateid, 52)).0,
                Status::BAD_STATEID,
                "the stateid is released"
            );
        }
    }
    assert_eq!(client.call_on_file(handle, ALICE, close(opened, 6)).0, Status::OK);
}

#[test]
fn only_user_and_machine_return_v40_state() {
    let client = KerberosClient::new();
    let id = client.id;
    let (handle, opened) = client.open();
    let confirm =
        |seq| Args::OpenConfirm(op::OpenConfirmArgs { stateid: opened, seq: OwnerSeq(seq) });
    assert_eq!(client.call_on_file(handle, MALLORY, confirm(2)).0, Status::ACCESS);
    let (_, Results::OpenConfirm(Ok(ok))) = client.call_on_file(handle, ALICE, confirm(2)) else {
        panic!("OPEN_CONFIRM failed")
    };
    let opened = ok.stateid;
    assert_eq!(client.call_on_file(handle, MALLORY, lock(id, opened, 3)).0, Status::ACCESS);
    let (_, Results::Lock(Ok(ok))) = client.call_on_file(handle, ALICE, lock(id, opened, 3)) else {
        panic!("LOCK failed")
    };
    let locked = ok.stateid;

    let downgrade = |seq| {
        let (access, deny) = (op::ShareAccess::READ, op::ShareDeny(0));
        Args::OpenDowngrade(op::OpenDowngradeArgs {
            stateid: opened,
            seq: OwnerSeq(seq),
            access,
            deny,
        })
    };
    for attempt in [lock(id, opened, 3), downgrade(4)] {
        assert_eq!(
            client.call_on_file(handle, MALLORY, attempt.clone()).0,
            Status::ACCESS,
            "{attempt:?}"
        );
    }
    // Clients keep the seqid after BAD_STATEID.
    for attempt in [unlock(locked, 51), unlock(locked, 7), close(opened, 4), close(opened, 3)] {
        assert_eq!(
            client.call_on_file(handle, MALLORY, attempt.clone()).0,
            Status::BAD_STATEID,
            "{attempt:?}"
        );
    }
    let (_, list) = client.call(MALLORY, &[Args::Putrootfh, lookup("e"), open(id, 2)]);
    let [.., Results::Open(Ok(other_open))] = &list[..] else { panic!("{list:?}") };
    assert!(other_open.stateid.other != opened.other && other_open.flags.0 & CONFIRM != 0);
    let confirm = op::OpenConfirmArgs { stateid: other_open.stateid, seq: OwnerSeq(3) };
    let (_, Results::OpenConfirm(Ok(other_open))) =
        client.call_on_file(handle, MALLORY, Args::OpenConfirm(confirm))
    else {
        panic!("OPEN_CONFIRM failed")
    };
    let (status, Results::Lock(Err(op::LockFailure::Denied(denied)))) =
        client.call_on_file(handle, MALLORY, lock(id, other_open.stateid, 4))
    else {
        panic!("LOCK succeeded")
    };
    assert_eq!((status, denied.owner), (Status::DENIED, owner(id)));
    assert_eq!(client.call_on_file(handle, MALLORY, close(other_open.stateid, 5)).0, Status::OK);
    let release = || Args::ReleaseLockowner(op::ReleaseLockownerArgs { owner: owner(id) });
    let renew = || Args::Renew(op::RenewArgs { client: id });
    assert_eq!(
        [client.call(MALLORY, &[release()]).0, client.call(MALLORY, &[renew()]).0],
        [Status::OK, Status::ACCESS]
    );
    assert_eq!(client.call(ALICE, &[release()]).0, Status::LOCKS_HELD);

    assert_eq!(
        [client.call(MACHINE, &[renew()]).0, client.call(ALICE, &[renew()]).0],
        [Status::OK; 2]
    );
    let (status, Results::Locku(Ok(ok))) = client.call_on_file(handle, MACHINE, unlock(locked, 51))
    else {
        panic!("LOCKU failed")
    };
    assert_eq!(status, Status::OK);
    let relock = Locker::Old(op::OldLockOwner { lock: ok.stateid, seq: OwnerSeq(52) });
    let relock = Args::Lock(op::LockArgs {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 1,
        locker: relock,
    });
    let (_, Results::Lock(Ok(ok))) = client.call_on_file(handle, ALICE, relock) else {
        panic!("LOCK failed")
    };
    assert_eq!(
        client
            .call_on_file(
                handle,
                ALICE,
                Args::Locku(op::LockuArgs {
                    kind: LockType::Write,
                    seq: OwnerSeq(53),
                    stateid: ok.stateid,
                    offset: 0,
                    length: 1
                })
            )
            .0,
        Status::OK
    );
    assert_eq!(client.call_on_file(handle, ALICE, close(opened, 4)).0, Status::OK);
    assert_eq!(client.call_on_file(handle, MALLORY, close(opened, 4)).0, Status::BAD_STATEID);
    assert_eq!(client.call(ALICE, &[release()]).0, Status::OK);
}
