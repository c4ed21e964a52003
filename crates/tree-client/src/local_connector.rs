//! A database of this machine as a replica: the same protocol over a pipe in memory, so that local
//! data is verified like remote data.

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
    Procedure, PutStatementResult, VERSION,
};
use vouch_tree_store::{Database, FrameSource, Snapshot};
use vouch_xdr::{Writer, Xdr};

use crate::connector::{Connector, Stream};
use crate::{Error, Result};

/// A connector to one database directory. Every host name leads to it. A refresh finds what was
/// published in the meantime.
pub struct LocalConnector {
    database: Arc<Snapshot>,
}

impl LocalConnector {
    /// Opens the database.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { database: Arc::new(Database::open_read(path)?) })
    }

    /// The tree's name for a client with this connector.
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

/// Answers calls in order until the client closes or sends an invalid record.
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

/// The reply record; `None` if the call is not of this protocol.
fn answer(database: &Snapshot, record: &[u8]) -> Option<Vec<u8>> {
    let call = Call::decode(record).ok().filter(|call| call.program == PROGRAM && call.version == VERSION)?;
    let results = match Procedure::from_number(call.procedure)? {
        Procedure::Null => Vec::new(),
        Procedure::GetFsinfo => offer(database, &GetFsinfoArgs::from_xdr(call.args).ok()?).to_xdr(),
        Procedure::GetData => {
            let asked = GetDataArgs::from_xdr(call.args).ok()?;
            let frames: vouch_tree_store::Result<Vec<_>> = asked.handles.iter().map(|handle| database.get(handle)).collect();
            let frames = frames.inspect_err(|error| tracing::warn!("cannot read a frame: {error}")).ok()?;
            let mut w = Writer::new();
            GetDataResult { frames: frames.iter().map(Option::as_deref).collect() }.encode(&mut w);
            w.into_bytes()
        }
        Procedure::PutStatement => PutStatementResult::NotAccepted.to_xdr(),
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

const HOST: &str = "localhost";

/// Longest call: arguments and RPC header.
const RECORD_LEN_MAX: usize = ARGS_LEN_MAX + 1024;

const BUFFER_LEN: usize = 64 << 10;

const PIPE_LEN: usize = 1 << 20;
