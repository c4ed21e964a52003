use super::*;
use std::net::SocketAddr;
use vouch_oncrpc::AUTH_BODY_LEN_MAX;

fn engine() -> Arc<Connection> {
    crate::tests::engine().connection_opened(SocketAddr::from(([192, 0, 2, 1], 700)))
}

fn call<'a>(program: u32, version: u32, procedure: u32, cred: OpaqueAuth<'a>) -> Call<'a> {
    Call { xid: 7, program, version, procedure, cred, verf: OpaqueAuth::NONE, args: &[1, 2, 3, 4] }
}

fn take(call: &Call<'_>) -> Incoming {
    let mut w = Writer::new();
    call.encode(&mut w);
    read(w.into_bytes().into(), &engine(), &mut LastCredential::default(), false, Vec::new())
}

fn answer(incoming: Incoming) -> Vec<u32> {
    let (Incoming::Answer(bytes) | Incoming::Refused(bytes, _) | Incoming::Denied(bytes, ..)) =
        incoming
    else {
        panic!("an answer was expected")
    };
    assert_eq!(bytes[..4], (0x8000_0000u32 + bytes.len() as u32 - 4).to_be_bytes());
    let words: Vec<u32> =
        bytes[4..].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words[..2], [7, 1]);
    words[2..].to_vec()
}

fn sys_body(gids: u32) -> Vec<u8> {
    let mut w = Writer::new();
    AuthSys { stamp: 0, machine_name: b"m".to_vec(), uid: 5, gid: 6, gids: (0..gids).collect() }
        .encode(&mut w);
    w.into_bytes()
}

#[test]
fn calls_are_answered_by_program_version_procedure_and_credential() {
    let answered = |(program, version, procedure), flavor, body: &[u8]| {
        answer(take(&call(
            program,
            version,
            procedure,
            OpaqueAuth { flavor: Flavor(flavor), body },
        )))
    };
    assert_eq!(answered((100_003, 4, 0), 77, &[]), [0, 0, 0, 0], "NULL needs no credential");
    // RFC 5531 §9.
    assert_eq!(answered((100_005, 3, 1), 0, &[]), [0, 0, 0, 1]);
    assert_eq!(answered((100_003, 3, 1), 0, &[]), [0, 0, 0, 2, 4, 4]);
    assert_eq!(answered((100_003, 4, 2), 0, &[]), [0, 0, 0, 3]);
    let denied = |flavor, body: &[u8]| answered((100_003, 4, 1), flavor, body);
    assert_eq!(denied(1, &sys_body(16)[..12]), [1, 1, 1]);
    assert_eq!(denied(1, &[&sys_body(2)[..], &[0; 4]].concat()), [1, 1, 1]);
    assert_eq!(denied(2, &[]), [1, 1, 2]);
    assert_eq!(denied(6, &[0; AUTH_BODY_LEN_MAX]), [1, 1, 1]);
}

#[test]
fn compound_has_its_caller_and_arguments() {
    let body = sys_body(2);
    let Incoming::Compound(request, None) =
        take(&call(100_003, 4, 1, OpaqueAuth { flavor: Flavor::SYS, body: &body }))
    else {
        panic!("a compound")
    };
    assert_eq!(request.principal, Principal::Sys { uid: 5, gid: 6, gids: Arc::from([0, 1]) });
    assert_eq!(
        (request.xid, request.flavour, &request.body[..]),
        (7, Flavour::Sys, &[1, 2, 3, 4][..])
    );
    assert!(request.spans_allowed);
    assert_eq!(request.reply.len(), 28);
}

#[test]
fn changed_credential_on_connection_is_decoded_again() {
    let mut last = LastCredential::default();
    let mut who = |gids: u32| {
        let body = sys_body(gids);
        let mut w = Writer::new();
        call(100_003, 4, 1, OpaqueAuth { flavor: Flavor::SYS, body: &body }).encode(&mut w);
        match read(w.into_bytes().into(), &engine(), &mut last, false, Vec::new()) {
            Incoming::Compound(Request { principal: Principal::Sys { gids, .. }, .. }, None) => {
                gids.len()
            }
            _ => panic!("a compound"),
        }
    };
    assert_eq!([who(1), who(1), who(3), who(1)], [1, 1, 3, 1]);
}

#[test]
fn foreign_program_cannot_create_or_end_contexts() {
    // RFC 2203 §5.2.2 and 5.4; RFC 5531 §9.
    use crate::clock;
    use crate::gss::tests::{Claimer, context};
    use crate::gss::{Recent, verify_one};
    use vouch_rpcsec_gss::Initiation;
    let (gss, mut client) = context(Service::Integrity);
    let taken = |mut record: Vec<u8>| {
        let what = verify_one(&mut record, Some(&gss), &mut Recent::default(), clock::boot_ms())
            .expect("a call under RPCSEC_GSS");
        read_protected(&record.into(), what, &engine(), Vec::new(), clock::boot_ms())
    };
    for (program, version, refusal) in [
        (100_005, 4, Some(&[0, 0, 0, 1][..])),
        (100_003, 3, Some(&[0, 0, 0, 2, 4, 4])),
        (100_003, 4, None),
    ] {
        let mut w = Writer::new();
        Initiation::begin(Claimer, Service::None).unwrap().call(7, program, version, &mut w);
        let mut unreadable = w.as_bytes().to_vec();
        unreadable.truncate(unreadable.len() - 4);
        let mut ending = Writer::new();
        [7, 0, 2, program, version, 0].into_iter().for_each(|word| ending.u32(word));
        client.destroy(&mut ending, 0).unwrap();
        let [made, unreadable, ended] =
            [w.into_bytes(), unreadable, ending.into_bytes()].map(taken);
        match refusal {
            Some(words) => {
                assert_eq!([answer(made), answer(unreadable)], [words, words]);
                assert!(matches!(ended, Incoming::Sealed(..)));
            }
            None => {
                assert!(
                    matches!(made, Incoming::Init(_)) && matches!(ended, Incoming::Destroyed(..))
                );
                assert_eq!(answer(unreadable), [0, 0, 0, 4]);
            }
        }
    }
}

// RFC 2203 §5.4.
#[test]
fn verified_call_after_context_or_ticket_end_is_not_executed() {
    use crate::clock;
    use crate::gss::tests::{call, context};
    use crate::gss::{Recent, verify_one};
    let (gss, mut client) = context(Service::Privacy);
    let compound = |client: &mut _| call(client, 7, &[0; 12], usize::MAX).split_off(4);
    let before = compound(&mut client);
    let late = compound(&mut client);
    let mut ending = Writer::new();
    [7, 0, 2, 100_003, 4, 0].into_iter().for_each(|word| ending.u32(word));
    client.destroy(&mut ending, 0).unwrap();
    let records = [before, late, ending.into_bytes(), compound(&mut client)];
    let [before, late, ending, behind] = records.map(|mut record| {
        let what = verify_one(&mut record, Some(&gss), &mut Recent::default(), clock::boot_ms())
            .expect("a call under RPCSEC_GSS");
        (record, what)
    });
    let taken = |(record, what): (Vec<u8>, Protected), now| {
        read_protected(&record.into(), what, &engine(), Vec::new(), now)
    };
    assert!(matches!(taken(before, clock::boot_ms()), Incoming::Compound(..)));
    assert_eq!(answer(taken(late, u64::MAX)), [1, 1, 14], "after the end of the ticket");
    let Incoming::Destroyed(_, _, context) = taken(ending, clock::boot_ms()) else {
        panic!("the end of a context")
    };
    gss.destroy(&context);
    assert_eq!(answer(taken(behind, clock::boot_ms())), [1, 1, 14]);
}

#[test]
fn replies_differ_from_calls() {
    let mut w = Writer::new();
    Reply::accepted(9, Accepted::Success(&[])).encode(&mut w);
    let incoming =
        read(w.into_bytes().into(), &engine(), &mut LastCredential::default(), false, Vec::new());
    assert!(matches!(incoming, Incoming::CallbackReply(9, _)));
}

proptest::proptest! {
    #[test]
    fn garbage_never_panics(bytes: Vec<u8>) {
        let _ = read(bytes.clone().into(), &engine(), &mut LastCredential::default(), false, Vec::new());
        let _ = refuse(&bytes, Vec::new());
    }
}
