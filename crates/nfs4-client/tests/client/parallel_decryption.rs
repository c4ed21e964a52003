//! Replies are opened while others go on, and side by side.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use vouch_nfs4::op::Args;
use vouch_nfs4::{Filehandle, Stateid, cb};
use vouch_nfs4_client::{CallTag, Client, Config, IncomingReply, Opener, Plain, Protection, ProtectionError};
use vouch_oncrpc::OpaqueAuth;
use vouch_xdr::Writer;

use crate::{identity, server};

/// Opens nothing, and takes its time where it is told so.
struct Gate {
    shut: AtomicBool,
    come: mpsc::Sender<()>,
    go: Mutex<mpsc::Receiver<()>>,
    /// How many replies were opened together.
    counts: Mutex<Vec<usize>>,
}

impl Opener for Gate {
    fn open_many(&self, replies: &mut [IncomingReply<'_>]) {
        self.counts.lock().unwrap().push(replies.len());
        if self.shut.swap(false, Ordering::SeqCst) {
            self.come.send(()).unwrap();
            self.go.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
    }
}

struct Gated(Plain, Arc<Gate>);

impl Protection for Gated {
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError> {
        self.0.begin(w, header_start)
    }

    fn opener(&self) -> Option<Arc<dyn Opener>> {
        Some(self.1.clone())
    }

    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        self.0.verify(tag, verifier)
    }

    fn open<'a>(&mut self, tag: CallTag, v: OpaqueAuth<'_>, body: &'a [u8], s: &'a mut Vec<u8>) -> Result<&'a [u8], ProtectionError> {
        self.0.open(tag, v, body, s)
    }
}

async fn ask(client: Client) {
    client.compound().op(&Args::Putrootfh).send().await.unwrap().results().next_ok().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn while_a_reply_is_opened_other_connections_go_on_and_those_that_come_together_are_opened_together() {
    let (address, world) = server::start().await;
    let ((come, entered), (release, go)) = (mpsc::channel(), mpsc::channel());
    let gate = Arc::new(Gate { shut: AtomicBool::new(false), come, go: Mutex::new(go), counts: Mutex::default() });
    let mut config = Config::new(address, 1, identity(), Gated(Plain::none(), gate.clone()));
    config.connections = 2;
    let client = Client::connect(config).await.unwrap();
    gate.shut.store(true, Ordering::SeqCst);
    let first = tokio::spawn(ask(client.clone()));
    tokio::task::spawn_blocking(move || entered.recv_timeout(PATIENCE).unwrap()).await.unwrap();
    // They take the connections in turns: every other one is answered. The four of each come together.
    world.lock().unwrap().gather = 4;
    let mut done = tokio::task::JoinSet::new();
    (0..8).for_each(|_| drop(done.spawn(ask(client.clone()))));
    for _ in 0..4 {
        tokio::time::timeout(PATIENCE, done.join_next()).await.expect("others go on").unwrap().unwrap();
    }
    assert!(!first.is_finished());
    release.send(()).unwrap();
    first.await.unwrap();
    while let Some(answered) = done.join_next().await {
        answered.unwrap();
    }
    // The others were answered at once.
    let counts = gate.counts.lock().unwrap();
    assert!(counts.iter().any(|&count| count > 1) && counts.iter().sum::<usize>() == 9, "{counts:?}");
}

/// A call on its way.
type Asking = Pin<Box<dyn Future<Output = ()> + Send>>;

// A reply may give what a callback takes back.
#[tokio::test]
async fn a_callback_is_answered_after_the_replies_that_came_before_it_and_before_those_after() {
    for (opened, after) in [(false, false), (false, true), (true, false), (true, true)] {
        let (address, world) = server::start().await;
        let asking: Arc<Mutex<Option<Asking>>> = Arc::default();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let held = asking.clone();
        let callbacks = Box::new(move |_: &cb::Args<'_>| {
            let mut held = held.lock().unwrap();
            let answered = held.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            tell.send(answered).unwrap();
            cb::Results::Recall(Ok(()))
        });
        let mut config = Config { callbacks, ..Config::new(address, 1, identity(), Plain::none()) };
        if opened {
            let ((come, _), (_, go)) = (mpsc::channel(), mpsc::channel());
            let gate = Gate { shut: AtomicBool::new(false), come, go: Mutex::new(go), counts: Mutex::default() };
            config.protection = Box::new(Gated(Plain::none(), Arc::new(gate)));
        }
        let client = Client::connect(config).await.unwrap();
        let args = cb::CbRecallArgs { stateid: Stateid::default(), truncate: false, handle: Filehandle::new(b"f").unwrap() };
        {
            let mut world = world.lock().unwrap();
            (world.recall, world.recall_after) = (Some(args), after);
        }
        let mut asked = Box::pin(ask(client.clone()));
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it is sent");
        *asking.lock().unwrap() = Some(asked);
        let answered = tokio::time::timeout(PATIENCE, told.recv()).await.expect("a callback").unwrap();
        assert_eq!(answered, after, "opened aside: {opened}");
        let asked = asking.lock().unwrap().take().unwrap();
        if !answered {
            asked.await;
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
