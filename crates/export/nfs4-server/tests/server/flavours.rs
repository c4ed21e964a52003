//! RFC 8881 §2.6.3.1.

use vouch_nfs4::{Filehandle, GssInfo, GssService, SecInfo};
use vouch_nfs4_server::{TlsPeer, Transport};

use crate::prelude::*;
use crate::transport::demanding;

pub(crate) fn gss(name: &str) -> Principal {
    Principal::Gss { name: name.into() }
}

pub(crate) fn flavours_access(flavours: &[Flavour]) -> ClientAccess {
    ClientAccess {
        flavours: flavours.iter().map(|&flavour| flavour_access(flavour)).collect(),
        qos: None,
    }
}

fn gss_info(service: GssService) -> SecInfo<'static> {
    SecInfo::Gss(GssInfo {
        oid: Bytes(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02]),
        qop: 0,
        service,
    })
}

fn offered_flavours(result: &Results<'static>) -> Vec<SecInfo<'static>> {
    match result {
        Results::Secinfo(Ok(ok)) | Results::SecinfoNoName(Ok(ok)) => ok.flavors.to_vec(),
        other => panic!("{other:?}"),
    }
}

// §18.29 and 18.45.
#[test]
fn secinfo_lists_flavours_in_export_order() {
    let files = Arc::new(MemoryFs::new());
    let first = flavours_access(&[Flavour::Krb5p, Flavour::Krb5i, Flavour::Sys]);
    let second = flavours_access(&[Flavour::Krb5, Flavour::Krb5p]);
    let fixture = Fixture::with_exports(
        files.clone(),
        vec![export(9, &["first"], &files, first), export(2, &["second"], &files, second)],
    );
    let mut client = Client::new(&fixture, "one", 0);
    let privacy_first =
        vec![gss_info(GssService::Privacy), gss_info(GssService::Integrity), SecInfo::Flavor(1)];
    let (_, list) = client.run_at(&[], &[Args::Secinfo(op::SecinfoArgs { name: Name(b"first") })]);
    assert_eq!(offered_flavours(&list[0]), privacy_first);
    let secinfo_no_name = |style| Args::SecinfoNoName(op::SecinfoNoNameArgs { style });
    let (_, list) = client.run_at(&["first"], &[secinfo_no_name(op::SecinfoStyle::CurrentFh)]);
    assert_eq!(offered_flavours(&list[0]), privacy_first);
    let all = [&privacy_first[..], &[gss_info(GssService::None)]].concat();
    let (_, list) = client.run_at(&["first"], &[secinfo_no_name(op::SecinfoStyle::Parent)]);
    assert_eq!(offered_flavours(&list[0]), all);
    // §18.29.3: works under a wrong flavour, for missing names too.
    let handle = client.filehandle(&["first"], &[]);
    client.flavour = Flavour::Krb5;
    let put = putfh(handle);
    let (status, list) = client.run(&[
        put,
        Args::Secinfo(op::SecinfoArgs { name: Name(b"nothing") }),
        getattr(&[1]),
    ]);
    assert_eq!((offered_flavours(&list[1]), status), (privacy_first, Status::NOFILEHANDLE));
}

// exports(5): `sec=krb5p,rw,sec=sys,ro`.
#[test]
fn access_rights_differ_by_flavour() {
    let flavours = vec![
        flavour_access(Flavour::Krb5p),
        FlavourAccess { read_only: true, ..flavour_access(Flavour::Sys) },
    ];
    let fixture = Fixture::exporting(&["e"], ClientAccess { flavours, qos: None });
    let mut client = Client::new(&fixture, "one", 0);
    let attrs = mode(0o666);
    assert_eq!(client.status(&["e"], &[open_by_name("f", Some(&attrs))]), Status::ROFS);
    client.flavour = Flavour::Krb5p;
    client.principal = gss("alice@EXAMPLE.ORG");
    assert_eq!(client.status(&["e"], &[open_by_name("f", Some(&attrs))]), Status::ACCESS);
    client.flavour = Flavour::Krb5i;
    assert_eq!(client.status(&[], &[lookup("e")]), Status::WRONGSEC);
    client.flavour = Flavour::Sys;
    client.principal = user(0);
    let requested = op::Access(0x1f);
    let (_, list) = client.run_at(&["e"], &[Args::Access(op::AccessArgs { access: requested })]);
    assert!(matches!(&list[0], Results::Access(Ok(ok)) if ok.access.0 & 0x1c == 0), "{list:?}");
}

fn open_current() -> Args<'static> {
    open(op::ShareAccess::READ, OpenHow::NoCreate, OpenClaim::Fh)
}

// §2.6.3.1.1.
#[test]
fn next_operation_decides_about_wrongsec() {
    let files = Arc::new(MemoryFs::new());
    let exports = vec![
        export(1, &["e"], &files, flavours_access(&[Flavour::Krb5])),
        export(2, &["open"], &files, sys_access()),
        demanding(3, "tls", &files, Transport::Tls),
    ];
    let fixture = Fixture::with_exports(files, exports);
    let mut client = Client::new(&fixture, "one", 0);
    client.connection.set_tls(TlsPeer::default());
    let under_tls = client.filehandle(&["tls"], &[]);
    client.connection = fixture.connect();
    client.flavour = Flavour::Krb5;
    let under_kerberos = client.filehandle(&["e"], &[]);
    client.flavour = Flavour::Sys;
    let right = client.filehandle(&["open"], &[]);
    for handle in [under_kerberos, under_tls] {
        client.minor = 1;
        check_wrongsec(&mut client, handle, right);
    }
}

fn check_wrongsec(client: &mut Client<'_>, handle: Filehandle, right: Filehandle) {
    let put = || putfh(handle);
    let no_name =
        || Args::SecinfoNoName(op::SecinfoNoNameArgs { style: op::SecinfoStyle::CurrentFh });
    let secinfo = || Args::Secinfo(op::SecinfoArgs { name: Name(b"f") });
    let cases = [
        (vec![put(), putfh(right), getattr(&[1])], None),
        (vec![put(), Args::Putrootfh, getattr(&[1])], None),
        (vec![put(), Args::Savefh, Args::Putrootfh], None),
        (vec![put(), Args::Savefh, getattr(&[1])], Some(0)),
        (vec![put(), Args::Savefh], None),
        (vec![put(), lookup("f")], Some(1)),
        (vec![put(), open_by_name("f", None)], Some(1)),
        (vec![put(), open_current()], Some(0)),
        // 2.6.3.1.1.4.
        (vec![put(), Args::Lookupp, getattr(&[1])], None),
        (vec![put(), secinfo()], None),
        (vec![put(), no_name()], None),
        (vec![put()], None),
        (vec![put(), getattr(&[1])], Some(0)),
        (vec![put(), Args::Access(op::AccessArgs { access: op::Access(1) })], Some(0)),
        (vec![put(), Args::Getfh], Some(0)),
        (vec![put(), Args::Savefh, Args::Putrootfh, Args::Restorefh, getattr(&[1])], Some(3)),
        // §2.6.3.1.2: LINK also checks the saved filehandle.
        (
            vec![put(), Args::Savefh, putfh(right), Args::Link(op::LinkArgs { name: Name(b"l") })],
            Some(3),
        ),
    ];
    for (ops, wrong) in cases {
        let names: Vec<_> = ops.iter().map(|one| name_of(one.op())).collect();
        let (status, list) = client.run(&ops);
        let found = (status == Status::WRONGSEC).then(|| list.len() - 1);
        assert_eq!(found, wrong, "{names:?}: {list:?}");
        assert!(found.is_some() || status.is_ok(), "{names:?}: {list:?}");
    }
    // 4.0 (RFC 7530 §3.3.3.1): SECINFO keeps the current filehandle.
    client.minor = 0;
    let (status, list) = client.send(&[put(), secinfo(), getattr(&[1])]);
    assert_eq!((list.len(), status), (3, Status::WRONGSEC), "{list:?}");
    let (status, list) = client.send(&[put(), getattr(&[1])]);
    assert_eq!((list.len(), status), (1, Status::WRONGSEC), "{list:?}");
}

// Otherwise the client would never try another flavour.
#[test]
fn wrong_flavour_is_reported_before_unknown_account() {
    let fixture = Fixture::exporting(&["e"], flavours_access(&[Flavour::Sys, Flavour::Krb5p]));
    let mut client = Client::new(&fixture, "one", 0);
    client.principal = gss("mallory@EXAMPLE.ORG");
    client.flavour = Flavour::Krb5;
    assert_eq!(client.status(&[], &[lookup("e")]), Status::WRONGSEC);
    client.flavour = Flavour::Krb5p;
    assert_eq!(client.status(&[], &[lookup("e")]), Status::ACCESS);
}

// §15.1.1.3. After ACCESS a client would discard its dirty data.
#[test]
fn unanswered_name_lookup_returns_delay() {
    let fixture = Fixture::exporting(&["e"], flavours_access(&[Flavour::Sys, Flavour::Krb5p]));
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(client.status(&["e"], &[open_by_name("f", Some(&mode(0o666)))]), Status::OK);
    let handle = client.filehandle(&["e", "f"], &[]);
    let put = putfh(handle);
    let unknown_owner = Packed::one(
        36,
        Attributes { owner: Some(Bytes(b"unanswered@example.org")), ..Attributes::default() },
    );
    assert_eq!(client.status(&["e", "f"], &[setattr(&unknown_owner)]), Status::DELAY);
    (client.flavour, client.principal) = (Flavour::Krb5p, gss("unanswered@EXAMPLE.ORG"));
    assert_eq!(client.run(std::slice::from_ref(&put)).0, Status::DELAY);
    assert_eq!(client.status(&[], &[lookup("e")]), Status::DELAY);
    client.principal = gss("alice@EXAMPLE.ORG");
    assert_eq!(client.run(&[put]).0, Status::OK);
}

// exports(5): `secure` applies to AUTH_SYS only.
#[test]
fn kerberos_callers_may_use_any_port() {
    let secured = |flavour| FlavourAccess { secure_port: true, ..flavour_access(flavour) };
    let secure =
        ClientAccess { flavours: vec![secured(Flavour::Sys), secured(Flavour::Krb5)], qos: None };
    let fixture = Fixture::exporting(&["e"], secure);
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(client.status(&["e"], &[getattr(&[1])]), Status::OK);
    client.connection =
        fixture.server.connection_opened(SocketAddr::from(([127, 0, 0, 1], 50_000)));
    assert_eq!(client.status(&["e"], &[getattr(&[1])]), Status::ACCESS);
    (client.flavour, client.principal) = (Flavour::Krb5, gss("nfs/client.example.org@EXAMPLE.ORG"));
    assert_eq!(client.status(&["e"], &[getattr(&[1])]), Status::OK);
}

// §18.35.4.
#[test]
fn clients_are_identified_by_principal() {
    let fixture = Fixture::exporting(&["e"], flavours_access(&[Flavour::Krb5, Flavour::Krb5p]));
    let machine = || gss("nfs/client.example.org@EXAMPLE.ORG");
    let (mut first, _) =
        Client::with_protection(&fixture, "one", machine(), Flavour::Krb5, StateProtect::None);
    let id = |principal: Principal, flavour: Flavour| {
        let (reply, _) = fixture.call_with_flavour(
            flavour,
            &fixture.connect(),
            &principal,
            compound(2, &[exchange_id("one", 1, StateProtect::None)]),
        );
        match &results(reply).1[0] {
            Results::ExchangeId(result) => {
                result.as_ref().map(|ok| ok.client).map_err(|status| *status)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(id(machine(), Flavour::Krb5p), Ok(first.id));
    assert_eq!(id(machine(), Flavour::Krb5i), Ok(first.id));
    assert_eq!(
        id(gss("nfs/thief.example.org@EXAMPLE.ORG"), Flavour::Krb5p),
        Err(Status::CLID_INUSE)
    );
    assert_eq!(id(user(0), Flavour::Sys), Err(Status::CLID_INUSE));
    let (_, list) = first.run_at(&["e"], &[getattr(&[1])]);
    assert!(attributes(&list[0]).file_type.is_some());
}

// §2.10.6.1.3.1.
#[test]
fn reply_cache_refuses_replay_under_other_flavour() {
    let fixture = Fixture::exporting(&["e"], flavours_access(&[Flavour::Krb5p]));
    let (mut client, _) = Client::with_protection(
        &fixture,
        "one",
        gss("alice@EXAMPLE.ORG"),
        Flavour::Krb5p,
        StateProtect::None,
    );
    let ops = [client.next_sequence(true), Args::Putrootfh, lookup("e"), getattr(&[1, 20])];
    let (status, first) = client.send(&ops);
    assert_eq!(status, Status::OK);
    for weaker in [Flavour::Krb5, Flavour::Krb5i] {
        client.flavour = weaker;
        let (status, list) = client.send(&ops);
        assert_eq!((status, list.len()), (Status::SEQ_FALSE_RETRY, 1), "{list:?}");
    }
    client.flavour = Flavour::Krb5p;
    assert_eq!(client.send(&ops), (Status::OK, first));
}

// RFC 7530 §3.1.1.
#[test]
fn v40_reply_cache_refuses_replay_under_other_flavour() {
    let fixture = Fixture::exporting(&["e"], flavours_access(&[Flavour::Krb5p]));
    let mut client = Client::new(&fixture, "one", 0);
    (client.minor, client.flavour) = (0, Flavour::Krb5p);
    let attrs = mode(0o755);
    let make = [Args::Putrootfh, lookup("e"), mkdir("d", &attrs)];
    let first = client.send(&make);
    assert_eq!(first.0, Status::OK, "{:?}", first.1);
    client.flavour = Flavour::Krb5;
    assert_eq!(client.send(&make).0, Status::WRONGSEC);
    client.flavour = Flavour::Krb5p;
    assert_eq!(client.send(&make), first);
}

// §18.23.3.
#[test]
fn readdir_lists_exports_of_other_flavours() {
    const RDATTR_ERROR: u32 = 11;
    const FILEID: u32 = 20;
    const MOUNTED_ON_FILEID: u32 = 55;
    let (files, other, below) =
        (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let attrs = mode(0o755);
    let fixture =
        Fixture::with_exports(other.clone(), vec![export(2, &["b"], &other, sys_access())]);
    assert_eq!(Client::new(&fixture, "one", 0).status(&["b"], &[mkdir("c", &attrs)]), Status::OK);
    let exports = vec![
        export(1, &["x", "a"], &files, flavours_access(&[Flavour::Krb5p])),
        export(2, &["x", "b"], &other, sys_access()),
        export(3, &["x", "b", "c"], &below, flavours_access(&[Flavour::Krb5p])),
    ];
    let fixture = Fixture::with_exports(files, exports);
    let mut client = Client::new(&fixture, "one", 0);
    let mut list = |flavour, path: &[&str], wanted: &[u32]| {
        client.flavour = flavour;
        match &client.run_at(path, &[readdir(0, 4096, wanted)]).1[0] {
            Results::Readdir(Ok(ok)) => {
                let entries = ok.entries.iter().map(|entry| {
                    let attrs = entry.attrs.attributes().expect("valid attributes");
                    (
                        entry.name.0.to_vec(),
                        attrs.rdattr_error,
                        attrs.fileid,
                        attrs.mounted_on_fileid,
                    )
                });
                let mut entries: Vec<_> = entries.collect();
                entries.sort();
                Ok((entries, ok.eof))
            }
            other => Err(other.status()),
        }
    };
    for (path, hidden) in [(&["x"][..], b"a"), (&["x", "b"], b"c")] {
        let (all, _): (Vec<(Vec<u8>, _, _, _)>, bool) = list(Flavour::Sys, path, &[]).unwrap();
        assert!(all.iter().any(|(name, ..)| name == hidden), "{all:?}");
        for wanted in [
            &[][..],
            &[MOUNTED_ON_FILEID],
            &[RDATTR_ERROR],
            &[RDATTR_ERROR, MOUNTED_ON_FILEID],
            &[RDATTR_ERROR, FILEID, MOUNTED_ON_FILEID],
        ] {
            let (entries, eof) = list(Flavour::Sys, path, wanted).unwrap();
            let (_, error, fileid, mounted_on) =
                entries.iter().find(|(name, ..)| name == hidden).expect("the entry is listed");
            let is_wanted = |attr| wanted.contains(&attr);
            assert_eq!(
                (*error, fileid.is_some()),
                (is_wanted(RDATTR_ERROR).then_some(Status::WRONGSEC), false),
                "{wanted:?}"
            );
            assert!(
                eof && entries.len() == all.len()
                    && mounted_on.is_some() == is_wanted(MOUNTED_ON_FILEID),
                "{wanted:?}: {entries:?}"
            );
            assert_ne!(*mounted_on, Some(0));
        }
        assert!(matches!(
            list(Flavour::Sys, path, &[FILEID]),
            Err(Status::WRONGSEC) | Ok((_, false))
        ));
    }
}
