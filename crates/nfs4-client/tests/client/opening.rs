//! Replies are opened while others go on, and side by side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use vouch_nfs4::op::Args;
use vouch_nfs4_client::{CallTag, Client, Config, Opener, Plain, Protection, ProtectionError, Received};
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
    fn open_many(&self, replies: &mut [Received<'_>]) {
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

const PATIENCE: Duration = Duration::from_secs(20);
