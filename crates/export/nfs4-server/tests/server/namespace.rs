use crate::prelude::*;

const READDIR_ATTRS: &[u32] = &[1, 8, 11, 20, 55];

// RFC 8881 §7.3 and 7.7.
#[test]
fn pseudo_fs_leads_to_exports_with_distinct_fsids() {
    let (a, b, c) =
        (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let exports = vec![
        export(1, &["x", "a"], &a, sys_access()),
        export(2, &["x", "b"], &b, sys_access()),
        export(3, &["x", "a", "c"], &c, sys_access()),
    ];
    let fixture = Fixture::with_exports(a, exports);
    let mut client = Client::new(&fixture, "one", 0);
    let fsid = |client: &mut Client<'_>, path: &[&str]| {
        let (_, list) = client.run_at(path, &[getattr(&[8, 20, 55])]);
        attributes(&list[0]).fsid.unwrap()
    };
    let mut seen = vec![
        fsid(&mut client, &[]),
        fsid(&mut client, &["x", "a"]),
        fsid(&mut client, &["x", "b"]),
        fsid(&mut client, &["x", "a", "c"]),
    ];
    assert_eq!(fsid(&mut client, &["x"]), seen[0]);
    seen.dedup();
    assert_eq!(seen.len(), 4);
    let (_, list) = client.run_at(&["x"], &[readdir(0, 4096, READDIR_ATTRS)]);
    let Results::Readdir(Ok(ok)) = &list[0] else { panic!("{list:?}") };
    let mut names: Vec<_> = ok.entries.iter().map(|entry| entry.name.0.to_vec()).collect();
    names.sort();
    assert_eq!((names, ok.eof), (vec![b"a".to_vec(), b"b".to_vec()], true));
    let (_, list) = client.run_at(
        &["x", "a", "c"],
        &[Args::Lookupp, Args::Getfh, Args::Lookupp, Args::Getfh, Args::Lookupp, Args::Lookupp],
    );
    assert!(matches!(list[4], Results::Lookupp(Ok(()))));
    assert!(matches!(list[5], Results::Lookupp(Err(Status::NOENT))));
    assert_eq!(client.status(&["x"], &[lookup("nothing")]), Status::NOENT);
    assert_eq!(client.status(&["x"], &[mkdir("new", &mode(0o755))]), Status::ROFS);
}

// RFC 8881 §18.4, 18.13, 18.25, 18.26.
#[test]
fn directories_are_created_renamed_and_removed() {
    let mut client = Client::alone();
    assert_eq!(client.status(&["export"], &[mkdir("d", &mode(0o755))]), Status::OK);
    assert_eq!(client.status(&["export"], &[mkdir("d", &mode(0o755))]), Status::EXIST);
    assert_eq!(client.status(&["export", "d"], &[Args::Getfh]), Status::OK);
    assert_eq!(client.status(&["export"], &[Args::Savefh, rename("d", "e")]), Status::OK);
    assert_eq!(client.status(&["export"], &[Args::Savefh, rename("d", "e")]), Status::NOENT);
    client.create("f");
    for (name, status) in [
        ("e", Status::OK),
        ("f", Status::OK),
        ("g", Status::NOENT),
        ("", Status::INVAL),
        ("..", Status::BADNAME),
    ] {
        assert_eq!(client.status(&["export"], &[remove(name)]), status, "{name}");
    }
    let long = "n".repeat(256);
    assert_eq!(client.status(&["export"], &[lookup(&long)]), Status::NAMETOOLONG);
}

// RFC 8881 §18.16, 18.22, 18.32, 18.2.
#[test]
fn read_returns_written_data() {
    let mut client = Client::alone();
    let stateid = client.create("f");
    let write = |data, offset| write_stable(stateid, offset, data);
    let ops = [
        write(b"hello", 0),
        write(b"world", 5),
        read(stateid, 0, 100),
        read(stateid, 3, 4),
        read(stateid, 10, 5),
        getattr(&[4]),
    ];
    let list = expect_ok(client.run_at(&["export", "f"], &ops));
    let data = |at: usize| match &list[at] {
        Results::Read(Ok(ok)) => (ok.data.0, ok.eof),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (data(2), data(3), data(4)),
        ((&b"helloworld"[..], true), (&b"lowo"[..], false), (&b""[..], true))
    );
    assert_eq!(attributes(&list[5]).size, Some(10));
    assert_eq!(
        client.status(&["export", "f"], &[close(stateid), read(stateid, 0, 1)]),
        Status::BAD_STATEID
    );
    assert_eq!(client.status(&["export", "f"], &[read(Stateid::ANONYMOUS, 0, 5)]), Status::OK);
}

// RFC 8881 §16.2.3.1.2.
#[test]
fn current_stateid_is_that_of_preceding_open() {
    let mut client = Client::alone();
    let write = write(Stateid::CURRENT, 0, b"x");
    assert_eq!(
        client.status(
            &["export"],
            &[open_by_name("f", Some(&mode(0o600))), write.clone(), close(Stateid::CURRENT)]
        ),
        Status::OK
    );
    assert_eq!(client.status(&["export", "f"], &[write]), Status::BAD_STATEID);
}

// RFC 8881 §18.23.3.
#[test]
fn readdir_continues_at_cookie() {
    let mut client = Client::alone();
    for at in 0..100 {
        assert_eq!(
            client.status(&["export"], &[mkdir(&format!("d{at:03}"), &mode(0o755))]),
            Status::OK
        );
    }
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let list = expect_ok(client.run_at(&["export"], &[readdir(cookie, 1000, READDIR_ATTRS)]));
        let Results::Readdir(Ok(ok)) = &list[0] else { panic!("{list:?}") };
        for entry in ok.entries.iter() {
            cookie = entry.cookie.0;
            names.push(entry.name.0.to_vec());
        }
        if ok.eof {
            break;
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 100);
    assert_eq!(client.status(&["export"], &[readdir(0, 20, READDIR_ATTRS)]), Status::TOOSMALL);
    assert_eq!(client.status(&["export"], &[readdir(1, 1000, READDIR_ATTRS)]), Status::BAD_COOKIE);
    client.create("f");
    assert_eq!(client.status(&["export", "f"], &[readdir(0, 1000, READDIR_ATTRS)]), Status::NOTDIR);
}

// RFC 8881 §15.1.2.5.
#[test]
fn operations_without_filehandle_return_nofilehandle() {
    let mut client = Client::alone();
    let attrs = mode(0o644);
    let all = [
        Args::Getfh,
        Args::Savefh,
        Args::Restorefh,
        Args::Lookupp,
        Args::Readlink,
        lookup("a"),
        getattr(&[1]),
        readdir(0, 1000, READDIR_ATTRS),
        mkdir("d", &attrs),
        open_by_name("f", None),
        remove("f"),
        Args::Link(op::LinkArgs { name: Name(b"f") }),
        rename("f", "g"),
        Args::Access(op::AccessArgs { access: op::Access(1) }),
        commit(),
        read(Stateid::ANONYMOUS, 0, 1),
        setattr(&attrs),
        Args::Verify(op::VerifyArgs { attrs: attrs.fattr() }),
        Args::Seek(op::SeekArgs {
            stateid: Stateid::ANONYMOUS,
            offset: 0,
            what: op::DataContent::Data,
        }),
        Args::Getxattr(op::GetxattrArgs { name: Name(b"x") }),
    ];
    for one in all {
        assert_eq!(
            client.run(std::slice::from_ref(&one)).0,
            Status::NOFILEHANDLE,
            "{}",
            name_of(one.op())
        );
    }
}

// A call that blocks on a cold file or a slow disk repeats no operation.
#[test]
fn blocked_operations_resume_and_run_once() {
    let (fixture, mut client) = Client::with_fixture();
    fixture.files.set_slow_sync(true);
    let stateid = client.create("f");
    let write = write_stable(stateid, 0, b"data");
    for _ in 0..3 {
        fixture.files.evict_caches();
        let dir = mode(0o700);
        let list = expect_ok(
            client.run_at(&["export", "f"], &[write.clone(), read(stateid, 0, 9), commit()]),
        );
        assert!(matches!(&list[1], Results::Read(Ok(ok)) if ok.data.0 == b"data"));
        fixture.files.evict_caches();
        assert_eq!(
            client.status(&["export"], &[mkdir("d", &dir), readdir(0, 1000, READDIR_ATTRS)]),
            Status::OK
        );
        assert_eq!(client.status(&["export"], &[remove("d")]), Status::OK);
    }
}
