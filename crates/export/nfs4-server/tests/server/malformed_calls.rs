use proptest::prelude::*;
use vouch_nfs4::ReplyHead;

use crate::prelude::*;

// RFC 8881 §16.2.3.
#[test]
fn invalid_compound_heads_are_refused() {
    let fixture = Fixture::new();
    let connection = fixture.connect();
    let call = |body: Vec<u8>| results(fixture.call(&connection, &user(0), body).0);
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

// RFC 8881 §2.10.6 and 15.1.10.
#[test]
fn sequence_operations_are_refused_in_wrong_places() {
    let mut client = Client::alone();
    assert_eq!(client.send(&[Args::Putrootfh]).0, Status::OP_NOT_IN_SESSION);
    let sequence = client.next_sequence(false);
    assert_eq!(client.send(&[sequence.clone(), sequence]).0, Status::SEQUENCE_POS);
    let destroy =
        Args::DestroySession(vouch_nfs4::op::DestroySessionArgs { session: client.session });
    assert_eq!(client.send(&[destroy.clone(), Args::Putrootfh]).0, Status::NOT_ONLY_OP);
    let renew = Args::Renew(vouch_nfs4::op::RenewArgs { client: client.id });
    assert_eq!(client.run(&[renew]).0, Status::NOTSUPP);
}

// RFC 8881 §2.10.6.1.3; RFC 7530 §3.1.1.
#[test]
fn retry_gets_cached_reply_marked_as_replay() {
    let (fixture, mut client) = Client::with_fixture();
    let attrs = mode(0o755);
    let v41_call = compound(
        2,
        &[client.next_sequence(true), Args::Putrootfh, lookup("export"), mkdir("d", &attrs)],
    );
    let v40_call = compound(0, &[Args::Putrootfh, lookup("export"), mkdir("e", &attrs)]);
    let run = |body: &[u8]| {
        let mut call =
            fixture.begin(client.flavour, &client.connection, &client.principal, body.to_vec());
        let Progress::Done(Some(reply)) = call.run(&fixture.server, Blocking::Allowed).progress
        else {
            panic!("no reply")
        };
        (reply.bytes[28..].to_vec(), reply.kind == ReplyKind::Replay)
    };
    for (minor, body) in [(2, &v41_call), (0, &v40_call)] {
        let (first, is_replay) = run(body);
        assert_eq!((results(first.clone()).0, is_replay), (Status::OK, false), "minor {minor}");
        assert_eq!(run(body), (first, true), "minor {minor}");
    }
    let (mut altered, len) = (v41_call.clone(), v41_call.len());
    altered[len - 5] ^= 1;
    assert_eq!(results(run(&altered).0).0, Status::SEQ_FALSE_RETRY);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_get_a_reply(bytes: Vec<u8>, minor in 0u32..4, count in 0u32..9) {
        let fixture = Fixture::new();
        let mut w = Writer::new();
        w.opaque(b"t");
        w.u32(minor);
        w.u32(count);
        w.bytes_mut().extend_from_slice(&bytes);
        let (reply, _) = fixture.call(&fixture.connect(), &user(0), w.into_bytes());
        prop_assert!(ReplyHead::decode(&mut Reader::new(&reply)).is_ok());
    }

    #[test]
    fn corrupted_calls_get_a_reply(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let fixture = Fixture::new();
        let mut client = Client::new(&fixture, "one", 0);
        client.create("f");
        let ops = [client.next_sequence(true), Args::Putrootfh, lookup("export"), lookup("f"), getattr(&[0, 1, 12, 33, 36]), Args::Savefh];
        let mut body = compound(2, &ops);
        for (at, byte) in flips {
            let at = at.index(body.len());
            body[at] ^= byte;
        }
        let (reply, _) = fixture.call(&client.connection, &user(0), body);
        prop_assert!(ReplyHead::decode(&mut Reader::new(&reply)).is_ok());
    }
}
