//! One node: opens the tree before the release, sees the release, runs the job.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use vouch_tree::Content;
use vouch_tree_client::{
    Client, ClientOptions, Clock, HttpConnector, HttpOptions, ReplicaTls, Result, Tree, TreeOptions,
};

use crate::link::Random;
use crate::network::Network;
use crate::release::{EPOCH, Job};
use crate::simulation::FleetOptions;

/// The host is never resolved.
pub(crate) const ORIGIN_URL: &str = "http://origin.invalid/";

/// A program's reads with the kernel's read-ahead.
const READ_LEN: usize = 128 << 10;

/// Memory for decoded frames. A job reads each file once.
pub const MEMORY: u64 = 512 << 10;

struct VirtualClock {
    start: Instant,
}

impl Clock for VirtualClock {
    fn now(&self) -> i64 {
        EPOCH as i64 + self.start.elapsed().as_secs() as i64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobResult {
    pub files: u64,
    pub bytes: u64,
    pub errors: u64,
}

pub async fn run_job(tree: &Arc<Tree>, job: &[String]) -> JobResult {
    let mut result = JobResult::default();
    for path in job {
        match read_file(tree, path).await {
            Ok(len) => {
                result.files += 1;
                result.bytes += len;
            }
            Err(_) => result.errors += 1,
        }
    }
    result
}

async fn read_file(tree: &Arc<Tree>, path: &str) -> Result<u64> {
    let inode = tree.lookup_path(tree.revision()?.root(), path.as_bytes()).await?;
    let Content::Regular { blob, .. } = inode.content else { return Ok(0) };
    let (file, mut offset) = (tree.open_file(blob), 0);
    loop {
        let len = file.read(offset, READ_LEN).await?.len() as u64;
        offset += len;
        if len < READ_LEN as u64 {
            return Ok(offset);
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeOutcome {
    pub(crate) released: Option<Duration>,
    pub(crate) finished: Option<Duration>,
    pub(crate) result: JobResult,
}

pub(crate) struct Node {
    pub(crate) number: u32,
    pub(crate) network: Arc<Network>,
    pub(crate) options: Arc<FleetOptions>,
    pub(crate) name: vouch_tree::TreeName,
    pub(crate) job: Job,
    pub(crate) start: Instant,
    pub(crate) release: Instant,
}

impl Node {
    pub(crate) async fn run(self) -> NodeOutcome {
        let mut random =
            Random(self.options.seed ^ u64::from(self.number).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let (opens, starts) = (random.unit(), random.unit());
        sleep_until(self.start + (self.release - self.start).mul_f64(opens / 2.0)).await;
        let mut outcome = NodeOutcome::default();
        let Some(tree) = self.open(random.next()).await else { return outcome };
        sleep_until(self.release).await;
        let job_start =
            self.release + self.options.job_after + self.options.start_spread.mul_f64(starts);
        let mut changes = tree.watch();
        while tree.newest().number() < RELEASED {
            if changes.changed().await.is_err() {
                return outcome;
            }
        }
        outcome.released = Some(self.release.elapsed());
        sleep_until(job_start).await;
        outcome.result = run_job(&tree, &self.job).await;
        outcome.finished = Some(self.release.elapsed());
        outcome
    }

    /// Retries until it succeeds, as a mount at boot does.
    async fn open(&self, seed: u64) -> Option<Arc<Tree>> {
        let client = Client::new(ClientOptions {
            connector: Arc::new(HttpConnector::new(self.http_options()).ok()?),
            clock: Arc::new(VirtualClock { start: self.start }),
            deadline: self.options.deadline,
            memory_cache_bytes: MEMORY,
            refresh_interval: Some(self.options.refresh_interval),
            seed: Some(seed),
            ..ClientOptions::default()
        });
        let (client, tree) = (
            client.ok()?,
            TreeOptions {
                replicas: vec![ORIGIN_URL.into()],
                only_replicas: true,
                ..TreeOptions::default()
            },
        );
        while Instant::now() < self.release {
            if let Ok(tree) = client.open(&self.name, &tree).await {
                return Some(tree);
            }
        }
        None
    }

    /// The node's own cache first, then those of other sites, then the origin.
    fn http_options(&self) -> HttpOptions {
        let caches = self.options.network.caches;
        let own = self.number as usize;
        let mut proxies: Vec<_> = (0..caches.min(self.options.caches_per_node))
            .map(|n| format!("http://cache{}", (own + n) % caches))
            .collect();
        if self.options.falls_back_to_origin || caches == 0 {
            proxies.push("DIRECT".into());
        }
        let (network, number) = (Arc::clone(&self.network), self.number);
        HttpOptions {
            proxies,
            timeout: self.options.network.timeout,
            tls: ReplicaTls::default(),
            clock: Arc::new(VirtualClock { start: self.start }),
            transport: Some(Arc::new(move |proxy: &str, connect_timeout| {
                let cache =
                    proxy.strip_prefix("http://cache").and_then(|number| number.parse().ok());
                network.transport(number, cache, connect_timeout)
            })),
        }
    }
}

const RELEASED: u64 = 2;
