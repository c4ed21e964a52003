use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use vouch_oncrpc::{Accepted, Call, RecordReader, Reply};
pub use vouch_testkit::noise;
use vouch_testkit::within;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::protocol::{
    FsinfoOffer, GetDataArgs, GetDataResult, GetFsinfoArgs, GetFsinfoResult, Procedure,
};
use vouch_tree::{Iv, TreeName};
use vouch_tree_client::{
    Client, ClientOptions, Clock, Connector, DiskCacheOptions, Link, Tree, TreeOptions,
};
use vouch_tree_mount::{
    MountConfig, MountImage, MountOptions, Mounted, NamespaceTrees, Predecessor, mount_namespace,
    mount_tree, take_over_tree,
};
use vouch_tree_publish::{Options, Progress, Signer, publish};
use vouch_tree_store::{CollectOptions, Database, FrameSource, WriteOptions};
use vouch_xdr::{Writer, Xdr};

pub const NOW: i64 = 1_795_000_000;

pub struct TestClock(AtomicI64);

impl TestClock {
    pub fn set(&self, now: i64) {
        self.0.store(now, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub struct Site {
    dir: TempDir,
    root: SecretKey,
    signer: Mutex<(SecretKey, SigningCert)>,
    db: Mutex<&'static str>,
    pub name: TreeName,
    pub is_up: AtomicBool,
    pub lies: AtomicU64,
    random: AtomicU64,
    statements: Mutex<Vec<Vec<u8>>>,
}

impl Site {
    pub fn new(host: &str, seed: u8) -> Arc<Self> {
        let (root, signing) =
            (SecretKey::from_seed(&[seed; 32]), SecretKey::from_seed(&[seed + 100; 32]));
        let cert = SigningCert::issue(&root, signing.public(), 1, 0, u64::MAX / 2);
        let name = TreeName::new(host, root.public().hostid()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("source")).unwrap();
        Database::create(&dir.path().join("db"), *name.hostid(), Iv::from_bytes([seed; 32]))
            .unwrap();
        let (signer, db) = (Mutex::new((signing, cert)), Mutex::new("db"));
        Arc::new(Self {
            dir,
            root,
            signer,
            db,
            name,
            is_up: AtomicBool::new(true),
            lies: AtomicU64::new(0),
            random: AtomicU64::new(seed.into()),
            statements: Mutex::default(),
        })
    }

    fn db(&self) -> PathBuf {
        self.dir.path().join(*self.db.lock())
    }

    pub fn serve_empty_database(&self, iv: Iv) {
        *self.db.lock() = "thiefs";
        Database::create(&self.db(), *self.name.hostid(), iv).unwrap();
    }

    pub fn certify(&self) {
        *self.db.lock() = "db";
        let signing = SecretKey::from_seed(&[222; 32]);
        let cert = SigningCert::issue(&self.root, signing.public(), 2, 0, u64::MAX / 2);
        *self.signer.lock() = (signing, cert);
    }

    pub fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub fn root_key(&self) -> &SecretKey {
        &self.root
    }

    pub fn state(&self, statement: Vec<u8>) {
        self.statements.lock().push(statement);
    }

    pub fn publish(&self, start: i64, duration_s: u32) {
        self.publish_with(Options::new(self.source(), self.name.clone(), start as u64, duration_s));
    }

    pub fn publish_with(&self, mut options: Options) {
        options.rehash = true;
        let writer = Database::open_write(&self.db(), WriteOptions::default()).unwrap();
        let signer = self.signer.lock();
        let signer = Signer { key: &signer.0, cert: signer.1.clone() };
        publish(&writer, &signer, &options, &Progress::default()).unwrap();
    }

    pub fn collect(&self) {
        Database::collect(&self.db(), CollectOptions::default()).unwrap();
    }

    fn replies(&self, call: &Call<'_>) -> Vec<u8> {
        let database = Database::open_read(&self.db()).unwrap();
        match Procedure::from_number(call.procedure) {
            Some(Procedure::GetFsinfo) => {
                let arguments = GetFsinfoArgs::from_xdr(call.args).unwrap();
                match database.head().filter(|_| arguments.hostid == *self.name.hostid()) {
                    Some(signed) => {
                        let companions = database
                            .companions()
                            .iter()
                            .filter_map(|h| database.get(h).unwrap())
                            .collect();
                        let statements = self.statements.lock().clone();
                        GetFsinfoResult::Ok(FsinfoOffer {
                            signed_fsinfo: signed.to_vec(),
                            statements,
                            companions,
                        })
                        .to_xdr()
                    }
                    None => GetFsinfoResult::NoTree.to_xdr(),
                }
            }
            Some(Procedure::GetData) => {
                let arguments = GetDataArgs::from_xdr(call.args).unwrap();
                let frames: Vec<Option<Vec<u8>>> =
                    arguments.handles.iter().map(|handle| database.get(handle).unwrap()).collect();
                let mut w = Writer::new();
                GetDataResult { frames: frames.iter().map(Option::as_deref).collect() }
                    .encode(&mut w);
                w.into_bytes()
            }
            _ => Vec::new(),
        }
    }

    fn falsify(&self, bytes: &mut [u8]) {
        let draw = || {
            let z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        if draw() % 256 < self.lies.load(Ordering::SeqCst) {
            let bit = 64 + draw() as usize % (bytes.len() * 8 - 64);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    async fn serve(self: Arc<Self>, mut stream: DuplexStream) {
        let (mut records, mut buffer) = (RecordReader::new(1 << 20), vec![0; 64 * 1024]);
        loop {
            let Ok(n @ 1..) = stream.read(&mut buffer).await else { return };
            let mut input = &buffer[..n];
            while let Ok(Some(record)) = records.next(&mut input) {
                if !self.is_up.load(Ordering::SeqCst) {
                    return;
                }
                let call = Call::decode(&record).unwrap();
                let results = self.replies(&call);
                let reply = Reply::accepted(call.xid, Accepted::Success(&results));
                let mut bytes = vouch_oncrpc::record(|w| reply.encode(w));
                self.falsify(&mut bytes);
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[derive(Default)]
pub struct Network(Vec<Arc<Site>>);

impl Connector for Network {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let found = self.0.iter().position(|site| site.name.host() == host);
        let address = move |n: usize| {
            vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n as u8 + 1)), port)]
        };
        async move {
            found
                .map(address)
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host"))
        }
        .boxed()
    }

    fn connect<'a>(
        &'a self,
        _host: &'a str,
        address: SocketAddr,
    ) -> BoxFuture<'a, io::Result<Link>> {
        async move {
            let IpAddr::V4(ip) = address.ip() else {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            };
            let site = self.0[usize::from(ip.octets()[3]) - 1].clone();
            if !site.is_up.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            tokio::spawn(site.serve(theirs));
            Ok(Link::Stream(Box::new(ours)))
        }
        .boxed()
    }
}

pub struct TestMount {
    pub runtime: Runtime,
    pub clock: Arc<TestClock>,
    pub client: Arc<Client>,
    pub tree: Option<Arc<Tree>>,
    pub mounted: Option<Mounted>,
    pub point: PathBuf,
    _dir: TempDir,
}

impl TestMount {
    pub fn of_tree(site: &Arc<Site>) -> Self {
        Self::of_tree_with(site, |_| {})
    }

    pub fn of_tree_with(site: &Arc<Site>, choose: impl FnOnce(&mut MountOptions)) -> Self {
        Self::mounting(Self::start(vec![site.clone()], |_| {}), site, choose)
    }

    pub fn of_tree_with_cache(
        site: &Arc<Site>,
        cache: DiskCacheOptions,
        choose: impl FnOnce(&mut MountOptions),
    ) -> Self {
        Self::mounting(
            Self::start(vec![site.clone()], |client| client.disk_cache = Some(cache)),
            site,
            choose,
        )
    }

    pub fn of_tree_on_disk(
        site: &Arc<Site>,
        disk: &Path,
        quota_bytes: u64,
        choose: impl FnOnce(&mut MountOptions),
    ) -> Self {
        let mount = Self::start(vec![site.clone()], |client| {
            client.disk_cache = Some(DiskCacheOptions { dir: disk.join("cache"), quota_bytes });
            client.state_dir = Some(disk.join("state"));
            client.memory_cache_bytes = 1 << 20;
        });
        Self::mounting(mount, site, choose)
    }

    fn mounting(mut mount: Self, site: &Arc<Site>, choose: impl FnOnce(&mut MountOptions)) -> Self {
        let config = mount.config(choose);
        let tree =
            mount.runtime.block_on(mount.client.open(&site.name, &TreeOptions::default())).unwrap();
        mount.mounted = Some(mount.runtime.block_on(mount_tree(config, tree.clone())).unwrap());
        mount.tree = Some(tree);
        mount
    }

    pub fn of_tree_at(site: &Arc<Site>, point: PathBuf) -> Self {
        let mut mount = Self::start(vec![site.clone()], |_| {});
        mount.point = point;
        let config = mount.config(|_| {});
        let tree =
            mount.runtime.block_on(mount.client.open(&site.name, &TreeOptions::default())).unwrap();
        mount.mounted = Some(mount.runtime.block_on(mount_tree(config, tree)).unwrap());
        mount
    }

    pub fn of_namespace(sites: Vec<Arc<Site>>) -> Self {
        Self::of_namespace_asking(sites, Duration::from_secs(3600))
    }

    pub fn of_namespace_asking(sites: Vec<Arc<Site>>, interval: Duration) -> Self {
        let mut mount = Self::start(sites, |client| client.refresh_interval = Some(interval));
        let config = mount.config(|_| {});
        let mounting = mount_namespace(config, mount.client.clone(), NamespaceTrees::default());
        mount.mounted = Some(mount.runtime.block_on(mounting).unwrap());
        mount
    }

    fn start(sites: Vec<Arc<Site>>, choose: impl FnOnce(&mut ClientOptions)) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let clock = Arc::new(TestClock(AtomicI64::new(NOW)));
        let mut options = ClientOptions {
            connector: Arc::new(Network(sites)),
            clock: clock.clone(),
            deadline: Duration::from_secs(3),
            refresh_interval: Some(Duration::from_secs(3600)),
            seed: Some(1),
            ..ClientOptions::default()
        };
        choose(&mut options);
        let guard = runtime.enter();
        let client = Client::new(options).unwrap();
        drop(guard);
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().join("mnt");
        fs::create_dir(&point).unwrap();
        Self { runtime, clock, client, tree: None, mounted: None, point, _dir: dir }
    }

    fn config(&self, choose: impl FnOnce(&mut MountOptions)) -> MountConfig {
        let mut options = MountOptions {
            clock: self.clock.clone(),
            deadline: Duration::from_secs(8),
            ..MountOptions::default()
        };
        choose(&mut options);
        MountConfig { point: self.point.clone(), options }
    }

    pub fn take_over(&mut self, site: &Arc<Site>, journal: &Arc<File>, was_killed: bool) {
        let before = self.mounted.take().unwrap();
        let device = before.device().unwrap();
        std::mem::forget(before);
        let tree =
            self.runtime.block_on(self.client.open(&site.name, &TreeOptions::default())).unwrap();
        let options = self.config(|options| options.journal = Some(journal.clone())).options;
        let _entered = self.runtime.enter();
        let predecessor =
            Predecessor { image: MountImage::read(journal).unwrap(), device, was_killed };
        self.mounted = Some(take_over_tree(options, &tree, predecessor).unwrap().begin().unwrap());
        self.tree = Some(tree);
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.join(name)
    }

    pub fn publish(&self, site: &Site) {
        site.publish(NOW, 3600);
        self.refresh();
    }

    pub fn refresh(&self) {
        let tree = self.tree.as_ref().unwrap();
        self.until(|| self.runtime.block_on(tree.refresh()).is_ok());
        let number = tree.newest().number();
        self.until(|| self.mounted.as_ref().unwrap().status().trees[0].revision == number);
        std::thread::sleep(Duration::from_millis(100));
    }

    pub fn until(&self, done: impl FnMut() -> bool) {
        within(60, "the condition is not met in time", done);
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            self.runtime.block_on(mounted.unmount()).unwrap();
        }
    }
}

pub fn contents_of(dir: &Path) -> BTreeMap<PathBuf, String> {
    let (mut found, mut queue) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(path) = queue.pop() {
        let m = fs::symlink_metadata(&path).unwrap();
        let content = if m.is_dir() {
            queue.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            String::new()
        } else if m.is_symlink() {
            format!("{:?}", fs::read_link(&path).unwrap())
        } else if m.is_file() && m.size() < 64 << 20 {
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, m.size());
            format!("{} {:?}", bytes.len(), hash(&bytes))
        } else {
            format!("{} {} {}", m.size(), m.rdev(), m.file_type().is_fifo())
        };
        let line = format!(
            "{:o} {}:{} {}.{:09} {} {content} {}",
            m.mode(),
            m.uid(),
            m.gid(),
            m.mtime(),
            m.mtime_nsec(),
            m.nlink(),
            xattrs(&path)
        );
        found.insert(path.strip_prefix(dir).unwrap().to_owned(), line);
    }
    found
}

fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn xattrs(path: &Path) -> String {
    let mut names = vec![0; 64 * 1024];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut all: Vec<String> = names[..len]
        .split(|&b| b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 64 * 1024];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            format!("{}={:?}", String::from_utf8_lossy(name), &value[..len])
        })
        .collect();
    all.sort();
    all.join(",")
}
