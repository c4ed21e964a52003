use vouch_krb5_seal::Enctype;

use super::fixture::*;
use crate::window::WINDOW_LEN;
use crate::*;

#[test]
fn every_length_passes_with_every_service() {
    with_every_protection(|mut fixture, mut client, enctype, service| {
        assert_eq!(client.window(), WINDOW_LEN);
        for words in (0..40).chain([255, 1024, 16_385]) {
            let args: Vec<u8> = (0..4 * words).map(|at| (at * 7) as u8).collect();
            let (record, seq) = call(&mut client, words, &args);
            let clear = args.len() >= 32 && record.windows(32).any(|window| window == &args[..32]);
            assert!(args.len() < 32 || clear != (service == Service::Privacy));
            let reply = fixture.serve(record).into_record();
            assert_eq!(open(&client, seq, &reply).unwrap(), args, "{enctype} {service:?} {words}");
            assert!(
                args.len() < 32
                    || reply.windows(32).any(|window| window == &args[..32])
                        != (service == Service::Privacy)
            );
        }
    });
}

#[test]
fn calls_of_many_contexts_are_verified_together() {
    let mut fixture = Fixture::new(Enctype::Aes256CtsHmacSha1_96);
    let mut clients = Vec::new();
    for_each_protection(|enctype, service| {
        fixture.acceptor.enctype = enctype;
        clients.push(fixture.connect(service));
    });
    let mut sent = Vec::new();
    for xid in 0..150u32 {
        let at = (xid as usize * 5) % clients.len();
        let args = vec![xid as u8; (xid as usize * 52) % 4096];
        let (record, seq) = call(&mut clients[at], xid, &args);
        sent.push((at, seq, args, record));
    }
    let answers = fixture.serve_many(sent.iter().map(|(.., record)| record.clone()).collect());
    for ((at, seq, args, _), answer) in sent.iter().zip(&answers) {
        let Answer::Record(reply) = answer else { panic!("closed") };
        assert_eq!(&open(&clients[*at], *seq, reply).unwrap(), args);
    }
}

#[test]
fn mechanism_with_several_exchanges_creates_context() {
    let mut fixture = Fixture::new(Enctype::Aes128CtsHmacSha256_128);
    fixture.acceptor.rounds = 3;
    let mut client = fixture.connect(Service::Privacy);
    let (record, seq) = call(&mut client, 9, b"data");
    let reply = fixture.serve(record).into_record();
    assert_eq!(open(&client, seq, &reply).unwrap(), b"data");
}

#[test]
fn refused_ticket_returns_status_without_context() {
    // RFC 2203 §5.2.3.2.
    let mut fixture = Fixture::new(Enctype::Aes256CtsHmacSha1_96);
    let initiation = Initiation::begin(
        TestInitiator { enctype: Enctype::Aes256CtsHmacSha1_96, first: b"liar" },
        Service::None,
    )
    .unwrap();
    let mut w = vouch_xdr::Writer::new();
    initiation.call(5, PROGRAM, 4, &mut w);
    let reply = fixture.serve(w.into_bytes()).into_record();
    assert!(matches!(
        initiation.reply(5, &reply),
        Err(InitError::Refused { major: 0x9_0000, minor: 42 })
    ));
    assert!(fixture.contexts.is_empty());
}

#[test]
fn only_owner_destroys_a_context() {
    with_every_protection(|mut fixture, mut client, _, _| {
        let genuine = destroy(&mut client, 1);
        let (.., verifier) = layout(&genuine);
        let mut forged = genuine.clone();
        let (_, mic, _) = layout(&genuine);
        forged[mic.end - 1] ^= 1;
        assert_eq!(refusal(&fixture.serve(forged)), "denied 13");
        assert_eq!(fixture.contexts.len(), 1);
        assert!(verifier.is_empty());
        let reply = fixture.serve(genuine.clone()).into_record();
        assert_eq!(refusal(&Answer::Record(reply)), "success");
        assert!(fixture.contexts.is_empty());
        let (record, _) = call(&mut client, 2, b"data");
        assert_eq!(refusal(&fixture.serve(record)), "denied 13");
        assert_eq!(refusal(&fixture.serve(genuine)), "denied 13");
    });
}
