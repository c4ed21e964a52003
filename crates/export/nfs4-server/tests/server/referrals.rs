//! RFC 8881 §11.

use vouch_nfs4_server::{Location, Locations};

use crate::prelude::*;

const TYPE: u32 = 1;
const FSID: u32 = 8;
const RDATTR_ERROR: u32 = 11;
const FS_LOCATIONS: u32 = 24;
const MOUNTED_ON_FILEID: u32 = 55;
const FS_LOCATIONS_INFO: u32 = 67;

fn located(files: &Arc<MemoryFs>, is_referral: bool) -> Vec<Export> {
    let list = vec![
        Location {
            servers: vec!["a.example".into(), "b.example".into()],
            path: vec![b"data".to_vec(), b"x".to_vec()],
        },
        Location { servers: vec!["192.0.2.7".into()], path: Vec::new() },
    ];
    let upper = export(1, &["top"], &Arc::new(MemoryFs::new()), sys_access());
    let lower = export(2, &["refs", "moved"], files, sys_access());
    vec![upper, Export { locations: Locations { is_referral, list }, ..lower }]
}

fn client_of_located(is_referral: bool) -> (&'static Fixture, Client<'static>) {
    let files = Arc::new(MemoryFs::new());
    let fixture: &'static Fixture =
        Box::leak(Box::new(Fixture::with_exports(files.clone(), located(&files, is_referral))));
    (fixture, Client::new(fixture, "one", 0))
}

fn assert_locations(result: &Results<'static>) {
    let found = attributes(result).fs_locations.expect("requested");
    assert_eq!(found.root.0, [Name(b"refs"), Name(b"moved")]);
    let list: Vec<_> =
        found.locations.0.iter().map(|one| (one.servers.0.len(), one.root.0.len())).collect();
    assert_eq!(list, [(2, 2), (1, 0)]);
}

// §11.3.
#[test]
fn operations_in_absent_file_system_get_moved() {
    let mut client = client_of_located(true).1;
    let moved = &["refs", "moved"];
    assert_eq!(client.status(&["refs"], &[lookup("moved")]), Status::OK);
    for op in
        [Args::Getfh, Args::Lookupp, lookup("f"), readdir(0, 4096, &[TYPE]), getattr(&[TYPE, FSID])]
    {
        assert_eq!(client.status(moved, std::slice::from_ref(&op)), Status::MOVED, "{op:?}");
    }
}

// §11.4.1.
#[test]
fn getattr_of_referral_returns_only_locations_and_place() {
    let mut client = client_of_located(true).1;
    let (_, list) = client
        .run_at(&["refs", "moved"], &[getattr(&[TYPE, FSID, FS_LOCATIONS, MOUNTED_ON_FILEID])]);
    assert_locations(&list[0]);
    let found = attributes(&list[0]);
    assert_eq!(
        (found.file_type, found.fsid.is_some(), found.mounted_on_fileid.is_some()),
        (None, true, true)
    );
    let (_, list) = client.run_at(&["top"], &[getattr(&[FSID])]);
    assert_ne!(attributes(&list[0]).fsid, found.fsid);
}

// §11.4.2.
#[test]
fn readdir_reports_referral_per_entry_or_fails() {
    let mut client = client_of_located(true).1;
    let mut entry = |wanted: &[u32]| {
        let (status, list) = client.run_at(&["refs"], &[readdir(0, 4096, wanted)]);
        let Results::Readdir(Ok(ok)) = &list[0] else { return Err(status) };
        let [entry] = &ok.entries.iter().collect::<Vec<_>>()[..] else { panic!("{ok:?}") };
        assert_eq!(entry.name.0, b"moved");
        Ok(entry.attrs.attributes().unwrap())
    };
    assert_eq!(entry(&[TYPE]).unwrap_err(), Status::MOVED);
    let attributes = entry(&[TYPE, RDATTR_ERROR, FSID]).unwrap();
    assert_eq!(
        (attributes.rdattr_error, attributes.file_type, attributes.fsid.is_some()),
        (Some(Status::MOVED), None, true)
    );
    let attributes = entry(&[TYPE, RDATTR_ERROR, FS_LOCATIONS]).unwrap();
    assert_eq!(
        (attributes.rdattr_error, attributes.fs_locations.map(|found| found.locations.0.len())),
        (Some(Status::OK), Some(2))
    );
}

#[test]
fn locations_of_present_file_system_are_reported() {
    let (fixture, mut client) = client_of_located(false);
    let (_, list) = client.run_at(&["refs", "moved"], &[getattr(&[FS_LOCATIONS]), Args::Getfh]);
    assert_locations(&list[0]);
    let Results::Getfh(Ok(handle)) = &list[1] else { panic!("{list:?}") };
    let handle = handle.handle;
    fixture.replace_exports(located(&fixture.files, true));
    assert_eq!(client.status(&[], &[putfh(handle), Args::Getfh]), Status::MOVED);
    assert_eq!(client.status(&[], &[putfh(handle), getattr(&[FS_LOCATIONS])]), Status::OK);
    assert_eq!(
        client.status(&[], &[getattr(&[FS_LOCATIONS])]),
        Status::OK,
        "the pseudo file system has no other locations"
    );
}

// Section 11.5.2.
#[test]
fn own_addresses_precede_replicas() {
    let own = ["192.0.2.1", "2001:db8::1"];
    for is_referral in [false, true] {
        let files = Arc::new(MemoryFs::new());
        let fixture = Fixture::with_addresses(&own, files.clone(), located(&files, is_referral));
        let mut client = Client::new(&fixture, "one", 0);
        let mut servers = |path: &[&str]| {
            let found = attributes(&client.run_at(path, &[getattr(&[FS_LOCATIONS])]).1[0])
                .fs_locations
                .expect("requested");
            let list = found.locations.0.iter();
            list.map(|one| {
                (one.servers.0.iter().map(|name| name.0.to_vec()).collect(), one.root.0.len())
            })
            .collect::<Vec<(Vec<_>, usize)>>()
        };
        let here = own.map(|name| name.as_bytes().to_vec()).to_vec();
        assert_eq!(servers(&[]), [(here.clone(), 0)]);
        assert_eq!(servers(&["top"]), [(here.clone(), 1)]);
        let others = servers(&["refs", "moved"]);
        assert_eq!(others.len(), if is_referral { 2 } else { 3 });
        assert_eq!(others[0] == (here, 2), !is_referral, "an absent file system is not here");
    }
}

// Section 11.17.
#[test]
fn locations_info_has_one_class_for_own_addresses_and_one_for_each_other_server() {
    let files = Arc::new(MemoryFs::new());
    let fixture = Fixture::with_addresses(
        &["192.0.2.1", "2001:db8::1"],
        files.clone(),
        located(&files, false),
    );
    let mut client = Client::new(&fixture, "one", 0);
    let (_, list) = client.run_at(&["refs", "moved"], &[getattr(&[FS_LOCATIONS_INFO])]);
    let found = attributes(&list[0]).fs_locations_info.expect("requested");
    assert_eq!(found.root.0, [Name(b"refs"), Name(b"moved")]);
    let servers: Vec<_> = found.items.0.iter().flat_map(|item| &item.servers.0).collect();
    assert!(servers.iter().all(|server| server.info.0.len() == 12 && server.currency_s < 0));
    let classes: Vec<_> = servers
        .iter()
        .map(|server| (server.server.0, server.info.0[0], server.info.0[3]))
        .collect();
    let expected: [(&[u8], u8, u8); 5] = [
        (b"192.0.2.1", 1, 0),
        (b"2001:db8::1", 1, 0),
        (b"a.example", 0, 1),
        (b"b.example", 0, 2),
        (b"192.0.2.7", 0, 3),
    ];
    assert_eq!(classes, expected);
    let mut client = client_of_located(true).1;
    assert_eq!(
        client.status(&["refs", "moved"], &[getattr(&[FS_LOCATIONS_INFO])]),
        Status::OK,
        "an absent file system has it too"
    );
}
