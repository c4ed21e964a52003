//! A seeded world: server, disk, network, clients and clock in one thread, so that a seed repeats a
//! run to the step. Checked by the same models as runs against real servers.
//!
//! `VOUCH_WORLD_SEEDS` sets how many seeds run, `VOUCH_WORLD_FIRST` the first one.

mod faults;
mod machine;
mod network;

use std::sync::Arc;

use vouch_bench::Error;
use vouch_bench::target::{NfsTarget, Sec};
use vouch_consistency::client::{self, Delegations};
use vouch_consistency::run::{Connect, Options, Place};
use vouch_consistency::shrink::shrink;
use vouch_consistency::{History, Rng, Server, Verdict, check, report};

use machine::World;

const CLIENTS: u16 = 3;
const CALLS: u32 = 25;

fn options(seed: u64) -> Options {
    Options {
        server: Server {
            target: NfsTarget { host: "192.0.2.1".into(), port: 2049, path: vec!["export".into()] },
            sec: Sec::Sys,
            service: None,
            tls: None,
            minor: (seed % 3) as u32,
        },
        clients: CLIENTS,
        calls: CALLS,
        histories: 1,
        seed,
        faults: Vec::new(),
        restart: None,
    }
}

fn connect(world: &World, minor: u32) -> Connect {
    let world = world.clone();
    Arc::new(move |number, name, instance, delegations| {
        let address = "192.0.2.1:2049".parse().expect("an address");
        let mut config = client::config(address, minor, &name, instance, delegations);
        config.connector = Some(network::connector(world.clone(), number));
        Box::pin(async { client::connect(config).await.map_err(Error::nfs("the world")) })
    })
}

/// One run, which ends in the same history whenever the seed is the same.
fn history_of(seed: u64) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let world = World::new(seed);
        let ticks = tokio::spawn(world.clone().ticks());
        let options = options(seed);
        let connect = connect(&world, options.server.minor);
        let quiet = "nothing fails before the history begins";
        let admin =
            connect(u16::MAX, "admin".into(), 1, Delegations::default()).await.expect(quiet);
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let delegations = Delegations::default();
            let name = format!("client {number}");
            clients.push((
                connect(number, name, 1, delegations.clone()).await.expect(quiet),
                delegations,
            ));
        }
        let place = Place::make(&options, &admin, seed).await.expect(quiet);
        let start = tokio::time::Instant::now();
        world.begin_faults();
        let faults = faults::run(world.clone(), options.server.minor, start, Rng::new(!seed));
        let all = (&admin, &clients[..]);
        let history = place.history(&options, all, (seed, start), &connect, faults).await;
        world.stop().await;
        ticks.abort();
        history.expect("each client answers in the end")
    })
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn no_seed_violates_the_models() {
    let seeds = from_environment("VOUCH_WORLD_SEEDS", 200);
    let first = from_environment("VOUCH_WORLD_FIRST", 0);
    let next = Arc::new(std::sync::atomic::AtomicU64::new(first));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let history = history_of(seed);
                    match check(&history) {
                        Verdict::Right => {}
                        Verdict::Undecided(object) => panic!("seed {seed}: {object}: undecided"),
                        Verdict::Violated(violation) => {
                            let text = report::text(&history, &shrink(*violation));
                            panic!("seed {seed}: {:?}\n{text}", history.faults);
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn seed_repeats_its_history() {
    for seed in 0..12 {
        let json = |history| serde_json::to_string(&history).expect("JSON");
        assert_eq!(json(history_of(seed)), json(history_of(seed)), "seed {seed}");
    }
}
