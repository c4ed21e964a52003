use vouch_nfs4::Bitmap;

use crate::prelude::*;

// RFC 8881 §16.2.3.
#[test]
fn compound_with_false_operation_count_returns_badxdr() {
    let fixture = Fixture::new();
    let connection = fixture.connect();
    let mut w = Writer::new();
    w.opaque(b"t");
    w.u32(0);
    w.u32(u32::MAX);
    Args::Putrootfh.encode(&mut w);
    let (status, list) = results(fixture.call(&connection, &user(0), w.into_bytes()).0);
    assert_eq!((status, list.len()), (Status::BADXDR, 2));
    for len in [u32::MAX, 2000] {
        let mut w = Writer::new();
        w.u32(len);
        w.bytes_mut().extend_from_slice(&[0; 100]);
        assert_eq!(
            results(fixture.call(&connection, &user(0), w.into_bytes()).0).0,
            Status::BADXDR
        );
    }
}

// RFC 8881 §15.1.3.3.
#[test]
fn compound_with_too_many_operations_is_cut_off() {
    let fixture = Fixture::new();
    let connection = fixture.connect();
    let (status, list) =
        results(fixture.call(&connection, &user(0), compound(0, &vec![Args::Putrootfh; 5000])).0);
    assert_eq!((status, list.len()), (Status::RESOURCE, 129));
    let mut client = Client::new(&fixture, "one", 0);
    let mut all = vec![client.next_sequence(false)];
    all.extend(vec![Args::Putrootfh; 500]);
    assert_eq!(client.send(&all).0, Status::TOO_MANY_OPS);
}

// RFC 8881 §18.23.3.
#[test]
fn readdir_without_room_for_an_entry_returns_toosmall() {
    let mut client = Client::alone();
    client.create("a name of some length");
    for (dir_count, max_count) in [(0, 0), (u32::MAX, 1), (0, 24), (1, 40)] {
        let args = op::ReaddirArgs {
            cookie: Cookie(0),
            verifier: Verifier([0; 8]),
            dir_count,
            max_count,
            wanted: Bitmap::of(&[1, 4, 19, 33]),
        };
        assert_eq!(
            client.status(&["export"], &[Args::Readdir(args)]),
            Status::TOOSMALL,
            "{max_count}"
        );
    }
}

// RFC 8881 §15.1.2.1.
#[test]
fn forged_filehandle_returns_badhandle() {
    let mut client = Client::alone();
    let genuine = client.filehandle(&["export"], &[]).as_bytes().to_vec();
    for at in 0..genuine.len() {
        let mut forged = genuine.clone();
        forged[at] ^= 1;
        let forged = Filehandle::new(&forged).expect("within the length limit");
        assert_eq!(client.status(&[], &[putfh(forged)]), Status::BADHANDLE, "byte {at}");
    }
    for len in 0..genuine.len() {
        let cut = Filehandle::new(&genuine[..len]).expect("within the length limit");
        assert_eq!(client.status(&[], &[putfh(cut)]), Status::BADHANDLE, "{len} bytes");
    }
}

// RFC 8881 §14.5 and 15.1.6.
#[test]
fn lookup_never_leaves_the_export() {
    let mut client = Client::alone();
    for name in ["..", ".", "a/b", "/", "../..", "\0"] {
        let status = client.status(&["export"], &[lookup(name)]);
        assert!(
            matches!(status, Status::BADNAME | Status::BADCHAR | Status::INVAL),
            "{name:?}: {status:?}"
        );
    }
    let long = "x".repeat(256);
    assert_eq!(client.status(&["export"], &[lookup(&long)]), Status::NAMETOOLONG);
    assert_eq!(client.status(&["export"], &[lookup("")]), Status::INVAL);
    assert_eq!(client.status(&["export"], &[Args::Lookupp, Args::Lookupp]), Status::NOENT);
}
