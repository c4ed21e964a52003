//! Concurrent calls on one stream, matched to replies by xid. Malformed replies close it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use vouch_oncrpc::{Accepted, Call, Reply, ReplyBody};
use vouch_tree::protocol::{GetDataArgs, GetDataResult, PROGRAM, Procedure, VERSION};
use vouch_xdr::Xdr;

use super::connection::{CallFailure, CallResult};
use super::reply_parser::{READ_LEN, ReplyEvent, ReplyParser};
use crate::connector::{Stream, TakeFrame};

const CALLS_MAX: usize = 64;

const WRITE_LEN_MAX: usize = 64 * 1024;

/// Limit on replies to abandoned calls, before the replica counts as faulty.
const UNAWAITED_MAX: u64 = 10_000;

const SILENCE_MAX: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct StreamConnection {
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Vec<u8>>,
    _closer: Arc<Closer>,
}

struct Shared {
    calls: Mutex<Calls>,
    slots: Semaphore,
    received: AtomicU64,
    closed: watch::Sender<bool>,
}

enum Waiter {
    Whole(oneshot::Sender<CallResult>),
    Frames(usize, mpsc::Sender<Result<Option<Bytes>, CallFailure>>),
}

impl Waiter {
    fn fail(self, failure: CallFailure) {
        match self {
            Self::Whole(answer) => drop(answer.send(Err(failure))),
            // The channel has one more place than frames, for this.
            Self::Frames(_, frames) => drop(frames.try_send(Err(failure))),
        }
    }
}

struct Calls {
    waiting: BTreeMap<u32, (Instant, Waiter)>,
    first_xid: u32,
    issued: u32,
    unawaited: u64,
    failure: Option<CallFailure>,
}

struct Closer(Arc<Shared>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.fail(CallFailure::Closed("closed by the client".into()));
    }
}

struct Waiting<'a> {
    shared: &'a Shared,
    xid: u32,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.calls.lock().waiting.remove(&self.xid);
    }
}

impl StreamConnection {
    pub(crate) fn start(stream: Box<dyn Stream>, first_xid: u32) -> Self {
        let shared = Arc::new(Shared {
            calls: Mutex::new(Calls {
                waiting: BTreeMap::new(),
                first_xid,
                issued: 0,
                unawaited: 0,
                failure: None,
            }),
            slots: Semaphore::new(CALLS_MAX),
            received: AtomicU64::new(0),
            closed: watch::Sender::new(false),
        });
        let (reader, writer) = tokio::io::split(stream);
        let (outbox, queue) = mpsc::channel(CALLS_MAX);
        tokio::spawn(write_calls(Arc::clone(&shared), writer, queue));
        tokio::spawn(read_replies(Arc::clone(&shared), reader));
        Self { _closer: Arc::new(Closer(Arc::clone(&shared))), shared, outbox }
    }

    pub(crate) fn is_open(&self) -> bool {
        !*self.shared.closed.borrow()
    }

    pub(crate) fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self, why: &str) {
        self.shared.fail(CallFailure::Closed(why.to_owned()));
    }

    pub(crate) async fn call(&self, procedure: Procedure, args: &[u8]) -> CallResult {
        let closed = || CallFailure::Closed("connection closed".into());
        let _slot = self.shared.slots.acquire().await.map_err(|_| closed())?;
        let (answer, answered) = oneshot::channel();
        let xid = self.shared.register(Waiter::Whole(answer))?;
        let _waiting = Waiting { shared: &self.shared, xid };
        self.outbox.send(record(xid, procedure, args)).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    pub(crate) async fn call_data(
        &self,
        args: &GetDataArgs,
        take: &mut TakeFrame<'_>,
    ) -> Result<(), CallFailure> {
        let closed = || CallFailure::Closed("connection closed".into());
        let _slot = self.shared.slots.acquire().await.map_err(|_| closed())?;
        let (frame, mut frames) = mpsc::channel(args.handles.len() + 1);
        let xid = self.shared.register(Waiter::Frames(args.handles.len(), frame))?;
        let _waiting = Waiting { shared: &self.shared, xid };
        self.outbox
            .send(record(xid, Procedure::GetData, &args.to_xdr()))
            .await
            .map_err(|_| closed())?;
        while let Some(found) = frames.recv().await {
            take(found?);
            // Hashing and decompression take up to 100 µs per frame: let other tasks run in
            // between.
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

fn record(xid: u32, procedure: Procedure, args: &[u8]) -> Vec<u8> {
    let call = Call::new(xid, (PROGRAM, VERSION), procedure as u32, args);
    vouch_oncrpc::record(|w| call.encode(w))
}

impl Shared {
    fn register(&self, waiter: Waiter) -> Result<u32, CallFailure> {
        let mut calls = self.calls.lock();
        if let Some(failure) = &calls.failure {
            return Err(failure.clone());
        }
        let xid = calls.first_xid.wrapping_add(calls.issued);
        calls.issued = calls.issued.wrapping_add(1);
        calls.waiting.insert(xid, (Instant::now(), waiter));
        Ok(xid)
    }

    fn fail(&self, failure: CallFailure) {
        let waiting = {
            let mut calls = self.calls.lock();
            if calls.failure.is_none() {
                calls.failure = Some(failure.clone());
            }
            std::mem::take(&mut calls.waiting)
        };
        self.closed.send_replace(true);
        self.slots.close();
        for (_, waiter) in waiting.into_values() {
            waiter.fail(failure.clone());
        }
    }

    async fn until_closed(&self) {
        // The sender is in `self`, so this cannot fail.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    fn has_waited(&self, long: Duration) -> bool {
        self.calls.lock().waiting.values().any(|(since, _)| since.elapsed() >= long)
    }

    fn results_of(&self, xid: u32) -> Option<usize> {
        match self.calls.lock().waiting.get(&xid) {
            Some((_, Waiter::Frames(count, _))) => Some(*count),
            _ => None,
        }
    }

    fn dispatch(&self, arrival: ReplyEvent) -> Result<(), CallFailure> {
        match arrival {
            ReplyEvent::Reply(record) => self.answer(&record)?,
            ReplyEvent::Frame(xid, frame) => {
                if let Some((_, Waiter::Frames(_, frames))) = self.calls.lock().waiting.get(&xid) {
                    let _ = frames.try_send(Ok(frame));
                }
            }
            ReplyEvent::End(xid) => drop(self.take(xid)?),
            ReplyEvent::Garbage(xid, why) => {
                if let Some(waiter) = self.take(xid)? {
                    waiter.fail(CallFailure::Garbage(why));
                }
            }
        }
        Ok(())
    }

    fn answer(&self, record: &Bytes) -> Result<(), CallFailure> {
        let reply = Reply::decode(record)
            .map_err(|e| CallFailure::Garbage(format!("not an RPC reply: {e}")))?;
        match (self.take(reply.xid)?, results(&reply, record)) {
            (None, _) => {}
            (Some(Waiter::Whole(answer)), results) => drop(answer.send(results)),
            (Some(waiter @ Waiter::Frames(..)), Err(failure)) => waiter.fail(failure),
            (Some(Waiter::Frames(count, frames)), Ok(results)) => {
                match GetDataResult::from_xdr(&results) {
                    Ok(found) if found.frames.len() == count => {
                        for frame in found.frames {
                            let _ = frames.try_send(Ok(frame.map(Bytes::copy_from_slice)));
                        }
                    }
                    Ok(found) => {
                        let what =
                            format!("answered {count} handles with {} results", found.frames.len());
                        Waiter::Frames(count, frames).fail(CallFailure::Garbage(what));
                    }
                    Err(error) => Waiter::Frames(count, frames)
                        .fail(CallFailure::Garbage(format!("GETDATA results: {error}"))),
                }
            }
        }
        Ok(())
    }

    fn take(&self, xid: u32) -> Result<Option<Waiter>, CallFailure> {
        let mut calls = self.calls.lock();
        if xid.wrapping_sub(calls.first_xid) >= calls.issued {
            return Err(CallFailure::Garbage(format!("a reply to an unknown call ({xid:#x})")));
        }
        let waiting = calls.waiting.remove(&xid);
        if waiting.is_none() {
            calls.unawaited += 1;
            if calls.unawaited > UNAWAITED_MAX {
                return Err(CallFailure::Garbage("too many replies to abandoned calls".into()));
            }
        }
        Ok(waiting.map(|(_, waiter)| waiter))
    }
}

fn results(reply: &Reply<'_>, record: &Bytes) -> CallResult {
    let outcome = match reply.body {
        ReplyBody::Accepted { outcome, .. } => outcome,
        ReplyBody::Denied(denied) => {
            return Err(CallFailure::Declined(format!("the call was denied: {denied:?}")));
        }
    };
    match outcome {
        Accepted::Success(results) => Ok(record.slice_ref(results)),
        Accepted::ProgUnavail => Err(CallFailure::Declined(
            "the server at this port is not a replica of published trees".into(),
        )),
        Accepted::ProgMismatch { low, high } => Err(CallFailure::Declined(format!(
            "the replica supports only protocol versions {low} to {high}"
        ))),
        other => Err(CallFailure::Declined(format!("the call failed on the replica: {other:?}"))),
    }
}

async fn write_calls(
    shared: Arc<Shared>,
    mut stream: WriteHalf<Box<dyn Stream>>,
    mut queue: mpsc::Receiver<Vec<u8>>,
) {
    let work = async {
        while let Some(mut bytes) = queue.recv().await {
            while bytes.len() < WRITE_LEN_MAX
                && let Ok(more) = queue.try_recv()
            {
                bytes.extend_from_slice(&more);
            }
            if let Err(error) = write_flush(&mut stream, &bytes).await {
                shared.fail(CallFailure::Closed(format!("write: {error}")));
                break;
            }
        }
    };
    tokio::select! {
        biased;
        () = work => {}
        () = shared.until_closed() => {}
    }
    let _ = timeout(Duration::from_secs(1), stream.shutdown()).await;
}

async fn write_flush(stream: &mut WriteHalf<Box<dyn Stream>>, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

async fn read_replies(shared: Arc<Shared>, mut stream: ReadHalf<Box<dyn Stream>>) {
    let failure = tokio::select! {
        biased;
        failure = read_records(&shared, &mut stream) => failure,
        () = shared.until_closed() => CallFailure::Closed("connection closed".into()),
    };
    shared.fail(failure);
}

async fn read_records(shared: &Shared, stream: &mut ReadHalf<Box<dyn Stream>>) -> CallFailure {
    let mut parser = ReplyParser::new();
    let mut buffer = Vec::with_capacity(READ_LEN);
    loop {
        let (read, direct_read) = match parser.direct_buffer() {
            Some((direct_buffer, most)) => {
                (timeout(SILENCE_MAX, stream.read_buf(&mut direct_buffer.limit(most))).await, true)
            }
            None => {
                buffer.clear();
                let mut limited = (&mut buffer).limit(parser.read_len());
                (timeout(SILENCE_MAX, stream.read_buf(&mut limited)).await, false)
            }
        };
        let n = match read {
            Ok(Ok(0)) => return CallFailure::Closed("the replica closed the connection".into()),
            Ok(Ok(n)) => n,
            Ok(Err(error)) => return CallFailure::Closed(format!("read: {error}")),
            Err(_) if !shared.has_waited(SILENCE_MAX) => continue,
            Err(_) => {
                return CallFailure::Closed(format!(
                    "nothing received for {} s",
                    SILENCE_MAX.as_secs()
                ));
            }
        };
        shared.received.fetch_add(n as u64, Ordering::Relaxed);
        let mut input = if direct_read { &[][..] } else { &buffer[..] };
        if direct_read {
            parser.direct_read(n);
        }
        loop {
            let dispatch = match parser.next(&mut input, |xid| shared.results_of(xid)) {
                Ok(Some(arrival)) => shared.dispatch(arrival),
                Ok(None) => break,
                Err(error) => return CallFailure::Garbage(error.to_string()),
            };
            if let Err(failure) = dispatch {
                return failure;
            }
        }
    }
}

#[cfg(test)]
mod tests;
