//! The client against a small scripted server.

mod callback_security;
mod context_end;
mod context_exhaustion;
mod parallel_decryption;
mod server;

use server::ProtectionReply;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use vouch_nfs4::op::{Args, GetattrArgs, Op, PutfhArgs, Results, ShareAccess, StableHow};
use vouch_nfs4::{Attributes, Bitmap, Filehandle, Stateid, Status, Verifier, cb};
use vouch_nfs4_client::{
    CallTag, Client, Config, Error, Identity, Pipeline, Plain, Protection, ProtectionError,
};
use vouch_oncrpc::{AuthSys, OpaqueAuth};
use vouch_xdr::Writer;

fn identity() -> Identity {
    Identity::new(&b"test"[..], Verifier([7; 8]))
}

fn config(address: std::net::SocketAddr, minor: u32) -> Config {
    Config::new(
        address,
        minor,
        identity(),
        Plain::sys(&AuthSys { uid: 1000, gid: 100, ..AuthSys::default() }),
    )
}

async fn root(client: &Client) -> Filehandle {
    client.walk(b"/").await.unwrap().handle
}

async fn files_are_written_and_read(minor: u32, connections: usize) {
    let (address, server_state) = server::start().await;
    let client = Client::connect(Config { connections, ..config(address, minor) }).await.unwrap();
    let root = root(&client).await;
    let mode = Attributes { mode: Some(0o600), ..Attributes::default() };
    let file = client.open(&root, b"f", ShareAccess::BOTH, Some(&mode)).await.unwrap();
    let data: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
    assert_eq!(client.write(&file, 0, &data, StableHow::Unstable).await.unwrap().0, 100_000);
    client.commit(&file).await.unwrap();
    assert_eq!(client.read(&file, 50_000, 200_000).await.unwrap(), (data[50_000..].to_vec(), true));
    client.close_file(file).await.unwrap();
    assert_eq!(client.walk(b"/f").await.unwrap().size, 100_000);
    assert!(matches!(
        client.walk(b"/g").await,
        Err(Error::Refused { op: Op::LOOKUP, status: Status::NOENT })
    ));
    (0..50).for_each(|at| {
        drop(
            server_state.lock().unwrap().files.insert(format!("n{at:03}").into_bytes(), Vec::new()),
        )
    });
    assert_eq!(client.list(&root, 1000).await.unwrap().len(), 51);
    client.remove(&root, b"f").await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn reads_and_writes_files_with_4_0() {
    files_are_written_and_read(0, 1).await;
}

#[tokio::test]
async fn reads_and_writes_files_with_4_1_and_4_2() {
    files_are_written_and_read(1, 1).await;
    files_are_written_and_read(2, 3).await;
}

#[tokio::test]
async fn many_tasks_share_slots() {
    let (address, _world) = server::start().await;
    let identity = Identity { slots: 4, ..identity() };
    let client =
        Client::connect(Config { connections: 2, identity, ..config(address, 1) }).await.unwrap();
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                client
                    .compound()
                    .putrootfh()
                    .getattr(Bitmap::of(&[1]))
                    .send()
                    .await
                    .unwrap()
                    .status()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Status::OK);
    }
}

// RFC 8881, section 2.10.5.
#[tokio::test]
async fn connections_of_a_session_use_all_addresses_that_answer() {
    let (first, server_state) = server::start().await;
    let second = server::listen(&server_state).await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client =
        Client::connect(Config { connections: 6, trunk: vec![second, silent], ..config(first, 1) })
            .await
            .unwrap();
    for _ in 0..12 {
        root(&client).await;
    }
    // The connections that prefer the silent address use the first one.
    assert_eq!(server_state.lock().unwrap().connections, [(first, 4), (second, 2)].into());
}

/// RFC 8881, section 15.1.1.3: the retry has the same slot and sequence number, and no other call
/// may have them meanwhile.
#[tokio::test]
async fn call_whose_copy_is_executing_keeps_its_slot() {
    for (minor, connections) in [(1, 1), (2, 3)] {
        let (address, server_state) = server::start().await;
        let client =
            Client::connect(Config { connections, ..config(address, minor) }).await.unwrap();
        let root = root(&client).await;
        server_state.lock().unwrap().files.insert(b"f".to_vec(), Vec::new());
        server_state.lock().unwrap().delayed_replies = 1;
        let (removed, listed) = tokio::join!(client.remove(&root, b"f"), async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            client.list(&root, 1000).await
        });
        removed.unwrap();
        assert_eq!(listed.unwrap().len(), 0, "the file was removed before");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn repeats_call_after_lost_reply_without_second_execution() {
    let (address, server_state) = server::start().await;
    let client = Client::connect(config(address, 1)).await.unwrap();
    let root = root(&client).await;
    let file =
        client.open(&root, b"f", ShareAccess::BOTH, Some(&Attributes::default())).await.unwrap();
    server_state.lock().unwrap().dropped_replies = 1;
    assert_eq!(client.write(&file, 0, b"once", StableHow::FileSync).await.unwrap().0, 4);
    assert_eq!(server_state.lock().unwrap().writes, 1);
    assert_eq!(client.read(&file, 0, 10).await.unwrap(), (b"once".to_vec(), true));
}

/// RFC 8881 §2.10.6.1.3: NFS4ERR_RETRY_UNCACHED_REP.
#[tokio::test]
async fn repeats_read_whose_reply_was_lost_and_not_cached() {
    let (address, server_state) = server::start().await;
    server_state.lock().unwrap().caches_only_on_request = true;
    let client = Client::connect(config(address, 1)).await.unwrap();
    let root = root(&client).await;
    let file =
        client.open(&root, b"f", ShareAccess::BOTH, Some(&Attributes::default())).await.unwrap();
    client.write(&file, 0, b"data", StableHow::FileSync).await.unwrap();
    for _ in 0..2 {
        server_state.lock().unwrap().dropped_replies = 1;
        assert_eq!(client.read(&file, 0, 10).await.unwrap(), (b"data".to_vec(), true));
    }
    server_state.lock().unwrap().dropped_replies = 1;
    client.remove(&root, b"f").await.unwrap();
}

#[tokio::test]
async fn refuses_sequence_reply_for_another_slot() {
    let (address, server_state) = server::start().await;
    let client = Client::connect(config(address, 1)).await.unwrap();
    server_state.lock().unwrap().answers_wrong_slot = true;
    assert!(matches!(client.walk(b"/").await, Err(Error::Mismatch(_))));
}

#[tokio::test]
async fn recall_reaches_handler_and_is_answered() {
    let (address, server_state) = server::start().await;
    let seen = Arc::new(Mutex::new(None));
    let recorded = seen.clone();
    let callbacks = Box::new(move |args: &cb::Args<'_>| match args {
        cb::Args::Recall(args) => {
            *recorded.lock().unwrap() = Some(*args);
            cb::Results::Recall(Ok(()))
        }
        other => cb::Results::failure(other.op(), Status::NOTSUPP),
    });
    let client = Client::connect(Config { callbacks, ..config(address, 1) }).await.unwrap();
    let args = cb::CbRecallArgs {
        stateid: Stateid::default(),
        truncate: false,
        handle: Filehandle::new(b"f").unwrap(),
    };
    server_state.lock().unwrap().recall = Some(args);
    root(&client).await;
    assert_eq!(*seen.lock().unwrap(), Some(args));
    for _ in 0..100 {
        if let Some(answer) = server_state.lock().unwrap().recall_answer.take() {
            assert_eq!(answer[24..36], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the client did not answer the callback");
}

#[tokio::test]
async fn client_renews_session_and_reclaims_open() {
    let (address, server_state) = server::start().await;
    let client = Client::connect(config(address, 1)).await.unwrap();
    let root_handle = root(&client).await;
    let mut file = client
        .open(&root_handle, b"f", ShareAccess::BOTH, Some(&Attributes::default()))
        .await
        .unwrap();
    let before = client.id();
    server_state.lock().unwrap().refuses_sessions = true;
    let error = client.walk(b"/").await.unwrap_err();
    assert_eq!(error.status(), Some(Status::BADSESSION));
    client.renew().await.unwrap();
    assert_ne!(client.id(), before);
    client.reclaim_open(&mut file).await.unwrap();
    client.reclaim_complete().await.unwrap();
    client.write(&file, 0, b"again", StableHow::FileSync).await.unwrap();
}

#[test]
fn pipeline_keeps_many_calls_in_flight() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (address, _world) = runtime.block_on(server::start());
    for (minor, connections) in [(0, 1), (1, 2)] {
        let mut pipeline =
            Pipeline::connect(address, minor, connections, &identity(), Box::new(Plain::none()))
                .unwrap();
        let operations = |call: &mut vouch_nfs4_client::CallBuilder, w: &mut vouch_xdr::Writer| {
            call.op(w, &Args::Putfh(PutfhArgs { handle: Filehandle::new(b"").unwrap() }));
            call.op(w, &Args::Getattr(GetattrArgs { wanted: Bitmap::of(&[1, 4]) }));
        };
        let (mut sent, mut done) = (0, 0);
        while sent < 32 && pipeline.submitter().submit(sent, operations).unwrap() {
            sent += 1;
        }
        assert_eq!(sent, 32);
        while done < 2000 {
            let mut replies = 0;
            pipeline
                .poll(Some(Duration::from_secs(5)), |submitter, _token, outcome| {
                    let mut body = outcome.unwrap();
                    body.skip(&[Op::PUTFH]).unwrap();
                    assert!(matches!(body.next_ok(), Ok(Results::Getattr(Ok(_)))));
                    replies += 1;
                    assert!(submitter.submit(0, operations).unwrap());
                })
                .unwrap();
            done += replies;
        }
        assert_eq!(pipeline.submitter().in_flight(), 32);
    }
}

fn recalled() -> cb::CbRecallArgs {
    cb::CbRecallArgs {
        stateid: Stateid::default(),
        truncate: false,
        handle: Filehandle::new(b"f").unwrap(),
    }
}

// RFC 8881 §2.10.3: a connection of a session may carry calls in both directions.
#[test]
fn answers_calls_of_server_during_handshake() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (address, server_state) = runtime.block_on(server::start());
    (server_state.lock().unwrap().recall, server_state.lock().unwrap().recalls_always) =
        (Some(recalled()), true);
    let mut pipeline =
        Pipeline::connect(address, 1, 3, &identity(), Box::new(Plain::none())).unwrap();
    assert!(pipeline.submitter().submit(0, |_, _| {}).unwrap());
    while pipeline.poll(None, |_, _, outcome| _ = outcome.unwrap()).unwrap() == 0 {}
    runtime.block_on(async {
        let client =
            Client::connect(Config { connections: 3, ..config(address, 1) }).await.unwrap();
        root(&client).await;
    });
    assert!(server_state.lock().unwrap().recall_answer.is_some());
}

#[test]
fn unreadable_reply_costs_pipeline_one_call() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (address, server_state) = runtime.block_on(server::start());
    let mut pipeline =
        Pipeline::connect(address, 1, 1, &identity(), Box::new(Plain::none())).unwrap();
    server_state.lock().unwrap().garbled_replies = 1;
    let (mut lost, mut done) = (0, 0);
    for token in 0..8 {
        assert!(pipeline.submitter().submit(token, |_, _| {}).unwrap());
    }
    while pipeline.submitter().in_flight() > 0 {
        pipeline
            .poll(None, |submitter, _, outcome| match outcome {
                Ok(_) => done += 1,
                Err(Error::Unreadable(_)) => {
                    lost += 1;
                    assert!(submitter.submit(9, |_, _| {}).unwrap(), "the slot is free again");
                }
                Err(error) => panic!("{error}"),
            })
            .unwrap();
    }
    assert_eq!((lost, done), (1, 8));
}

struct ClaimedIntegrity(Plain);

impl Protection for ClaimedIntegrity {
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError> {
        self.0.begin(w, header_start)
    }

    fn has_integrity(&self) -> bool {
        true
    }

    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        self.0.verify(tag, verifier)
    }

    fn open<'a>(
        &mut self,
        tag: CallTag,
        verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        self.0.open(tag, verifier, body, scratch)
    }
}

// RFC 8881 §2.10.8.3.
#[tokio::test]
async fn requests_state_protection_only_with_integrity() {
    let refused =
        [Status::ENCR_ALG_UNSUPP, Status::NOTSUPP, Status::INVAL].map(ProtectionReply::Refused);
    for answer in [ProtectionReply::Granted, ProtectionReply::Ignored].into_iter().chain(refused) {
        let (address, server_state) = server::start().await;
        server_state.lock().unwrap().protection = answer;
        let protected = Config::new(address, 1, identity(), ClaimedIntegrity(Plain::none()));
        let client = Client::connect(protected).await.unwrap();
        assert_eq!(client.is_protected(), answer == ProtectionReply::Granted);
        root(&client).await;
        let expected: &[bool] =
            if matches!(answer, ProtectionReply::Refused(_)) { &[true, false] } else { &[true] };
        assert_eq!(
            std::mem::take(&mut server_state.lock().unwrap().protection_requests),
            expected,
            "{answer:?}"
        );
        client.renew().await.unwrap();
        assert_eq!(
            std::mem::take(&mut server_state.lock().unwrap().protection_requests),
            expected,
            "{answer:?}"
        );
        let plain = Client::connect(config(address, 1)).await.unwrap();
        assert!(!plain.is_protected());
        let pipeline = tokio::task::spawn_blocking(move || {
            Pipeline::connect(address, 1, 2, &identity(), Box::new(ClaimedIntegrity(Plain::none())))
                .map(drop)
        });
        pipeline.await.unwrap().unwrap();
        assert_eq!(
            server_state.lock().unwrap().protection_requests,
            [&[false], expected].concat(),
            "{answer:?}"
        );
    }
}
