//! Flexible file layouts (RFC 8435; RFC 8881, sections 12 and 18.40 to 18.44).

use vouch_nfs4::op::{ExchangeIdFlags, LayoutIoMode, LayoutReturn, LayoutReturnFile};
use vouch_nfs4::{Bitmap, DeviceId, StateSeq, Wire as _, flex_files};

use crate::prelude::*;

const UNIT: u64 = 4 << 20;
const TO_END: u64 = u64::MAX;
const LAYOUT_ATTRIBUTES: [u32; 3] = [0, 62, 65];

/// A file `f` of two parts and a bit in an export with three data servers; another export has none.
fn fixture() -> &'static Fixture {
    let files = Arc::new(MemoryFs::new());
    let with = Export {
        data_servers: ["192.0.2.1:2049", "192.0.2.2:2049", "[2001:db8::3]:2050"]
            .map(|address| address.parse().unwrap())
            .to_vec(),
        ..export(7, &["export"], &files, sys_access())
    };
    let without = export(8, &["other"], &Arc::new(MemoryFs::new()), sys_access());
    Box::leak(Box::new(Fixture::with_exports(files, vec![with, without])))
}

fn client(fixture: &'static Fixture) -> (Client<'static>, Stateid) {
    let mut client = Client::new(fixture, "one", 0);
    let open = client.create("f");
    assert_eq!(client.status(&["export", "f"], &[setattr(&size(2 * UNIT + 10))]), Status::OK);
    (client, open)
}

fn layoutget(stateid: Stateid, offset: u64) -> op::LayoutgetArgs {
    op::LayoutgetArgs {
        signal: false,
        kind: flex_files::LAYOUT_TYPE,
        iomode: LayoutIoMode::Read,
        offset,
        length: TO_END,
        length_min: 4096,
        stateid,
        max_count: 4096,
    }
}

fn layout_at(client: &mut Client<'_>, args: op::LayoutgetArgs) -> op::LayoutgetOk<'static> {
    match &expect_ok(client.run_at(&["export", "f"], &[Args::Layoutget(args)]))[0] {
        Results::Layoutget(Ok(ok)) => ok.clone(),
        other => panic!("{other:?}"),
    }
}

fn body(ok: &op::LayoutgetOk<'static>) -> flex_files::Layout<'static> {
    flex_files::Layout::decode(&mut Reader::new(ok.layouts[0].content.body.0)).unwrap()
}

fn devices(ok: &op::LayoutgetOk<'static>) -> Vec<DeviceId> {
    body(ok).mirrors.iter().map(|mirror| mirror.data_servers[0].device).collect()
}

#[test]
fn only_exports_with_data_servers_offer_layouts() {
    let fixture = fixture();
    let (mut client, _) = client(fixture);
    for (path, types) in [("export", Some(vec![4])), ("other", None)] {
        let found = attributes(&client.run_at(&[path], &[getattr(&LAYOUT_ATTRIBUTES)]).1[0]);
        assert_eq!(found.supported_attrs.unwrap().has(62), types.is_some(), "{path}");
        assert_eq!(found.layout_blksize.is_some(), types.is_some());
        assert_eq!(found.fs_layout_types.map(|list| list.0), types);
    }
    assert_eq!(
        client.status(&["other"], &[Args::Layoutget(layoutget(Stateid::ANONYMOUS, 0))]),
        Status::LAYOUTUNAVAILABLE
    );
    let roles = |client: &Client<'_>| match &client
        .send(&[exchange_id("another", 1, StateProtect::None)])
        .1[0]
    {
        Results::ExchangeId(Ok(ok)) => ok.flags & ExchangeIdFlags::MASK_PNFS,
        other => panic!("{other:?}"),
    };
    assert_eq!(roles(&client), ExchangeIdFlags::USE_PNFS_MDS | ExchangeIdFlags::USE_PNFS_DS);
    assert_eq!(roles(&Client::alone()), ExchangeIdFlags::USE_NON_PNFS);
}

#[test]
fn parts_of_a_file_begin_with_different_servers() {
    let (mut client, open) = client(fixture());
    let parts = [0, UNIT, 2 * UNIT].map(|offset| layout_at(&mut client, layoutget(open, offset)));
    let covered =
        parts.iter().map(|ok| (ok.layouts[0].offset, ok.layouts[0].length)).collect::<Vec<_>>();
    assert_eq!(covered, [(0, UNIT), (UNIT, UNIT), (2 * UNIT, TO_END)]);
    let orders = parts.iter().map(devices).collect::<Vec<_>>();
    for pair in orders.windows(2) {
        assert_eq!([&pair[0][1..], &pair[0][..1]].concat(), pair[1]);
    }
    let layout = body(&parts[0]);
    assert_eq!((layout.stripe_unit, layout.mirrors.len()), (0, 3));
    assert!(
        parts[0].return_on_close
            && layout
                .mirrors
                .iter()
                .all(|mirror| mirror.data_servers[0].stateid == Stateid::ANONYMOUS)
    );
}

#[test]
fn data_server_reads_only_the_content_of_the_layout() {
    let fixture = fixture();
    let (mut client, open) = client(fixture);
    let layout = body(&layout_at(&mut client, layoutget(open, 0)));
    let handle = layout.mirrors[0].data_servers[0].handles[0];
    let mut data_client = Client::new(fixture, "another", 0);
    let mut read_data = |stateid| data_client.run(&[putfh(handle), read(stateid, 2 * UNIT, 100)]);
    match &expect_ok(read_data(Stateid::ANONYMOUS))[1] {
        Results::Read(Ok(ok)) => assert_eq!((ok.data.0, ok.eof), (&[0; 10][..], true)),
        other => panic!("{other:?}"),
    }
    for stateid in [open, Stateid::READ_BYPASS] {
        assert_eq!(read_data(stateid).0, Status::BAD_STATEID);
    }
    assert_eq!(client.status(&["export", "f"], &[setattr(&size(2 * UNIT + 11))]), Status::OK);
    assert_eq!(read_data(Stateid::ANONYMOUS).0, Status::STALE);
    let renewed = body(&layout_at(&mut client, layoutget(open, 0)));
    assert_ne!(renewed.mirrors[0].data_servers[0].handles[0], handle);
}

#[test]
fn data_server_checks_rights_of_each_user() {
    let fixture = fixture();
    let (mut client, open) = client(fixture);
    assert_eq!(client.status(&["export", "f"], &[setattr(&mode(0o600))]), Status::OK);
    let handle =
        body(&layout_at(&mut client, layoutget(open, 0))).mirrors[0].data_servers[0].handles[0];
    for (uid, status) in [(0, Status::OK), (1000, Status::ACCESS)] {
        let mut data_client = Client::new(fixture, ["root", "user"][usize::from(uid > 0)], uid);
        assert_eq!(
            data_client.run(&[putfh(handle), read(Stateid::ANONYMOUS, 0, 100)]).0,
            status,
            "user {uid}"
        );
    }
}

// RFC 8881, section 18.43.3.
#[test]
fn layouts_that_cannot_be_granted_have_their_status() {
    let (mut client, open) = client(fixture());
    let good = layoutget(open, 0);
    let cases = [
        (op::LayoutgetArgs { iomode: LayoutIoMode::ReadWrite, ..good }, Status::BADIOMODE),
        (op::LayoutgetArgs { iomode: LayoutIoMode::Any, ..good }, Status::BADIOMODE),
        (op::LayoutgetArgs { kind: 1, ..good }, Status::UNKNOWN_LAYOUTTYPE),
        (op::LayoutgetArgs { length: 0, length_min: 0, ..good }, Status::INVAL),
        (op::LayoutgetArgs { length: 10, length_min: 11, ..good }, Status::INVAL),
        (op::LayoutgetArgs { offset: TO_END, length: 5000, ..good }, Status::INVAL),
        (op::LayoutgetArgs { max_count: 100, ..good }, Status::TOOSMALL),
        (op::LayoutgetArgs { stateid: Stateid::ANONYMOUS, ..good }, Status::BAD_STATEID),
        (
            op::LayoutgetArgs { stateid: Stateid { other: [7; 12], ..open }, ..good },
            Status::BAD_STATEID,
        ),
    ];
    for (args, status) in cases {
        assert_eq!(client.status(&["export", "f"], &[Args::Layoutget(args)]), status, "{args:?}");
    }
    assert_eq!(
        client.status(&["export"], &[Args::Layoutget(good)]),
        Status::LAYOUTUNAVAILABLE,
        "a directory"
    );
    let commit = op::LayoutcommitArgs {
        offset: 0,
        length: 1,
        reclaim: false,
        stateid: open,
        last_write_offset: None,
        time_modify: None,
        update: op::DeviceAddr { kind: flex_files::LAYOUT_TYPE, body: Bytes(b"") },
    };
    assert_eq!(client.status(&["export", "f"], &[Args::Layoutcommit(commit)]), Status::BADLAYOUT);
}

// RFC 7862, sections 15.6 and 15.7.
#[test]
fn errors_and_statistics_of_data_servers_are_taken() {
    let fixture = fixture();
    let (mut client, open) = client(fixture);
    let granted = layout_at(&mut client, layoutget(open, 0));
    let (stateid, device) = (granted.stateid, devices(&granted)[0]);
    let error = |stateid| {
        let errors = vec![op::DeviceError { device, status: Status::NXIO, op: Op::READ.0 }];
        let errors = vouch_nfs4::List(errors);
        Args::Layouterror(op::LayouterrorArgs { offset: 0, length: TO_END, stateid, errors })
    };
    let io = op::IoInfo { count: 3, bytes: 4096 };
    let statistics = |stateid| {
        let update = op::DeviceAddr { kind: flex_files::LAYOUT_TYPE, body: Bytes(b"") };
        Args::Layoutstats(op::LayoutstatsArgs {
            offset: 0,
            length: TO_END,
            stateid,
            read: io,
            write: io,
            device,
            update,
        })
    };
    let path = &["export", "f"];
    for args in [error(stateid), statistics(stateid)] {
        assert_eq!(client.status(path, &[args]), Status::OK);
    }
    let shown = fixture.server.status(fixture.now()).recent_errors;
    let found = shown.iter().filter(|error| error.operation == "LAYOUTERROR").collect::<Vec<_>>();
    let [found] = found[..] else { panic!("{shown:?}") };
    assert_eq!(found.status, Status::NXIO.0);
    assert!(
        ["192.0.2.1:2049", "192.0.2.2:2049", "[2001:db8::3]:2050"]
            .iter()
            .any(|server| found.message == format!("READ at data server {server} failed")),
        "{found:?}"
    );
    for args in [error(open), statistics(open)] {
        assert_eq!(client.status(path, &[args]), Status::BAD_STATEID);
    }
    for args in [error(stateid), statistics(stateid)] {
        assert_eq!(client.status(&["other"], &[args]), Status::NOTSUPP);
    }
}

// RFC 8881, section 12.5.2.
#[test]
fn layout_stateid_ends_with_last_open() {
    let (mut client, open) = client(fixture());
    let first = layout_at(&mut client, layoutget(open, 0)).stateid;
    assert_eq!(first.seq, StateSeq(1));
    let second = layout_at(&mut client, layoutget(first, UNIT)).stateid;
    assert_eq!((second.seq, second.other), (StateSeq(2), first.other));
    let returned = |stateid, offset, length| {
        let what =
            LayoutReturn::File(LayoutReturnFile { offset, length, stateid, body: Bytes(b"") });
        Args::Layoutreturn(op::LayoutreturnArgs {
            reclaim: false,
            kind: flex_files::LAYOUT_TYPE,
            iomode: LayoutIoMode::Any,
            what,
        })
    };
    let path = &["export", "f"];
    let mut left = |args| match &expect_ok(client.run_at(path, &[args]))[0] {
        Results::Layoutreturn(Ok(ok)) => ok.stateid,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(returned(second, 0, UNIT)), Some(Stateid { seq: StateSeq(3), ..second }));
    assert_eq!(left(returned(second, 0, TO_END)), None);
    assert_eq!(client.status(path, &[returned(open, 0, TO_END)]), Status::BAD_STATEID);
    let mut another = Client::new(client.fixture, "another", 0);
    assert_eq!(
        another.status(path, &[Args::Layoutget(layoutget(first, 0))]),
        Status::BAD_STATEID,
        "of another client"
    );
    assert_eq!(client.status(path, &[close(open)]), Status::OK);
    assert_eq!(client.status(path, &[Args::Layoutget(layoutget(second, 0))]), Status::BAD_STATEID);
    for stateid in [first, second] {
        assert_eq!(client.status(path, &[read(stateid, 0, 10)]), Status::BAD_STATEID);
    }
}

// RFC 8881, section 18.40.
#[test]
fn device_has_the_address_of_its_server() {
    let (mut client, open) = client(fixture());
    let known = devices(&layout_at(&mut client, layoutget(open, 0)));
    let mut device = |device, kind, max_count| {
        let args = op::GetdeviceinfoArgs { device, kind, max_count, notifications: Bitmap::EMPTY };
        client.run(&[Args::Getdeviceinfo(args)])
    };
    let mut addresses = Vec::new();
    for id in &known {
        let list = expect_ok(device(*id, flex_files::LAYOUT_TYPE, 4096));
        let Results::Getdeviceinfo(Ok(ok)) = &list[0] else { panic!("{list:?}") };
        let found = flex_files::Device::decode(&mut Reader::new(ok.address.body.0)).unwrap();
        assert_eq!(
            (
                found.versions[0].version,
                found.versions[0].minor,
                found.versions[0].is_tightly_coupled
            ),
            (4, 2, true)
        );
        let text = |bytes: Bytes<'_, 1024>| String::from_utf8(bytes.0.to_vec()).unwrap();
        addresses.push((text(found.addresses[0].netid), text(found.addresses[0].address)));
        let list = device(*id, flex_files::LAYOUT_TYPE, 20).1;
        let needed = ok.address.body.0.len() as u32 + 8;
        assert_eq!(
            list[0],
            Results::Getdeviceinfo(Err(op::GetdeviceinfoFailure::TooSmall(needed)))
        );
        assert_eq!(device(*id, flex_files::LAYOUT_TYPE, needed).0, Status::OK);
    }
    addresses.sort();
    let expected =
        [("tcp", "192.0.2.1.8.1"), ("tcp", "192.0.2.2.8.1"), ("tcp6", "2001:db8::3.8.2")];
    assert_eq!(addresses, expected.map(|(netid, address)| (netid.to_owned(), address.to_owned())));
    assert_eq!(device(DeviceId([7; 16]), flex_files::LAYOUT_TYPE, 4096).0, Status::NOENT);
    assert_eq!(device(known[0], 1, 4096).0, Status::UNKNOWN_LAYOUTTYPE);
}
