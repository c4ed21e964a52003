//! What is refused, and by which status: operations that are not supported, values that are not
//! known, files that can't be made as they should be, data that is not the caller's to
//! make durable.

use vouch_nfs4::op::{self, Args, CreateHow, OpenHow, Results};
use vouch_nfs4::{
    Ace, AceFlags, AceMask, AceType, Acl, Attributes, Bytes, ClientId, Name, OwnerSeq, ReplyHead, StateOwner, Stateid, Status, Verifier,
};
use vouch_nfs4_server::Limits;
use vouch_vfs::memory::Call;
use vouch_vfs::{Caller, Error, FileSystem as _, Patience, PosixAclKind, SetAttributes};
use vouch_xdr::{Reader, Writer};

use crate::world::{Client, Packed, World, attributes, compound, getattr, lookup, mode, user};

const FILE: &[&str] = &["export", "f"];

/// The status of an operation that is given as bytes, done on /export/f.
fn raw(client: &mut Client<'_>, op: u32, args: impl FnOnce(&mut Writer)) -> Status {
    let ops = [client.sequence(false), Args::Putrootfh, lookup("export"), lookup("f"), Args::Savefh, Args::Illegal(op::Op(op))];
    let mut w = Writer::append_to(compound(client.minor, &ops));
    args(&mut w);
    let (reply, _) = client.world.call(&client.connection, &client.principal, w.into_bytes());
    let head = ReplyHead::decode(&mut Reader::new(&reply)).unwrap();
    assert_eq!(head.count, 6, "all before it were done: {:?}", head.status);
    head.status
}

type Encode = fn(&mut Writer);

/// Well-formed arguments of what is not supported, and what answers them.
const NOT_SUPPORTED: [(u32, u32, Status, Encode); 13] = [
    (1, op::Op::OPENATTR.0, Status::NOTSUPP, |w| w.bool(true)),
    // RFC 8881, section 18.47.3: without SP4_SSV there is no secret to set.
    (1, op::Op::SET_SSV.0, Status::INVAL, |w| (0..2).for_each(|_| w.opaque(b"secret"))),
    (1, op::Op::WANT_DELEGATION.0, Status::NOTSUPP, |w| [0x100, 0].into_iter().for_each(|word| w.u32(word))),
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
    // RFC 7862, section 15.9.3: nothing goes on under such a stateid.
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

// RFC 8881, section 15.1.1.5, and docs/conformance.md.
#[test]
fn what_is_not_supported_says_so() {
    let world = World::new();
    for minor in 1..=2 {
        let mut client = Client::new(&world, ["", "one", "two"][minor as usize], 0);
        client.minor = minor;
        client.create("f");
        for (since, op, status, args) in NOT_SUPPORTED {
            let expected = if since > minor { Status::OP_ILLEGAL } else { status };
            assert_eq!(raw(&mut client, op, args), expected, "operation {op} of 4.{minor}");
        }
    }
}

// RFC 7862, sections 11.1 and 15.11.3: an arm that is not known. RFC 8881, section 15.1.1.1: a
// value that an enumeration lacks. What is not supported is that whatever it is asked for.
#[test]
fn values_that_are_not_known_have_their_status() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    client.create("f");
    let seek = |what| {
        move |w: &mut Writer| {
            w.opaque_fixed(&[0; 16]);
            w.u64(0);
            w.u32(what);
        }
    };
    assert_eq!(raw(&mut client, op::Op::SEEK.0, seek(1)), Status::NXIO, "the file is empty");
    assert_eq!(raw(&mut client, op::Op::SEEK.0, seek(2)), Status::UNION_NOTSUPP);
    assert_eq!(raw(&mut client, op::Op::SEEK.0, |w| w.u32(2)), Status::BADXDR, "it ends too early");
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
        assert_eq!(raw(&mut client, op::Op::COPY.0, copy(kind)), Status::NOTSUPP, "from another server");
        assert_eq!(raw(&mut client, op::Op::COPY_NOTIFY.0, |w| copy_notify(w, kind)), Status::NOTSUPP);
    }
    assert_eq!(raw(&mut client, op::Op::LAYOUTGET.0, |w| layout_get(w, 9)), Status::NOTSUPP);
    // The union has a default.
    assert_eq!(raw(&mut client, op::Op::LAYOUTRETURN.0, |w| layout_return(w, 9)), Status::NOTSUPP);
    assert_eq!(raw(&mut client, op::Op::WRITE_SAME.0, |w| write_same(w, 9)), Status::NOTSUPP);
    let write = |stable| {
        move |w: &mut Writer| {
            w.opaque_fixed(&[0; 16]);
            w.u64(0);
            w.u32(stable);
            w.opaque(b"");
        }
    };
    assert_eq!(raw(&mut client, op::Op::WRITE.0, write(3)), Status::BADXDR);
    assert_eq!(raw(&mut client, op::Op::SECINFO_NO_NAME.0, |w| w.u32(2)), Status::BADXDR);
    let xattr = |w: &mut Writer| {
        w.u32(3);
        (0..2).for_each(|_| w.opaque(b"name"));
    };
    assert_eq!(raw(&mut client, op::Op::SETXATTR.0, xattr), Status::BADXDR);
    // RFC 8881, section 18.4.3: a type that can't be made.
    let create = |w: &mut Writer| {
        w.u32(99);
        w.opaque(b"name");
        (0..2).for_each(|_| w.u32(0));
    };
    assert_eq!(raw(&mut client, op::Op::CREATE.0, create), Status::BADTYPE);
    let lock = |w: &mut Writer| {
        w.u32(5);
        w.bool(false);
        (0..2).for_each(|_| w.u64(1));
        w.bool(false);
        w.opaque_fixed(&[0; 16]);
        w.u32(0);
    };
    assert_eq!(raw(&mut client, op::Op::LOCK.0, lock), Status::BADXDR);
}

fn with_acl() -> Packed {
    let ace = |mask, who| Ace { kind: AceType::ALLOW, flags: AceFlags(0), mask: AceMask(mask), who: Bytes(who) };
    let list = vec![ace(7, &b"OWNER@"[..]), ace(1, b"1000")];
    Packed::new(&[12], &Attributes { acl: Some(Acl(list.into())), ..Attributes::default() })
}

fn create(how: CreateHow<'_>) -> Args<'_> {
    Args::Open(op::OpenArgs {
        seq: OwnerSeq(0),
        access: op::ShareAccess::BOTH,
        deny: op::ShareDeny(0),
        owner: StateOwner { client: ClientId(0), owner: Bytes(b"owner") },
        how: OpenHow::Create(how),
        claim: op::OpenClaim::Null(Name(b"f")),
    })
}

/// A file or a directory, made in one of four ways.
fn make(way: u32, attrs: &Packed) -> Args<'_> {
    let attrs = attrs.fattr();
    match way {
        0 => create(CreateHow::Unchecked(attrs)),
        1 => create(CreateHow::Guarded(attrs)),
        2 => create(CreateHow::Exclusive41(op::CreateVerifierAttrs { verifier: Verifier([1; 8]), attrs })),
        _ => {
            let kind = op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory);
            Args::Create(op::CreateArgs { kind, name: Name(b"f"), attrs })
        }
    }
}

// RFC 8881, sections 18.4.3 and 18.16.3: either all that was asked for was made, or nothing.
#[test]
fn what_can_not_have_its_acl_is_not_made() {
    let attrs = with_acl();
    for way in 0..4 {
        let world = World::new();
        let mut client = Client::new(&world, "one", 0);
        world.files.set_fault(|call, _| (call == Call::Acl).then_some(Error::NoSpace));
        assert_eq!(client.status(&["export"], &[make(way, &attrs)]), Status::NOSPC, "{way}");
        world.files.clear_fault();
        assert_eq!(client.status(&["export"], &[lookup("f")]), Status::NOENT, "{way}");
        assert_eq!((world.files.open_count(), world.files.file_count()), (0, 1), "{way}: nor is it anywhere");
        // The way is free for the next attempt.
        assert_eq!(client.status(&["export"], &[make(way, &attrs)]), Status::OK, "{way}");
        assert_eq!(client.status(FILE, &[getattr(&[12])]), Status::OK, "{way}");
    }
}

// What was made is found by others at once: who takes it back would take what they wrote.
#[test]
fn what_others_use_is_not_taken_back() {
    let attrs = with_acl();
    for way in 0..3 {
        let world = World::new();
        let (mut client, mut other) = (Client::new(&world, "one", 0), Client::new(&world, "two", 0));
        let (made, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let waits = std::sync::Mutex::new(wait.1);
        let tell = made.0;
        world.files.set_fault(move |call, _| {
            (call == Call::Acl).then(|| {
                tell.send(()).unwrap();
                waits.lock().unwrap().recv().unwrap();
                Error::NoSpace
            })
        });
        std::thread::scope(|scope| {
            let making = scope.spawn(|| client.status(&["export"], &[make(way, &attrs)]));
            made.1.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
            // The other finds it, and writes, or has it open.
            let stateid = other.create("f");
            if way == 0 {
                let write = op::WriteArgs { stateid, offset: 0, stable: op::StableHow::FileSync, data: Bytes(b"data") };
                let close = Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid });
                assert_eq!(other.status(FILE, &[Args::Write(write), close]), Status::OK);
            }
            wait.0.send(()).unwrap();
            assert_eq!(making.join().unwrap(), Status::NOSPC, "{way}");
        });
        world.files.clear_fault();
        assert_eq!(other.status(FILE, &[]), Status::OK, "{way}: it is there");
    }
}

#[test]
fn where_there_is_no_room_for_an_open_nothing_is_made() {
    for way in 0..3 {
        let world = World::limited(Limits { opens_per_client_max: 1, ..Limits::default() });
        let mut client = Client::new(&world, "one", 0);
        client.create("there");
        let change = |client: &mut Client<'_>| attributes(&client.at(&["export"], &[getattr(&[3])]).1[0]).change;
        let before = change(&mut client);
        let attrs = mode(0o644);
        assert_eq!(client.status(&["export"], &[make(way, &attrs)]), Status::NOSPC, "{way}");
        assert_eq!(change(&mut client), before, "{way}: not even for a moment");
        // What is there already is told as such, or is open and takes no room.
        client.create("there");
    }
}

// RFC 8881, section 18.16.3: what is made is open. Where there is no room for an open, nothing is
// made that would be in the way of the next attempt.
#[test]
fn what_can_not_be_open_is_not_made() {
    let world = World::limited(vouch_nfs4_server::Limits { opens_per_client_max: 1, ..Default::default() });
    let mut client = Client::new(&world, "one", 0);
    let held = client.create("other");
    let attrs = mode(0o644);
    for way in 0..2 {
        assert_eq!(client.status(&["export"], &[make(way, &attrs)]), Status::NOSPC, "{way}");
        assert_eq!(client.status(&["export"], &[lookup("f")]), Status::NOENT, "{way}");
    }
    assert_eq!((world.files.open_count(), world.files.file_count()), (1, 2));
    let close = Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid: held });
    assert_eq!(client.status(&["export", "other"], &[close]), Status::OK);
    assert_eq!(client.status(&["export"], &[make(1, &attrs)]), Status::OK, "it is nowhere, so that it can be made");
}

// RFC 8881, section 18.16.3: the server may have gone down between the file and its ACL; the call
// that comes again gets what it asked for.
#[test]
fn an_exclusive_create_that_comes_again_sets_what_the_first_has_not() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let (root, caller) = (world.files.root(), Caller::root());
    let name = vouch_vfs::Name::new(b"f").unwrap();
    let access = vouch_vfs::OpenAccess { read: true, write: true };
    let how = vouch_vfs::CreateHow::Exclusive([1; 8]);
    let made = world.files.create(&caller, &root, name, how, &SetAttributes { mode: Some(0), ..Default::default() }, access).unwrap().id;
    let attrs = with_acl();
    let again = CreateHow::Exclusive41(op::CreateVerifierAttrs { verifier: Verifier([1; 8]), attrs: attrs.fattr() });
    assert_eq!(client.status(&["export"], &[create(again)]), Status::OK);
    let acl = world.files.acl(&caller, &made, PosixAclKind::Access, Patience::Any).unwrap();
    assert!(!acl.entries.is_empty());
}

// RFC 8881, section 18.3.4 (ACCESS); as Linux's server has it: who may write to the file, who owns
// it, and who has it open for writing.
#[test]
fn who_may_not_write_may_not_commit() {
    let world = World::new();
    let mut root = Client::new(&world, "one", 0);
    let mut alice = Client::new(&world, "two", 1000);
    let commit = || Args::Commit(op::CommitArgs { offset: 0, count: 0 });
    let chmod = |client: &mut Client<'_>, bits| {
        let attrs = mode(bits);
        let set = Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: attrs.fattr() });
        assert_eq!(client.status(FILE, &[set]), Status::OK);
    };
    let open = root.create("f");
    assert_eq!(alice.status(FILE, &[commit()]), Status::ACCESS, "another has it open");
    assert_eq!(root.status(FILE, &[commit()]), Status::OK);
    let close = |stateid| Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid });
    assert_eq!(root.status(FILE, &[close(open)]), Status::OK);
    assert_eq!(alice.status(FILE, &[commit()]), Status::ACCESS, "nobody has");
    chmod(&mut root, 0o646);
    assert_eq!(alice.status(FILE, &[commit()]), Status::OK);
    // What was written while that was let in can be made durable for as long as it is open.
    let (status, list) = alice.at(&["export"], &[crate::world::open_args("f", None)]);
    let [Results::Open(Ok(opened))] = &list[..] else { panic!("{status:?}") };
    chmod(&mut root, 0o600);
    assert_eq!(alice.status(FILE, &[commit()]), Status::OK);
    assert_eq!(alice.status(FILE, &[close(opened.stateid)]), Status::OK);
    world.now_ms.fetch_add(5_000, std::sync::atomic::Ordering::Relaxed);
    world.server.tick(world.now());
    assert_eq!(alice.status(FILE, &[commit()]), Status::ACCESS);
    // Its owner need not be let in by its mode.
    let attrs = Packed::new(&[33, 36], &Attributes { mode: Some(0o444), owner: Some(Bytes(b"1000")), ..Attributes::default() });
    let give = Args::Setattr(op::SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: attrs.fattr() });
    assert_eq!(root.status(FILE, &[give]), Status::OK);
    assert_eq!(alice.status(FILE, &[commit()]), Status::OK);
    alice.principal = user(2000);
    assert_eq!(alice.status(FILE, &[commit()]), Status::ACCESS, "one who may read it");
}
