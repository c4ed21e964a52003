//! What one replica is asked for: requests for single frames, gathered into GETDATA calls without
//! waiting for more, and the answers checked frame by frame against the handles, and decoded, on
//! whichever worker the call ends.
//!
//! Reports each call's outcome to the scores. Never retries, never asks another replica.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use vouch_tree::protocol::{GetDataArgs, HANDLES_MAX};
use vouch_tree::{BlockHandle, FrameKind, Iv, frame};

use super::set::Replica;
use crate::Error;
use crate::frame::Frame;

/// Requests that wait for a call, of each urgency. Who asks for more waits for a place.
pub(crate) const QUEUE_LEN_MAX: usize = 1024;

/// Expected bytes of one call's answer: longer ones keep readers of the first frame from it until
/// the last has come.
const BATCH_LEN_MAX: usize = 1024 * 1024;

/// Calls in flight for read-ahead and pull, on one replica: 8 MiB.
const BULK_CALLS_MAX: usize = 8;

/// Calls in flight for readers that wait, on one replica.
const READER_CALLS_MAX: usize = 32;

/// One frame wanted of one replica.
pub(crate) struct Request {
    pub(crate) handle: BlockHandle,
    pub(crate) iv: Iv,
    /// What to decode it as; `None`: leave it as it is stored.
    pub(crate) decode: Option<FrameKind>,
    /// Expected length of the frame: only to size the batch.
    pub(crate) len_expected: usize,
    pub(crate) answer: oneshot::Sender<Result<FetchedFrame, FetchFailure>>,
}

/// A stored frame that hashes to its handle.
#[derive(Debug, Clone)]
pub(crate) struct FetchedFrame {
    pub(crate) stored: Bytes,
    /// The frame decoded, where that was asked for.
    pub(crate) decoded: Option<Result<Frame, Error>>,
}

/// Why one replica did not deliver a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FetchFailure {
    /// It says that it has no such frame.
    Missing,
    /// It sent something else.
    Lied(String),
    /// It can't be asked.
    Failed(String),
}

/// The two queues into a replica.
pub(crate) struct Queues {
    pub(crate) readers: mpsc::Sender<Request>,
    pub(crate) bulk: mpsc::Sender<Request>,
}

pub(crate) struct QueueEnds {
    readers: mpsc::Receiver<Request>,
    bulk: mpsc::Receiver<Request>,
}

pub(crate) fn queues() -> (Queues, QueueEnds) {
    let (readers, readers_end) = mpsc::channel(QUEUE_LEN_MAX);
    let (bulk, bulk_end) = mpsc::channel(QUEUE_LEN_MAX);
    (Queues { readers, bulk }, QueueEnds { readers: readers_end, bulk: bulk_end })
}

/// Serves the queues until their senders are gone. Readers' requests go first.
pub(crate) async fn run(replica: std::sync::Weak<Replica>, mut ends: QueueEnds) {
    let reader_calls = Arc::new(Semaphore::new(READER_CALLS_MAX));
    let bulk_calls = Arc::new(Semaphore::new(BULK_CALLS_MAX));
    loop {
        let (batch, permit) = tokio::select! {
            biased;
            taken = next_batch(&reader_calls, &mut ends.readers) => taken,
            taken = next_batch(&bulk_calls, &mut ends.bulk) => taken,
        };
        let (false, Some(replica)) = (batch.is_empty(), replica.upgrade()) else { return };
        tokio::spawn(async move {
            ask(&replica, batch).await;
            drop(permit);
        });
    }
}

/// What is in the queue once a call may be made. An empty batch: the senders are gone.
async fn next_batch(calls: &Arc<Semaphore>, queue: &mut mpsc::Receiver<Request>) -> (Vec<Request>, Option<OwnedSemaphorePermit>) {
    let permit = Arc::clone(calls).acquire_owned().await.ok();
    let mut batch = Vec::new();
    let mut len = 0;
    let mut next = queue.recv().await;
    while let Some(request) = next {
        // Who has given up needs no answer.
        if !request.answer.is_closed() {
            len += request.len_expected;
            batch.push(request);
        }
        next = match batch.len() {
            0 => queue.recv().await,
            n if n < HANDLES_MAX && len < BATCH_LEN_MAX => queue.try_recv().ok(),
            _ => None,
        };
    }
    (batch, permit)
}

async fn ask(replica: &Replica, batch: Vec<Request>) {
    let asked = Instant::now();
    let args = GetDataArgs { hostid: replica.hostid, handles: batch.iter().map(|r| r.handle).collect() };
    let mut waiting = batch.into_iter();
    // Once a call, before anything that counts against the replica: an answer makes up for failures
    // before it.
    let mut unbooked = true;
    let outcome = replica.call_data(&args, |found| {
        let Some(request) = waiting.next() else { return };
        let answer = found.ok_or(FetchFailure::Missing).and_then(|stored| check(replica, &request, stored));
        if (waiting.len() == 0 || matches!(answer, Err(FetchFailure::Lied(_)))) && std::mem::take(&mut unbooked) {
            replica.call_answered(asked.elapsed());
        }
        if let Err(FetchFailure::Lied(proof)) = &answer {
            replica.lied(proof);
        }
        let _ = request.answer.send(answer);
    });
    if let Err(failure) = outcome.await {
        refuse(waiting.collect(), replica.call_failed(&failure));
    }
}

fn check(replica: &Replica, request: &Request, stored: Bytes) -> Result<FetchedFrame, FetchFailure> {
    let begun = std::time::Instant::now();
    let verdict = frame::verify(&request.iv, &request.handle, &stored);
    replica.counters.verified(stored.len(), begun.elapsed());
    if verdict.is_err() {
        let got = request.iv.handle_of(&stored);
        return Err(FetchFailure::Lied(format!("asked for frame {}, got {} bytes that hash to {got}", request.handle, stored.len())));
    }
    let decoded = request.decode.map(|kind| Frame::decode(kind, &request.handle, &stored));
    Ok(FetchedFrame { stored, decoded })
}

fn refuse(batch: Vec<Request>, failure: FetchFailure) {
    for request in batch {
        let _ = request.answer.send(Err(failure.clone()));
    }
}
