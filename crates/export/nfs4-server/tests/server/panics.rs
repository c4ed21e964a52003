use crate::prelude::*;

fn run(
    fixture: &Fixture,
    connection: &Arc<Connection>,
    principal: &Principal,
    body: Vec<u8>,
) -> (Option<Vec<u8>>, Vec<Effect>) {
    let mut call = fixture.begin(Flavour::Sys, connection, principal, body);
    let run = call.run_catching_panics(&fixture.server, Blocking::Allowed);
    let Progress::Done(reply) = run.progress else { panic!("with blocking nothing blocks") };
    (reply.map(|reply| reply.bytes[28..].to_vec()), run.effects)
}

fn panic_on(fixture: &Fixture, which: Call) {
    fixture
        .files
        .set_fault(move |call, _| if call == which { panic!("injected panic") } else { None });
}

// RFC 7530 §3.1.1.
#[test]
fn panicking_v40_call_and_retry_get_same_reply() {
    let fixture = Fixture::new();
    let (one, two, who, attrs) = (fixture.connect(), fixture.connect(), user(0), mode(0o755));
    let body = compound(0, &[Args::Putrootfh, lookup("export"), mkdir("d", &attrs)]);
    panic_on(&fixture, Call::Make);
    let (reply, _) = run(&fixture, &one, &who, body.clone());
    let reply = reply.expect("a reply");
    let (status, list) = results(reply.clone());
    assert_eq!((status, list.len()), (Status::SERVERFAULT, 3));
    assert!(
        matches!(&list[1..], [Results::Lookup(Ok(())), Results::Create(Err(Status::SERVERFAULT))]),
        "{list:?}"
    );
    fixture.files.clear_fault();
    drop(fixture.server.connection_closed(&one, fixture.now()));
    assert_eq!(run(&fixture, &two, &who, body).0, Some(reply));
    let errors = fixture.server.status(fixture.now()).recent_errors;
    assert!(errors[0].message.contains("panic") && errors[0].operation == "CREATE", "{errors:?}");
}

#[test]
fn panicking_call_frees_its_slot_and_caches_reply() {
    let (fixture, mut client) = Client::with_fixture();
    let attrs = mode(0o755);
    let ops = [client.next_sequence(false), Args::Putrootfh, lookup("export"), mkdir("d", &attrs)];
    let body = compound(2, &ops);
    panic_on(fixture, Call::Make);
    let (first, _) = run(fixture, &client.connection, &client.principal, body.clone());
    assert_eq!(results(first.clone().expect("a reply")).0, Status::SERVERFAULT);
    fixture.files.clear_fault();
    assert_eq!(run(fixture, &client.connection, &client.principal, body).0, first);
    assert_eq!(client.status(&["export"], &[mkdir("e", &attrs)]), Status::OK);
}

// RFC 7530 §9.1.7.
#[test]
fn panicking_call_releases_its_open_owner() {
    let fixture = Fixture::new();
    let (connection, who, attrs) = (fixture.connect(), user(0), mode(0o644));
    let call = |ops: &[Args<'_>]| {
        results(run(&fixture, &connection, &who, compound(0, ops)).0.expect("a reply"))
    };
    let (_, list) = call(&[setclientid("c")]);
    let [Results::Setclientid(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    let client = ok.client;
    assert_eq!(
        call(&[Args::SetclientidConfirm(op::SetclientidConfirmArgs {
            client,
            confirm: ok.confirm
        })])
        .0,
        Status::OK
    );
    let open = |seq, name: &'static str| {
        let how = op::OpenHow::Create(op::CreateHow::Unchecked(attrs.fattr()));
        open_as(
            client,
            b"o",
            seq,
            op::ShareAccess::BOTH,
            how,
            op::OpenClaim::Null(Name(name.as_bytes())),
        )
    };
    assert_eq!(call(&[Args::Putrootfh, lookup("export"), open(1, "f")]).0, Status::OK);
    panic_on(&fixture, Call::Create);
    assert_eq!(call(&[Args::Putrootfh, lookup("export"), open(2, "g")]).0, Status::SERVERFAULT);
    fixture.files.clear_fault();
    assert_eq!(call(&[Args::Putrootfh, lookup("export"), open(3, "g")]).0, Status::OK);
}
