//! State protection SP4_MACH_CRED as the Linux client uses it (RFC 8881, sections 2.10.8.3 and
//! 18.35.3).

use std::sync::Arc;

use vouch_nfs4::op::{self, Args, Op, Results};
use vouch_nfs4::{
    Bitmap, Bytes, ClientId, Filehandle, Name, OwnerSeq, StateOwner, StateProtect, StateProtectOps, StateProtectReply, Stateid, Status,
};
use vouch_nfs4_server::{ClientAccess, Flavour, FlavourAccess, Principal};

use crate::flavours::{proven, takes};
use crate::world::{Client, MemoryFs, World, compound, export, getattr, mode, open_args, results, session_args, under, user};

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
    let private = ClientAccess { flavours: vec![FlavourAccess { machine_writes, ..under(Flavour::Krb5p) }] };
    let shared = takes(&[Flavour::Sys, Flavour::Krb5p]);
    let strict = takes(&[Flavour::Krb5p]);
    World::with(
        files.clone(),
        vec![export(1, &["export"], &files, private), export(2, &["shared"], &files, shared), export(3, &["strict"], &files, strict)],
    )
}

const MACHINE: &str = "nfs/client.example.org@EXAMPLE.ORG";

/// A client under state protection, acting as its machine.
fn protected(world: &World) -> (Client<'_>, StateProtectOps) {
    protected_by(world, MACHINE)
}

/// Likewise, whoever the machine is.
fn protected_by<'w>(world: &'w World, machine: &str) -> (Client<'w>, StateProtectOps) {
    let wanted = StateProtectOps { must_enforce: set(&ENFORCED), must_allow: set(&WANTED) };
    let (client, reply) = Client::introduced(world, machine, proven(machine), Flavour::Krb5i, StateProtect::MachineCred(wanted));
    let StateProtectReply::MachineCred(ops) = reply else { panic!("{reply:?}") };
    (client, ops)
}

/// Root makes a file of alice's, and she opens it.
fn open_by_alice(world: &World, client: &mut Client<'_>) -> Stateid {
    make(world, "f", 0o600);
    open_in(client, "export", "f").0
}

/// Root makes a file of alice's.
fn make(world: &World, name: &str, bits: u32) {
    let mut root = Client::new(world, name, 0);
    assert_eq!(root.status(&["shared"], &[open_args(name, Some(&mode(bits)))]), Status::OK);
    let owner = crate::world::Packed::new(&[36], &vouch_nfs4::Attributes { owner: Some(Bytes(b"1000")), ..Default::default() });
    let give = Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: owner.fattr() });
    assert_eq!(root.status(&["shared", name], &[give]), Status::OK);
}

/// Alice opens a file; its handle comes along.
fn open_in(client: &mut Client<'_>, export: &str, name: &str) -> (Stateid, Filehandle) {
    act(client, "alice@EXAMPLE.ORG", Flavour::Krb5p);
    let (status, list) = client.at(&[export], &[open_args(name, None), Args::Getfh]);
    assert_eq!(status, Status::OK, "{list:?}");
    match &list[..] {
        [Results::Open(Ok(open)), Results::Getfh(Ok(file))] => (open.stateid, file.handle),
        other => panic!("{other:?}"),
    }
}

fn put(handle: Filehandle) -> Args<'static> {
    Args::Putfh(op::PutfhArgs { handle })
}

fn close(stateid: Stateid) -> Args<'static> {
    Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid })
}

fn commit() -> Args<'static> {
    Args::Commit(op::CommitArgs { offset: 0, count: 0 })
}

fn act(client: &mut Client<'_>, principal: &str, flavour: Flavour) {
    (client.principal, client.flavour) = (proven(principal), flavour);
}

fn act_as_machine(client: &mut Client<'_>) {
    act(client, MACHINE, Flavour::Krb5i);
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

// What a user whose ticket has run out holds can be given back, under the machine's flavour, which
// the export does not take.
#[test]
fn the_machine_gives_back_what_its_users_hold() {
    let world = world(false);
    let (mut client, _) = protected(&world);
    make(&world, "f", 0o600);
    let (stateid, handle) = open_in(&mut client, "export", "f");
    let (put, close) = (|| put(handle), || close(stateid));
    act_as_machine(&mut client);
    // Nothing else is let in by it.
    assert_eq!(client.run(&[put(), getattr(&[1])]).0, Status::WRONGSEC);
    let read = Args::Read(op::ReadArgs { stateid, offset: 0, count: 4 });
    let (status, list) = client.run(&[put(), getattr(&[1]), read, close()]);
    assert_eq!((status, list.len()), (Status::WRONGSEC, 3), "{list:?}");
    let (status, list) = client.run(&[put(), write(stateid), close()]);
    assert_eq!((status, list.len()), (Status::WRONGSEC, 2), "{list:?}");
    // Not under a service that leaves the call open to change, and not for somebody else's machine.
    act(&mut client, MACHINE, Flavour::Krb5);
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
        act(&mut client, MACHINE, Flavour::Krb5p);
        let (status, list) = client.at(&["export", "f"], &[write(stateid)]);
        assert_eq!(status, expected, "{list:?}");
        // Reading is not writing.
        let read = Args::Read(op::ReadArgs { stateid, offset: 0, count: 4 });
        assert_eq!(client.at(&["export", "f"], &[read]).0, Status::ACCESS);
    }
}

// Section 2.10.8.3: the machine writes what a user has open, and nothing else, whatever the file's
// mode: in the exports that say so, and in no other.
#[test]
fn under_another_flavour_the_machine_writes_by_a_users_stateid_alone() {
    let world = world(true);
    make(&world, "w", 0o666);
    let (mut client, ops) = protected(&world);
    assert!(ops.must_allow.has(Op::WRITE.0));
    let mut stranger = protected_by(&world, "nfs/other.example.org@EXAMPLE.ORG").0;
    let (theirs, handle) = open_in(&mut stranger, "export", "w");
    act_as_machine(&mut client);
    let refused = |client: &mut Client<'_>, handle, ops: &[Args<'static>], done: usize| {
        let all = [&[put(handle)][..], ops].concat();
        let (status, list) = client.run(&all);
        assert_eq!((status, list.len()), (Status::WRONGSEC, done), "{list:?}");
    };
    for stateid in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, theirs] {
        refused(&mut client, handle, &[write(stateid)], 1);
    }
    // Nobody of this client has it open.
    refused(&mut client, handle, &[commit()], 1);
    let (ours, _) = open_in(&mut client, "export", "w");
    let (strictly, strict) = open_in(&mut client, "strict", "w");
    act_as_machine(&mut client);
    let (status, list) = client.run(&[put(handle), write(ours), getattr(&[4]), commit()]);
    assert_eq!(status, Status::OK, "{list:?}");
    // Neither what is of another file, nor behind something that is let in.
    for stateid in [Stateid::ANONYMOUS, theirs, strictly] {
        refused(&mut client, handle, &[write(ours), write(stateid)], 3);
    }
    refused(&mut client, strict, &[write(strictly)], 1);
    refused(&mut client, strict, &[write(Stateid::ANONYMOUS)], 1);
    refused(&mut client, strict, &[write(ours)], 1);
    refused(&mut client, strict, &[commit()], 1);
    refused(&mut client, strict, &[write(strictly), close(strictly)], 2);
    refused(&mut client, strict, &[commit(), close(strictly)], 2);
    let (status, list) = client.run(&[put(strict), getattr(&[4]), close(strictly)]);
    assert_eq!(status, Status::OK, "{list:?}");
    // Under the flavour that the export takes the machine is a caller like others, whose stateid is not
    // his.
    act(&mut client, MACHINE, Flavour::Krb5p);
    let (strictly, _) = open_in(&mut client, "strict", "w");
    make(&world, "p", 0o600);
    let (private, hidden) = open_in(&mut client, "strict", "p");
    act(&mut client, MACHINE, Flavour::Krb5p);
    assert_eq!(client.run(&[put(strict), write(strictly)]).0, Status::OK, "anybody may");
    assert_eq!(client.run(&[put(hidden), write(private)]).0, Status::ACCESS);
}

#[test]
fn attributes_are_told_under_another_flavour_only_along_with_what_is_given_back() {
    let world = world(false);
    let (mut client, _) = protected(&world);
    make(&world, "g", 0o600);
    let (of_g, g) = open_in(&mut client, "export", "g");
    let f = {
        make(&world, "f", 0o600);
        let (of_f, f) = open_in(&mut client, "export", "f");
        assert_eq!(client.run(&[put(f), close(of_f)]).0, Status::OK);
        f
    };
    act_as_machine(&mut client);
    let beside: [&[Args<'_>]; 6] = [
        &[Args::TestStateid(op::TestStateidArgs { stateids: vouch_nfs4::List(vec![]) })],
        &[Args::TestStateid(op::TestStateidArgs { stateids: vouch_nfs4::List(vec![of_g]) })],
        &[Args::FreeStateid(op::FreeStateidArgs { stateid: of_g })],
        &[close(Stateid::ANONYMOUS)],
        &[close(of_g)],
        &[put(g), close(of_g)],
    ];
    for ops in beside {
        let all = [&[put(f), getattr(&[4])][..], ops].concat();
        let (status, list) = client.run(&all);
        assert_eq!((status, list.len()), (Status::WRONGSEC, 1), "{list:?}");
    }
    let (status, list) = client.run(&[put(g), getattr(&[4]), close(of_g), getattr(&[4])]);
    assert_eq!(status, Status::OK, "{list:?}");
}

// Who has no account here has none as a machine either.
#[test]
fn a_machine_that_is_not_let_in_gives_nothing_back_under_another_flavour() {
    let world = world(true);
    make(&world, "f", 0o600);
    let mut client = protected_by(&world, "mallory@EXAMPLE.ORG").0;
    let (stateid, handle) = open_in(&mut client, "export", "f");
    act(&mut client, "mallory@EXAMPLE.ORG", Flavour::Krb5i);
    for ops in [[getattr(&[4]), close(stateid)], [write(stateid), commit()]] {
        let (status, list) = client.run(&[&[put(handle)][..], &ops].concat());
        assert_eq!((status, list.len()), (Status::ACCESS, 1), "{list:?}");
    }
}

// Sections 2.4.3 and 8.4.2.1: what was there to reclaim is the machine's, and the end of it too.
#[test]
fn nobody_else_ends_or_takes_what_a_machine_has_to_reclaim() {
    let world = world(false);
    let (mut client, _) = protected(&world);
    open_by_alice(&world, &mut client);
    let exports = [export(1, &["export"], &world.files, takes(&[Flavour::Krb5p]))];
    let world = world.restarted_with(exports.into());
    let introduce = |life: u8, principal: &Principal, flavour| {
        let args = op::ExchangeIdArgs {
            owner: vouch_nfs4::ClientOwner { verifier: vouch_nfs4::Verifier([life; 8]), id: Bytes(MACHINE.as_bytes()) },
            flags: op::ExchangeIdFlags(0),
            state_protect: StateProtect::None,
            impl_id: None,
        };
        let (reply, _) = world.call_under(flavour, &world.connect(), principal, compound(2, &[Args::ExchangeId(args)]));
        results(reply).0
    };
    for life in [1, 2] {
        assert_eq!(introduce(life, &Principal::None, Flavour::None), Status::CLID_INUSE);
        assert_eq!(introduce(life, &user(0), Flavour::Sys), Status::CLID_INUSE);
        assert_eq!(introduce(life, &proven("nfs/other.example.org@EXAMPLE.ORG"), Flavour::Krb5p), Status::CLID_INUSE);
        assert_eq!(introduce(life, &proven(MACHINE), Flavour::Krb5), Status::CLID_INUSE);
    }
    let wanted = StateProtectOps { must_enforce: set(&ENFORCED), must_allow: set(&WANTED) };
    let mut client = Client::returning_as(&world, MACHINE, proven(MACHINE), Flavour::Krb5i, StateProtect::MachineCred(wanted));
    act(&mut client, "alice@EXAMPLE.ORG", Flavour::Krb5p);
    let open = Args::Open(op::OpenArgs {
        seq: OwnerSeq(0),
        access: op::ShareAccess::BOTH,
        deny: op::ShareDeny(0),
        owner: StateOwner { client: ClientId(0), owner: Bytes(b"owner") },
        how: op::OpenHow::NoCreate,
        claim: op::OpenClaim::Previous(op::DelegationType::None),
    });
    let (status, list) = client.at(&["export", "f"], &[open]);
    assert_eq!(status, Status::OK, "{list:?}");
}

// Section 18.36.4: a retry is answered, to who may ask.
#[test]
fn a_retried_create_session_is_answered_to_the_machine_alone() {
    let world = world(false);
    let (client, _) = protected(&world);
    let none = Client::introduced(&world, "plain", proven(MACHINE), Flavour::Krb5p, StateProtect::None).0;
    for (client, refused) in [(client, Status::WRONG_CRED), (none, Status::CLID_INUSE)] {
        let retry = |principal: &Principal, flavour| {
            let args = session_args(client.id, vouch_nfs4::CreateSeq(1));
            let (reply, _) = world.call_under(flavour, &world.connect(), principal, compound(2, &[Args::CreateSession(args)]));
            results(reply)
        };
        assert_eq!(retry(&Principal::None, Flavour::None).0, refused);
        assert_eq!(retry(&user(0), Flavour::Sys).0, refused);
        assert_eq!(retry(&proven("alice@EXAMPLE.ORG"), Flavour::Krb5p).0, refused);
        let (_, list) = retry(&proven(MACHINE), Flavour::Krb5i);
        assert!(matches!(&list[0], Results::CreateSession(Ok(ok)) if ok.session == client.session), "{list:?}");
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
    act(&mut client, MACHINE, Flavour::Krb5p);
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
    for (principal, flavour) in [("alice@EXAMPLE.ORG", Flavour::Krb5p), (MACHINE, Flavour::Krb5)] {
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
