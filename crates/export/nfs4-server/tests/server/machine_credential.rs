//! As the Linux client uses it (RFC 8881 §2.10.8.3 and 18.35.3).

use vouch_nfs4::{Bitmap, StateProtectOps, StateProtectReply};

use crate::prelude::*;

const ENFORCED: [Op; 5] = [
    Op::BIND_CONN_TO_SESSION,
    Op::EXCHANGE_ID,
    Op::CREATE_SESSION,
    Op::DESTROY_SESSION,
    Op::DESTROY_CLIENTID,
];
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

fn op_bitmap(ops: &[Op]) -> Bitmap {
    ops.iter().fold(Bitmap::EMPTY, |bitmap, op| bitmap.with(op.0))
}

fn fixture(machine_writes: bool) -> Fixture {
    let files = Arc::new(MemoryFs::new());
    let private = ClientAccess {
        flavours: vec![FlavourAccess { machine_writes, ..flavour_access(Flavour::Krb5p) }],
        qos: None,
    };
    let shared = flavours_access(&[Flavour::Sys, Flavour::Krb5p]);
    let strict = flavours_access(&[Flavour::Krb5p]);
    Fixture::with_exports(
        files.clone(),
        vec![
            export(1, &["export"], &files, private),
            export(2, &["shared"], &files, shared),
            export(3, &["strict"], &files, strict),
        ],
    )
}

const MACHINE: &str = "nfs/client.example.org@EXAMPLE.ORG";

fn protected_client(fixture: &Fixture) -> (Client<'_>, StateProtectOps) {
    protected_client_of(fixture, MACHINE)
}

fn protected_client_of<'w>(fixture: &'w Fixture, machine: &str) -> (Client<'w>, StateProtectOps) {
    let wanted =
        StateProtectOps { must_enforce: op_bitmap(&ENFORCED), must_allow: op_bitmap(&WANTED) };
    let (client, reply) = Client::with_protection(
        fixture,
        machine,
        gss(machine),
        Flavour::Krb5i,
        StateProtect::MachineCred(wanted),
    );
    let StateProtectReply::MachineCred(ops) = reply else { panic!("{reply:?}") };
    (client, ops)
}

fn open_by_alice(fixture: &Fixture, client: &mut Client<'_>) -> Stateid {
    make_alices_file(fixture, "f", 0o600);
    open_as_alice(client, "export", "f").0
}

fn make_alices_file(fixture: &Fixture, name: &str, bits: u32) {
    let mut root = Client::new(fixture, name, 0);
    assert_eq!(root.status(&["shared"], &[open_by_name(name, Some(&mode(bits)))]), Status::OK);
    let owner = Packed::one(36, Attributes { owner: Some(Bytes(b"1000")), ..Default::default() });
    let set_owner = setattr(&owner);
    assert_eq!(root.status(&["shared", name], &[set_owner]), Status::OK);
}

fn open_as_alice(client: &mut Client<'_>, export: &str, name: &str) -> (Stateid, Filehandle) {
    act_as(client, "alice@EXAMPLE.ORG", Flavour::Krb5p);
    let list = expect_ok(client.run_at(&[export], &[open_by_name(name, None), Args::Getfh]));
    match &list[..] {
        [Results::Open(Ok(open)), Results::Getfh(Ok(file))] => (open.stateid, file.handle),
        other => panic!("{other:?}"),
    }
}

fn act_as(client: &mut Client<'_>, principal: &str, flavour: Flavour) {
    (client.principal, client.flavour) = (gss(principal), flavour);
}

fn act_as_machine(client: &mut Client<'_>) {
    act_as(client, MACHINE, Flavour::Krb5i);
}

fn write(stateid: Stateid) -> Args<'static> {
    crate::ops::write(stateid, 0, b"late")
}

#[test]
fn grants_operations_that_linux_requests_except_write() {
    let fixture = fixture(false);
    let (_, ops) = protected_client(&fixture);
    // Linux disables state protection if the reply adds an operation.
    assert_eq!(ops.must_enforce, op_bitmap(&ENFORCED));
    let not_granted = op_bitmap(&[Op::LAYOUTRETURN, Op::WRITE, Op::COMMIT]);
    assert_eq!(ops.must_allow, op_bitmap(&WANTED).minus(not_granted));
    let fixture = self::fixture(true);
    assert_eq!(
        protected_client(&fixture).1.must_allow,
        op_bitmap(&WANTED).minus(op_bitmap(&[Op::LAYOUTRETURN]))
    );
}

#[test]
fn machine_returns_state_of_its_users() {
    let fixture = fixture(false);
    let (mut client, _) = protected_client(&fixture);
    make_alices_file(&fixture, "f", 0o600);
    let (stateid, handle) = open_as_alice(&mut client, "export", "f");
    let (putfh, close) = (|| putfh(handle), || close(stateid));
    act_as_machine(&mut client);
    assert_eq!(client.run(&[putfh(), getattr(&[1])]).0, Status::WRONGSEC);
    let (status, list) = client.run(&[putfh(), getattr(&[1]), read(stateid, 0, 4), close()]);
    assert_eq!((status, list.len()), (Status::WRONGSEC, 3), "{list:?}");
    let (status, list) = client.run(&[putfh(), write(stateid), close()]);
    assert_eq!((status, list.len()), (Status::WRONGSEC, 2), "{list:?}");
    act_as(&mut client, MACHINE, Flavour::Krb5);
    assert_eq!(client.run(&[putfh(), getattr(&[1]), close()]).0, Status::WRONGSEC);
    act_as(&mut client, "nfs/other.example.org@EXAMPLE.ORG", Flavour::Krb5i);
    assert_eq!(client.run(&[putfh(), getattr(&[1]), close()]).0, Status::WRONGSEC);
    act_as_machine(&mut client);
    expect_ok(client.run(&[putfh(), getattr(&[1]), close()]));
}

#[test]
fn machine_writes_for_users_if_export_allows() {
    for (option, expected) in [(true, Status::OK), (false, Status::ACCESS)] {
        let fixture = fixture(option);
        let (mut client, _) = protected_client(&fixture);
        let stateid = open_by_alice(&fixture, &mut client);
        act_as(&mut client, MACHINE, Flavour::Krb5p);
        let (status, list) = client.run_at(&["export", "f"], &[write(stateid)]);
        assert_eq!(status, expected, "{list:?}");
        assert_eq!(client.run_at(&["export", "f"], &[read(stateid, 0, 4)]).0, Status::ACCESS);
    }
}

// WRITE needs an open of this client, and the export's option (§2.10.8.3).
#[test]
fn machine_writes_under_other_flavour_only_with_users_stateid() {
    let fixture = fixture(true);
    make_alices_file(&fixture, "w", 0o666);
    let (mut client, ops) = protected_client(&fixture);
    assert!(ops.must_allow.has(Op::WRITE.0));
    let mut stranger = protected_client_of(&fixture, "nfs/other.example.org@EXAMPLE.ORG").0;
    let (other_stateid, handle) = open_as_alice(&mut stranger, "export", "w");
    act_as_machine(&mut client);
    let refused = |client: &mut Client<'_>, handle, ops: &[Args<'static>], done: usize| {
        let all = [&[putfh(handle)][..], ops].concat();
        let (status, list) = client.run(&all);
        assert_eq!((status, list.len()), (Status::WRONGSEC, done), "{list:?}");
    };
    for stateid in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, other_stateid] {
        refused(&mut client, handle, &[write(stateid)], 1);
    }
    refused(&mut client, handle, &[commit()], 1);
    let (own_stateid, _) = open_as_alice(&mut client, "export", "w");
    let (strict_stateid, strict) = open_as_alice(&mut client, "strict", "w");
    act_as_machine(&mut client);
    expect_ok(client.run(&[putfh(handle), write(own_stateid), getattr(&[4]), commit()]));
    for stateid in [Stateid::ANONYMOUS, other_stateid, strict_stateid] {
        refused(&mut client, handle, &[write(own_stateid), write(stateid)], 3);
    }
    refused(&mut client, strict, &[write(strict_stateid)], 1);
    refused(&mut client, strict, &[write(Stateid::ANONYMOUS)], 1);
    refused(&mut client, strict, &[write(own_stateid)], 1);
    refused(&mut client, strict, &[commit()], 1);
    refused(&mut client, strict, &[write(strict_stateid), close(strict_stateid)], 2);
    refused(&mut client, strict, &[commit(), close(strict_stateid)], 2);
    expect_ok(client.run(&[putfh(strict), getattr(&[4]), close(strict_stateid)]));
    act_as(&mut client, MACHINE, Flavour::Krb5p);
    let (strict_stateid, _) = open_as_alice(&mut client, "strict", "w");
    make_alices_file(&fixture, "p", 0o600);
    let (private, hidden) = open_as_alice(&mut client, "strict", "p");
    act_as(&mut client, MACHINE, Flavour::Krb5p);
    assert_eq!(
        client.run(&[putfh(strict), write(strict_stateid)]).0,
        Status::OK,
        "the mode allows it"
    );
    assert_eq!(client.run(&[putfh(hidden), write(private)]).0, Status::ACCESS);
}

#[test]
fn machine_getattr_under_other_flavour_requires_returned_state() {
    let fixture = fixture(false);
    let (mut client, _) = protected_client(&fixture);
    make_alices_file(&fixture, "g", 0o600);
    let (g_stateid, g) = open_as_alice(&mut client, "export", "g");
    let f = {
        make_alices_file(&fixture, "f", 0o600);
        let (f_stateid, f) = open_as_alice(&mut client, "export", "f");
        assert_eq!(client.run(&[putfh(f), close(f_stateid)]).0, Status::OK);
        f
    };
    act_as_machine(&mut client);
    let unrelated_ops: [&[Args<'_>]; 6] = [
        &[Args::TestStateid(op::TestStateidArgs { stateids: vouch_nfs4::List(vec![]) })],
        &[Args::TestStateid(op::TestStateidArgs { stateids: vouch_nfs4::List(vec![g_stateid]) })],
        &[Args::FreeStateid(op::FreeStateidArgs { stateid: g_stateid })],
        &[close(Stateid::ANONYMOUS)],
        &[close(g_stateid)],
        &[putfh(g), close(g_stateid)],
    ];
    for ops in unrelated_ops {
        let all = [&[putfh(f), getattr(&[4])][..], ops].concat();
        let (status, list) = client.run(&all);
        assert_eq!((status, list.len()), (Status::WRONGSEC, 1), "{list:?}");
    }
    expect_ok(client.run(&[putfh(g), getattr(&[4]), close(g_stateid), getattr(&[4])]));
}

#[test]
fn machine_without_account_returns_no_state() {
    let fixture = fixture(true);
    make_alices_file(&fixture, "f", 0o600);
    let mut client = protected_client_of(&fixture, "mallory@EXAMPLE.ORG").0;
    let (stateid, handle) = open_as_alice(&mut client, "export", "f");
    act_as(&mut client, "mallory@EXAMPLE.ORG", Flavour::Krb5i);
    for ops in [[getattr(&[4]), close(stateid)], [write(stateid), commit()]] {
        let (status, list) = client.run(&[&[putfh(handle)][..], &ops].concat());
        assert_eq!((status, list.len()), (Status::ACCESS, 1), "{list:?}");
    }
}

#[test]
fn machine_gets_secinfo_without_search_permission() {
    let fixture = fixture(false);
    let mut root = Client::new(&fixture, "root", 0);
    let attrs = mode(0o700);
    assert_eq!(root.status(&["shared"], &[mkdir("private", &attrs)]), Status::OK);
    let (mut client, _) = protected_client(&fixture);
    act_as(&mut client, MACHINE, Flavour::Krb5p);
    let secinfo = Args::Secinfo(op::SecinfoArgs { name: Name(b"x") });
    let (status, list) = client.run_at(&["export", "private"], std::slice::from_ref(&secinfo));
    assert!(
        status.is_ok() && matches!(&list[0], Results::Secinfo(Ok(ok)) if ok.flavors.len() == 1),
        "{list:?}"
    );
    act_as(&mut client, "alice@EXAMPLE.ORG", Flavour::Krb5p);
    assert_eq!(client.run_at(&["export", "private"], &[secinfo]).0, Status::ACCESS);
}

#[test]
fn only_machine_manages_sessions() {
    let fixture = fixture(false);
    let (mut client, _) = protected_client(&fixture);
    let bind = Args::BindConnToSession(op::BindConnArgs {
        session: client.session,
        dir: op::ChannelDirClient::ForeOrBoth,
        rdma: false,
    });
    let destroy = Args::DestroySession(op::DestroySessionArgs { session: client.session });
    client.connection = fixture.connect();
    for (principal, flavour) in [("alice@EXAMPLE.ORG", Flavour::Krb5p), (MACHINE, Flavour::Krb5)] {
        act_as(&mut client, principal, flavour);
        assert_eq!(client.send(std::slice::from_ref(&bind)).0, Status::WRONG_CRED);
    }
    let sequence = client.next_sequence(false);
    assert_eq!(client.send(&[sequence]).0, Status::CONN_NOT_BOUND_TO_SESSION);
    act_as_machine(&mut client);
    assert_eq!(client.send(std::slice::from_ref(&bind)).0, Status::OK);
    act_as(&mut client, "alice@EXAMPLE.ORG", Flavour::Krb5p);
    assert_eq!(client.send(std::slice::from_ref(&destroy)).0, Status::WRONG_CRED);
    let end = Args::DestroyClientid(op::DestroyClientidArgs { client: client.id });
    act_as_machine(&mut client);
    assert_eq!(client.send(std::slice::from_ref(&destroy)).0, Status::OK);
    (client.principal, client.flavour) = (user(0), Flavour::Sys);
    assert_eq!(client.send(std::slice::from_ref(&end)).0, Status::WRONG_CRED);
    act_as_machine(&mut client);
    assert_eq!(client.send(std::slice::from_ref(&end)).0, Status::OK);
}
