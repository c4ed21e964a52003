//! Web servers that lie, stall and fail.

mod name_location;
mod outages;
mod proxies;
mod seeded_lies;
mod socks;
mod stubborn_cache;
mod web_server;
mod wrong_slices;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::future::join_all;
use seeded_lies::{Files, response};
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Content, Iv, TreeName};
use vouch_tree_client::{
    Client, ClientOptions, HttpConnector, HttpOptions, HttpRequest, HttpResponse, Tree, TreeOptions,
};
use vouch_tree_publish::{Options, Progress, Signer, publish};
use vouch_tree_store::{Database, WriteOptions};
use web_server::{Fault, WebServer};

const FILES: usize = 40;

struct Site {
    dir: tempfile::TempDir,
    name: TreeName,
    key: SecretKey,
    cert: SigningCert,
}

impl Site {
    fn new(pack_len_max: u32) -> Site {
        Self::with_source(pack_len_max, |_| ())
    }

    fn with_source(pack_len_max: u32, add: impl FnOnce(&Path)) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let (source, db) = (dir.path().join("source"), dir.path().join("db"));
        for number in 0..FILES {
            let file = source.join(format!("dir{}/file{number}", number % 4));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content(number)).unwrap();
        }
        add(&source);
        let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let cert = SigningCert::issue(&root, key.public(), 1, 0, u64::MAX / 2);
        let name = TreeName::new("localhost", root.public().hostid()).unwrap();
        Database::create(&db, *name.hostid(), Iv::from_bytes([3; 32])).unwrap();
        let site = Site { dir, name, key, cert };
        site.publish(pack_len_max);
        site
    }

    fn publish(&self, pack_len_max: u32) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let writer = Database::open_write(
            &self.db(),
            WriteOptions { pack_len: Some(pack_len_max), ..WriteOptions::default() },
        )
        .unwrap();
        let options = Options {
            level: 0,
            ..Options::new(self.dir.path().join("source"), self.name.clone(), now, 100_000)
        };
        publish(
            &writer,
            &Signer { key: &self.key, cert: self.cert.clone() },
            &options,
            &Progress::default(),
        )
        .unwrap();
    }

    fn db(&self) -> std::path::PathBuf {
        self.dir.path().join("db")
    }

    async fn open(
        &self,
        server: &WebServer,
        timeout: Duration,
    ) -> vouch_tree_client::Result<Arc<Tree>> {
        let connector = HttpConnector::new(HttpOptions {
            timeout,
            proxies: vec!["DIRECT".into()],
            ..HttpOptions::default()
        })?;
        let options = ClientOptions {
            connector: Arc::new(connector),
            deadline: 2 * timeout,
            connect_timeout: timeout,
            ..ClientOptions::default()
        };
        let replicas = vec![format!("http://{}/", server.address)];
        let options_of_tree =
            TreeOptions { replicas, only_replicas: true, ..TreeOptions::default() };
        Client::new(options)?.open(&self.name, &options_of_tree).await
    }
}

/// Sizes from inline in the directory to several leaves; incompressible.
fn content(number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_be_bytes());
    bytes.resize(1 << (4 + number % 15), 0);
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// The answer of a store in memory.
fn honest(files: &Files, request: &HttpRequest) -> HttpResponse {
    match (files.get(request.url.path().trim_start_matches('/')), &request.range) {
        (None, _) => response(404, None, Bytes::new()),
        (Some(whole), None) => response(200, None, whole.clone()),
        (Some(whole), Some(range)) => {
            let part = whole.slice(range.start as usize..range.end as usize);
            response(206, Some(range.start), part)
        }
    }
}

async fn open_at(
    name: &TreeName,
    options: HttpOptions,
    replicas: Vec<String>,
) -> vouch_tree_client::Result<Arc<Tree>> {
    let connector = Arc::new(HttpConnector::new(options).unwrap());
    let options = ClientOptions { connector, seed: Some(1), ..ClientOptions::default() };
    let only_replicas = !replicas.is_empty();
    let options_of_tree = TreeOptions { replicas, only_replicas, ..TreeOptions::default() };
    Client::new(options)?.open(name, &options_of_tree).await
}

async fn read(tree: &Tree, number: usize) -> vouch_tree_client::Result<Vec<u8>> {
    let path = format!("dir{}/file{number}", number % 4);
    let inode = tree.lookup_path(tree.revision()?.root(), path.as_bytes()).await?;
    let Content::Regular { blob, .. } = &inode.content else {
        panic!("{path} is not a regular file")
    };
    Ok(tree.read(blob, 0, blob.size as usize).await?.to_vec())
}

async fn read_all(tree: &Tree) -> Vec<vouch_tree_client::Result<Vec<u8>>> {
    join_all((0..FILES).map(|number| read(tree, number))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_read_whole_with_few_requests() {
    for (pack_len_max, fault, requests_max) in [
        (32 << 20, Fault::None, 10),
        (256 << 10, Fault::None, 25),
        (32 << 20, Fault::RangeIgnored, 12),
    ] {
        let site = Site::new(pack_len_max);
        let server = WebServer::start(&site.db(), fault, 0, 0);
        let tree = site.open(&server, Duration::from_secs(10)).await.unwrap();
        for (number, bytes) in read_all(&tree).await.into_iter().enumerate() {
            assert!(
                bytes.unwrap() == content(number),
                "file {number} with packs of {pack_len_max} and {fault:?}"
            );
        }
        let requests = server.requests();
        assert!(
            requests <= requests_max,
            "{requests} requests with packs of {pack_len_max} and {fault:?}"
        );
    }
}

/// Faults of real connections; lies in answers are in `seeded_lies`. Environment:
/// `VOUCH_WEB_LIE_CASES`.
#[tokio::test(flavor = "multi_thread")]
async fn lies_and_failures_end_as_errors_in_time() {
    let cases: u64 = std::env::var("VOUCH_WEB_LIE_CASES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(70);
    let sites = [Arc::new(Site::new(32 << 20)), Arc::new(Site::new(256 << 10))];
    let (mut refused, mut right) = (0, 0);
    for first in (0..cases).step_by(7) {
        let batch = (first..(first + 7).min(cases)).map(|case| {
            let site = Arc::clone(&sites[(case / 7 % 2) as usize]);
            async move {
                let fault = Fault::ALL[(case % 7) as usize];
                let place = case.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
                let server = WebServer::start(&site.db(), fault, (place % 9) as usize, place);
                let began = Instant::now();
                let results = match site.open(&server, Duration::from_millis(700)).await {
                    Ok(tree) => read_all(&tree).await,
                    Err(error) => vec![Err(error)],
                };
                assert!(
                    began.elapsed() < Duration::from_secs(20),
                    "case {case}, {fault:?}: {:?}",
                    began.elapsed()
                );
                let mut counts = (0, 0);
                for (number, result) in results.into_iter().enumerate() {
                    match result {
                        Ok(bytes) => {
                            assert!(
                                bytes == content(number),
                                "case {case}, {fault:?}: wrong bytes of file {number}"
                            );
                            counts.0 += 1;
                        }
                        Err(_) => counts.1 += 1,
                    }
                }
                counts
            }
        });
        for counts in join_all(batch).await {
            right += counts.0;
            refused += counts.1;
        }
    }
    assert!(right > 0 && refused > 0, "{right} files read, {refused} refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_server_is_used_beside_a_liar() {
    let site = Site::new(32 << 20);
    let (liar, honest) = (
        WebServer::start(&site.db(), Fault::FlippedByte, 1, 77),
        WebServer::start(&site.db(), Fault::None, 0, 0),
    );
    let replicas = [&liar, &honest].map(|server| format!("http://{}", server.address)).to_vec();
    let tree = open_at(&site.name, HttpOptions::default(), replicas).await.unwrap();
    for (number, bytes) in read_all(&tree).await.into_iter().enumerate() {
        assert!(bytes.unwrap() == content(number), "file {number}");
    }
}

#[tokio::test]
async fn bad_urls_are_refused() {
    let site = Site::new(32 << 20);
    for url in ["http://", "https://host/db?x=1", "http://host/#x", "http://ho st/"] {
        let opened = open_at(&site.name, HttpOptions::default(), vec![url.into()]).await;
        assert!(opened.is_err(), "{url}");
    }
    assert!(
        HttpConnector::new(HttpOptions {
            proxies: vec!["ftp//x".into()],
            ..HttpOptions::default()
        })
        .is_err()
    );
}
