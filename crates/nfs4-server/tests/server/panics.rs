//! A file system that panics: the call is answered, and nothing waits for its end.

use std::sync::Arc;

use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{self, Args, Results};
use vouch_nfs4::{Bytes, ClientOwner, Name, NetAddr, OwnerSeq, StateOwner, Status, Verifier};
use vouch_nfs4_server::{Connection, Effect, Flavour, Principal, Progress};
use vouch_vfs::Patience;
use vouch_vfs::memory::Call;

use crate::world::{Client, World, compound, lookup, mode, results, user};

/// Runs a call as a thread does that outlives panics; its reply, or none, and what is to be done.
fn run(world: &World, connection: &Arc<Connection>, principal: &Principal, body: Vec<u8>) -> (Option<Vec<u8>>, Vec<Effect>) {
    let mut call = world.begin(Flavour::Sys, connection, principal, body);
    let Progress::Done(reply) = call.run_catching_panics(&world.server, Patience::Any, Patience::Any) else {
        panic!("with patience nothing blocks")
    };
    (reply.map(|reply| reply.bytes[28..].to_vec()), call.take_effects())
}

/// Every such call panics.
fn panicking(world: &World, which: Call) {
    world.files.set_fault(move |call, _| if call == which { panic!("as the test wants it") } else { None });
}

fn mkdir<'a>(name: &'a str, attrs: &'a crate::world::Packed) -> Args<'a> {
    Args::Create(op::CreateArgs { kind: op::CreateType::Plain(FileType::Directory), name: Name(name.as_bytes()), attrs: attrs.fattr() })
}

// RFC 7530, section 3.1.1.
#[test]
fn a_call_of_4_0_that_panics_is_answered_and_so_is_its_retry() {
    let world = World::new();
    let (one, two, who, attrs) = (world.connect(), world.connect(), user(0), mode(0o755));
    let body = compound(0, &[Args::Putrootfh, lookup("export"), mkdir("d", &attrs)]);
    panicking(&world, Call::Make);
    let (reply, _) = run(&world, &one, &who, body.clone());
    let reply = reply.expect("it is answered");
    let (status, list) = results(reply.clone());
    assert_eq!((status, list.len()), (Status::SERVERFAULT, 3));
    assert!(matches!(&list[1..], [Results::Lookup(Ok(())), Results::Create(Err(Status::SERVERFAULT))]), "{list:?}");
    world.files.clear_fault();
    drop(world.server.connection_closed(&one, world.now()));
    assert_eq!(run(&world, &two, &who, body).0, Some(reply));
    let errors = world.server.status(world.now()).recent_errors;
    assert!(errors[0].message.contains("panic") && errors[0].operation == "CREATE", "{errors:?}");
}

#[test]
fn a_slot_whose_call_panics_is_free_again_and_its_retry_is_told_the_same() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let attrs = mode(0o755);
    let ops = [client.sequence(false), Args::Putrootfh, lookup("export"), mkdir("d", &attrs)];
    let body = compound(2, &ops);
    panicking(&world, Call::Make);
    let (first, _) = run(&world, &client.connection, &client.principal, body.clone());
    assert_eq!(results(first.clone().expect("it is answered")).0, Status::SERVERFAULT);
    world.files.clear_fault();
    assert_eq!(run(&world, &client.connection, &client.principal, body).0, first);
    assert_eq!(client.status(&["export"], &[mkdir("e", &attrs)]), Status::OK);
}

// RFC 7530, section 9.1.7.
#[test]
fn an_owner_whose_call_panics_goes_on() {
    let world = World::new();
    let (connection, who, attrs) = (world.connect(), user(0), mode(0o644));
    let call = |ops: &[Args<'_>]| results(run(&world, &connection, &who, compound(0, ops)).0.expect("it is answered"));
    let location = NetAddr { netid: Bytes(b"tcp"), address: Bytes(b"0.0.0.0.0.0") };
    let args = op::SetclientidArgs {
        client: ClientOwner { verifier: Verifier([1; 8]), id: Bytes(b"c") },
        callback: op::CallbackClient { program: 0, location },
        callback_ident: 0,
    };
    let (_, list) = call(&[Args::Setclientid(args)]);
    let [Results::Setclientid(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    let client = ok.client;
    assert_eq!(call(&[Args::SetclientidConfirm(op::SetclientidConfirmArgs { client, confirm: ok.confirm })]).0, Status::OK);
    let open = |seq, name: &'static str| {
        Args::Open(op::OpenArgs {
            seq: OwnerSeq(seq),
            access: op::ShareAccess::BOTH,
            deny: op::ShareDeny(0),
            owner: StateOwner { client, owner: Bytes(b"o") },
            how: op::OpenHow::Create(op::CreateHow::Unchecked(attrs.fattr())),
            claim: op::OpenClaim::Null(Name(name.as_bytes())),
        })
    };
    assert_eq!(call(&[Args::Putrootfh, lookup("export"), open(1, "f")]).0, Status::OK);
    panicking(&world, Call::Create);
    assert_eq!(call(&[Args::Putrootfh, lookup("export"), open(2, "g")]).0, Status::SERVERFAULT);
    world.files.clear_fault();
    assert_eq!(call(&[Args::Putrootfh, lookup("export"), open(3, "g")]).0, Status::OK);
}
