//! A database of this machine as a replica: the same protocol over a pipe in memory, so that what
//! comes from the own disk is verified as what comes from anywhere.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use vouch_oncrpc::{Accepted, Call, RecordReader, Reply, begin_record, end_record};
use vouch_tree::TreeName;
use vouch_tree::protocol::{
    ARGS_LEN_MAX, COMPANIONS_LEN_MAX, COMPANIONS_MAX, FsinfoOffer, GetDataArgs, GetDataResult, GetFsinfoArgs, GetFsinfoResult, PROGRAM,
    Procedure, VERSION,
};
use vouch_tree_store::{Database, FrameSource, Snapshot};
use vouch_xdr::{Writer, Xdr};

use crate::connector::{Connector, Stream};
use crate::{Error, Result};

/// The way to one database directory. Every host name leads there; what is published into it later
/// is found at the next refresh.
pub struct LocalConnector {
    database: Arc<Snapshot>,
}

impl LocalConnector {
    /// Opens the database.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { database: Arc::new(Database::open_read(path)?) })
    }

    /// The name by which a client that has this connector opens the tree.
    pub fn name(&self) -> Result<TreeName> {
        TreeName::new(HOST, self.database.hostid()).map_err(|error| Error::Damaged { what: error.to_string() })
    }
}

impl Connector for LocalConnector {
    fn resolve<'a>(&'a self, _host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        ready(Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)])).boxed()
    }

    fn connect(&self, _address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        let (ours, theirs) = tokio::io::duplex(PIPE_LEN);
        tokio::spawn(serve(Arc::clone(&self.database), theirs));
        ready(Ok(Box::new(ours) as Box<dyn Stream>)).boxed()
    }
}

/// Answers calls in their order until the client leaves or speaks another protocol.
async fn serve(database: Arc<Snapshot>, mut stream: DuplexStream) {
    let (mut records, mut buffer) = (RecordReader::new(RECORD_LEN_MAX), vec![0; BUFFER_LEN]);
    loop {
        let Ok(len @ 1..) = stream.read(&mut buffer).await else { return };
        let mut input = &buffer[..len];
        loop {
            let record = match records.next(&mut input) {
                Ok(Some(record)) => record.to_vec(),
                Ok(None) => break,
                Err(_) => return,
            };
            let database = Arc::clone(&database);
            let answered = tokio::task::spawn_blocking(move || answer(&database, &record)).await;
            let Ok(Some(reply)) = answered else { return };
            if stream.write_all(&reply).await.is_err() {
                return;
            }
        }
    }
}

/// The record that answers a call; none if it is no call of this protocol.
fn answer(database: &Snapshot, record: &[u8]) -> Option<Vec<u8>> {
    let call = Call::decode(record).ok().filter(|call| call.program == PROGRAM && call.version == VERSION)?;
    let results = match Procedure::from_number(call.procedure)? {
        Procedure::Null => Vec::new(),
        Procedure::GetFsinfo => offer(database, &GetFsinfoArgs::from_xdr(call.args).ok()?).to_xdr(),
        Procedure::GetData => {
            let asked = GetDataArgs::from_xdr(call.args).ok()?;
            let frames: vouch_tree_store::Result<Vec<_>> = asked.handles.iter().map(|handle| database.get(handle)).collect();
            let frames = frames.inspect_err(|error| tracing::warn!("a frame can't be read: {error}")).ok()?;
            let mut w = Writer::new();
            GetDataResult { frames: frames.iter().map(Option::as_deref).collect() }.encode(&mut w);
            w.into_bytes()
        }
    };
    let mut w = Writer::new();
    let start = begin_record(&mut w);
    Reply::accepted(call.xid, Accepted::Success(&results)).encode(&mut w);
    let mut bytes = w.into_bytes();
    end_record(&mut bytes, start, 0);
    Some(bytes)
}

fn offer(database: &Snapshot, asked: &GetFsinfoArgs) -> GetFsinfoResult {
    if let Err(error) = database.refresh() {
        tracing::warn!("{}: {error}", database.path().display());
    }
    let view = database.view();
    let signed = view.head().filter(|_| asked.hostid == view.hostid());
    let Some(signed) = signed else { return GetFsinfoResult::NoTree };
    let (mut companions, mut len) = (Vec::new(), 0);
    for handle in view.companions().iter().take(if asked.companions { COMPANIONS_MAX } else { 0 }) {
        let Ok(Some(frame)) = database.get(handle) else { continue };
        len += frame.len();
        if len > COMPANIONS_LEN_MAX {
            break;
        }
        companions.push(frame);
    }
    GetFsinfoResult::Ok(FsinfoOffer { signed_fsinfo: signed.to_vec(), statements: view.statements().to_vec(), companions })
}

/// The host's name in names of trees that are read from here.
const HOST: &str = "localhost";

/// Longest call: the longest arguments, and the header before them.
const RECORD_LEN_MAX: usize = ARGS_LEN_MAX + 1024;

const BUFFER_LEN: usize = 64 << 10;

/// Bytes under way in one direction.
const PIPE_LEN: usize = 1 << 20;
