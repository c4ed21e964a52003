use vouch_nfs4_server::{Squash, SquashWho};

use crate::prelude::*;

const FILE: &[&str] = &["export", "f"];

// RFC 7862 §15.1, 15.4, 15.10 and 15.11.
#[test]
fn seek_and_read_plus_report_deallocated_holes() {
    let mut client = Client::alone();
    let stateid = client.create("f");
    let seek = |offset, what| Args::Seek(op::SeekArgs { stateid, offset, what });
    assert_eq!(
        client.status(
            FILE,
            &[Args::Allocate(op::AllocateArgs { stateid, offset: 0, length: 40_960 })]
        ),
        Status::OK
    );
    assert_eq!(client.status(FILE, &[write(stateid, 32_768, b"data")]), Status::OK);
    assert_eq!(
        client.status(
            FILE,
            &[Args::Deallocate(op::DeallocateArgs { stateid, offset: 0, length: 32_768 })]
        ),
        Status::OK
    );
    let list = expect_ok(
        client.run_at(FILE, &[seek(0, op::DataContent::Data), seek(0, op::DataContent::Hole)]),
    );
    assert!(
        matches!(list[0], Results::Seek(Ok(op::SeekOk { eof: false, offset: 32_768 }))),
        "{list:?}"
    );
    assert!(matches!(list[1], Results::Seek(Ok(op::SeekOk { offset: 0, .. }))), "{list:?}");
    assert_eq!(client.status(FILE, &[seek(50_000, op::DataContent::Data)]), Status::NXIO);
    let (_, list) = client
        .run_at(FILE, &[Args::ReadPlus(op::ReadPlusArgs { stateid, offset: 0, count: 40_000 })]);
    let Results::ReadPlus(Ok(ok)) = &list[0] else { panic!("{list:?}") };
    let mut at = 0;
    for content in ok.contents.iter() {
        let (offset, length) = match content {
            op::Content::Data(data) => (data.offset, data.data.0.len() as u64),
            op::Content::Hole(hole) => (hole.offset, hole.length),
        };
        assert_eq!(offset, at, "segments are contiguous");
        at += length;
    }
    assert_eq!(at, 40_000);
    assert_eq!(
        client.status(
            &["export"],
            &[Args::Seek(op::SeekArgs { stateid, offset: 0, what: op::DataContent::Data })]
        ),
        Status::BAD_STATEID
    );
}

// RFC 7862 §15.2.
#[test]
fn copy_transfers_a_range_between_files() {
    let mut client = Client::alone();
    let (source, destination) = (client.create("f"), client.create("g"));
    assert_eq!(client.status(FILE, &[write(source, 0, b"0123456789")]), Status::OK);
    let copy = |source_offset, count, from: Stateid, to: Stateid| {
        copy((from, source_offset), (to, 0), count, true)
    };
    let with_both_files = |one: Args<'static>| {
        vec![
            Args::Putrootfh,
            lookup("export"),
            lookup("f"),
            Args::Savefh,
            Args::Putrootfh,
            lookup("export"),
            lookup("g"),
            one,
        ]
    };
    let mut ops = with_both_files(copy(2, 5, source, destination));
    ops.push(read(destination, 0, 99));
    let list = expect_ok(client.run(&ops));
    assert!(matches!(&list[8], Results::Read(Ok(ok)) if ok.data.0 == b"23456"));
    assert_eq!(client.run(&with_both_files(copy(11, 1, source, destination))).0, Status::INVAL);
    assert_eq!(
        client.run(&with_both_files(copy(0, 1, destination, source))).0,
        Status::BAD_STATEID
    );
}

// A count of zero means up to the end of the file (RFC 7862 §15.2.3 and 15.13.3).
#[test]
fn copy_and_clone_refuse_overlapping_ranges() {
    let mut client = Client::alone();
    let stateid = client.create("f");
    let block: &'static [u8] = &[7; 4096];
    let filled: Vec<Args<'_>> = (0..3).map(|at| write(stateid, at * 4096, block)).collect();
    assert_eq!(client.status(FILE, &filled), Status::OK);
    let copy = |source_offset, destination_offset, count| {
        copy((stateid, source_offset), (stateid, destination_offset), count, true)
    };
    let clone = |source_offset, destination_offset, count| {
        Args::Clone(op::CloneArgs {
            source: stateid,
            destination: stateid,
            source_offset,
            destination_offset,
            count,
        })
    };
    let mut status = |one| client.status(FILE, &[Args::Savefh, one]);
    // The first two copy the last block behind the end and over the first block.
    for (from, to, expected) in [
        (8192, 12_288, Status::OK),
        (8192, 0, Status::OK),
        (8192, 4096, Status::INVAL),
        (0, 4096, Status::INVAL),
        (0, 0, Status::INVAL),
    ] {
        assert_eq!(status(copy(from, to, 0)), expected, "COPY {from} {to}");
        assert_eq!(
            status(clone(from, to, 0)),
            if (from, to) == (8192, 12_288) { Status::INVAL } else { expected },
            "CLONE {from} {to}"
        );
    }
    assert_eq!(
        (status(copy(16_384, 16_384, 0)), status(copy(16_384, 0, 0))),
        (Status::OK, Status::OK)
    );
    assert_eq!(
        (status(copy(16_385, 0, 0)), status(copy(0, 100, 101))),
        (Status::INVAL, Status::INVAL)
    );
}

// RFC 8276 §8.4.
#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let mut client = Client::with_file();
    let set = |option, name: &'static [u8], value| {
        Args::Setxattr(op::SetxattrArgs { option, name: Name(name), value: Bytes(value) })
    };
    let get = Args::Getxattr(op::GetxattrArgs { name: Name(b"a") });
    let list = |cookie, max_count| {
        Args::Listxattrs(op::ListxattrsArgs { cookie: Cookie(cookie), max_count })
    };
    use op::SetxattrOption::{Create, Either, Replace};
    assert_eq!(client.status(FILE, std::slice::from_ref(&get)), Status::NOXATTR);
    assert_eq!(client.status(FILE, &[set(Replace, b"a", b"1")]), Status::NOXATTR);
    assert_eq!(
        client.status(FILE, &[set(Create, b"a", b"1"), set(Either, b"b", b"2")]),
        Status::OK
    );
    assert_eq!(client.status(FILE, &[set(Create, b"a", b"1")]), Status::EXIST);
    let (_, results) = client.run_at(FILE, &[get, list(0, 1000), list(0, 8), list(9, 1000)]);
    assert!(matches!(&results[0], Results::Getxattr(Ok(ok)) if ok.value.0 == b"1"));
    assert!(matches!(&results[1], Results::Listxattrs(Ok(ok)) if ok.eof && ok.names.len() == 2));
    assert!(matches!(&results[2], Results::Listxattrs(Err(Status::TOOSMALL))));
    assert_eq!(
        client.status(FILE, &[Args::Removexattr(op::RemovexattrArgs { name: Name(b"a") })]),
        Status::OK
    );
    assert_eq!(
        client.status(FILE, &[Args::Removexattr(op::RemovexattrArgs { name: Name(b"a") })]),
        Status::NOXATTR
    );
}

// RFC 8881 §18.10 to 18.12.
#[test]
fn lock_conflicts_with_lock_of_other_client() {
    let fixture = Fixture::new();
    let [mut one, mut two] = fixture.clients(["one", "two"]);
    let open = one.create("f");
    let (_, list) = two.run_at(&["export"], &[open_by_name("f", None)]);
    let Results::Open(Ok(ok)) = &list[0] else { panic!("{list:?}") };
    let other = ok.stateid;
    let owner = StateOwner { client: ClientId(0), owner: Bytes(b"locker") };
    let list = expect_ok(one.run_at(FILE, &[lock(open, 10, 10)]));
    let Results::Lock(Ok(held)) = &list[0] else { panic!("{list:?}") };
    let (status, list) = two.run_at(FILE, &[lock(other, 10, 5)]);
    assert_eq!(status, Status::DENIED);
    let Results::Lock(Err(op::LockFailure::Denied(denied))) = &list[0] else { panic!("{list:?}") };
    assert_eq!((denied.offset, denied.length, denied.owner.owner.0), (10, 10, &b"locker"[..]));
    assert_eq!(two.status(FILE, &[lock(other, 10, 0)]), Status::INVAL);
    let test =
        |offset| Args::Lockt(op::LocktArgs { kind: op::LockType::Read, offset, length: 1, owner });
    assert_eq!(
        (two.status(FILE, &[test(15)]), two.status(FILE, &[test(20)])),
        (Status::DENIED, Status::OK)
    );
    assert_eq!(one.status(FILE, &[close(open)]), Status::LOCKS_HELD);
    let unlock = Args::Locku(op::LockuArgs {
        kind: op::LockType::Write,
        seq: OwnerSeq(0),
        stateid: held.stateid,
        offset: 0,
        length: u64::MAX,
    });
    assert_eq!(one.status(FILE, &[unlock]), Status::OK);
    assert_eq!(two.status(FILE, &[lock(other, 10, 5)]), Status::OK);
    assert_eq!(two.status(&["export"], &[test(0)]), Status::ISDIR);
}

#[test]
fn export_options_limit_access() {
    let files = Arc::new(MemoryFs::new());
    let single = |under| ClientAccess { flavours: vec![under], qos: None };
    let read_only = single(FlavourAccess { read_only: true, ..flavour_access(Flavour::Sys) });
    let squash = Squash { who: SquashWho::Root, anonymous_uid: 65534, anonymous_gid: 65534 };
    let squashed = single(FlavourAccess { squash, ..flavour_access(Flavour::Sys) });
    let secure = single(flavour_access(Flavour::Krb5));
    let exports = vec![
        export(1, &["rw"], &files, sys_access()),
        export(2, &["ro"], &files, read_only),
        export(3, &["squashed"], &files, squashed),
        export(4, &["secure"], &files, secure),
    ];
    let fixture = Fixture::with_exports(files, exports);
    let mut client = Client::new(&fixture, "one", 0);
    let attrs = mode(0o644);
    assert_eq!(client.status(&["rw"], &[open_by_name("f", Some(&attrs))]), Status::OK);
    // RFC 8881 §15.1.2.7.
    for one in [open_by_name("g", Some(&attrs)), open_by_name("f", None), remove("f")] {
        assert_eq!(client.status(&["ro"], &[one]), Status::ROFS);
    }
    let requested = op::Access(0x1f);
    let (_, list) = client.run_at(&["ro"], &[Args::Access(op::AccessArgs { access: requested })]);
    assert!(matches!(&list[0], Results::Access(Ok(ok)) if ok.access.0 & 0x1c == 0), "{list:?}");
    assert_eq!(client.status(&["squashed"], &[open_by_name("g", Some(&attrs))]), Status::ACCESS);
    // RFC 8881 §2.6.3.1.
    assert_eq!(client.status(&[], &[lookup("secure")]), Status::WRONGSEC);
    let (status, list) = client
        .run_at(&[], &[Args::Secinfo(op::SecinfoArgs { name: Name(b"secure") }), Args::Getfh]);
    assert!(
        matches!(&list[0], Results::Secinfo(Ok(ok)) if ok.flavors.len() == 1)
            && status == Status::NOFILEHANDLE,
        "{list:?}"
    );
}

// RFC 8881 §18.32.3: a stateid is not a capability.
#[test]
fn stateid_of_other_user_gives_no_write_access() {
    let mut client = Client::alone();
    let stateid = client.create("f");
    assert_eq!(client.status(FILE, &[write(stateid, 0, b"mine")]), Status::OK);
    client.principal = user(1000);
    assert_eq!(client.status(FILE, &[write(stateid, 0, b"his")]), Status::ACCESS);
    let (_, list) = client.run_at(FILE, &[read(stateid, 0, 9), getattr(&[4])]);
    assert!(matches!(&list[0], Results::Read(Ok(_))), "the mode allows reads: {list:?}");
    assert_eq!(attributes(&list[1]).size, Some(4));
}

// The client whose state ended for this call must not reclaim it (RFC 8881 §8.4.3).
#[test]
fn stateless_operations_wait_for_recovery_records() {
    let (fixture, mut client) = Client::with_fixture();
    let stateid = client.create("f");
    let mut waits = |path: &[&str], op: Args<'_>| {
        assert_eq!(client.status(path, &[op]), Status::OK);
        fixture.awaits_records.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert!(
        waits(FILE, write(Stateid::ANONYMOUS, 0, b"data"))
            && waits(FILE, read(Stateid::ANONYMOUS, 0, 9))
            && waits(FILE, chmod(0o640))
    );
    assert!(
        !waits(FILE, write(stateid, 0, b"data"))
            && !waits(FILE, read(stateid, 0, 9))
            && !waits(FILE, getattr(&[4]))
    );
    assert!(waits(&["export"], remove("f")));
}

// As in Linux nfsd: the client reads a program that its user may only execute.
#[test]
fn execute_permission_allows_open_for_reading() {
    let fixture = Fixture::new();
    let mut root = Client::new(&fixture, "one", 0);
    let stateid = root.create("f");
    assert_eq!(root.status(FILE, &[write(stateid, 0, b"program"), chmod(0o711)]), Status::OK);
    let mut client = Client::new(&fixture, "two", 1000);
    let open = |owner, access| {
        open_as(
            ClientId(0),
            owner,
            0,
            access,
            op::OpenHow::NoCreate,
            op::OpenClaim::Null(Name(b"f")),
        )
    };
    let requested = op::Access::READ | op::Access::MODIFY | op::Access::EXECUTE;
    for _ in 0..2 {
        let ops = [
            open(b"runner", op::ShareAccess::READ),
            Args::Access(op::AccessArgs { access: requested }),
        ];
        let (status, list) = client.run_at(&["export"], &ops);
        let [Results::Open(Ok(opened)), Results::Access(Ok(granted))] = &list[..] else {
            panic!("{status:?} {list:?}")
        };
        assert_eq!(granted.access, op::Access::EXECUTE);
        let (_, list) = client.run_at(FILE, &[read(opened.stateid, 0, 9)]);
        assert!(matches!(&list[0], Results::Read(Ok(ok)) if ok.data.0 == b"program"), "{list:?}");
    }
    for access in [op::ShareAccess::WRITE, op::ShareAccess::BOTH] {
        assert_eq!(client.status(&["export"], &[open(b"writer", access)]), Status::ACCESS);
    }
    assert_eq!(root.status(FILE, &[chmod(0o710)]), Status::OK);
    assert_eq!(
        client.status(&["export"], &[open(b"other", op::ShareAccess::READ)]),
        Status::ACCESS
    );
}

fn chmod(bits: u32) -> Args<'static> {
    let attrs: &'static Packed = Box::leak(Box::new(mode(bits)));
    setattr(attrs)
}

// The system reports lost data once, so only a new write verifier informs every client (RFC 8881
// §18.3.3 and 18.32.3).
#[test]
fn write_verifier_changes_when_data_is_lost() {
    let fixture = Fixture::new();
    let [mut one, mut two] = fixture.clients(["one", "two"]);
    let stateid = one.create("f");
    let other = two.create("g");
    let verifier = |client: &mut Client<'_>, path: &[&str], one: Args<'static>| match &client
        .run_at(path, &[one])
        .1[0]
    {
        Results::Write(Ok(ok)) => ok.verifier,
        Results::Commit(Ok(ok)) => ok.verifier,
        other => panic!("{other:?}"),
    };
    let before = verifier(&mut one, FILE, write(stateid, 0, b"data"));
    assert_eq!(verifier(&mut two, &["export", "g"], write(other, 0, b"data")), before);
    assert_eq!(verifier(&mut one, FILE, commit()), before);
    fixture.fail_with_io(Call::Write);
    assert_eq!(one.status(FILE, &[write(stateid, 0, b"more")]), Status::IO);
    fixture.fail_with_io(Call::Commit);
    assert_eq!(one.status(FILE, &[commit()]), Status::IO);
    fixture.files.clear_fault();
    let after = verifier(&mut two, &["export", "g"], commit());
    assert_ne!(after, before, "clients resend unstable data");
    assert_eq!(verifier(&mut two, &["export", "g"], write(other, 0, b"data")), after);
    fixture.fail_with_io(Call::Write);
    let stable =
        op::WriteArgs { stateid, offset: 0, stable: op::StableHow::FileSync, data: Bytes(b"more") };
    assert_eq!(one.status(FILE, &[Args::Write(stable)]), Status::IO);
    fixture.files.clear_fault();
    assert_ne!(verifier(&mut two, &["export", "g"], commit()), after);
}

/// The runs that it takes, and the result of the WRITE.
fn write_in_parts(
    (fixture, client): (&Fixture, &mut Client<'_>),
    stateid: Stateid,
    data: &'static [u8],
    part_len: usize,
    between: impl Fn(usize) -> Blocking,
) -> (usize, op::WriteOk) {
    let mut call = client.begin(&[lookup("f"), write(stateid, 7, data)]);
    for run in 1.. {
        let may_block = MayBlock { write_len_max: part_len, ..between(run).into() };
        match call.run(&fixture.server, may_block).progress {
            Progress::Blocked(BlockedOn::Turn | BlockedOn::Disk) => {}
            Progress::Blocked(on) => panic!("{on:?}"),
            Progress::Done(reply) => {
                let (_, mut list) = results(reply.expect("it is answered").bytes[28..].to_vec());
                let Some(Results::Write(Ok(ok))) = list.pop() else { panic!("{list:?}") };
                return (run, ok);
            }
        }
    }
    unreachable!("each run ends")
}

#[test]
fn write_in_parts_equals_whole_write() {
    static DATA: [u8; 1000] = {
        let (mut data, mut at) = ([0; 1000], 0);
        while at < 1000 {
            data[at] = (at % 251) as u8;
            at += 1;
        }
        data
    };
    let (fixture, mut client) = Client::with_fixture();
    let stateid = client.create("f");
    for (part_len, runs) in [(1, 1000), (300, 4), (500, 2), (999, 2), (1000, 1), (5000, 1)] {
        assert_eq!(client.status(FILE, &[setattr(&size(0))]), Status::OK);
        let written = write_in_parts((fixture, &mut client), stateid, &DATA, part_len, |_| {
            Blocking::Forbidden
        });
        assert_eq!((written.0, written.1.count), (runs, 1000), "{part_len}");
        let list = expect_ok(client.run_at(FILE, &[read(stateid, 7, 2000)]));
        assert!(matches!(&list[0], Results::Read(Ok(ok)) if ok.data.0 == DATA && ok.eof));
    }
    // The rest without parts, on a thread that may block.
    let moved = write_in_parts((fixture, &mut client), stateid, &DATA, 300, |run| match run {
        1 => Blocking::Forbidden,
        _ => Blocking::Allowed,
    });
    assert_eq!((moved.0, moved.1.count), (2, 1000));
    // A failure after a part is a short write.
    let writes = AtomicUsize::new(0);
    fixture.files.set_fault(move |call, _| {
        let fails = call == Call::Write && writes.fetch_add(1, Ordering::Relaxed) >= 2;
        fails.then_some(vouch_vfs::Error::NoSpace)
    });
    let short =
        write_in_parts((fixture, &mut client), stateid, &DATA, 300, |_| Blocking::Forbidden);
    assert_eq!((short.0, short.1.count), (3, 600));
    assert_eq!(client.status(FILE, &[write(stateid, 607, &DATA)]), Status::NOSPC);
}
