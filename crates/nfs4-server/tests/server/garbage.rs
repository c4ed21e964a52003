//! Calls that are no calls: whatever comes, there is an answer and no panic.

use proptest::prelude::*;
use vouch_nfs4::op::{Args, Op};
use vouch_nfs4::{ReplyHead, Status};
use vouch_xdr::{Reader, Writer};

use crate::world::{Client, World, compound, getattr, lookup, results, user};

// RFC 8881, section 16.2.3.
#[test]
fn heads_are_judged_first() {
    let world = World::new();
    let connection = world.connect();
    let call = |body: Vec<u8>| results(world.call(&connection, &user(0), body).0);
    assert_eq!(call(compound(3, &[Args::Putrootfh])).0, Status::MINOR_VERS_MISMATCH);
    assert_eq!(call(compound(1, &[])).0, Status::OK);
    assert_eq!(call(vec![0xff; 7]).0, Status::BADXDR);
    let mut w = Writer::new();
    w.opaque(b"");
    w.u32(0);
    w.u32(1);
    w.u32(9999);
    let (status, list) = call(w.into_bytes());
    assert_eq!((status, list[0].op()), (Status::OP_ILLEGAL, Op(10044)));
}

// RFC 8881, section 2.10.6 and 15.1.10.
#[test]
fn operations_of_4_1_stand_where_they_may() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(client.bare(&[Args::Putrootfh]).0, Status::OP_NOT_IN_SESSION);
    let sequence = client.sequence(false);
    assert_eq!(client.bare(&[sequence.clone(), sequence]).0, Status::SEQUENCE_POS);
    let destroy = Args::DestroySession(vouch_nfs4::op::DestroySessionArgs { session: client.session });
    assert_eq!(client.bare(&[destroy.clone(), Args::Putrootfh]).0, Status::NOT_ONLY_OP);
    let renew = Args::Renew(vouch_nfs4::op::RenewArgs { client: client.id });
    assert_eq!(client.run(&[renew]).0, Status::NOTSUPP);
}

// RFC 8881, section 2.10.6.1.3.
#[test]
fn a_retry_gets_the_reply_of_the_first() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let attrs = crate::world::mode(0o755);
    let make = Args::Create(vouch_nfs4::op::CreateArgs {
        kind: vouch_nfs4::op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory),
        name: vouch_nfs4::Name(b"d"),
        attrs: attrs.fattr(),
    });
    let body = compound(2, &[client.sequence(true), Args::Putrootfh, lookup("export"), make]);
    let (first, _) = world.call(&client.connection, &client.principal, body.clone());
    assert_eq!(results(first.clone()).0, Status::OK);
    let (second, _) = world.call(&client.connection, &client.principal, body.clone());
    assert_eq!(first, second);
    let mut other = body;
    let len = other.len();
    other[len - 5] ^= 1;
    let (third, _) = world.call(&client.connection, &client.principal, other);
    assert_eq!(results(third).0, Status::SEQ_FALSE_RETRY);
}

#[test]
fn a_reply_that_was_made_before_says_so() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let attrs = crate::world::mode(0o755);
    let make = |name| {
        let kind = vouch_nfs4::op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory);
        Args::Create(vouch_nfs4::op::CreateArgs { kind, name: vouch_nfs4::Name(name), attrs: attrs.fattr() })
    };
    let of_41 = compound(2, &[client.sequence(true), Args::Putrootfh, lookup("export"), make(b"d")]);
    let of_40 = compound(0, &[Args::Putrootfh, lookup("export"), make(b"e")]);
    let tells_again = |body: &[u8]| {
        let mut call = world.begin(client.flavour, &client.connection, &client.principal, body.to_vec());
        assert!(matches!(call.run(&world.server, vouch_vfs::Patience::Any), vouch_nfs4_server::Progress::Done(Some(_))));
        call.tells_again()
    };
    for body in [of_41, of_40] {
        assert_eq!([tells_again(&body), tells_again(&body)], [false, true]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn bytes_of_any_kind_are_answered(bytes: Vec<u8>, minor in 0u32..4, count in 0u32..9) {
        let world = World::new();
        let mut w = Writer::new();
        w.opaque(b"t");
        w.u32(minor);
        w.u32(count);
        w.bytes_mut().extend_from_slice(&bytes);
        let (reply, _) = world.call(&world.connect(), &user(0), w.into_bytes());
        prop_assert!(ReplyHead::decode(&mut Reader::new(&reply)).is_ok());
    }

    #[test]
    fn good_calls_with_bad_bytes_are_answered(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let world = World::new();
        let mut client = Client::new(&world, "one", 0);
        client.create("f");
        let ops = [client.sequence(true), Args::Putrootfh, lookup("export"), lookup("f"), getattr(&[0, 1, 12, 33, 36]), Args::Savefh];
        let mut body = compound(2, &ops);
        for (at, byte) in flips {
            let at = at.index(body.len());
            body[at] ^= byte;
        }
        let (reply, _) = world.call(&client.connection, &user(0), body);
        prop_assert!(ReplyHead::decode(&mut Reader::new(&reply)).is_ok());
    }
}
