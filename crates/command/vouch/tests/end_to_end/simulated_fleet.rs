//! Simulated and real: the same clients behind a real squid with a limited bandwidth, and nginx as
//! the origin.

use std::time::SystemTime;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use vouch_fleet::{
    CacheFailure, FleetOptions, JobResult, MEMORY, NetworkOptions, Outcome, Release, Site, run_job,
    simulate,
};
use vouch_tree_client::{Client, ClientOptions, HttpConnector, HttpOptions, TreeOptions};

use crate::http_replica::{Process, start};
use crate::prelude::{Arc, Duration, Instant, Mutex, Path, free_port, require_programs};

const NODES: u32 = 50;
const FILES: usize = 100;
const PACK_LEN_MAX: u32 = 256 << 10;
/// Of the cache, in bytes per second: less than a slow machine passes on.
const CACHE_BANDWIDTH: f64 = 20e6;

/// Configurations as docs/web.md gives them.
fn servers(dir: &Path, web: u16, proxy: u16) -> [Process; 2] {
    let root = dir.to_str().unwrap();
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let nginx = format!(
        "daemon off; {user} pid {root}/nginx.pid; error_log {root}/error.log; events {{}}\n\
         http {{ log_format bytes '$body_bytes_sent'; access_log {root}/access.log bytes;\n\
         client_body_temp_path {root}/t; proxy_temp_path {root}/t; fastcgi_temp_path {root}/t; uwsgi_temp_path {root}/t; scgi_temp_path {root}/t;\n\
         server {{ listen 127.0.0.1:{web}; root {root};\n\
         location ~ /(packs|index)/ {{ add_header Cache-Control \"public, max-age=31536000, immutable\"; }}\n\
         location ~ /manifest$ {{ add_header Cache-Control \"max-age=30\"; }} }} }}\n"
    );
    let squid = format!(
        "http_port 127.0.0.1:{proxy}\nhttp_access allow all\npid_filename none\naccess_log none\ncache_log /dev/null\ncache_store_log none\n\
         cache_mem 256 MB\nmaximum_object_size_in_memory 8 MB\ncollapsed_forwarding on\nshutdown_lifetime 0 seconds\nnetdb_filename none\n"
    );
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (nginx, squid) = (write("nginx.conf", nginx), write("squid.conf", squid));
    [start("nginx", &["-c", &nginx], web), start("squid", &["-N", "-f", &squid], proxy)]
}

fn answered(dir: &Path) -> (u64, u64) {
    std::thread::sleep(Duration::from_millis(300));
    let log = std::fs::read_to_string(dir.join("access.log")).unwrap_or_default();
    (log.lines().count() as u64, log.lines().filter_map(|line| line.parse::<u64>().ok()).sum())
}

/// Passes connections to `to`, and all answers together with a limited bandwidth.
fn limited(listener: TcpListener, to: u16) -> JoinHandle<()> {
    let free_at = Arc::new(Mutex::new(Instant::now()));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { continue };
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let free_at = Arc::clone(&free_at);
            tokio::spawn(async move {
                let mut bytes = vec![0; 16 << 10];
                while let Ok(len @ 1..) = from_server.read(&mut bytes).await {
                    let until = {
                        let mut free_at = free_at.lock();
                        *free_at = (*free_at).max(Instant::now())
                            + Duration::from_secs_f64(len as f64 / CACHE_BANDWIDTH);
                        *free_at
                    };
                    tokio::time::sleep_until(until.into()).await;
                    if to_client.write_all(&bytes[..len]).await.is_err() {
                        return;
                    }
                }
            });
        }
    })
}

struct Real {
    requests: u64,
    bytes: u64,
    last_node: Duration,
    results: Vec<JobResult>,
}

async fn real(site: &Site, job: &Arc<Vec<String>>, cache_dies: bool) -> Real {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let empty = site.dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    site.publish(&empty, now() - 10).unwrap();
    let (web, squid_port) = (free_port(), free_port());
    let [_nginx, squid] = servers(site.dir.path(), web, squid_port);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let relay = limited(listener, squid_port);
    let mut trees = Vec::new();
    for _ in 0..NODES {
        let http =
            HttpOptions { proxies: vec![proxy.clone(), "DIRECT".into()], ..HttpOptions::default() };
        let connector = Arc::new(HttpConnector::new(http).unwrap());
        let client = Client::new(ClientOptions {
            connector,
            memory_cache_bytes: MEMORY,
            ..ClientOptions::default()
        })
        .unwrap();
        let replicas = vec![format!("http://127.0.0.1:{web}/db")];
        let options = TreeOptions { replicas, only_replicas: true, ..TreeOptions::default() };
        trees.push(client.open(&site.name, &options).await.unwrap());
    }
    site.publish(&site.source(), now()).unwrap();
    let before = answered(site.dir.path());
    // A new minute gives the manifest a new URL.
    for tree in &trees {
        while tree.newest().number() < 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = tree.refresh().await;
        }
    }
    if cache_dies {
        drop(squid);
        relay.abort();
        let _ = relay.await;
    }
    let began = Instant::now();
    let nodes = trees.into_iter().map(|tree| {
        let job = Arc::clone(job);
        tokio::spawn(async move { run_job(&tree, &job).await })
    });
    let mut results = Vec::new();
    for node in nodes.collect::<Vec<_>>() {
        results.push(node.await.unwrap());
    }
    let last_node = began.elapsed();
    let after = answered(site.dir.path());
    Real { requests: after.0 - before.0, bytes: after.1 - before.1, last_node, results }
}

async fn both(cache_dies: bool) -> (Outcome, Real) {
    require_programs(&["nginx", "squid"]);
    let site = Site::create(PACK_LEN_MAX).unwrap();
    let job = site.add_program("app", FILES).unwrap();
    let (source, listed) = (site.source(), job.to_vec());
    let simulated = tokio::task::spawn_blocking(move || {
        let release = Release::of_directory(&source, listed, PACK_LEN_MAX).unwrap();
        let options =
            FleetOptions { nodes: NODES, start_spread: Duration::ZERO, ..FleetOptions::default() };
        let (at, lasts) = (options.job_after - Duration::from_secs(1), Duration::from_secs(600));
        let failures = if cache_dies {
            vec![CacheFailure { cache: 0, at, lasts, is_silent: false }]
        } else {
            Vec::new()
        };
        let network = NetworkOptions {
            caches: 1,
            cache_bandwidths: vec![CACHE_BANDWIDTH],
            failures,
            ..NetworkOptions::default()
        };
        simulate(&release, &FleetOptions { network, ..options }).unwrap()
    });
    let simulated = simulated.await.unwrap();
    let real = real(&site, &job, cache_dies).await;
    assert!(
        real.results.iter().all(|result| result.errors == 0 && result.bytes == simulated.job_bytes),
        "{:?}, {simulated:?}",
        real.results
    );
    eprintln!(
        "origin: {} requests, {} bytes; last node after {:.1} s; simulated: {simulated:?}",
        real.requests,
        real.bytes,
        real.last_node.as_secs_f64()
    );
    let ratio = simulated.traffic.origin_bytes as f64 / real.bytes as f64;
    // Without a cache in between, each node's own repeated requests count.
    let tolerance = if cache_dies { 0.35 } else { 0.1 };
    assert!((ratio - 1.0).abs() < tolerance, "simulated over real origin bytes: {ratio}");
    // The simulated clients refresh for two minutes: some manifests more.
    let requests = simulated.traffic.origin_requests.abs_diff(real.requests);
    assert!(
        requests <= real.requests / 4 + 4 + u64::from(cache_dies) * 4 * u64::from(NODES),
        "{} real, {simulated:?}",
        real.requests
    );
    (simulated, real)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nginx and squid"]
async fn simulation_agrees_with_real_clients() {
    let (simulated, real) = both(false).await;
    // A busy machine is slower than its bandwidth, none is faster.
    let ratio = real.last_node.as_secs_f64() / simulated.finished[2];
    assert!(ratio > 0.8, "real over simulated time to the last node: {ratio}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nginx and squid"]
async fn simulation_agrees_with_real_clients_whose_cache_dies() {
    let (simulated, real) = both(true).await;
    let copies = u64::from(NODES) * simulated.job_bytes;
    assert!(
        real.bytes >= copies && simulated.traffic.origin_bytes >= copies,
        "each node reads from the origin"
    );
}
