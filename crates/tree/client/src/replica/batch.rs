//! Batches queued requests into GETDATA calls on one replica. A call never waits for more requests.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use vouch_tree::frame;
use vouch_tree::protocol::{GetDataArgs, HANDLES_MAX};

use super::replica::Replica;
use super::request::{FetchFailure, FetchedFrame, QueueEnds, QueuedRequest};
use crate::frame::Frame;

const BATCH_LEN_MAX: usize = 1024 * 1024;

const BACKGROUND_CALLS_MAX: usize = 16;

const FOREGROUND_CALLS_MAX: usize = 32;

pub(crate) async fn run(replica: std::sync::Weak<Replica>, mut ends: QueueEnds) {
    let foreground_calls = Arc::new(Semaphore::new(FOREGROUND_CALLS_MAX));
    let background_calls = Arc::new(Semaphore::new(BACKGROUND_CALLS_MAX));
    loop {
        let (batch, permit) = tokio::select! {
            biased;
            taken = next_batch(&foreground_calls, &mut ends.foreground) => taken,
            taken = next_batch(&background_calls, &mut ends.background) => taken,
        };
        let (false, Some(replica)) = (batch.is_empty(), replica.upgrade()) else { return };
        tokio::spawn(async move {
            call(&replica, batch).await;
            drop(permit);
        });
    }
}

async fn next_batch(
    calls: &Arc<Semaphore>,
    queue: &mut mpsc::Receiver<QueuedRequest>,
) -> (Vec<QueuedRequest>, Option<OwnedSemaphorePermit>) {
    let permit = Arc::clone(calls).acquire_owned().await.ok();
    let mut batch = Vec::new();
    let mut len = 0;
    let mut next = queue.recv().await;
    while let Some(request) = next {
        if !request.answer.is_closed() {
            len += request.frame.len_expected;
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

async fn call(replica: &Replica, batch: Vec<QueuedRequest>) {
    let asked = Instant::now();
    let args = GetDataArgs {
        hostid: replica.hostid,
        handles: batch.iter().map(|r| r.frame.handle).collect(),
    };
    let mut waiting = batch.into_iter();
    // Recorded once per call, before any lie: an answer resets earlier failures.
    let mut not_recorded = true;
    let outcome = replica.call_data(&args, |found| {
        let Some(request) = waiting.next() else { return true };
        let answer =
            found.ok_or(FetchFailure::Missing).and_then(|stored| verify(replica, &request, stored));
        let lie = match &answer {
            Err(FetchFailure::Lied(proof)) => Some(proof),
            _ => None,
        };
        if (waiting.len() == 0 || lie.is_some()) && std::mem::take(&mut not_recorded) {
            replica.call_answered(asked.elapsed());
        }
        if let Some(proof) = lie {
            replica.lied(proof);
        }
        let is_right = lie.is_none();
        let _ = request.answer.send(answer);
        is_right
    });
    if let Err(failure) = outcome.await {
        fail_all(waiting.collect(), replica.call_failed(&failure));
    }
}

fn verify(
    replica: &Replica,
    request: &QueuedRequest,
    stored: Bytes,
) -> Result<FetchedFrame, FetchFailure> {
    let begun = std::time::Instant::now();
    let verdict = frame::verify(&request.frame.iv, &request.frame.handle, &stored);
    replica.counters.verified(stored.len(), begun.elapsed());
    if verdict.is_err() {
        let got = request.frame.iv.handle_of(&stored);
        return Err(FetchFailure::Lied(format!(
            "asked for frame {}, got {} bytes that hash to {got}",
            request.frame.handle,
            stored.len()
        )));
    }
    let decoded =
        request.frame.decode.map(|kind| Frame::decode(kind, &request.frame.handle, &stored));
    Ok(FetchedFrame { stored, decoded })
}

fn fail_all(batch: Vec<QueuedRequest>, failure: FetchFailure) {
    for request in batch {
        let _ = request.answer.send(Err(failure.clone()));
    }
}
