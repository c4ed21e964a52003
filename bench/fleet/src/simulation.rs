//! Runs all nodes on the virtual clock and sums up.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::Error;
use crate::network::{Network, NetworkOptions, Traffic};
use crate::node::{Node, NodeOutcome};
use crate::release::Release;

#[derive(Debug, Clone)]
pub struct FleetOptions {
    pub nodes: u32,
    pub network: NetworkOptions,
    /// A node's own cache, then those of its neighbours.
    pub caches_per_node: usize,
    /// Nodes ask the origin if all their caches fail.
    pub falls_back_to_origin: bool,
    pub refresh_interval: Duration,
    pub deadline: Duration,
    pub job_after: Duration,
    /// The nodes start the job evenly within this time.
    pub start_spread: Duration,
    pub seed: u64,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            nodes: 1000,
            network: NetworkOptions::default(),
            caches_per_node: 2,
            falls_back_to_origin: true,
            refresh_interval: Duration::from_secs(60),
            deadline: Duration::from_secs(30),
            job_after: Duration::from_secs(120),
            start_spread: Duration::from_secs(1),
            seed: 1,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub nodes_done: u64,
    pub errors: u64,
    pub job_bytes: u64,
    /// Times from the release until half of the nodes, and the last one, had the new revision.
    pub release_seen: [f64; 2],
    /// Times from the start of the job until half of the nodes, 99 % of them, and the last one had
    /// finished.
    pub finished: [f64; 3],
    pub traffic: Traffic,
}

/// The nodes open the tree in this time.
const BEFORE_RELEASE: Duration = Duration::from_secs(120);

const END: Duration = Duration::from_secs(3600);

pub fn simulate(release: &Release, options: &FleetOptions) -> Result<Outcome, Error> {
    let network = &options.network;
    if !(0.0..1.0).contains(&network.loss) {
        return Err(Error::Option("the loss of packets is a fraction below 1"));
    }
    let rates = [network.origin_bandwidth, network.node_bandwidth, network.requests_per_s];
    if rates.iter().chain(&network.cache_bandwidths).any(|rate| !(*rate > 0.0 && rate.is_finite()))
    {
        return Err(Error::Option("bandwidths and requests per second are above 0"));
    }
    if ![1, network.caches].contains(&network.cache_bandwidths.len()) {
        return Err(Error::Option(
            "the bandwidths of caches are one for all or one for each cache",
        ));
    }
    if network.failures.iter().any(|failure| failure.cache >= network.caches) {
        return Err(Error::Option("a failure names a cache that does not exist"));
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|_| Error::Option("the runtime does not start"))?;
    Ok(runtime.block_on(run(release, options)))
}

async fn run(release: &Release, options: &FleetOptions) -> Outcome {
    let network = Network::new(options.network.clone(), Arc::clone(&release.before), options.seed);
    let (start, options) = (Instant::now(), Arc::new(options.clone()));
    let driver = tokio::spawn(Arc::clone(&network).run());
    let nodes: Vec<_> = (0..options.nodes)
        .map(|number| Node {
            number,
            network: Arc::clone(&network),
            options: Arc::clone(&options),
            name: release.name.clone(),
            job: Arc::clone(&release.job),
            start,
            release: start + BEFORE_RELEASE,
        })
        .map(|node| tokio::spawn(tokio::time::timeout(END, node.run())))
        .collect();
    sleep_until(start + BEFORE_RELEASE).await;
    network.release(Arc::clone(&release.after));
    let mut outcomes = Vec::with_capacity(nodes.len());
    for node in nodes {
        outcomes.push(node.await.ok().and_then(Result::ok).unwrap_or_default());
    }
    driver.abort();
    sum_up(release, &options, &outcomes, network.traffic())
}

fn sum_up(
    release: &Release,
    options: &FleetOptions,
    outcomes: &[NodeOutcome],
    traffic: Traffic,
) -> Outcome {
    let sorted = |time: &dyn Fn(&NodeOutcome) -> Option<Duration>| {
        let mut times: Vec<_> = outcomes.iter().filter_map(time).collect();
        times.sort();
        times
    };
    let released = sorted(&|node| node.released);
    let finished = sorted(&|node| node.finished.map(|at| at.saturating_sub(options.job_after)));
    Outcome {
        nodes_done: outcomes
            .iter()
            .filter(|node| node.finished.is_some() && node.result.errors == 0)
            .count() as u64,
        errors: outcomes.iter().map(|node| node.result.errors).sum(),
        job_bytes: release.job_bytes,
        release_seen: [0.5, 1.0].map(|part| quantile(&released, part)),
        finished: [0.5, 0.99, 1.0].map(|part| quantile(&finished, part)),
        traffic,
    }
}

fn quantile(times: &[Duration], part: f64) -> f64 {
    let index = (times.len() as f64 * part).ceil() as usize;
    times.get(index.saturating_sub(1)).map_or(0.0, Duration::as_secs_f64)
}
