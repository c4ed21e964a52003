//! Simulated and real: the same clients behind a real squid, and nginx as the origin.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use vouch_fleet::{FleetOptions, JobResult, NetworkOptions, Release, Site, run_job, simulate};
use vouch_tree_client::{Client, ClientOptions, HttpConnector, HttpOptions, TreeOptions};

const NODES: u32 = 50;
const PACK_LEN_MAX: u32 = 256 << 10;

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn start(program: &str, args: &[&str], port: u16) -> Process {
    let mut command = Command::new(program);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(args).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process(command.spawn().expect("the program starts"));
    let began = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "{program} does not listen on port {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
    process
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

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

async fn real(site: &Site, job: &Arc<Vec<String>>) -> (u64, u64, Vec<JobResult>) {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let empty = site.dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    site.publish(&empty, now() - 10).unwrap();
    let (web, proxy) = (free_port(), free_port());
    let _servers = servers(site.dir.path(), web, proxy);
    let mut trees = Vec::new();
    for _ in 0..NODES {
        let http = HttpOptions { proxies: vec![format!("http://127.0.0.1:{proxy}")], ..HttpOptions::default() };
        let connector = Arc::new(HttpConnector::new(http).unwrap());
        let client = Client::new(ClientOptions { connector, ..ClientOptions::default() }).unwrap();
        let replicas = vec![format!("http://127.0.0.1:{web}/db")];
        let options = TreeOptions { replicas, only_replicas: true, ..TreeOptions::default() };
        trees.push(client.open(&site.name, &options).await.unwrap());
    }
    site.publish(&site.source(), now()).unwrap();
    let before = answered(site.dir.path());
    // A new minute gives the manifest a new URL.
    let nodes = trees.into_iter().map(|tree| {
        let job = Arc::clone(job);
        tokio::spawn(async move {
            while tree.newest().number() < 2 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _ = tree.refresh().await;
            }
            run_job(&tree, &job).await
        })
    });
    let mut results = Vec::new();
    for node in nodes.collect::<Vec<_>>() {
        results.push(node.await.unwrap());
    }
    let after = answered(site.dir.path());
    (after.0 - before.0, after.1 - before.1, results)
}

#[tokio::test(flavor = "multi_thread")]
async fn simulation_agrees_with_real_clients() {
    if !["nginx", "squid"].iter().all(|program| Path::new("/usr/sbin").join(program).exists()) {
        assert!(std::env::var_os("CI").is_none(), "nginx and squid are missing");
        eprintln!("skipped: nginx or squid is missing");
        return;
    }
    let site = Site::create(PACK_LEN_MAX).unwrap();
    let job = site.add_program("app", 200).unwrap();
    let source = site.source();
    let simulated = tokio::task::spawn_blocking({
        let job = job.to_vec();
        move || {
            let release = Release::of_directory(&source, job, PACK_LEN_MAX).unwrap();
            let network = NetworkOptions { caches: 1, ..NetworkOptions::default() };
            simulate(&release, &FleetOptions { nodes: NODES, network, ..FleetOptions::default() }).unwrap()
        }
    });
    let simulated = simulated.await.unwrap();
    let (requests, bytes, results) = real(&site, &job).await;
    assert!(results.iter().all(|result| result.errors == 0 && result.bytes == simulated.job_bytes), "{results:?} and {simulated:?}");
    eprintln!("origin: {requests} requests, {bytes} bytes; simulated: {simulated:?}");
    // The simulated clients refresh for two minutes: some manifests more.
    let ratio = simulated.traffic.origin_bytes as f64 / bytes as f64;
    assert!((0.9..1.1).contains(&ratio), "simulated over real origin bytes: {ratio}");
    assert!(simulated.traffic.origin_requests.abs_diff(requests) <= requests / 4 + 4, "{requests} real, {simulated:?}");
}
