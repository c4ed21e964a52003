//! Clients that mean harm: each gets an answer that costs no more than its call, and no way out of
//! what is exported.

use vouch_nfs4::op::{self, Args, Results};
use vouch_nfs4::{Bitmap, Cookie, Filehandle, Name, Status, Verifier};
use vouch_xdr::Writer;

use crate::world::{Client, World, compound, lookup, results, user};

// RFC 8881, section 16.2.3.
#[test]
fn a_compound_that_lies_about_its_length_is_done_as_far_as_it_goes() {
    let world = World::new();
    let connection = world.connect();
    let mut w = Writer::new();
    w.opaque(b"t");
    w.u32(0);
    w.u32(u32::MAX);
    Args::Putrootfh.encode(&mut w);
    let (status, list) = results(world.call(&connection, &user(0), w.into_bytes()).0);
    assert_eq!((status, list.len()), (Status::BADXDR, 2));
    // A tag that says to be longer than the call, and one that is longer than may be.
    for len in [u32::MAX, 2000] {
        let mut w = Writer::new();
        w.u32(len);
        w.bytes_mut().extend_from_slice(&[0; 100]);
        assert_eq!(results(world.call(&connection, &user(0), w.into_bytes()).0).0, Status::BADXDR);
    }
}

// RFC 8881, section 15.1.3.3.
#[test]
fn operations_without_end_end() {
    let world = World::new();
    let connection = world.connect();
    let (status, list) = results(world.call(&connection, &user(0), compound(0, &vec![Args::Putrootfh; 5000])).0);
    assert_eq!((status, list.len()), (Status::RESOURCE, 129));
    let mut client = Client::new(&world, "one", 0);
    let mut all = vec![client.sequence(false)];
    all.extend(vec![Args::Putrootfh; 500]);
    assert_eq!(client.bare(&all).0, Status::TOO_MANY_OPS);
}

// RFC 8881, section 18.23.3.
#[test]
fn a_listing_for_which_there_is_no_room_says_so() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    client.create("a name of some length");
    for (dir_count, max_count) in [(0, 0), (u32::MAX, 1), (0, 24), (1, 40)] {
        let args =
            op::ReaddirArgs { cookie: Cookie(0), verifier: Verifier([0; 8]), dir_count, max_count, wanted: Bitmap::of(&[1, 4, 19, 33]) };
        assert_eq!(client.status(&["export"], &[Args::Readdir(args)]), Status::TOOSMALL, "{max_count}");
    }
}

// RFC 8881, section 2.6.3.1.1.8: SECINFO consumes the current filehandle.
#[test]
fn secinfo_can_not_be_asked_in_a_chain() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let secinfo = Args::Secinfo(op::SecinfoArgs { name: Name(b"export") });
    assert_eq!(client.status(&[], &[secinfo.clone(), secinfo]), Status::NOFILEHANDLE);
}

// RFC 8881, section 15.1.2.1.
#[test]
fn a_handle_that_was_made_up_is_none() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let (_, list) = client.at(&["export"], &[Args::Getfh]);
    let Some(Results::Getfh(Ok(ok))) = list.last() else { panic!("{list:?}") };
    let true_one = ok.handle.as_bytes().to_vec();
    for at in 0..true_one.len() {
        let mut forged = true_one.clone();
        forged[at] ^= 1;
        let forged = Filehandle::new(&forged).expect("it is no longer than may be");
        assert_eq!(client.status(&[], &[Args::Putfh(op::PutfhArgs { handle: forged })]), Status::BADHANDLE, "byte {at}");
    }
    for len in 0..true_one.len() {
        let cut = Filehandle::new(&true_one[..len]).expect("it is no longer than may be");
        assert_eq!(client.status(&[], &[Args::Putfh(op::PutfhArgs { handle: cut })]), Status::BADHANDLE, "{len} bytes");
    }
}

// RFC 8881, sections 14.5 and 15.1.6.
#[test]
fn names_lead_nowhere_but_down() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    for name in ["..", ".", "a/b", "/", "../..", "\0"] {
        let status = client.status(&["export"], &[lookup(name)]);
        assert!(matches!(status, Status::BADNAME | Status::BADCHAR | Status::INVAL), "{name:?}: {status:?}");
    }
    let long = "x".repeat(256);
    assert_eq!(client.status(&["export"], &[lookup(&long)]), Status::NAMETOOLONG);
    assert_eq!(client.status(&["export"], &[lookup("")]), Status::INVAL);
    // Above the root of the pseudo file system is nothing.
    assert_eq!(client.status(&["export"], &[Args::Lookupp, Args::Lookupp]), Status::NOENT);
}
