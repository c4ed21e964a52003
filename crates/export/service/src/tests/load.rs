use std::time::Instant;

use vouch_nfs4::op::{
    Args, CreateHow, LookupArgs, OpenArgs, OpenClaim, OpenHow, Results, ShareAccess, ShareDeny,
};
use vouch_nfs4::{
    Attributes, Bitmap, Bytes, ClientId, Fattr, Filehandle, Name, OwnerSeq, StateOwner, Verifier,
    Wire as _,
};
use vouch_nfs4_client::{CallBuilder, Error, Identity, Pipeline, Plain, ReplyBody};
use vouch_oncrpc::AuthSys;
use vouch_xdr::Reader;

use super::*;

const DEPTH: u64 = 8;

fn client(server: &Running) -> Pipeline {
    let identity = Identity { slots: 16, ..Identity::new(b"load", Verifier([3; 8])) };
    let root =
        AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid: 0, gid: 0, gids: Vec::new() };
    Pipeline::connect(server.address, 1, 1, &identity, Box::new(Plain::sys(&root))).unwrap()
}

pub(super) fn load(
    pipeline: &mut Pipeline,
    count: u64,
    mut write: impl FnMut(u64, &mut CallBuilder, &mut Writer),
    mut reply: impl FnMut(u64, ReplyBody<'_>) -> Result<(), Error>,
) {
    let (mut next, start) = (0, Instant::now());
    while next < count.min(DEPTH) {
        assert!(pipeline.submitter().submit(next, |call, w| write(next, call, w)).unwrap());
        next += 1;
    }
    while pipeline.submitter().in_flight() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "all calls are answered");
        let turn = pipeline.poll(Some(Duration::from_secs(20)), |submitter, token, body| {
            reply(token, body.unwrap()).unwrap();
            if next < count {
                assert!(submitter.submit(next, |call, w| write(next, call, w)).unwrap());
                next += 1;
            }
        });
        turn.unwrap();
    }
}

pub(super) fn walk(path: &[&str], call: &mut CallBuilder, w: &mut Writer) {
    call.op(w, &Args::Putrootfh);
    path.iter()
        .for_each(|name| call.op(w, &Args::Lookup(LookupArgs { name: Name(name.as_bytes()) })));
}

fn make(pipeline: &mut Pipeline, count: u64) -> Vec<Filehandle> {
    let mut packed = Writer::new();
    Attributes { mode: Some(0o644), ..Attributes::default() }
        .encode(Bitmap::of(&[33]), &mut packed);
    let packed = packed.into_bytes();
    let mut handles = vec![None; count as usize];
    let write = |number: u64, call: &mut CallBuilder, w: &mut Writer| {
        let attributes = Fattr::decode(&mut Reader::new(&packed)).unwrap();
        walk(&["data"], call, w);
        let name = format!("file{number}");
        call.op(
            w,
            &Args::Open(OpenArgs {
                seq: OwnerSeq(0),
                access: ShareAccess(ShareAccess::BOTH.0 | ShareAccess::WANT_NO_DELEG.0),
                deny: ShareDeny(0),
                owner: StateOwner { client: ClientId(0), owner: Bytes(b"owner") },
                how: OpenHow::Create(CreateHow::Unchecked(attributes)),
                claim: OpenClaim::Null(Name(name.as_bytes())),
            }),
        );
        call.op(w, &Args::Getfh);
    };
    load(pipeline, count, write, |number, mut body| {
        (0..3).try_for_each(|_| body.next_ok().map(drop))?;
        let Results::Getfh(Ok(got)) = body.next_ok()? else { panic!("not GETFH's result") };
        handles[number as usize] = Some(got.handle);
        Ok(())
    });
    handles.into_iter().map(|handle| handle.expect("each was answered")).collect()
}

#[test]
fn concurrent_creations_share_a_sync_and_are_answered() {
    let files = MemoryFs::new();
    files.set_slow_sync(true);
    let server = Running::start_with(|_| (), files);
    let mut pipeline = client(&server);
    let handles = make(&mut pipeline, 100);
    let mut seen = std::collections::HashSet::new();
    assert!(
        handles.iter().all(|handle| seen.insert(handle.as_bytes().to_vec())),
        "each file has a handle of its own"
    );
}
