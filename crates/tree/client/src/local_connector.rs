use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use vouch_tree::TreeName;
use vouch_tree::protocol::{
    COMPANIONS_LEN_MAX, COMPANIONS_MAX, FsinfoOffer, GetDataArgs, GetFsinfoArgs, GetFsinfoResult,
    Procedure, PutStatementResult,
};
use vouch_tree_store::{Database, FrameSource, Snapshot};
use vouch_xdr::Xdr;

use crate::Error;
use crate::connector::{Connector, Link, LocalReplica, TakeFrame, TransportError};

/// Connects every host name to one database directory. A refresh finds later publications.
pub struct LocalConnector {
    database: Arc<Snapshot>,
}

impl LocalConnector {
    /// Fails if it is no database or not readable.
    pub fn open(path: &Path) -> crate::Result<Self> {
        Ok(Self { database: Arc::new(Database::open_read(path)?) })
    }

    /// The database as a replica.
    pub fn replica(&self) -> Arc<dyn LocalReplica> {
        Arc::new(LocalDatabase {
            database: Arc::clone(&self.database),
            received: AtomicU64::new(0),
        })
    }

    /// The tree's name for a client with this connector.
    pub fn name(&self) -> crate::Result<TreeName> {
        TreeName::new(HOST, self.database.hostid())
            .map_err(|error| Error::Damaged { what: error.to_string() })
    }
}

impl Connector for LocalConnector {
    fn resolve<'a>(
        &'a self,
        _host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        ready(Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)])).boxed()
    }

    fn connect<'a>(
        &'a self,
        _host: &'a str,
        _address: SocketAddr,
    ) -> BoxFuture<'a, io::Result<Link>> {
        ready(Ok(Link::Local(self.replica()))).boxed()
    }
}

struct LocalDatabase {
    database: Arc<Snapshot>,
    received: AtomicU64,
}

impl LocalReplica for LocalDatabase {
    fn call<'a>(
        &'a self,
        procedure: Procedure,
        args: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TransportError>> {
        let (database, args) = (Arc::clone(&self.database), args.to_vec());
        async move {
            match procedure {
                Procedure::Null | Procedure::GetData => Ok(Vec::new()),
                Procedure::GetFsinfo => {
                    let asked = GetFsinfoArgs::from_xdr(&args)?;
                    blocking(move || Ok(offer(&database, &asked).to_xdr())).await
                }
                Procedure::PutStatement => Ok(PutStatementResult::NotAccepted.to_xdr()),
            }
        }
        .boxed()
    }

    fn data<'a>(
        &'a self,
        args: &'a GetDataArgs,
        take: &'a mut TakeFrame<'_>,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        let (database, handles) = (Arc::clone(&self.database), args.handles.clone());
        async move {
            let read = move || -> Result<Vec<_>, TransportError> {
                handles.iter().map(|handle| Ok(database.get(handle)?)).collect()
            };
            let frames = blocking(read).await?;
            for frame in frames {
                self.received.fetch_add(
                    frame.as_ref().map_or(0, |frame| frame.len() as u64),
                    Ordering::Relaxed,
                );
                take(frame.map(Bytes::from));
                // The caller hashes each frame: let other tasks run in between.
                tokio::task::yield_now().await;
            }
            Ok(())
        }
        .boxed()
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransportError> + Send + 'static,
) -> Result<T, TransportError> {
    tokio::task::spawn_blocking(work).await?
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
    GetFsinfoResult::Ok(FsinfoOffer {
        signed_fsinfo: signed.to_vec(),
        statements: view.statements().to_vec(),
        companions,
    })
}

const HOST: &str = "localhost";
