//! Callbacks of a server to its client (RFC 8881 §2.10.8.3).

use std::sync::Arc;

use vouch_oncrpc::{Accepted, Call};
use vouch_xdr::Writer;

use super::fixture::*;
use crate::*;

const NAME: ContextHandle = ContextHandle(*b"name of a client");

fn ends(fixture: &mut Fixture, client: &ClientContext) -> (Arc<ServerContext>, Arc<ServerContext>) {
    let now = fixture.now_ms;
    (
        fixture.contexts.find(client.handle(), now).expect("creation succeeded"),
        client.back_channel(NAME),
    )
}

fn called(end: &Arc<ServerContext>, record: &mut [u8]) -> (GssCall, Verdict) {
    let bytes = record.to_vec();
    let call = Call::decode(&bytes).expect("a call");
    let CallClass::Call(call) =
        classify(&bytes, &call, |handle| (handle == NAME.0).then(|| end.clone()))
    else {
        panic!("under the context")
    };
    let mut checks = [Check::new(record, &call)];
    check_many(&mut checks, 0);
    let [Check { verdict, .. }] = checks;
    (call, verdict)
}

fn answer(call: &GssCall, results: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    let envelope = Envelope::begin(call, Accepted::Success(&[]), &mut w);
    w.raw(results);
    let mut bytes = w.into_bytes();
    let mut wraps = [Wrap::new(&mut bytes, &envelope)];
    wrap_many(&mut wraps, &mut counted);
    assert!(wraps[0].done);
    bytes
}

#[test]
fn server_calls_client_in_clients_context() {
    with_every_protection(|mut fixture, client, enctype, service| {
        let (server, end) = ends(&mut fixture, &client);
        for xid in 0..20 {
            let mut back = server.back_channel(&NAME.0, service);
            let (mut record, seq) = call(&mut back, xid, b"recall it...");
            let (gss, Verdict::Genuine(args)) = called(&end, &mut record) else {
                panic!("{enctype} {service:?}: the call is genuine")
            };
            assert_eq!((&record[args], gss.service()), (&b"recall it..."[..], service));
            let reply = answer(&gss, b"recalled");
            assert_eq!(open(&back, seq, &reply).unwrap(), b"recalled");
            let (mut again, _) = call(&mut server.back_channel(&NAME.0, service), xid, b"once");
            let mut copy = again.clone();
            assert!(matches!(called(&end, &mut again).1, Verdict::Genuine(_)));
            assert_eq!(called(&end, &mut copy).1, Verdict::Dropped);
        }
    });
}

#[test]
fn forged_callback_or_answer_is_refused() {
    with_every_protection(|mut fixture, mut client, enctype, service| {
        let (server, end) = ends(&mut fixture, &client);
        let mut back = server.back_channel(&NAME.0, service);
        let (record, seq) = call(&mut back, 1, b"recall it...");
        let mut forged = record.clone();
        forged[35] ^= 2;
        forged[35] ^= 2;
        forged[20] ^= 1;
        assert!(matches!(called(&end, &mut forged).1, Verdict::Refused(_)));
        if service != Service::None {
            let mut forged = record.clone();
            *forged.last_mut().unwrap() ^= 1;
            assert_eq!(called(&end, &mut forged).1, Verdict::Garbage);
        }
        let mut back = server.back_channel(&NAME.0, service);
        let (mut genuine, number) = call(&mut back, 2, b"recall it...");
        let (gss, _) = called(&end, &mut genuine);
        let reply = answer(&gss, b"recalled");
        assert!(open(&back, seq, &reply).is_err(), "an answer to another call");
        for at in 20..reply.len() {
            let mut forged = reply.clone();
            forged[at] ^= 0x40;
            let status = 20 + server.keys().mic_len()..24 + server.keys().mic_len();
            let proven = service != Service::None || at < status.start;
            assert!(
                !proven || status.contains(&at) || open(&back, number, &forged).is_err(),
                "{enctype} {service:?} {at}"
            );
        }
        let (mut reflected, _) = call(&mut client, 1, b"data");
        let bytes = reflected.clone();
        let decoded = Call::decode(&bytes).unwrap();
        let CallClass::Call(gss) = classify(&bytes, &decoded, |_| Some(end.clone())) else {
            panic!("a call")
        };
        let mut checks = [Check::new(&mut reflected, &gss)];
        check_many(&mut checks, 0);
        assert!(matches!(checks[0].verdict, Verdict::Refused(_)));
    });
}
