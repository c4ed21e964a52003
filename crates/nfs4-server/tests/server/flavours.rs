//! Security flavours: what SECINFO offers, which rights each has, and where a wrong one is told
//! (RFC 8881, section 2.6.3.1).

use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{self, Args, OpenClaim, OpenHow, Results};
use vouch_nfs4::{Attributes, Bytes, ClientId, Filehandle, GssInfo, GssService, Name, OwnerSeq, SecInfo, StateOwner, StateProtect, Status};
use vouch_nfs4_server::{ClientAccess, Flavour, FlavourAccess, Principal};

use crate::attributes::setattr;
use crate::world::{
    Client, MemoryFs, Packed, World, access, attributes, compound, export, getattr, lookup, mode, name_of, open_args, results, under, user,
};

pub(crate) fn proven(name: &str) -> Principal {
    Principal::Gss { name: name.into() }
}

pub(crate) fn takes(flavours: &[Flavour]) -> ClientAccess {
    ClientAccess { flavours: flavours.iter().map(|&flavour| under(flavour)).collect() }
}

fn kerberos(service: GssService) -> SecInfo<'static> {
    // RFC 4121: 1.2.840.113554.1.2.2.
    SecInfo::Gss(GssInfo { oid: Bytes(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02]), qop: 0, service })
}

fn handle_of(client: &mut Client<'_>, path: &[&str]) -> Filehandle {
    let (_, list) = client.at(path, &[Args::Getfh]);
    match &list[0] {
        Results::Getfh(Ok(ok)) => ok.handle,
        other => panic!("{other:?}"),
    }
}

fn offered(result: &Results<'static>) -> Vec<SecInfo<'static>> {
    match result {
        Results::Secinfo(Ok(ok)) | Results::SecinfoNoName(Ok(ok)) => ok.flavors.to_vec(),
        other => panic!("{other:?}"),
    }
}

// RFC 8881, sections 18.29 and 18.45.
#[test]
fn secinfo_offers_what_the_export_takes_in_its_order() {
    let files = Arc::new(MemoryFs::new());
    let first = takes(&[Flavour::Krb5p, Flavour::Krb5i, Flavour::Sys]);
    let second = takes(&[Flavour::Krb5, Flavour::Krb5p]);
    let world = World::with(files.clone(), vec![export(9, &["first"], &files, first), export(2, &["second"], &files, second)]);
    let mut client = Client::new(&world, "one", 0);
    let privacy_first = vec![kerberos(GssService::Privacy), kerberos(GssService::Integrity), SecInfo::Flavor(1)];
    let (_, list) = client.at(&[], &[Args::Secinfo(op::SecinfoArgs { name: Name(b"first") })]);
    assert_eq!(offered(&list[0]), privacy_first);
    let this = |style| Args::SecinfoNoName(op::SecinfoNoNameArgs { style });
    let (_, list) = client.at(&["first"], &[this(op::SecinfoStyle::CurrentFh)]);
    assert_eq!(offered(&list[0]), privacy_first);
    // Where exports join, what any of them takes: in the order of the list of exports.
    let all = [&privacy_first[..], &[kerberos(GssService::None)]].concat();
    let (_, list) = client.at(&["first"], &[this(op::SecinfoStyle::Parent)]);
    assert_eq!(offered(&list[0]), all);
    // Section 18.29.3: asked under a flavour that the export does not take; what is in it has its
    // flavours, there or not.
    let handle = handle_of(&mut client, &["first"]);
    client.flavour = Flavour::Krb5;
    let put = Args::Putfh(op::PutfhArgs { handle });
    let (status, list) = client.run(&[put, Args::Secinfo(op::SecinfoArgs { name: Name(b"nothing") }), getattr(&[1])]);
    assert_eq!((offered(&list[1]), status), (privacy_first, Status::NOFILEHANDLE));
}

// exports(5): `sec=krb5p,rw,sec=sys,ro`.
#[test]
fn rights_differ_by_flavour() {
    let files = Arc::new(MemoryFs::new());
    let flavours = vec![under(Flavour::Krb5p), FlavourAccess { read_only: true, ..under(Flavour::Sys) }];
    let world = World::with(files.clone(), vec![export(1, &["e"], &files, ClientAccess { flavours })]);
    let mut client = Client::new(&world, "one", 0);
    let attrs = mode(0o666);
    assert_eq!(client.status(&["e"], &[open_args("f", Some(&attrs))]), Status::ROFS);
    client.flavour = Flavour::Krb5p;
    client.principal = proven("alice@EXAMPLE.ORG");
    // MemoryFs's root is root's.
    assert_eq!(client.status(&["e"], &[open_args("f", Some(&attrs))]), Status::ACCESS);
    client.flavour = Flavour::Krb5i;
    assert_eq!(client.status(&[], &[lookup("e")]), Status::WRONGSEC);
    client.flavour = Flavour::Sys;
    client.principal = user(0);
    let asked = op::Access(0x1f);
    let (_, list) = client.at(&["e"], &[Args::Access(op::AccessArgs { access: asked })]);
    assert!(matches!(&list[0], Results::Access(Ok(ok)) if ok.access.0 & 0x1c == 0), "{list:?}");
}

/// OPEN of what the current filehandle is.
fn open_current() -> Args<'static> {
    Args::Open(op::OpenArgs {
        seq: OwnerSeq(0),
        access: op::ShareAccess::READ,
        deny: op::ShareDeny(0),
        owner: StateOwner { client: ClientId(0), owner: Bytes(b"owner") },
        how: OpenHow::NoCreate,
        claim: OpenClaim::Fh,
    })
}

// RFC 8881, section 2.6.3.1.1: each of its cases, by which result carries the failure.
#[test]
fn a_filehandle_under_a_wrong_flavour_is_judged_by_what_follows() {
    let files = Arc::new(MemoryFs::new());
    let exports = vec![export(1, &["e"], &files, takes(&[Flavour::Krb5])), export(2, &["open"], &files, access())];
    let world = World::with(files, exports);
    let mut client = Client::new(&world, "one", 0);
    client.flavour = Flavour::Krb5;
    let handle = handle_of(&mut client, &["e"]);
    client.flavour = Flavour::Sys;
    let right = handle_of(&mut client, &["open"]);
    let put = || Args::Putfh(op::PutfhArgs { handle });
    let no_name = || Args::SecinfoNoName(op::SecinfoNoNameArgs { style: op::SecinfoStyle::CurrentFh });
    let secinfo = || Args::Secinfo(op::SecinfoArgs { name: Name(b"f") });
    let cases = [
        // 2.6.3.1.1.1: another filehandle follows.
        (vec![put(), Args::Putfh(op::PutfhArgs { handle: right }), getattr(&[1])], None),
        (vec![put(), Args::Putrootfh, getattr(&[1])], None),
        // 2.6.3.1.1.2: SAVEFH is looked through.
        (vec![put(), Args::Savefh, Args::Putrootfh], None),
        (vec![put(), Args::Savefh, getattr(&[1])], Some(0)),
        (vec![put(), Args::Savefh], None),
        // 2.6.3.1.1.3: a lookup or an OPEN by name.
        (vec![put(), lookup("f")], Some(1)),
        (vec![put(), open_args("f", None)], Some(1)),
        (vec![put(), open_current()], Some(0)),
        // 2.6.3.1.1.4: the directory above takes any flavour.
        (vec![put(), Args::Lookupp, getattr(&[1])], None),
        // 2.6.3.1.1.5.
        (vec![put(), secinfo()], None),
        (vec![put(), no_name()], None),
        // 2.6.3.1.1.6: nothing follows.
        (vec![put()], None),
        // 2.6.3.1.1.7: anything else.
        (vec![put(), getattr(&[1])], Some(0)),
        (vec![put(), Args::Access(op::AccessArgs { access: op::Access(1) })], Some(0)),
        (vec![put(), Args::Getfh], Some(0)),
        // RESTOREFH puts one as well.
        (vec![put(), Args::Savefh, Args::Putrootfh, Args::Restorefh, getattr(&[1])], Some(3)),
        // Section 2.6.3.1.2: of two filehandles the saved one may be refused too.
        (vec![put(), Args::Savefh, Args::Putfh(op::PutfhArgs { handle: right }), Args::Link(op::LinkArgs { name: Name(b"l") })], Some(3)),
    ];
    for (ops, wrong) in cases {
        let names: Vec<_> = ops.iter().map(|one| name_of(one.op())).collect();
        let (status, list) = client.run(&ops);
        let found = (status == Status::WRONGSEC).then(|| list.len() - 1);
        assert_eq!(found, wrong, "{names:?}: {list:?}");
        assert!(found.is_some() || status.is_ok(), "{names:?}: {list:?}");
    }
    // The same in 4.0 (RFC 7530, section 3.3.3.1), where SECINFO leaves the filehandle.
    client.minor = 0;
    let (status, list) = client.bare(&[put(), secinfo(), getattr(&[1])]);
    assert_eq!((list.len(), status), (3, Status::WRONGSEC), "{list:?}");
    let (status, list) = client.bare(&[put(), getattr(&[1])]);
    assert_eq!((list.len(), status), (1, Status::WRONGSEC), "{list:?}");
}

// Or a client would never learn that it must use another flavour.
#[test]
fn a_wrong_flavour_is_told_before_a_missing_account() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![export(1, &["e"], &files, takes(&[Flavour::Sys, Flavour::Krb5p]))]);
    let mut client = Client::new(&world, "one", 0);
    client.principal = proven("mallory@EXAMPLE.ORG");
    client.flavour = Flavour::Krb5;
    assert_eq!(client.status(&[], &[lookup("e")]), Status::WRONGSEC);
    client.flavour = Flavour::Krb5p;
    assert_eq!(client.status(&[], &[lookup("e")]), Status::ACCESS);
}

// RFC 8881, section 15.1.1.3: what may succeed later is DELAY. ACCESS would have a client drop what
// it has to write.
#[test]
fn who_can_not_be_told_now_is_to_ask_again() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![export(1, &["e"], &files, takes(&[Flavour::Sys, Flavour::Krb5p]))]);
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(client.status(&["e"], &[open_args("f", Some(&mode(0o666)))]), Status::OK);
    let handle = handle_of(&mut client, &["e", "f"]);
    let put = Args::Putfh(op::PutfhArgs { handle });
    let to_nobody_knows = Packed::new(&[36], &Attributes { owner: Some(Bytes(b"unanswered@example.org")), ..Attributes::default() });
    assert_eq!(client.status(&["e", "f"], &[setattr(&to_nobody_knows)]), Status::DELAY);
    (client.flavour, client.principal) = (Flavour::Krb5p, proven("unanswered@EXAMPLE.ORG"));
    assert_eq!(client.run(std::slice::from_ref(&put)).0, Status::DELAY);
    assert_eq!(client.status(&[], &[lookup("e")]), Status::DELAY);
    client.principal = proven("alice@EXAMPLE.ORG");
    assert_eq!(client.run(&[put]).0, Status::OK);
}

// exports(5): `secure` is about claims, not about proofs.
#[test]
fn proven_callers_may_call_from_any_port() {
    let files = Arc::new(MemoryFs::new());
    let secured = |flavour| FlavourAccess { secure_port: true, ..under(flavour) };
    let secure = ClientAccess { flavours: vec![secured(Flavour::Sys), secured(Flavour::Krb5)] };
    let world = World::with(files.clone(), vec![export(1, &["e"], &files, secure)]);
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(client.status(&["e"], &[getattr(&[1])]), Status::OK);
    client.connection = world.server.connection_opened(SocketAddr::from(([127, 0, 0, 1], 50_000)));
    assert_eq!(client.status(&["e"], &[getattr(&[1])]), Status::ACCESS);
    (client.flavour, client.principal) = (Flavour::Krb5, proven("nfs/client.example.org@EXAMPLE.ORG"));
    assert_eq!(client.status(&["e"], &[getattr(&[1])]), Status::OK);
}

// RFC 8881, section 18.35.4: a client that comes back under another context, flavour and connection
// is who its principal says.
#[test]
fn clients_are_told_apart_by_principals_and_not_by_contexts() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![export(1, &["e"], &files, takes(&[Flavour::Krb5, Flavour::Krb5p]))]);
    let machine = || proven("nfs/client.example.org@EXAMPLE.ORG");
    let (mut first, _) = Client::introduced(&world, "one", machine(), Flavour::Krb5, StateProtect::None);
    let id = |principal: Principal, flavour: Flavour| {
        let args = op::ExchangeIdArgs {
            owner: vouch_nfs4::ClientOwner { verifier: vouch_nfs4::Verifier([1; 8]), id: Bytes(b"one") },
            flags: op::ExchangeIdFlags(0),
            state_protect: StateProtect::None,
            impl_id: None,
        };
        let (reply, _) = world.call_under(flavour, &world.connect(), &principal, compound(2, &[Args::ExchangeId(args)]));
        match &results(reply).1[0] {
            Results::ExchangeId(result) => result.as_ref().map(|ok| ok.client).map_err(|status| *status),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(id(machine(), Flavour::Krb5p), Ok(first.id));
    assert_eq!(id(machine(), Flavour::Krb5i), Ok(first.id));
    assert_eq!(id(proven("nfs/thief.example.org@EXAMPLE.ORG"), Flavour::Krb5p), Err(Status::CLID_INUSE));
    assert_eq!(id(user(0), Flavour::Sys), Err(Status::CLID_INUSE));
    let (_, list) = first.at(&["e"], &[getattr(&[1])]);
    assert!(attributes(&list[0]).file_type.is_some());
}

// RFC 8881, section 2.10.6.1.3.1: a retry under another flavour is another call. What an export of
// krb5p alone has answered is told under nothing weaker.
#[test]
fn a_reply_is_not_told_again_under_another_flavour() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![export(1, &["e"], &files, takes(&[Flavour::Krb5p]))]);
    let (mut client, _) = Client::introduced(&world, "one", proven("alice@EXAMPLE.ORG"), Flavour::Krb5p, StateProtect::None);
    let once = [client.sequence(true), Args::Putrootfh, lookup("e"), getattr(&[1, 20])];
    let (status, told) = client.bare(&once);
    assert_eq!(status, Status::OK);
    for weaker in [Flavour::Krb5, Flavour::Krb5i] {
        client.flavour = weaker;
        let (status, list) = client.bare(&once);
        assert_eq!((status, list.len()), (Status::SEQ_FALSE_RETRY, 1), "{list:?}");
    }
    client.flavour = Flavour::Krb5p;
    assert_eq!(client.bare(&once), (Status::OK, told));
}

// RFC 7530, section 3.1.1: nor in 4.0, where replies to what changes something are kept.
#[test]
fn a_reply_of_4_0_is_not_told_again_under_another_flavour() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![export(1, &["e"], &files, takes(&[Flavour::Krb5p]))]);
    let mut client = Client::new(&world, "one", 0);
    (client.minor, client.flavour) = (0, Flavour::Krb5p);
    let attrs = mode(0o755);
    let kind = op::CreateType::Plain(FileType::Directory);
    let make = [Args::Putrootfh, lookup("e"), Args::Create(op::CreateArgs { kind, name: Name(b"d"), attrs: attrs.fattr() })];
    let once = client.bare(&make);
    assert_eq!(once.0, Status::OK, "{:?}", once.1);
    client.flavour = Flavour::Krb5;
    assert_eq!(client.bare(&make).0, Status::WRONGSEC);
    client.flavour = Flavour::Krb5p;
    assert_eq!(client.bare(&make), once);
}

// RFC 8881, section 18.23.3: READDIR does not say WRONGSEC of an entry but by rdattr_error, and a
// listing is to come to its end.
#[test]
fn a_listing_goes_over_exports_of_another_flavour_and_tells_their_places() {
    let [error_of, fileid_of, place_of] = [11, 20, 55];
    let (files, other, below) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    // What the export below covers.
    let (attrs, kind) = (mode(0o755), op::CreateType::Plain(FileType::Directory));
    let make = Args::Create(op::CreateArgs { kind, name: Name(b"c"), attrs: attrs.fattr() });
    let world = World::with(other.clone(), vec![export(2, &["b"], &other, access())]);
    assert_eq!(Client::new(&world, "one", 0).status(&["b"], &[make]), Status::OK);
    let exports = vec![
        export(1, &["x", "a"], &files, takes(&[Flavour::Krb5p])),
        export(2, &["x", "b"], &other, access()),
        export(3, &["x", "b", "c"], &below, takes(&[Flavour::Krb5p])),
    ];
    let world = World::with(files, exports);
    let mut client = Client::new(&world, "one", 0);
    let mut list = |flavour, path: &[&str], wanted: &[u32]| {
        client.flavour = flavour;
        let wanted = vouch_nfs4::Bitmap::of(wanted);
        let args = op::ReaddirArgs {
            cookie: vouch_nfs4::Cookie(0),
            verifier: vouch_nfs4::Verifier([0; 8]),
            dir_count: 0,
            max_count: 4096,
            wanted,
        };
        match &client.at(path, &[Args::Readdir(args)]).1[0] {
            Results::Readdir(Ok(ok)) => {
                let entries = ok.entries.iter().map(|entry| {
                    let told = entry.attrs.attributes().expect("values can be read");
                    (entry.name.0.to_vec(), told.rdattr_error, told.fileid, told.mounted_on_fileid)
                });
                let mut entries: Vec<_> = entries.collect();
                entries.sort();
                Ok((entries, ok.eof))
            }
            other => Err(other.status()),
        }
    };
    for (path, closed) in [(&["x"][..], b"a"), (&["x", "b"], b"c")] {
        let (all, _): (Vec<(Vec<u8>, _, _, _)>, bool) = list(Flavour::Sys, path, &[]).unwrap();
        assert!(all.iter().any(|(name, ..)| name == closed), "{all:?}");
        for wanted in [&[][..], &[place_of], &[error_of], &[error_of, place_of], &[error_of, fileid_of, place_of]] {
            let (entries, eof) = list(Flavour::Sys, path, wanted).unwrap();
            let (_, error, fileid, mounted_on) = entries.iter().find(|(name, ..)| name == closed).expect("it is told");
            let asked = |attr| wanted.contains(&attr);
            assert_eq!((*error, fileid.is_some()), (asked(error_of).then_some(Status::WRONGSEC), false), "{wanted:?}");
            assert!(eof && entries.len() == all.len() && mounted_on.is_some() == asked(place_of), "{wanted:?}: {entries:?}");
            assert_ne!(*mounted_on, Some(0));
        }
        // Something of the export itself, and nowhere to say why not.
        assert!(matches!(list(Flavour::Sys, path, &[fileid_of]), Err(Status::WRONGSEC) | Ok((_, false))));
    }
}
