//! Replicas within the process: the replica protocol over a pipe in memory, so that their data is
//! verified like a remote replica's.

use std::io;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use vouch_oncrpc::{Accepted, Call, RecordReader, Reply, begin_record, end_record};
use vouch_tree::protocol::{ARGS_LEN_MAX, PROGRAM, Procedure, VERSION};
use vouch_xdr::Writer;

use crate::connector::Stream;

/// Results of a call; `None` if it failed, which the client is told.
pub(crate) type Results = Option<Vec<u8>>;

/// Opens a stream whose calls are answered by `answer`, several at a time.
pub(crate) fn open<A>(answer: A) -> io::Result<Box<dyn Stream>>
where
    A: Fn(Procedure, Vec<u8>) -> BoxFuture<'static, Results> + Send + 'static,
{
    let (ours, theirs) = tokio::io::duplex(PIPE_LEN);
    tokio::spawn(serve(theirs, answer));
    Ok(Box::new(ours))
}

/// Ends when the client closes or sends an invalid record.
async fn serve(stream: DuplexStream, answer: impl Fn(Procedure, Vec<u8>) -> BoxFuture<'static, Results> + Send) {
    let (mut input, mut output) = tokio::io::split(stream);
    let (mut records, mut buffer) = (RecordReader::new(RECORD_LEN_MAX), vec![0; BUFFER_LEN]);
    let mut replies = FuturesOrdered::new();
    loop {
        tokio::select! {
            read = input.read(&mut buffer), if replies.len() < CALLS_MAX => {
                let Ok(len @ 1..) = read else { return };
                let mut bytes = &buffer[..len];
                loop {
                    let record = match records.next(&mut bytes) {
                        Ok(Some(record)) => record,
                        Ok(None) => break,
                        Err(_) => return,
                    };
                    let Some((xid, procedure, args)) = decode(&record) else { return };
                    let results = tokio::spawn(answer(procedure, args));
                    replies.push_back(async move { encode(xid, results.await.ok().flatten().as_deref()) });
                }
            }
            Some(reply) = replies.next(), if !replies.is_empty() => {
                if output.write_all(&reply).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn decode(record: &[u8]) -> Option<(u32, Procedure, Vec<u8>)> {
    let call = Call::decode(record).ok().filter(|call| call.program == PROGRAM && call.version == VERSION)?;
    Some((call.xid, Procedure::from_number(call.procedure)?, call.args.to_vec()))
}

fn encode(xid: u32, results: Option<&[u8]>) -> Vec<u8> {
    let mut w = Writer::new();
    let start = begin_record(&mut w);
    Reply::accepted(xid, results.map_or(Accepted::SystemErr, Accepted::Success)).encode(&mut w);
    let mut bytes = w.into_bytes();
    end_record(&mut bytes, start, 0);
    bytes
}

/// Longest call: arguments and RPC header.
const RECORD_LEN_MAX: usize = ARGS_LEN_MAX + 1024;
const BUFFER_LEN: usize = 64 << 10;
const PIPE_LEN: usize = 128 << 10;
/// Calls in progress, beyond which no more are read.
const CALLS_MAX: usize = 32;
