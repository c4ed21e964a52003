//! A publisher, its database as the only replica, and exports.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::runtime::Runtime;
pub use vouch_testkit::noise as random_bytes;
use vouch_testkit::within;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::protocol::{COMPANIONS_MAX, GetDataArgs, Procedure};
use vouch_tree::{Iv, TreeName};
use vouch_tree_client::{
    Client, ClientOptions, Clock, Connector, Link, LocalConnector, LocalReplica, TakeFrame,
    TransportError, Tree, TreeOptions,
};
use vouch_tree_publish::{Options, Progress, Signer, publish};
use vouch_tree_store::{CollectOptions, Database, WriteOptions};
use vouch_vfs::{
    AccessOverride, Attributes, Blocking, Caller, Content, Error, FileId, FileSystem, Name,
    OpenAccess, OpenFile, ReadInto, Result,
};
use vouch_vfs_tree::TreeFs;

pub const NOW: i64 = 1_795_000_000;

pub const DURATION_S: u32 = 86_400;

struct TestClock(Arc<AtomicI64>);

impl Clock for TestClock {
    fn now(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

struct Gate {
    database: Arc<Mutex<PathBuf>>,
    is_up: Arc<AtomicBool>,
    epoch: Arc<AtomicI64>,
    open: Mutex<Option<(i64, Arc<dyn LocalReplica>)>>,
}

struct Network(Arc<Gate>);

impl Gate {
    fn replica(&self) -> std::result::Result<Arc<dyn LocalReplica>, TransportError> {
        if !self.is_up.load(Ordering::SeqCst) {
            return Err("down".into());
        }
        let (epoch, mut open) = (self.epoch.load(Ordering::SeqCst), self.open.lock());
        if let Some((_, replica)) = open.as_ref().filter(|(opened, _)| *opened == epoch) {
            return Ok(Arc::clone(replica));
        }
        let replica = LocalConnector::open(&self.database.lock())?.replica();
        *open = Some((epoch, Arc::clone(&replica)));
        Ok(replica)
    }
}

impl LocalReplica for Gate {
    fn call<'a>(
        &'a self,
        procedure: Procedure,
        args: &'a [u8],
    ) -> BoxFuture<'a, std::result::Result<Vec<u8>, TransportError>> {
        Box::pin(async move { self.replica()?.call(procedure, args).await })
    }

    fn data<'a>(
        &'a self,
        args: &'a GetDataArgs,
        take: &'a mut TakeFrame<'_>,
    ) -> BoxFuture<'a, std::result::Result<(), TransportError>> {
        Box::pin(async move { self.replica()?.data(args, take).await })
    }

    fn received(&self) -> u64 {
        self.open.lock().as_ref().map_or(0, |(_, replica)| replica.received())
    }
}

impl Connector for Network {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }

    fn connect<'a>(&'a self, _: &'a str, _: SocketAddr) -> BoxFuture<'a, io::Result<Link>> {
        let is_up = self.0.is_up.load(Ordering::SeqCst);
        let link = if is_up {
            Ok(Link::Local(self.0.clone() as Arc<dyn LocalReplica>))
        } else {
            Err(io::ErrorKind::ConnectionRefused.into())
        };
        Box::pin(async move { link })
    }
}

pub struct Site {
    dir: TempDir,
    signer: Mutex<(SecretKey, SigningCert)>,
    database: Arc<Mutex<PathBuf>>,
    epoch: Arc<AtomicI64>,
    name: TreeName,
    revision: AtomicI64,
    pub now: Arc<AtomicI64>,
    pub is_up: Arc<AtomicBool>,
}

impl Site {
    pub fn new() -> Self {
        let (root, signing) = (SecretKey::from_seed(&[7; 32]), SecretKey::from_seed(&[107; 32]));
        let cert = SigningCert::issue(&root, signing.public(), 1, 0, u64::MAX / 2);
        let name = TreeName::new("tree.test", root.public().hostid()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("source")).unwrap();
        Database::create(&dir.path().join("db"), *name.hostid(), Iv::from_bytes([7; 32])).unwrap();
        let (now, is_up) = (Arc::new(AtomicI64::new(NOW)), Arc::new(AtomicBool::new(true)));
        let (signer, database) =
            (Mutex::new((signing, cert)), Arc::new(Mutex::new(dir.path().join("db"))));
        Site {
            dir,
            signer,
            database,
            epoch: Arc::default(),
            name,
            revision: AtomicI64::new(0),
            now,
            is_up,
        }
    }

    fn database(&self) -> PathBuf {
        self.database.lock().clone()
    }

    pub fn publish_with_stolen_key(&self) {
        *self.database.lock() = self.dir.path().join("thiefs");
        Database::create(&self.database(), *self.name.hostid(), Iv::from_bytes([7; 32])).unwrap();
    }

    pub fn certify(&self) {
        *self.database.lock() = self.dir.path().join("db");
        let signing = SecretKey::from_seed(&[222; 32]);
        let cert = SigningCert::issue(
            &SecretKey::from_seed(&[7; 32]),
            signing.public(),
            2,
            0,
            u64::MAX / 2,
        );
        *self.signer.lock() = (signing, cert);
    }

    pub fn reconnect(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    pub fn source(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join("source").join(path)
    }

    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.source(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn add_many_directories(&self) {
        (0..COMPANIONS_MAX).for_each(|n| self.write(format!("a crowd{n}/file"), n.to_string()));
    }

    pub fn publish(&self) {
        self.publish_with(|_| {});
    }

    pub fn publish_and_collect(&self) {
        self.publish_with(|options| options.keep = Some(1));
        Database::collect(&self.database(), CollectOptions::default()).unwrap();
    }

    fn publish_with(&self, choose: impl FnOnce(&mut Options)) {
        let start = NOW + self.revision.fetch_add(1, Ordering::SeqCst);
        let mut options =
            Options::new(self.source(""), self.name.clone(), start as u64, DURATION_S);
        // The stat cache does not trust such young timestamps, and tests rewrite files within one
        // tick.
        options.rehash = true;
        choose(&mut options);
        let writer = Database::open_write(&self.database(), WriteOptions::default()).unwrap();
        let signer = self.signer.lock();
        publish(
            &writer,
            &Signer { key: &signer.0, cert: signer.1.clone() },
            &options,
            &Progress::default(),
        )
        .unwrap();
    }

    pub fn export(&self) -> ExportedTree {
        self.export_with(|_| {})
    }

    pub fn export_with(&self, choose: impl FnOnce(&mut ClientOptions)) -> ExportedTree {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let name = LocalConnector::open(&self.database()).unwrap().name().unwrap();
        let (database, is_up, epoch) =
            (self.database.clone(), self.is_up.clone(), self.epoch.clone());
        let mut options = ClientOptions {
            connector: Arc::new(Network(Arc::new(Gate {
                database,
                is_up,
                epoch,
                open: Mutex::default(),
            }))),
            clock: Arc::new(TestClock(self.now.clone())),
            deadline: Duration::from_secs(2),
            refresh_interval: Some(Duration::from_secs(3600)),
            seed: Some(1),
            ..ClientOptions::default()
        };
        choose(&mut options);
        let tree = runtime.block_on(async {
            Client::new(options).unwrap().open(&name, &TreeOptions::default()).await.unwrap()
        });
        ExportedTree { fs: TreeFs::new(tree.clone(), runtime.handle().clone()), tree, runtime }
    }
}

pub struct ExportedTree {
    pub fs: TreeFs,
    pub tree: Arc<Tree>,
    pub runtime: Runtime,
}

impl ExportedTree {
    pub fn refresh(&self) {
        until(|| self.runtime.block_on(self.tree.refresh()).is_ok());
    }

    pub fn find(&self, path: &str) -> Result<(FileId, Attributes)> {
        let mut at = (self.fs.root(), self.fs.attributes(&self.fs.root(), Blocking::Allowed)?);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.fs.lookup(
                &Caller::root(),
                &at.0,
                Name::new(name.as_bytes()).unwrap(),
                Blocking::Allowed,
            )?;
        }
        Ok(at)
    }

    pub fn id(&self, path: &str) -> FileId {
        self.find(path).unwrap().0
    }

    pub fn open(&self, id: &FileId) -> Result<Arc<dyn OpenFile>> {
        self.fs.open(
            &Caller::root(),
            id,
            OpenAccess { read: true, write: false },
            AccessOverride::None,
            Blocking::Allowed,
        )
    }

    pub fn content(&self, id: &FileId) -> Result<Vec<u8>> {
        let open = self.open(id)?;
        let mut bytes = Vec::new();
        loop {
            match read(&*open, bytes.len() as u64, 300_001, &mut bytes, Blocking::Allowed)? {
                (_, true) => return Ok(bytes),
                (len, false) => assert!(len > 0),
            }
        }
    }

    pub fn list(&self, id: &FileId, cookie: u64, count: usize) -> Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        self.fs.read_directory(
            &Caller::root(),
            id,
            cookie,
            false,
            Blocking::Allowed,
            &mut |entry| {
                if found.len() == count {
                    return std::ops::ControlFlow::Break(());
                }
                found.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.cookie));
                std::ops::ControlFlow::Continue(())
            },
        )?;
        Ok(found)
    }
}

pub fn read(
    open: &dyn OpenFile,
    offset: u64,
    len: usize,
    bytes: &mut Vec<u8>,
    blocking: Blocking,
) -> Result<(usize, bool)> {
    match open.read(offset, len, ReadInto { bytes, span_allowed: true }, blocking)? {
        Content::Bytes { len, eof } => Ok((len, eof)),
        Content::Span { .. } => panic!("a tree has no local files"),
    }
}

pub fn until(done: impl FnMut() -> bool) {
    within(60, "the case is impossible", done);
}

pub fn is_stale<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Stale))
}
