//! 4.0 under Kerberos: who may act on what a user of a client has opened.

use std::sync::Arc;

use vouch_nfs4::op::{self, Args, LockType, Locker, Results};
use vouch_nfs4::{Bytes, ClientId, ClientOwner, Filehandle, Name, NetAddr, OwnerSeq, StateOwner, Stateid, Status, Verifier};
use vouch_nfs4_server::{Connection, Flavour};

use crate::flavours::{proven, takes};
use crate::world::{Client, MemoryFs, World, compound, export, lookup, mode, open_args, results};

const ALICE: &str = "alice@EXAMPLE.ORG";
const MACHINE: &str = "nfs/client.example.org@EXAMPLE.ORG";
/// OPEN4_RESULT_CONFIRM.
const CONFIRM: u32 = 2;

const MALLORY: &str = "nfs/mallory.example.org@EXAMPLE.ORG";

fn owner(client: ClientId) -> StateOwner<'static> {
    StateOwner { client, owner: Bytes(b"owner") }
}

/// An OPEN of the file that there is.
fn open(client: ClientId, seq: u32) -> Args<'static> {
    Args::Open(op::OpenArgs {
        seq: OwnerSeq(seq),
        access: op::ShareAccess::BOTH,
        deny: op::ShareDeny(0),
        owner: owner(client),
        how: op::OpenHow::NoCreate,
        claim: op::OpenClaim::Null(Name(b"f")),
    })
}

fn lock(client: ClientId, open: Stateid, open_seq: u32) -> Args<'static> {
    let (open_seq, lock_seq) = (OwnerSeq(open_seq), OwnerSeq(50));
    let locker = Locker::New(op::NewLockOwner { open_seq, open, lock_seq, owner: owner(client) });
    Args::Lock(op::LockArgs { kind: LockType::Write, reclaim: false, offset: 0, length: u64::MAX, locker })
}

fn unlock(stateid: Stateid, seq: u32) -> Args<'static> {
    Args::Locku(op::LockuArgs { kind: LockType::Write, seq: OwnerSeq(seq), stateid, offset: 0, length: u64::MAX })
}

fn close(stateid: Stateid, seq: u32) -> Args<'static> {
    Args::Close(op::CloseArgs { seq: OwnerSeq(seq), stateid })
}

/// A client that its machine has introduced, where there is one file.
struct Introduced {
    world: World,
    connection: Arc<Connection>,
    id: ClientId,
}

impl Introduced {
    fn new() -> Introduced {
        let files = Arc::new(MemoryFs::new());
        let world = World::with(files.clone(), vec![export(1, &["e"], &files, takes(&[Flavour::Sys, Flavour::Krb5p]))]);
        let attrs = mode(0o666);
        assert_eq!(Client::new(&world, "root", 0).status(&["e"], &[open_args("f", Some(&attrs))]), Status::OK);
        let connection = world.connect();
        let mut introduced = Introduced { world, connection, id: ClientId(0) };
        let location = NetAddr { netid: Bytes(b"tcp"), address: Bytes(b"0.0.0.0.0.0") };
        let args = op::SetclientidArgs {
            client: ClientOwner { verifier: Verifier([1; 8]), id: Bytes(b"c") },
            callback: op::CallbackClient { program: 0, location },
            callback_ident: 0,
        };
        let (_, list) = introduced.call(MACHINE, &[Args::Setclientid(args)]);
        let [Results::Setclientid(Ok(ok))] = &list[..] else { panic!("{list:?}") };
        introduced.id = ok.client;
        let confirm = op::SetclientidConfirmArgs { client: ok.client, confirm: ok.confirm };
        assert_eq!(introduced.call(MACHINE, &[Args::SetclientidConfirm(confirm)]).0, Status::OK);
        introduced
    }

    fn call(&self, who: &str, ops: &[Args<'_>]) -> (Status, Vec<Results<'static>>) {
        results(self.world.call_under(Flavour::Krb5p, &self.connection, &proven(who), compound(0, ops)).0)
    }

    /// Alice opens the file.
    fn open(&self) -> (Filehandle, Stateid) {
        let (_, list) = self.call(ALICE, &[Args::Putrootfh, lookup("e"), open(self.id, 1), Args::Getfh]);
        let [.., Results::Open(Ok(opened)), Results::Getfh(Ok(got))] = &list[..] else { panic!("{list:?}") };
        (got.handle, opened.stateid)
    }
}

#[test]
fn a_lock_owner_that_says_it_is_new_begins_anew_and_its_machine_releases_it() {
    let introduced = Introduced::new();
    let id = introduced.id;
    let (handle, opened) = introduced.open();
    let on_file = |who: &str, one: Args<'static>| {
        let (status, mut list) = introduced.call(who, &[Args::Putfh(op::PutfhArgs { handle }), one]);
        (status, list.pop().expect("a result"))
    };
    let confirm = op::OpenConfirmArgs { stateid: opened, seq: OwnerSeq(2) };
    let (_, Results::OpenConfirm(Ok(ok))) = on_file(ALICE, Args::OpenConfirm(confirm)) else { panic!("it is confirmed") };
    let opened = ok.stateid;
    let is_locked = || {
        let all = op::LocktArgs { kind: LockType::Write, offset: 0, length: u64::MAX, owner: owner(id) };
        on_file(MALLORY, Args::Lockt(all)).0 == Status::DENIED
    };
    let release = || introduced.call(MACHINE, &[Args::ReleaseLockowner(op::ReleaseLockownerArgs { owner: owner(id) })]).0;
    // The name and its first number come again, as Linux takes them: the last time around without a
    // release in between.
    for (turn, is_released) in [(0, true), (1, false), (2, true)] {
        let (_, Results::Lock(Ok(ok))) = on_file(ALICE, lock(id, opened, 3 + turn)) else { panic!("it is locked") };
        assert!(is_locked());
        assert_eq!(release(), Status::LOCKS_HELD);
        let (_, Results::Locku(Ok(_))) = on_file(ALICE, unlock(ok.stateid, 51)) else { panic!("it is unlocked") };
        assert!(!is_locked(), "turn {turn}");
        if is_released {
            assert_eq!(release(), Status::OK);
            assert_eq!(on_file(ALICE, unlock(ok.stateid, 52)).0, Status::BAD_STATEID, "it is gone");
        }
    }
    assert_eq!(on_file(ALICE, close(opened, 6)).0, Status::OK);
}

#[test]
fn what_a_user_holds_is_given_back_by_him_and_by_his_machine_and_by_nobody_else() {
    let introduced = Introduced::new();
    let id = introduced.id;
    let call = |who: &str, ops: &[Args<'_>]| introduced.call(who, ops);
    let (handle, opened) = introduced.open();
    let on_file = |who: &str, one: Args<'static>| {
        let (status, mut list) = call(who, &[Args::Putfh(op::PutfhArgs { handle }), one]);
        (status, list.pop().expect("a result"))
    };
    let confirm = |seq| Args::OpenConfirm(op::OpenConfirmArgs { stateid: opened, seq: OwnerSeq(seq) });
    assert_eq!(on_file(MALLORY, confirm(2)).0, Status::ACCESS);
    let (_, Results::OpenConfirm(Ok(ok))) = on_file(ALICE, confirm(2)) else { panic!("it is confirmed") };
    let opened = ok.stateid;
    assert_eq!(on_file(MALLORY, lock(id, opened, 3)).0, Status::ACCESS);
    let (_, Results::Lock(Ok(ok))) = on_file(ALICE, lock(id, opened, 3)) else { panic!("it is locked") };
    let locked = ok.stateid;

    // Neither with the right number nor with a wrong one; nor is the last result told again.
    let downgrade = |seq| {
        let (access, deny) = (op::ShareAccess::READ, op::ShareDeny(0));
        Args::OpenDowngrade(op::OpenDowngradeArgs { stateid: opened, seq: OwnerSeq(seq), access, deny })
    };
    for attempt in [lock(id, opened, 3), downgrade(4)] {
        assert_eq!(on_file(MALLORY, attempt.clone()).0, Status::ACCESS, "{attempt:?}");
    }
    // A status after which clients move no number on.
    for attempt in [unlock(locked, 51), unlock(locked, 7), close(opened, 4), close(opened, 3)] {
        assert_eq!(on_file(MALLORY, attempt.clone()).0, Status::BAD_STATEID, "{attempt:?}");
    }
    // Nor by names: an owner of the same name is another's, with numbers and locks of its own, also in
    // whoever's client.
    let (_, list) = call(MALLORY, &[Args::Putrootfh, lookup("e"), open(id, 2)]);
    let [.., Results::Open(Ok(theirs))] = &list[..] else { panic!("{list:?}") };
    assert!(theirs.stateid.other != opened.other && theirs.flags.0 & CONFIRM != 0);
    let confirm = op::OpenConfirmArgs { stateid: theirs.stateid, seq: OwnerSeq(3) };
    let (_, Results::OpenConfirm(Ok(theirs))) = on_file(MALLORY, Args::OpenConfirm(confirm)) else { panic!("it is confirmed") };
    let (status, Results::Lock(Err(op::LockFailure::Denied(denied)))) = on_file(MALLORY, lock(id, theirs.stateid, 4)) else {
        panic!("it is denied")
    };
    assert_eq!((status, denied.owner), (Status::DENIED, owner(id)));
    assert_eq!(on_file(MALLORY, close(theirs.stateid, 5)).0, Status::OK);
    let release = || Args::ReleaseLockowner(op::ReleaseLockownerArgs { owner: owner(id) });
    let renew = || Args::Renew(op::RenewArgs { client: id });
    assert_eq!([call(MALLORY, &[release()]).0, call(MALLORY, &[renew()]).0], [Status::OK, Status::ACCESS]);
    assert_eq!(call(ALICE, &[release()]).0, Status::LOCKS_HELD);

    // No number has been used up. The machine acts for a user whose ticket has ended.
    assert_eq!([call(MACHINE, &[renew()]).0, call(ALICE, &[renew()]).0], [Status::OK; 2]);
    let (status, Results::Locku(Ok(ok))) = on_file(MACHINE, unlock(locked, 51)) else { panic!("it is unlocked") };
    assert_eq!(status, Status::OK);
    let relock = Locker::Old(op::OldLockOwner { lock: ok.stateid, seq: OwnerSeq(52) });
    let relock = Args::Lock(op::LockArgs { kind: LockType::Write, reclaim: false, offset: 0, length: 1, locker: relock });
    let (_, Results::Lock(Ok(ok))) = on_file(ALICE, relock) else { panic!("it is locked") };
    assert_eq!(
        on_file(ALICE, Args::Locku(op::LockuArgs { kind: LockType::Write, seq: OwnerSeq(53), stateid: ok.stateid, offset: 0, length: 1 }))
            .0,
        Status::OK
    );
    assert_eq!(on_file(ALICE, close(opened, 4)).0, Status::OK);
    // Its retry is nobody else's either.
    assert_eq!(on_file(MALLORY, close(opened, 4)).0, Status::BAD_STATEID);
    assert_eq!(call(ALICE, &[release()]).0, Status::OK);
}
