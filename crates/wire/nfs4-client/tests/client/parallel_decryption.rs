use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use vouch_nfs4::op::Args;
use vouch_nfs4::{Filehandle, Stateid, cb};
use vouch_nfs4_client::{
    CallTag, Client, Config, IncomingReply, Opener, Plain, Protection, ProtectionError,
};
use vouch_oncrpc::OpaqueAuth;
use vouch_xdr::Writer;

use crate::{identity, server};

struct Gate {
    blocks_next_batch: AtomicBool,
    entered_sender: mpsc::Sender<()>,
    release_receiver: Mutex<mpsc::Receiver<()>>,
    counts: Mutex<Vec<usize>>,
}

impl Opener for Gate {
    fn open_many(&self, replies: &mut [IncomingReply<'_>]) {
        self.counts.lock().unwrap().push(replies.len());
        if self.blocks_next_batch.swap(false, Ordering::SeqCst) {
            self.entered_sender.send(()).unwrap();
            self.release_receiver.lock().unwrap().recv_timeout(STEP_TIMEOUT).unwrap();
        }
    }
}

struct GatedProtection(Plain, Arc<Gate>);

impl Protection for GatedProtection {
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError> {
        self.0.begin(w, header_start)
    }

    fn opener(&self) -> Option<Arc<dyn Opener>> {
        Some(self.1.clone())
    }

    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        self.0.verify(tag, verifier)
    }

    fn open<'a>(
        &mut self,
        tag: CallTag,
        v: OpaqueAuth<'_>,
        body: &'a [u8],
        s: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        self.0.open(tag, v, body, s)
    }
}

async fn call_putrootfh(client: Client) {
    client.compound().op(&Args::Putrootfh).send().await.unwrap().results().next_ok().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opens_replies_in_batches_without_blocking_other_connections() {
    let (address, server_state) = server::start().await;
    let ((entered_sender, entered), (release, release_receiver)) =
        (mpsc::channel(), mpsc::channel());
    let gate = Arc::new(Gate {
        blocks_next_batch: AtomicBool::new(false),
        entered_sender,
        release_receiver: Mutex::new(release_receiver),
        counts: Mutex::default(),
    });
    let mut config =
        Config::new(address, 1, identity(), GatedProtection(Plain::none(), gate.clone()));
    config.connections = 2;
    let client = Client::connect(config).await.unwrap();
    gate.blocks_next_batch.store(true, Ordering::SeqCst);
    let first = tokio::spawn(call_putrootfh(client.clone()));
    tokio::task::spawn_blocking(move || entered.recv_timeout(STEP_TIMEOUT).unwrap()).await.unwrap();
    server_state.lock().unwrap().replies_per_write = 4;
    let mut done = tokio::task::JoinSet::new();
    (0..8).for_each(|_| drop(done.spawn(call_putrootfh(client.clone()))));
    for _ in 0..4 {
        tokio::time::timeout(STEP_TIMEOUT, done.join_next())
            .await
            .expect("other connections continue")
            .unwrap()
            .unwrap();
    }
    assert!(!first.is_finished());
    release.send(()).unwrap();
    first.await.unwrap();
    while let Some(answered) = done.join_next().await {
        answered.unwrap();
    }
    let counts = gate.counts.lock().unwrap();
    assert!(
        counts.iter().any(|&count| count > 1) && counts.iter().sum::<usize>() == 9,
        "{counts:?}"
    );
}

type CallFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

#[tokio::test]
async fn callback_is_answered_in_order_with_replies() {
    for (opened, after) in [(false, false), (false, true), (true, false), (true, true)] {
        let (address, server_state) = server::start().await;
        let call_in_flight: Arc<Mutex<Option<CallFuture>>> = Arc::default();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let shared_call = call_in_flight.clone();
        let callbacks = Box::new(move |_: &cb::Args<'_>| {
            let mut shared_call = shared_call.lock().unwrap();
            let answered = shared_call
                .as_mut()
                .unwrap()
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready();
            sender.send(answered).unwrap();
            cb::Results::Recall(Ok(()))
        });
        let mut config = Config { callbacks, ..Config::new(address, 1, identity(), Plain::none()) };
        if opened {
            let ((entered_sender, _), (_, release_receiver)) = (mpsc::channel(), mpsc::channel());
            let gate = Gate {
                blocks_next_batch: AtomicBool::new(false),
                entered_sender,
                release_receiver: Mutex::new(release_receiver),
                counts: Mutex::default(),
            };
            config.protection = Box::new(GatedProtection(Plain::none(), Arc::new(gate)));
        }
        let client = Client::connect(config).await.unwrap();
        let args = cb::CbRecallArgs {
            stateid: Stateid::default(),
            truncate: false,
            handle: Filehandle::new(b"f").unwrap(),
        };
        {
            let mut server_state = server_state.lock().unwrap();
            (server_state.recall, server_state.recall_follows_reply) = (Some(args), after);
        }
        let mut call = Box::pin(call_putrootfh(client.clone()));
        assert!(
            call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
            "the call is sent and waits"
        );
        *call_in_flight.lock().unwrap() = Some(call);
        let answered = tokio::time::timeout(STEP_TIMEOUT, receiver.recv())
            .await
            .expect("a callback arrives")
            .unwrap();
        assert_eq!(answered, after, "with an opener: {opened}");
        let call = call_in_flight.lock().unwrap().take().unwrap();
        if !answered {
            call.await;
        }
    }
}

const STEP_TIMEOUT: Duration = Duration::from_secs(20);
