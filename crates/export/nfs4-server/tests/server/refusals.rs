use vouch_nfs4::{Ace, AceFlags, AceMask, AceType, Acl, ReplyHead};
use vouch_nfs4_server::Limits;
use vouch_vfs::{Error, FileSystem as _, PosixAclKind, SetAttributes};

use crate::prelude::*;

const FILE: &[&str] = &["export", "f"];

fn raw_status(client: &mut Client<'_>, op: u32, args: impl FnOnce(&mut Writer)) -> Status {
    let ops = [
        client.next_sequence(false),
        Args::Putrootfh,
        lookup("export"),
        lookup("f"),
        Args::Savefh,
        Args::Illegal(op::Op(op)),
    ];
    let mut w = Writer::append_to(compound(client.minor, &ops));
    args(&mut w);
    let (reply, _) = client.fixture.call(&client.connection, &client.principal, w.into_bytes());
    let head = ReplyHead::decode(&mut Reader::new(&reply)).unwrap();
    assert_eq!(head.count, 6, "the earlier operations succeeded: {:?}", head.status);
    head.status
}

type Encode = fn(&mut Writer);

const NOT_SUPPORTED: [(u32, u32, Status, Encode); 13] = [
    (1, op::Op::OPENATTR.0, Status::NOTSUPP, |w| w.bool(true)),
    // Without SP4_SSV there is no secret to set (RFC 8881 §18.47.3).
    (1, op::Op::SET_SSV.0, Status::INVAL, |w| (0..2).for_each(|_| w.opaque(b"secret"))),
    (1, op::Op::WANT_DELEGATION.0, Status::NOTSUPP, |w| {
        [0x100, 0].into_iter().for_each(|word| w.u32(word))
    }),
    (1, op::Op::GETDEVICEINFO.0, Status::NOTSUPP, |w| {
        w.opaque_fixed(&[0; 16]);
        [1, 4096, 0].into_iter().for_each(|word| w.u32(word));
    }),
    (1, op::Op::GETDEVICELIST.0, Status::NOTSUPP, |w| {
        [1, 16].into_iter().for_each(|word| w.u32(word));
        (0..2).for_each(|_| w.u64(0));
    }),
    (1, op::Op::LAYOUTCOMMIT.0, Status::NOTSUPP, |w| {
        (0..2).for_each(|_| w.u64(0));
        w.bool(false);
        w.opaque_fixed(&[0; 16]);
        (0..2).for_each(|_| w.bool(false));
        w.u32(1);
        w.opaque(b"");
    }),
    (1, op::Op::LAYOUTGET.0, Status::NOTSUPP, |w| layout_get(w, 1)),
    (1, op::Op::LAYOUTRETURN.0, Status::NOTSUPP, |w| layout_return(w, 3)),
    (2, op::Op::LAYOUTERROR.0, Status::NOTSUPP, |w| {
        (0..2).for_each(|_| w.u64(0));
        w.opaque_fixed(&[0; 16]);
        w.u32(0);
    }),
    (2, op::Op::LAYOUTSTATS.0, Status::NOTSUPP, |w| {
        (0..2).for_each(|_| w.u64(0));
        w.opaque_fixed(&[0; 16]);
        (0..4).for_each(|_| w.u64(0));
        w.opaque_fixed(&[0; 16]);
        w.u32(1);
        w.opaque(b"");
    }),
    (2, op::Op::COPY_NOTIFY.0, Status::NOTSUPP, |w| copy_notify(w, 1)),
    (2, op::Op::WRITE_SAME.0, Status::NOTSUPP, |w| write_same(w, 0)),
    // RFC 7862 §15.9.3.
    (2, op::Op::OFFLOAD_STATUS.0, Status::BAD_STATEID, |w| w.opaque_fixed(&[7; 16])),
];

fn layout_get(w: &mut Writer, iomode: u32) {
    w.bool(false);
    [1, iomode].into_iter().for_each(|word| w.u32(word));
    (0..3).for_each(|_| w.u64(0));
    w.opaque_fixed(&[0; 16]);
    w.u32(4096);
}

fn layout_return(w: &mut Writer, what: u32) {
    w.bool(false);
    [1, 1, what].into_iter().for_each(|word| w.u32(word));
}

fn copy_notify(w: &mut Writer, kind: u32) {
    w.opaque_fixed(&[0; 16]);
    w.u32(kind);
    w.opaque(b"elsewhere");
}

fn write_same(w: &mut Writer, stable: u32) {
    w.opaque_fixed(&[0; 16]);
    w.u32(stable);
    (0..4).for_each(|_| w.u64(0));
    w.u32(0);
    w.u64(0);
    w.opaque(b"");
}

// RFC 8881 §15.1.1.5, and docs/conformance.md.
#[test]
fn unsupported_operations_return_notsupp() {
    let fixture = Fixture::new();
    for minor in 1..=2 {
        let mut client = Client::new(&fixture, ["", "one", "two"][minor as usize], 0);
        client.minor = minor;
        client.create("f");
        for (since, op, status, args) in NOT_SUPPORTED {
            let expected = if since > minor { Status::OP_ILLEGAL } else { status };
            assert_eq!(raw_status(&mut client, op, args), expected, "operation {op} of 4.{minor}");
        }
    }
}

// RFC 7862 §11.1 and 15.11.3; RFC 8881 §15.1.1.1.
#[test]
fn unknown_values_return_their_documented_status() {
    let mut client = Client::with_file();
    let seek = |what| {
        move |w: &mut Writer| {
            w.opaque_fixed(&[0; 16]);
            w.u64(0);
            w.u32(what);
        }
    };
    assert_eq!(raw_status(&mut client, op::Op::SEEK.0, seek(1)), Status::NXIO, "the file is empty");
    assert_eq!(raw_status(&mut client, op::Op::SEEK.0, seek(2)), Status::UNION_NOTSUPP);
    assert_eq!(
        raw_status(&mut client, op::Op::SEEK.0, |w| w.u32(2)),
        Status::BADXDR,
        "truncated arguments"
    );
    let copy = |kind| {
        move |w: &mut Writer| {
            w.opaque_fixed(&[0; 32]);
            (0..3).for_each(|_| w.u64(0));
            (0..2).for_each(|_| w.bool(true));
            w.u32(1);
            w.u32(kind);
            w.opaque(b"elsewhere");
        }
    };
    for kind in [1, 9] {
        assert_eq!(
            raw_status(&mut client, op::Op::COPY.0, copy(kind)),
            Status::NOTSUPP,
            "from another server"
        );
        assert_eq!(
            raw_status(&mut client, op::Op::COPY_NOTIFY.0, |w| copy_notify(w, kind)),
            Status::NOTSUPP
        );
    }
    assert_eq!(raw_status(&mut client, op::Op::LAYOUTGET.0, |w| layout_get(w, 9)), Status::NOTSUPP);
    assert_eq!(
        raw_status(&mut client, op::Op::LAYOUTRETURN.0, |w| layout_return(w, 9)),
        Status::NOTSUPP
    );
    assert_eq!(
        raw_status(&mut client, op::Op::WRITE_SAME.0, |w| write_same(w, 9)),
        Status::NOTSUPP
    );
    let write = |stable| {
        move |w: &mut Writer| {
            w.opaque_fixed(&[0; 16]);
            w.u64(0);
            w.u32(stable);
            w.opaque(b"");
        }
    };
    assert_eq!(raw_status(&mut client, op::Op::WRITE.0, write(3)), Status::BADXDR);
    assert_eq!(raw_status(&mut client, op::Op::SECINFO_NO_NAME.0, |w| w.u32(2)), Status::BADXDR);
    let xattr = |w: &mut Writer| {
        w.u32(3);
        (0..2).for_each(|_| w.opaque(b"name"));
    };
    assert_eq!(raw_status(&mut client, op::Op::SETXATTR.0, xattr), Status::BADXDR);
    // RFC 8881 §18.4.3.
    let create = |w: &mut Writer| {
        w.u32(99);
        w.opaque(b"name");
        (0..2).for_each(|_| w.u32(0));
    };
    assert_eq!(raw_status(&mut client, op::Op::CREATE.0, create), Status::BADTYPE);
    let lock = |w: &mut Writer| {
        w.u32(5);
        w.bool(false);
        (0..2).for_each(|_| w.u64(1));
        w.bool(false);
        w.opaque_fixed(&[0; 16]);
        w.u32(0);
    };
    assert_eq!(raw_status(&mut client, op::Op::LOCK.0, lock), Status::BADXDR);
}

fn with_acl() -> Packed {
    let ace = |mask, who| Ace {
        kind: AceType::ALLOW,
        flags: AceFlags(0),
        mask: AceMask(mask),
        who: Bytes(who),
    };
    let list = vec![ace(7, &b"OWNER@"[..]), ace(1, b"1000")];
    Packed::one(12, Attributes { acl: Some(Acl(list.into())), ..Attributes::default() })
}

fn create(how: CreateHow<'_>) -> Args<'_> {
    open(op::ShareAccess::BOTH, OpenHow::Create(how), op::OpenClaim::Null(Name(b"f")))
}

fn create_by(method: u32, attrs: &Packed) -> Args<'_> {
    let attrs = attrs.fattr();
    match method {
        0 => create(CreateHow::Unchecked(attrs)),
        1 => create(CreateHow::Guarded(attrs)),
        2 => create(CreateHow::Exclusive41(op::CreateVerifierAttrs {
            verifier: Verifier([1; 8]),
            attrs,
        })),
        _ => {
            let kind = op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory);
            Args::Create(op::CreateArgs { kind, name: Name(b"f"), attrs })
        }
    }
}

// RFC 8881 §18.4.3 and 18.16.3.
#[test]
fn create_without_its_acl_creates_nothing() {
    let attrs = with_acl();
    for method in 0..4 {
        let (fixture, mut client) = Client::with_fixture();
        fixture.files.set_fault(|call, _| (call == Call::Acl).then_some(Error::NoSpace));
        assert_eq!(
            client.status(&["export"], &[create_by(method, &attrs)]),
            Status::NOSPC,
            "{method}"
        );
        fixture.files.clear_fault();
        assert_eq!(client.status(&["export"], &[lookup("f")]), Status::NOENT, "{method}");
        assert_eq!(
            (fixture.files.open_count(), fixture.files.file_count()),
            (0, 1),
            "{method}: no file remains"
        );
        assert_eq!(
            client.status(&["export"], &[create_by(method, &attrs)]),
            Status::OK,
            "{method}"
        );
        assert_eq!(client.status(FILE, &[getattr(&[12])]), Status::OK, "{method}");
    }
}

// Removing the file would lose another client's data.
#[test]
fn failed_create_keeps_file_used_by_others() {
    let attrs = with_acl();
    for method in 0..3 {
        let fixture = Fixture::new();
        let [mut client, mut other] = fixture.clients(["one", "two"]);
        let (reached_acl, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let resume = std::sync::Mutex::new(wait.1);
        let notify = reached_acl.0;
        fixture.files.set_fault(move |call, _| {
            (call == Call::Acl).then(|| {
                notify.send(()).unwrap();
                resume.lock().unwrap().recv().unwrap();
                Error::NoSpace
            })
        });
        std::thread::scope(|scope| {
            let creating = scope.spawn(|| client.status(&["export"], &[create_by(method, &attrs)]));
            reached_acl.1.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
            let stateid = other.create("f");
            if method == 0 {
                let write = write_stable(stateid, 0, b"data");
                assert_eq!(other.status(FILE, &[write, close(stateid)]), Status::OK);
            }
            wait.0.send(()).unwrap();
            assert_eq!(creating.join().unwrap(), Status::NOSPC, "{method}");
        });
        fixture.files.clear_fault();
        assert_eq!(other.status(FILE, &[]), Status::OK, "{method}: the file exists");
    }
}

// RFC 8881 §18.16.3.
#[test]
fn open_beyond_client_limit_creates_nothing() {
    let attrs = mode(0o644);
    for method in 0..3 {
        let fixture = Fixture::with_limits(Limits { opens_per_client_max: 1, ..Limits::default() });
        let mut client = Client::new(&fixture, "one", 0);
        let open = client.create("other");
        let change = |client: &mut Client<'_>| {
            attributes(&client.run_at(&["export"], &[getattr(&[3])]).1[0]).change
        };
        let before = change(&mut client);
        assert_eq!(
            client.status(&["export"], &[create_by(method, &attrs)]),
            Status::NOSPC,
            "{method}"
        );
        assert_eq!(change(&mut client), before, "{method}: the directory is unchanged");
        assert_eq!(client.status(&["export"], &[lookup("f")]), Status::NOENT, "{method}");
        assert_eq!((fixture.files.open_count(), fixture.files.file_count()), (1, 2));
        assert_eq!(client.status(&["export", "other"], &[close(open)]), Status::OK);
        assert_eq!(
            client.status(&["export"], &[create_by(method, &attrs)]),
            Status::OK,
            "{method}: the name is free"
        );
    }
}

// The server may have crashed before it set the ACL (RFC 8881 §18.16.3).
#[test]
fn retried_exclusive_create_sets_missing_acl() {
    let (fixture, mut client) = Client::with_fixture();
    let (root, caller) = (fixture.files.root(), Caller::root());
    let name = vouch_vfs::Name::new(b"f").unwrap();
    let access = vouch_vfs::OpenAccess { read: true, write: true };
    let how = vouch_vfs::CreateHow::Exclusive([1; 8]);
    let reached_acl = fixture
        .files
        .create(
            &caller,
            &root,
            name,
            how,
            &SetAttributes { mode: Some(0), ..Default::default() },
            access,
        )
        .unwrap()
        .id;
    let attrs = with_acl();
    let again = CreateHow::Exclusive41(op::CreateVerifierAttrs {
        verifier: Verifier([1; 8]),
        attrs: attrs.fattr(),
    });
    assert_eq!(client.status(&["export"], &[create(again)]), Status::OK);
    let acl =
        fixture.files.acl(&caller, &reached_acl, PosixAclKind::Access, Blocking::Allowed).unwrap();
    assert!(!acl.entries.is_empty());
}

// As in Linux nfsd, COMMIT needs write permission, ownership or an open for writing.
#[test]
fn commit_requires_write_access() {
    let fixture = Fixture::new();
    let mut root = Client::new(&fixture, "one", 0);
    let mut alice = Client::new(&fixture, "two", 1000);
    let chmod = |client: &mut Client<'_>, bits| {
        let attrs = mode(bits);
        let set = setattr(&attrs);
        assert_eq!(client.status(FILE, &[set]), Status::OK);
    };
    let open = root.create("f");
    assert_eq!(alice.status(FILE, &[commit()]), Status::ACCESS, "open by another user");
    assert_eq!(root.status(FILE, &[commit()]), Status::OK);
    assert_eq!(root.status(FILE, &[close(open)]), Status::OK);
    assert_eq!(alice.status(FILE, &[commit()]), Status::ACCESS, "open by nobody");
    chmod(&mut root, 0o646);
    assert_eq!(alice.status(FILE, &[commit()]), Status::OK);
    let (status, list) = alice.run_at(&["export"], &[open_by_name("f", None)]);
    let [Results::Open(Ok(opened))] = &list[..] else { panic!("{status:?}") };
    chmod(&mut root, 0o600);
    assert_eq!(alice.status(FILE, &[commit()]), Status::OK);
    assert_eq!(alice.status(FILE, &[close(opened.stateid)]), Status::OK);
    fixture.advance(5_000);
    assert_eq!(alice.status(FILE, &[commit()]), Status::ACCESS);
    let attrs = Packed::new(
        &[33, 36],
        &Attributes { mode: Some(0o444), owner: Some(Bytes(b"1000")), ..Attributes::default() },
    );
    let set_owner = setattr(&attrs);
    assert_eq!(root.status(FILE, &[set_owner]), Status::OK);
    assert_eq!(alice.status(FILE, &[commit()]), Status::OK);
    alice.principal = user(2000);
    assert_eq!(alice.status(FILE, &[commit()]), Status::ACCESS, "read permission only");
}
