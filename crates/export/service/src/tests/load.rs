use std::sync::atomic::AtomicU64;
use std::time::Instant;

use vouch_nfs4::op::{
    Args, CreateHow, LookupArgs, OpenArgs, OpenClaim, OpenHow, PutfhArgs, ReadArgs, Results,
    ShareAccess, ShareDeny, StableHow, WriteArgs,
};
use vouch_nfs4::{
    Attributes, Bitmap, Bytes, ClientId, Fattr, Filehandle, Name, OwnerSeq, StateOwner, Stateid,
    Verifier, Wire as _,
};
use vouch_nfs4_client::{CallBuilder, Error, Identity, Pipeline, Plain, ReplyBody};
use vouch_oncrpc::AuthSys;
use vouch_vfs::memory::Call as MemoryCall;
use vouch_xdr::Reader;

use super::*;

const DEPTH: u64 = 8;

fn client(server: &Running) -> Pipeline {
    client_from(server, [127, 0, 0, 1])
}

fn client_from(server: &Running, source: [u8; 4]) -> Pipeline {
    let identity = Identity {
        slots: 16,
        source: Some(source.into()),
        ..Identity::new(source.to_vec(), Verifier([3; 8]))
    };
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

#[test]
fn long_writes_beside_another_client_are_cut_and_complete() {
    const COUNT: u64 = 24;
    let files = MemoryFs::new();
    let parts = Arc::new(AtomicU64::new(0));
    let counter = parts.clone();
    files.set_fault(move |call, _| {
        counter.fetch_add(u64::from(call == MemoryCall::Write), Ordering::Relaxed);
        None
    });
    let server = Running::start_with(|_| (), files);
    let mut pipeline = client(&server);
    let file = make(&mut pipeline, 1)[0];
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 5) as u8).collect();
    let is_over = AtomicBool::new(false);
    // One of them has the worker of the client that writes.
    let others = [2, 3].map(|last| client_from(&server, [127, 0, 0, last]));
    let calls = thread::scope(|scope| {
        let others = others.map(|mut pipeline| {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut calls = 0;
                while !is_over.load(Ordering::Relaxed) {
                    load(&mut pipeline, 1, |_, call, w| walk(&["data"], call, w), |_, _| Ok(()));
                    calls += 1;
                }
                calls
            })
        });
        let write = |number: u64, call: &mut CallBuilder, w: &mut Writer| {
            call.op(w, &Args::Putfh(PutfhArgs { handle: file }));
            let offset = number * data.len() as u64 + 3;
            let (stateid, stable) = (Stateid::ANONYMOUS, StableHow::Unstable);
            call.op(w, &Args::Write(WriteArgs { stateid, offset, stable, data: Bytes(&data) }));
        };
        load(&mut pipeline, COUNT, write, |_, mut body| {
            body.next_ok()?;
            let Results::Write(Ok(ok)) = body.next_ok()? else { panic!("not WRITE's result") };
            assert_eq!(ok.count as usize, data.len());
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        others.map(|other| other.join().unwrap())
    });
    assert!(!calls.contains(&0) && parts.load(Ordering::Relaxed) > COUNT, "{calls:?}, {parts:?}");
    let read = |number: u64, call: &mut CallBuilder, w: &mut Writer| {
        call.op(w, &Args::Putfh(PutfhArgs { handle: file }));
        let offset = number * data.len() as u64 + 3;
        let count = data.len() as u32;
        call.op(w, &Args::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset, count }));
    };
    load(&mut pipeline, COUNT, read, |_, mut body| {
        body.next_ok()?;
        let Results::Read(Ok(ok)) = body.next_ok()? else { panic!("not READ's result") };
        assert!(ok.data.0 == data);
        Ok(())
    });
}
