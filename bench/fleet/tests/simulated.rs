//! Releases to simulated fleets.

use std::time::Duration;

use vouch_fleet::{CacheFailure, FleetOptions, NetworkOptions, Outcome, Release, simulate};

fn run(release: &Release, nodes: u32, network: NetworkOptions) -> Outcome {
    simulate(release, &FleetOptions { nodes, network, ..FleetOptions::default() }).unwrap()
}

fn with_caches(caches: usize) -> NetworkOptions {
    NetworkOptions { caches, ..NetworkOptions::default() }
}

#[test]
fn origin_sends_one_copy_to_each_cache() {
    let release = Release::synthetic(100, 256 << 10).unwrap();
    let one = run(&release, 1, with_caches(1));
    assert_eq!((one.nodes_done, one.errors), (1, 0));
    assert!(one.traffic.origin_bytes >= one.job_bytes, "{one:?}");
    let many = run(&release, 60, with_caches(3));
    assert_eq!((many.nodes_done, many.errors), (60, 0));
    assert!(
        many.traffic.origin_bytes as f64 <= 1.1 * 3.0 * one.traffic.origin_bytes as f64,
        "{many:?} and {one:?}"
    );
    assert!(many.traffic.cache_bytes >= 60 * many.job_bytes, "{many:?}");
    let direct = run(&release, 20, with_caches(0));
    assert!(direct.traffic.origin_bytes >= 20 * direct.job_bytes, "{direct:?}");
    // 20 nodes share the origin's bandwidth.
    assert!(
        direct.finished[2]
            >= (20 * direct.job_bytes) as f64 / NetworkOptions::default().origin_bandwidth,
        "{direct:?}"
    );
}

#[test]
fn caches_that_fail_cost_time_but_no_file() {
    let release = Release::synthetic(100, 256 << 10).unwrap();
    let second = Duration::from_secs(1);
    let failure = |cache, is_silent| CacheFailure {
        cache,
        at: 120 * second + second / 2,
        lasts: 60 * second,
        is_silent,
    };
    let healthy = run(&release, 40, with_caches(2));
    let refusing =
        run(&release, 40, NetworkOptions { failures: vec![failure(0, false)], ..with_caches(2) });
    let silent = run(
        &release,
        40,
        NetworkOptions {
            failures: vec![failure(0, true), failure(1, true)],
            loss: 0.01,
            ..with_caches(2)
        },
    );
    for outcome in [&healthy, &refusing, &silent] {
        assert_eq!((outcome.nodes_done, outcome.errors), (40, 0), "{outcome:?}");
    }
    assert!(
        silent.finished[2] > healthy.finished[2] + 2.0,
        "nodes wait for time-outs: {silent:?} and {healthy:?}"
    );
    assert!(
        silent.traffic.origin_bytes > 3 * healthy.traffic.origin_bytes,
        "the origin replaces the caches: {silent:?}"
    );
}

#[test]
fn slow_cache_delays_its_own_nodes() {
    let release = Release::synthetic(100, 256 << 10).unwrap();
    let fast = NetworkOptions { cache_bandwidths: vec![1e9], ..with_caches(2) };
    let one_slow = NetworkOptions { cache_bandwidths: vec![1e9, 25e6], ..with_caches(2) };
    let (fast, one_slow) = (run(&release, 40, fast), run(&release, 40, one_slow));
    assert_eq!((one_slow.nodes_done, one_slow.errors), (40, 0));
    assert!(one_slow.finished[2] >= (20 * one_slow.job_bytes) as f64 / 25e6, "{one_slow:?}");
    assert!(one_slow.finished[2] > 2.0 * fast.finished[2], "{one_slow:?} and {fast:?}");
    let wrong = NetworkOptions { cache_bandwidths: vec![1e9, 1e9], ..with_caches(3) };
    assert!(
        simulate(&release, &FleetOptions { nodes: 1, network: wrong, ..FleetOptions::default() })
            .is_err()
    );
}

#[test]
fn same_seed_gives_the_same_outcome() {
    let network = NetworkOptions {
        failures: vec![CacheFailure {
            cache: 1,
            at: Duration::from_millis(120_400),
            lasts: Duration::from_secs(5),
            is_silent: false,
        }],
        loss: 0.002,
        ..with_caches(3)
    };
    let outcomes = [1, 1, 2].map(|seed| {
        let release = Release::synthetic(150, 32 << 20).unwrap();
        simulate(
            &release,
            &FleetOptions { nodes: 60, network: network.clone(), seed, ..FleetOptions::default() },
        )
        .unwrap()
    });
    let [first, second, other] = &outcomes;
    assert_eq!(first, second);
    assert_eq!((first.nodes_done, other.nodes_done), (60, 60));
    assert_ne!(first, other);
}
