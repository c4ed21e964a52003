//! Between real clients and a real origin, over the tree protocol and HTTP.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use vouch_daemon::sandbox::SandboxMode;
use vouch_replica::{Limits, ServeConfig, ServeError, Server};
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Content, Iv, TreeName};
use vouch_tree_cache::{CacheCounts, CacheOptions, TreeCache};
use vouch_tree_client::{Client, ClientOptions, HttpConnector, HttpOptions, Tree, TreeOptions};
use vouch_tree_publish::{Options, Progress, Signer, publish};
use vouch_tree_store::{CollectOptions, Database, RemoteView, WriteOptions, read_segment};

const FILES: usize = 40;

struct Site {
    dir: tempfile::TempDir,
    name: TreeName,
    key: SecretKey,
    cert: SigningCert,
    origin: SocketAddr,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let cert = SigningCert::issue(&root, key.public(), 1, 0, u64::MAX / 2);
        let origin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let name = TreeName::new(&origin.to_string(), root.public().hostid()).unwrap();
        Database::create(&dir.path().join("db"), *name.hostid(), Iv::from_bytes([3; 32])).unwrap();
        let site = Site { dir, name, key, cert, origin };
        (0..FILES).for_each(|number| site.write(number, number));
        site.publish();
        site
    }

    fn write(&self, file: usize, number: usize) {
        let path = self.path(&format!("source/dir{}/file{file}", file % 4));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content(number)).unwrap();
    }

    fn publish(&self) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let options = WriteOptions { pack_len: Some(1 << 20), ..WriteOptions::default() };
        let writer = Database::open_write(&self.path("db"), options).unwrap();
        let options =
            Options { level: 0, ..Options::new(self.path("source"), self.name.clone(), now, 3600) };
        publish(
            &writer,
            &Signer { key: &self.key, cert: self.cert.clone() },
            &options,
            &Progress::default(),
        )
        .unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn serve_origin(&self) -> Running {
        start(config(self.path("db"), self.origin, None))
    }

    fn options(&self, quota: u64) -> CacheOptions {
        CacheOptions {
            name: self.name.clone(),
            dir: self.path("cache"),
            quota,
            tree: TreeOptions::default(),
            refresh: Duration::from_millis(300),
            http: HttpOptions { timeout: Duration::from_secs(2), ..HttpOptions::default() },
        }
    }

    async fn open_cache(&self, quota: u64) -> vouch_tree_cache::Result<Arc<TreeCache>> {
        let client = ClientOptions {
            connector: Arc::new(HttpConnector::new(HttpOptions::default()).unwrap()),
            deadline: Duration::from_secs(5),
            state_dir: Some(self.path("state")),
            ..ClientOptions::default()
        };
        TreeCache::open(Client::new(client).unwrap(), self.options(quota)).await
    }

    async fn serve_cache(&self, quota: u64) -> (Running, Arc<TreeCache>) {
        let cache = self.open_cache(quota).await.unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        (start(config(self.path("cache"), any, Some(Arc::clone(&cache)))), cache)
    }

    async fn open(&self, replica: String) -> vouch_tree_client::Result<Arc<Tree>> {
        let http = HttpOptions { proxies: vec!["DIRECT".into()], ..HttpOptions::default() };
        let connector = Arc::new(HttpConnector::new(http).unwrap());
        let client = Client::new(ClientOptions {
            connector,
            deadline: Duration::from_secs(20),
            ..ClientOptions::default()
        })
        .unwrap();
        client
            .open(
                &self.name,
                &TreeOptions {
                    replicas: vec![replica],
                    only_replicas: true,
                    ..TreeOptions::default()
                },
            )
            .await
    }

    async fn read(&self, replica: String, numbers: impl Fn(usize) -> usize) {
        let tree =
            self.open(replica.clone()).await.unwrap_or_else(|error| panic!("{replica}: {error}"));
        let reads = (0..FILES).map(|file| {
            let tree = &tree;
            async move {
                let path = format!("dir{}/file{file}", file % 4);
                let inode = tree.lookup_path(tree.revision()?.root(), path.as_bytes()).await?;
                let Content::Regular { blob, .. } = &inode.content else {
                    panic!("{path} is not a regular file")
                };
                tree.read(blob, 0, blob.size as usize).await
            }
        });
        for (file, bytes) in join_all(reads).await.into_iter().enumerate() {
            assert!(
                bytes.unwrap_or_else(|error| panic!("{replica}, file {file}: {error}"))
                    == content(numbers(file)),
                "file {file}"
            );
        }
    }
}

fn content(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; 1 << (4 + number % 14)];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_be_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

fn config(db: PathBuf, listen: SocketAddr, cache: Option<Arc<TreeCache>>) -> ServeConfig {
    ServeConfig {
        is_tls_only: false,
        databases: vec![db],
        listen: vec![listen],
        passed: vec![],
        tls: None,
        metrics: None,
        threads: Some(2),
        limits: Limits { drain_max: Duration::from_millis(200), ..Limits::default() },
        scrub_rate: 0,
        statements: None,
        cache,
        sandbox: SandboxMode::BestEffort,
        runtime_directory: None,
    }
}

struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

fn start(config: ServeConfig) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = std::sync::mpsc::channel();
    let stopping = stop.clone();
    // The sandbox binds the thread that opens the server.
    let thread = std::thread::spawn(move || {
        let server = Server::open(config)?;
        tell.send(server.addresses()[0]).unwrap();
        server.run(|| stopping.load(Ordering::Acquire))
    });
    Running { address: told.recv().expect("the server opens"), stop, thread: Some(thread) }
}

impl Running {
    fn rpc(&self) -> String {
        self.address.to_string()
    }

    fn http(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn space(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            if path.is_dir() {
                space(&path)
            } else {
                path.metadata().map_or(0, |found| found.blocks() * 512)
            }
        })
        .sum()
}

const LARGE: u64 = 1 << 30;

#[tokio::test(flavor = "multi_thread")]
async fn cold_clients_of_both_protocols_cost_the_origin_one_client() {
    let clients: usize = std::env::var("VOUCH_CACHE_CLIENTS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(10);
    let site = Site::new();
    let _origin = site.serve_origin();
    let (server, cache) = site.serve_cache(LARGE).await;
    join_all((0..clients).map(|number| {
        site.read(if number % 2 == 0 { server.rpc() } else { server.http() }, |file| file)
    }))
    .await;
    let CacheCounts { fetched, fetched_len, failed, .. } = cache.counts();
    let packs = std::fs::read_dir(site.path("db/packs"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum::<u64>();
    println!(
        "{clients} clients: {fetched} frames, {fetched_len} bytes from the origin; its packs have {packs} bytes"
    );
    assert!(failed == 0 && fetched_len <= packs, "{fetched_len} bytes fetched of {packs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cache_serves_without_origin_and_after_restart_then_follows() {
    let site = Site::new();
    let origin = site.serve_origin();
    let (server, cache) = site.serve_cache(LARGE).await;
    site.read(server.http(), |file| file).await;
    drop(origin);
    site.read(server.rpc(), |file| file).await;
    site.read(server.http(), |file| file).await;
    assert!(matches!(site.open_cache(LARGE).await, Err(vouch_tree_cache::Error::Busy(_))));
    drop((server, cache));

    // Fetches bytes that changed on the disk again, and never serves them.
    let pack =
        std::fs::read_dir(site.path("cache/packs")).unwrap().map(|entry| entry.unwrap().path());
    let pack = pack.max_by_key(|path| space_of(path)).unwrap();
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    wait_for_lock(&site).await;
    let (server, cache) = site.serve_cache(LARGE).await;
    let tree = site.open(server.rpc()).await.unwrap();
    assert_eq!(tree.newest().number(), 1);
    let _origin = site.serve_origin();
    site.read(server.http(), |file| file).await;
    assert!(cache.counts().fetched <= 3, "{:?}", cache.counts());

    site.write(7, 11);
    site.publish();
    wait_for_revision(&site, &server, 2).await;
    for replica in [server.rpc(), server.http()] {
        site.read(replica, |file| if file == 7 { 11 } else { file }).await;
    }
}

async fn wait_for_revision(site: &Site, server: &Running, number: u64) {
    let began = Instant::now();
    while site.open(server.rpc()).await.unwrap().newest().number() < number {
        assert!(began.elapsed() < Duration::from_secs(60), "the new revision");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn space_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().map_or(0, |found| found.blocks())
}

async fn wait_for_lock(site: &Site) {
    let path = site.path("cache/lock");
    wait_until("the lock of the cache", || {
        let file = std::fs::File::open(&path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_are_evicted_within_the_quota() {
    let site = Site::new();
    for number in 0..96 {
        std::fs::create_dir_all(site.path("source/large")).unwrap();
        std::fs::write(
            site.path(&format!("source/large/{number}")),
            [content(13 + 28 * number), content(27 + 28 * number)].concat(),
        )
        .unwrap();
    }
    site.publish();
    let _origin = site.serve_origin();
    let quota = 17 << 20;
    let (server, cache) = site.serve_cache(quota).await;
    let tree = site.open(server.http()).await.unwrap();
    for number in 0..96 {
        let inode = tree
            .lookup_path(tree.revision().unwrap().root(), format!("large/{number}").as_bytes())
            .await
            .unwrap();
        let Content::Regular { blob, .. } = &inode.content else { panic!("not a regular file") };
        let bytes = tree.read(blob, 0, blob.size as usize).await.unwrap();
        assert!(
            bytes == [content(13 + 28 * number), content(27 + 28 * number)].concat(),
            "file {number}"
        );
    }
    let counts = cache.counts();
    assert!(counts.evictions > 0 && counts.used_len <= quota, "{counts:?}");
    assert!(space(&site.path("cache")) <= quota, "{} bytes", space(&site.path("cache")));
    site.read(server.rpc(), |file| file).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_follow_a_collection_that_moves_frames() {
    let site = Site::new();
    // The store keeps a segment of this many records when it writes a new one.
    std::fs::create_dir(site.path("source/many")).unwrap();
    for number in 0..5000u64 {
        std::fs::write(
            site.path(&format!("source/many/{number}")),
            [number.to_be_bytes(); 150].concat(),
        )
        .unwrap();
    }
    site.publish();
    let _origin = site.serve_origin();
    let (server, running) = site.serve_cache(LARGE).await;
    let numbers = |file: usize| if (1..=5).contains(&file) { file + 14 } else { file };
    for file in 1..=5 {
        site.write(file, numbers(file));
        site.publish();
    }
    let writer = Database::open_write(&site.path("db"), WriteOptions::default()).unwrap();
    writer.retain(1).unwrap();
    drop(writer);
    let collected = Database::collect(
        &site.path("db"),
        CollectOptions { pack_len: Some(1 << 20), ..CollectOptions::default() },
    )
    .unwrap();
    assert!(collected.moved_bytes > 0 && has_record_of_removed_pack(&site), "{collected:?}");
    site.write(6, 20);
    site.publish();
    let numbers = |file: usize| if file == 6 { 20 } else { numbers(file) };
    wait_for_revision(&site, &server, 8).await;
    for replica in [server.rpc(), server.http()] {
        site.read(replica, numbers).await;
    }
    drop((server, running));
    std::fs::remove_dir_all(site.path("cache")).unwrap();
    let (server, _cache) = site.serve_cache(LARGE).await;
    site.read(server.http(), numbers).await;
}

fn has_record_of_removed_pack(site: &Site) -> bool {
    let view = RemoteView::parse(&std::fs::read(site.path("db/manifest")).unwrap()).unwrap();
    view.segments().iter().any(|file| {
        let segment = read_segment(&site.path("db").join(&file.path)).unwrap();
        segment.records().any(|(_, record)| view.frame(&record).is_err())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_cache_without_origin_is_an_error() {
    let site = Site::new();
    assert!(matches!(site.open_cache(LARGE).await, Err(vouch_tree_cache::Error::Client(_))));
}
