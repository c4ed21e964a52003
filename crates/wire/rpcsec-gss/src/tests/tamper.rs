//! RFC 2203 §5.3.3.1 and 5.3.3.3, byte by byte.

use vouch_krb5_seal::Enctype;

use super::fixture::*;
use crate::window::WINDOW_LEN;
use crate::*;

#[test]
fn flipped_bit_in_call_is_refused_as_the_rfc_says() {
    with_every_protection(|mut fixture, mut client, enctype, service| {
        let (record, seq) = call(&mut client, 77, b"some arguments. ");
        let (header, _, args) = layout(&record);
        for bit in 0..8 * record.len() {
            let mut altered = record.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            let answer = fixture.serve(altered);
            let said = refusal(&answer);
            let at = bit / 8;
            let allowed: &[&str] = if at < 12 {
                &["denied 13", "closed", "RpcMismatch { low: 2, high: 2 }"]
            } else if at < header.end {
                &["denied 13", "denied 1", "denied 2", "denied 3", "closed", "GarbageArgs"]
            } else if at < args.start {
                &["denied 13", "denied 3", "closed"]
            } else if service == Service::None {
                // RFC 2203 §5.3.2.1: the body is not protected.
                &["success"]
            } else if let Answer::Record(reply) = &answer
                && service == Service::Privacy
                && is_rotation(at, args.start)
            {
                // RFC 4121 §4.2.5: rotation by the whole length changes nothing.
                assert!(
                    said == "GarbageArgs"
                        || open(&client, seq, reply).unwrap() == b"some arguments. "
                );
                &["GarbageArgs", "success"]
            } else {
                &["GarbageArgs"]
            };
            if at >= args.start {
                assert!(
                    allowed.contains(&said.as_str()),
                    "{enctype} {service:?} byte {at} of {}: {said}",
                    record.len()
                );
                fixture = Fixture::new(enctype);
                client = fixture.connect(service);
                let again = call(&mut client, 77, b"some arguments. ");
                assert_eq!((again.0 == record, again.1), (true, seq));
                continue;
            }
            assert!(
                allowed.contains(&said.as_str()),
                "{enctype} {service:?} byte {at} of {}: {said}",
                record.len()
            );
        }
        let reply = fixture.serve(record).into_record();
        assert_eq!(open(&client, seq, &reply).unwrap(), b"some arguments. ");
    });
}

fn is_rotation(at: usize, body_at: usize) -> bool {
    (body_at + 10..body_at + 12).contains(&at)
}

fn privacy_body_at(reply: &[u8]) -> usize {
    let vouch_oncrpc::ReplyBody::Accepted {
        outcome: vouch_oncrpc::Accepted::Success(body), ..
    } = vouch_oncrpc::Reply::decode(reply).expect("a reply").body
    else {
        panic!("a success")
    };
    reply.len() - body.len()
}

#[test]
fn flipped_bit_in_reply_is_refused() {
    with_every_protection(|mut fixture, mut client, enctype, service| {
        let (record, seq) = call(&mut client, 77, b"some arguments. ");
        let reply = fixture.serve(record).into_record();
        let body_at = reply.len() - 16;
        for bit in 0..8 * reply.len() {
            let mut altered = reply.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            let unproven = bit / 8 < 4 || (service == Service::None && bit / 8 >= body_at);
            let opened = open(&client, seq, &altered);
            if service == Service::Privacy && is_rotation(bit / 8, privacy_body_at(&reply)) {
                assert!(opened.is_err() || opened.unwrap() == b"some arguments. ");
                continue;
            }
            assert_eq!(opened.is_ok(), unproven, "{enctype} {service:?} byte {}", bit / 8);
        }
    });
}

#[test]
fn truncation_anywhere_is_refused() {
    with_every_protection(|mut fixture, mut client, _, service| {
        let (record, seq) = call(&mut client, 77, b"some arguments. ");
        let (_, _, args) = layout(&record);
        for len in 0..args.start {
            assert_ne!(refusal(&fixture.serve(record[..len].to_vec())), "success", "{len}");
        }
        let reply = fixture.serve(record.clone()).into_record();
        for len in 0..reply.len() - if service == Service::None { 16 } else { 0 } {
            assert!(open(&client, seq, &reply[..len]).is_err(), "{len}");
        }
        if service != Service::None {
            for cut in 1..=record.len() - args.start {
                let (record, _) = call(&mut client, 78, b"some arguments. ");
                assert_eq!(
                    refusal(&fixture.serve(record[..record.len() - cut].to_vec())),
                    "GarbageArgs",
                    "{cut}"
                );
            }
        }
    });
}

#[test]
fn replayed_call_is_dropped_from_anywhere() {
    with_every_protection(|mut fixture, mut client, _, _| {
        let (record, _) = call(&mut client, 1, b"once");
        assert_eq!(refusal(&fixture.serve(record.clone())), "success");
        assert_eq!(fixture.serve(record.clone()), Answer::Closed);
        let (second, _) = call(&mut client, 2, b"once");
        let answers = fixture.serve_many(vec![second.clone(), second, record]);
        let said: Vec<String> = answers.iter().map(refusal).collect();
        assert_eq!(said, ["success", "closed", "closed"]);
    });
}

#[test]
fn calls_may_be_reordered_only_within_window() {
    let mut fixture = Fixture::new(Enctype::Aes128CtsHmacSha1_96);
    let mut client = fixture.connect(Service::Integrity);
    let mut records: Vec<Vec<u8>> =
        (0..WINDOW_LEN + 1).map(|xid| call(&mut client, xid, b"data").0).collect();
    let oldest = records.remove(0);
    records.reverse();
    for answer in fixture.serve_many(records) {
        assert_eq!(refusal(&answer), "success");
    }
    assert_eq!(fixture.serve(oldest), Answer::Closed);
}

#[test]
fn last_sequence_numbers_are_not_used() {
    // RFC 2203 §5.3.3.1: RPCSEC_GSS_CTXPROBLEM.
    let mut fixture = Fixture::new(Enctype::Aes128CtsHmacSha1_96);
    let mut client = fixture.connect(Service::None);
    client.skip_to(GssSeq::MAX.0 - 1);
    let (record, _) = call(&mut client, 1, b"data");
    assert_eq!(refusal(&fixture.serve(record)), "success");
    let mut w = vouch_xdr::Writer::new();
    assert_eq!(client.begin(&mut w, 0), Err(OpenError::UsedUp));
    let mut w = head(2, 1);
    client.begin_at(GssSeq::MAX, &mut w);
    assert_eq!(refusal(&fixture.serve(w.into_bytes())), "denied 14");
}

#[test]
fn altered_version_or_service_is_denied() {
    for (at, value, expected) in [(35, 2, "denied 2"), (47, 1, "denied 13")] {
        let mut fixture = Fixture::new(Enctype::Aes256CtsHmacSha384_192);
        let mut client = fixture.connect(Service::Privacy);
        let (mut record, _) = call(&mut client, 1, b"data");
        record[at] = value;
        assert_eq!(refusal(&fixture.serve(record)), expected);
    }
}

#[test]
fn failed_wrap_sends_nothing() {
    let mut fixture = Fixture::new(Enctype::Aes256CtsHmacSha1_96);
    let mut client = fixture.connect(Service::Privacy);
    let (mut record, _) = call(&mut client, 1, b"data");
    let now = fixture.now_ms;
    let Ok(decoded) = vouch_oncrpc::Call::decode(&record) else { panic!("a call") };
    let CallClass::Call(call) =
        classify(&record, &decoded, |handle| fixture.contexts.find(handle, now))
    else {
        panic!("a call")
    };
    let mut checks = [Check::new(&mut record, &call)];
    check_many(&mut checks, now);
    assert!(matches!(checks[0].verdict, Verdict::Genuine(_)));
    let mut w = vouch_xdr::Writer::new();
    let envelope = Envelope::begin(&call, vouch_oncrpc::Accepted::Success(&[]), &mut w);
    w.raw(b"secret results..");
    let mut bytes = w.into_bytes();
    let mut wraps = [Wrap::new(&mut bytes, &envelope)];
    wrap_many(&mut wraps, &mut |_| false);
    assert!(!wraps[0].done);
}

proptest::proptest! {
    #[test]
    fn garbage_is_never_accepted(mut bytes: Vec<u8>, splice in 0usize..200) {
        let mut fixture = Fixture::new(Enctype::Aes256CtsHmacSha1_96);
        let mut client = fixture.connect(Service::Privacy);
        let (record, _) = call(&mut client, 1, b"some arguments. ");
        proptest::prop_assert_ne!(refusal(&fixture.serve(bytes.clone())), "success");
        let splice = splice.min(record.len() - 1);
        let mut spliced = record[..splice].to_vec();
        spliced.append(&mut bytes);
        if !spliced.starts_with(&record) {
            proptest::prop_assert_ne!(refusal(&fixture.serve(spliced)), "success");
        }
    }
}
