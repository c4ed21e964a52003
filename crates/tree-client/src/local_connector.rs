use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use vouch_tree::TreeName;
use vouch_tree::protocol::{
    COMPANIONS_LEN_MAX, COMPANIONS_MAX, FsinfoOffer, GetDataArgs, GetFsinfoArgs, GetFsinfoResult, Procedure, PutStatementResult,
};
use vouch_tree_store::{Database, FrameSource, Snapshot};
use vouch_xdr::Xdr;

use crate::connector::{Connector, Stream};
use crate::pipe::{self, Results};
use crate::{Error, Result};

/// Connects every host name to one database directory. A refresh finds later publications.
pub struct LocalConnector {
    database: Arc<Snapshot>,
}

impl LocalConnector {
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

    fn connect<'a>(&'a self, _host: &'a str, _address: SocketAddr) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        let database = Arc::clone(&self.database);
        let stream = pipe::open(move |procedure, args| {
            let database = Arc::clone(&database);
            let answered = tokio::task::spawn_blocking(move || answer(&database, procedure, &args));
            async move { answered.await.ok().flatten() }.boxed()
        });
        ready(stream).boxed()
    }
}

/// `None`: invalid arguments, or the database fails.
fn answer(database: &Snapshot, procedure: Procedure, args: &[u8]) -> Results {
    let results = match procedure {
        Procedure::Null => Vec::new(),
        Procedure::GetFsinfo => offer(database, &GetFsinfoArgs::from_xdr(args).ok()?).to_xdr(),
        Procedure::GetData => {
            let asked = GetDataArgs::from_xdr(args).ok()?;
            let frames: vouch_tree_store::Result<Vec<_>> = asked.handles.iter().map(|handle| database.get(handle)).collect();
            let frames = frames.inspect_err(|error| tracing::warn!("cannot read a frame: {error}")).ok()?;
            return Some(pipe::data_results(frames.into_iter().map(|frame| frame.map(Bytes::from))));
        }
        Procedure::PutStatement => PutStatementResult::NotAccepted.to_xdr(),
    };
    Some(vec![results.into()])
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
