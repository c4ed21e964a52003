//! State protection SP4_MACH_CRED as the Linux client uses it (RFC 8881, sections 2.10.8.3 and 18.35.3).

use std::sync::Arc;

use vouch_nfs4::op::{self, Args, Op, Results};
use vouch_nfs4::{Bitmap, Bytes, Name, OwnerSeq, StateProtect, StateProtectOps, StateProtectReply, Stateid, Status};
use vouch_nfs4_server::{ClientAccess, Flavour};

use crate::flavours::{proven, takes};
use crate::world::{Client, MemoryFs, World, export, getattr, mode, open_args, user};

/// What Linux has the machine alone do.
const ENFORCED: [Op; 5] = [Op::BIND_CONN_TO_SESSION, Op::EXCHANGE_ID, Op::CREATE_SESSION, Op::DESTROY_SESSION, Op::DESTROY_CLIENTID];
/// What Linux wants the machine to do for users.
const WANTED: [Op; 11] = [
    Op::CLOSE,
    Op::OPEN_DOWNGRADE,
    Op::LOCKU,
    Op::DELEGRETURN,
    Op::COMMIT,
    Op::SECINFO,
    Op::SECINFO_NO_NAME,
    Op::LAYOUTRETURN,
    Op::TEST_STATEID,
    Op::FREE_STATEID,
    Op::WRITE,
];

fn set(ops: &[Op]) -> Bitmap {
    ops.iter().fold(Bitmap::EMPTY, |set, op| set.with(op.0))
}

fn world(machine_writes: bool) -> World {
    let files = Arc::new(MemoryFs::new());
    let private = ClientAccess { machine_writes, ..takes(&[Flavour::Krb5p]) };
    let shared = takes(&[Flavour::Sys, Flavour::Krb5p]);
    World::with(files.clone(), vec![export(1, &["export"], &files, private), export(2, &["shared"], &files, shared)])
}

/// A client under state protection, acting as its machine.
fn protected(world: &World) -> (Client<'_>, StateProtectOps) {
    let wanted = StateProtectOps { must_enforce: set(&ENFORCED), must_allow: set(&WANTED) };
    let machine = proven("nfs/client.example.org@EXAMPLE.ORG");
    let (client, reply) = Client::introduced(world, "one", machine, Flavour::Krb5i, StateProtect::MachineCred(wanted));
    let StateProtectReply::MachineCred(ops) = reply else { panic!("{reply:?}") };
    (client, ops)
}

/// Root makes a file of alice's, and she opens it.
fn open_by_alice(world: &World, client: &mut Client<'_>) -> Stateid {
    let mut root = Client::new(world, "root", 0);
    assert_eq!(root.status(&["shared"], &[open_args("f", Some(&mode(0o600)))]), Status::OK);
    let owner = crate::world::Packed::new(&[36], &vouch_nfs4::Attributes { owner: Some(Bytes(b"1000")), ..Default::default() });
    let give = Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: owner.fattr() });
    assert_eq!(root.status(&["shared", "f"], &[give]), Status::OK);
    act(client, "alice@EXAMPLE.ORG", Flavour::Krb5p);
    let (status, list) = client.at(&["export"], &[open_args("f", None)]);
    assert_eq!(status, Status::OK, "{list:?}");
    match &list[0] {
        Results::Open(Ok(ok)) => ok.stateid,
        other => panic!("{other:?}"),
    }
}

fn act(client: &mut Client<'_>, principal: &str, flavour: Flavour) {
    (client.principal, client.flavour) = (proven(principal), flavour);
}

fn act_as_machine(client: &mut Client<'_>) {
    act(client, "nfs/client.example.org@EXAMPLE.ORG", Flavour::Krb5i);
}

fn write(stateid: Stateid) -> Args<'static> {
    Args::Write(op::WriteArgs { stateid, offset: 0, stable: op::StableHow::Unstable, data: Bytes(b"late") })
}

#[test]
fn what_linux_asks_for_is_granted_but_for_writing() {
    let world = world(false);
    let (_, ops) = protected(&world);
    // Linux gives state protection up where it is told of an operation that it has not asked for.
    assert_eq!(ops.must_enforce, set(&ENFORCED));
    let unwanted = set(&[Op::LAYOUTRETURN, Op::WRITE, Op::COMMIT]);
    assert_eq!(ops.must_allow, set(&WANTED).minus(unwanted));
    let world = self::world(true);
    assert_eq!(protected(&world).1.must_allow, set(&WANTED).minus(set(&[Op::LAYOUTRETURN])));
}

// What a user whose ticket has run out holds can be given back, under the machine's flavour, which the export does not take.
#[test]
fn the_machine_gives_back_what_its_users_hold() {
    let world = world(false);
    let (mut client, _) = protected(&world);
    let stateid = open_by_alice(&world, &mut client);
    let (_, list) = client.at(&["export", "f"], &[Args::Getfh]);
    let Results::Getfh(Ok(ok)) = &list[0] else { panic!("{list:?}") };
    let put = || Args::Putfh(op::PutfhArgs { handle: ok.handle });
    let close = || Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid });
    act_as_machine(&mut client);
    // Nothing else is let in by it.
    assert_eq!(client.run(&[put(), getattr(&[1])]).0, Status::WRONGSEC);
    let read = Args::Read(op::ReadArgs { stateid, offset: 0, count: 4 });
    let (status, list) = client.run(&[put(), getattr(&[1]), read, close()]);
    assert_eq!((status, list.len()), (Status::WRONGSEC, 3), "{list:?}");
    let (status, list) = client.run(&[put(), write(stateid), close()]);
    assert_eq!((status, list.len()), (Status::WRONGSEC, 2), "{list:?}");
    // Not under a service that leaves the call open to change, and not for somebody else's machine.
    act(&mut client, "nfs/client.example.org@EXAMPLE.ORG", Flavour::Krb5);
    assert_eq!(client.run(&[put(), getattr(&[1]), close()]).0, Status::WRONGSEC);
    act(&mut client, "nfs/other.example.org@EXAMPLE.ORG", Flavour::Krb5i);
    assert_eq!(client.run(&[put(), getattr(&[1]), close()]).0, Status::WRONGSEC);
    act_as_machine(&mut client);
    let (status, list) = client.run(&[put(), getattr(&[1]), close()]);
    assert_eq!(status, Status::OK, "{list:?}");
}

#[test]
fn the_machine_writes_for_its_users_where_the_export_says_so() {
    for (option, expected) in [(true, Status::OK), (false, Status::ACCESS)] {
        let world = world(option);
        let (mut client, _) = protected(&world);
        let stateid = open_by_alice(&world, &mut client);
        act(&mut client, "nfs/client.example.org@EXAMPLE.ORG", Flavour::Krb5p);
        let (status, list) = client.at(&["export", "f"], &[write(stateid)]);
        assert_eq!(status, expected, "{list:?}");
        // Reading is not writing.
        let read = Args::Read(op::ReadArgs { stateid, offset: 0, count: 4 });
        assert_eq!(client.at(&["export", "f"], &[read]).0, Status::ACCESS);
    }
}

#[test]
fn the_machine_is_told_flavours_also_where_it_may_not_look() {
    let world = world(false);
    let mut root = Client::new(&world, "root", 0);
    let attrs = mode(0o700);
    let make = Args::Create(op::CreateArgs {
        kind: op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory),
        name: Name(b"private"),
        attrs: attrs.fattr(),
    });
    assert_eq!(root.status(&["shared"], &[make]), Status::OK);
    let (mut client, _) = protected(&world);
    act(&mut client, "nfs/client.example.org@EXAMPLE.ORG", Flavour::Krb5p);
    let secinfo = Args::Secinfo(op::SecinfoArgs { name: Name(b"x") });
    let (status, list) = client.at(&["export", "private"], std::slice::from_ref(&secinfo));
    assert!(status.is_ok() && matches!(&list[0], Results::Secinfo(Ok(ok)) if ok.flavors.len() == 1), "{list:?}");
    // Who is not the machine is refused.
    act(&mut client, "alice@EXAMPLE.ORG", Flavour::Krb5p);
    assert_eq!(client.at(&["export", "private"], &[secinfo]).0, Status::ACCESS);
}

// RFC 8881, section 2.10.8.3: sessions and connections are the machine's.
#[test]
fn only_the_machine_manages_sessions() {
    let world = world(false);
    let (mut client, _) = protected(&world);
    let bind = Args::BindConnToSession(op::BindConnArgs { session: client.session, dir: op::ChannelDirClient::ForeOrBoth, rdma: false });
    let destroy = Args::DestroySession(op::DestroySessionArgs { session: client.session });
    client.connection = world.connect();
    for (principal, flavour) in [("alice@EXAMPLE.ORG", Flavour::Krb5p), ("nfs/client.example.org@EXAMPLE.ORG", Flavour::Krb5)] {
        act(&mut client, principal, flavour);
        assert_eq!(client.bare(std::slice::from_ref(&bind)).0, Status::WRONG_CRED);
    }
    // A new connection is not the session's before the machine has bound it.
    let sequence = client.sequence(false);
    assert_eq!(client.bare(&[sequence]).0, Status::CONN_NOT_BOUND_TO_SESSION);
    act_as_machine(&mut client);
    assert_eq!(client.bare(std::slice::from_ref(&bind)).0, Status::OK);
    act(&mut client, "alice@EXAMPLE.ORG", Flavour::Krb5p);
    assert_eq!(client.bare(std::slice::from_ref(&destroy)).0, Status::WRONG_CRED);
    let end = Args::DestroyClientid(op::DestroyClientidArgs { client: client.id });
    act_as_machine(&mut client);
    assert_eq!(client.bare(std::slice::from_ref(&destroy)).0, Status::OK);
    (client.principal, client.flavour) = (user(0), Flavour::Sys);
    assert_eq!(client.bare(std::slice::from_ref(&end)).0, Status::WRONG_CRED);
    act_as_machine(&mut client);
    assert_eq!(client.bare(std::slice::from_ref(&end)).0, Status::OK);
}
