use vouch_krb5_seal::Enctype;

use super::fixture::*;
use crate::*;

fn args(xid: u32) -> Vec<u8> {
    let len = if xid.is_multiple_of(9) { 70_000 } else { (xid as usize * 52) % 4096 };
    (0..len).map(|at| (at as u32 * 7 + xid) as u8).collect()
}

fn wrapped(client: &mut ClientContext, count: u32) -> Vec<(Vec<u8>, GssSeq)> {
    let mut calls: Vec<_> = (0..count).map(|xid| laid_out(client, xid, &args(xid))).collect();
    let mut wraps: Vec<CallWrap<'_>> =
        calls.iter_mut().map(|(bytes, _)| CallWrap { bytes }).collect();
    assert!(client.wrap_many(&mut wraps, &mut counted));
    calls
}

#[test]
fn batch_of_calls_is_served_and_replies_open_in_batch() {
    with_every_protection(|mut fixture, mut client, enctype, service| {
        for count in [1, 2, 5, 100] {
            let calls = wrapped(&mut client, count);
            let answers =
                fixture.serve_many(calls.iter().map(|(bytes, _)| bytes.clone()).collect());
            let mut replies: Vec<Vec<u8>> = answers.into_iter().map(Answer::into_record).collect();
            let mut opens: Vec<_> = replies
                .iter_mut()
                .zip(&calls)
                .map(|(reply, (_, seq))| to_open(reply, *seq))
                .collect();
            client.open_many(&mut opens);
            for (xid, open) in opens.iter().enumerate() {
                assert!(
                    open.record[open.results.clone().unwrap()] == args(xid as u32),
                    "{enctype} {service:?} {xid}"
                );
            }
        }
    });
}

#[test]
fn call_protected_alone_equals_one_in_a_batch() {
    with_every_protection(|mut fixture, mut client, _, _| {
        let (alone, _) = call(&mut client, 3, &args(3));
        let (together, _) = wrapped(&mut client, 4).remove(3);
        assert_eq!(alone.len(), together.len());
        assert_eq!(layout(&alone), layout(&together));
        assert!(
            [alone, together]
                .into_iter()
                .all(|record| matches!(fixture.serve(record), Answer::Record(_)))
        );
    });
}

#[test]
fn one_bad_reply_does_not_affect_others() {
    with_every_protection(|mut fixture, mut client, enctype, service| {
        let calls = wrapped(&mut client, 20);
        let answers = fixture.serve_many(calls.iter().map(|(bytes, _)| bytes.clone()).collect());
        let mut replies: Vec<Vec<u8>> = answers.into_iter().map(Answer::into_record).collect();
        let verifier_end = 20 + to_open(&mut replies[0], calls[0].1).verifier.unwrap().len();
        replies[4][verifier_end - 1] ^= 1;
        *replies[9].last_mut().unwrap() ^= 1;
        let mut opens: Vec<_> =
            replies.iter_mut().zip(&calls).map(|(reply, (_, seq))| to_open(reply, *seq)).collect();
        opens[13].seq = calls[12].1;
        client.open_many(&mut opens);
        for (at, open) in opens.iter().enumerate() {
            let expected = match at {
                4 | 13 => Err(OpenError::Verifier),
                9 if service != Service::None => Err(OpenError::Body),
                _ => Ok(()),
            };
            assert_eq!(open.results.clone().map(drop), expected, "{enctype} {service:?} {at}");
        }
    });
}

#[test]
fn calls_without_randomness_must_not_be_sent() {
    let mut fixture = Fixture::new(Enctype::Aes256CtsHmacSha1_96);
    let mut client = fixture.connect(Service::Privacy);
    let (mut bytes, _) = laid_out(&mut client, 1, b"data");
    assert!(!client.wrap_many(&mut [CallWrap { bytes: &mut bytes }], &mut |_| false));
}

#[test]
fn reply_without_verifier_is_refused() {
    let mut fixture = Fixture::new(Enctype::Aes128CtsHmacSha256_128);
    let mut client = fixture.connect(Service::Integrity);
    let (record, seq) = call(&mut client, 1, b"data");
    let Answer::Record(mut reply) = fixture.serve(record) else { panic!("closed") };
    let mut open = to_open(&mut reply, seq);
    open.verifier = None;
    let mut opens = [open];
    client.open_many(&mut opens);
    assert_eq!(opens[0].results, Err(OpenError::Verifier));
}
