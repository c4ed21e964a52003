//! The server executes a retransmitted call of a session once, and the cached reply carries the
//! second call's sequence number.

use std::io::Write as _;

use vouch_nfs4::Name;
use vouch_nfs4::op::{LookupArgs, RemoveArgs};
use vouch_nfs4_client::{CallBuilder, CallKind, Core, Handshake};

use crate::prelude::*;

pub(crate) fn remove_twice(address: SocketAddr, protection: Box<dyn Protection>, name: &str) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let identity = Identity::new(b"retries".to_vec(), Verifier([8; 8]));
    let mut core = introduce(&identity, protection, |record| exchange(&mut stream, record));
    let write =
        |call: CallBuilder, core: &mut Core, w: &mut Writer| write_remove(call, core, w, name);
    let (mut first, mut second) = (Writer::new(), Writer::new());
    let call = core
        .begin(9, CallKind::Session { cache: true }, &mut first)
        .expect("a context")
        .expect("a slot");
    write(call, &mut core, &mut first);
    let answer = exchange(&mut stream, first.as_bytes());
    let call = core.begin_again(9, &mut second).expect("a context").expect("the call is in flight");
    write(call, &mut core, &mut second);
    assert_ne!(first.as_bytes(), second.as_bytes());
    let answer_again = exchange(&mut stream, second.as_bytes());
    assert_ne!(answer, answer_again);
    // The first reply does not match the second call.
    assert!(!matches!(core.reply(&answer, &mut Vec::new()), Ok(Some(_))));
    let mut scratch = Vec::new();
    let completion = core
        .reply(&answer_again, &mut scratch)
        .expect("the reply verifies")
        .expect("a reply to the call");
    // A second execution would give NFS4ERR_NOENT.
    assert_eq!(completion.outcome.expect("the server accepts the call").status, Status::OK);
}

pub(crate) fn introduce(
    identity: &Identity,
    protection: Box<dyn Protection>,
    mut send: impl FnMut(&[u8]) -> Vec<u8>,
) -> Core {
    let (mut core, mut handshake) = (Core::new(1, protection, 5), Handshake::new(1));
    while let Some((kind, args)) = handshake.request(identity) {
        let mut w = Writer::new();
        let mut call = core.begin(0, kind, &mut w).expect("a context").expect("a slot");
        call.op(&mut w, &args);
        core.end(call, &mut w).expect("the record fits");
        let reply = send(w.as_bytes());
        let mut scratch = Vec::new();
        let completion =
            core.reply(&reply, &mut scratch).expect("a reply").expect("a reply to the call");
        handshake
            .accept(identity, completion.outcome.expect("the server accepts the call"), &mut core)
            .expect("the client is introduced");
    }
    core
}

pub(crate) fn write_remove(mut call: CallBuilder, core: &mut Core, w: &mut Writer, name: &str) {
    call.op(w, &Args::Putrootfh);
    call.op(w, &Args::Lookup(LookupArgs { name: Name(b"export") }));
    call.op(w, &Args::Remove(RemoveArgs { name: Name(name.as_bytes()) }));
    core.end(call, w).expect("the record fits");
}

fn exchange(stream: &mut TcpStream, record: &[u8]) -> Vec<u8> {
    stream.write_all(record).expect("the record is sent");
    read_record(stream).expect("an answer")
}
