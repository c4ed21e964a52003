//! Connections between clients and server.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf};
use tokio::sync::mpsc;
use vouch_nfs4_client::Connector;
use vouch_nfs4_server::Connection;
use vouch_oncrpc::{Accepted, Call, RECORD_MARK_LEN, Reply};
use vouch_xdr::Writer;

use crate::machine::{HEAD_LEN, Step, World};

/// The client's way to the server.
pub(crate) fn connector(world: World, client: u16) -> Connector {
    Arc::new(move |_| {
        let world = world.clone();
        Box::pin(async move {
            world.pause().await;
            let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            if world.is_apart(client) {
                return Err(refused());
            }
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let (out, replies) = mpsc::unbounded_channel();
            let connection = world.connection_opened(client, out.clone()).ok_or_else(refused)?;
            let task = serve(world.clone(), connection, client, theirs, out.downgrade(), replies);
            world.spawn(task);
            Ok(Box::new(ours) as _)
        })
    })
}

/// Ends when the client closes, the connection is cut, or the client's network is gone. Calls that
/// have arrived go on.
async fn serve(
    world: World,
    connection: Arc<Connection>,
    client: u16,
    stream: DuplexStream,
    out: mpsc::WeakUnboundedSender<Vec<u8>>,
    mut replies: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let (mut input, mut output) = tokio::io::split(stream);
    let calls = async {
        while let Ok(record) = read_record(&mut input).await {
            if world.is_apart(client) {
                return;
            }
            let times = if world.is_call_repeated() { 2 } else { 1 };
            for _ in 0..times {
                let call =
                    serve_call(world.clone(), connection.clone(), record.clone(), out.clone());
                world.spawn(call);
            }
        }
    };
    let send = async {
        while let Some(record) = replies.recv().await {
            if world.is_apart(client) || output.write_all(&record).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { biased; () = calls => {}, () = send => {} }
    world.connection_closed(&connection);
}

/// Clients send each record in one fragment.
async fn read_record(input: &mut ReadHalf<DuplexStream>) -> std::io::Result<Vec<u8>> {
    let mut mark = [0; RECORD_MARK_LEN];
    input.read_exact(&mut mark).await?;
    let mut record = vec![0; (u32::from_be_bytes(mark) & (u32::MAX >> 1)) as usize];
    input.read_exact(&mut record).await?;
    Ok(record)
}

async fn serve_call(
    world: World,
    connection: Arc<Connection>,
    record: Vec<u8>,
    out: mpsc::WeakUnboundedSender<Vec<u8>>,
) {
    world.pause().await;
    let word = |at: usize| {
        record.get(at..at + 4).map(|word| u32::from_be_bytes(word.try_into().expect("four bytes")))
    };
    if word(4) == Some(1) {
        return world.callback_answered(&connection, word(0).unwrap_or(0), &record);
    }
    let call = Call::decode(&record).expect("clients send calls");
    let results = match call.procedure {
        0 => Vec::new(),
        _ => match run(&world, &connection, call.xid, call.args).await {
            Some(results) => results,
            None => return,
        },
    };
    world.pause().await;
    let mut w = Writer::new();
    w.u32(0);
    Reply::accepted(call.xid, Accepted::Success(&results)).encode(&mut w);
    let mut reply = w.into_bytes();
    let mark = (reply.len() - RECORD_MARK_LEN) as u32 | 1 << 31;
    reply[..RECORD_MARK_LEN].copy_from_slice(&mark.to_be_bytes());
    if let Some(out) = out.upgrade() {
        let _ = out.send(reply);
    }
}

/// The results, or `None` without a reply.
async fn run(
    world: &World,
    connection: &Arc<Connection>,
    xid: u32,
    args: &[u8],
) -> Option<Vec<u8>> {
    let mut call = world.begin(connection, xid, args)?;
    loop {
        match world.step(&mut call) {
            Step::Down => return None,
            Step::Blocked => world.pause().await,
            Step::Reply(reply, awaits_records) => {
                if awaits_records {
                    world.pause().await;
                    world.store_records();
                }
                return reply.map(|reply| reply.bytes[HEAD_LEN..].to_vec());
            }
        }
    }
}
