//! Two heads in two network namespaces, with one state directory, one audit trail and one address.
//! The active head is killed, stopped and shut down under load.
//!
//! `VOUCH_TEST_FAILOVERS`: number of faults. `VOUCH_TEST_FAILOVER_KILLS`: number of kills, without
//! any other fault.

mod agent;
mod audited_operations;
mod heads;
mod instances;
mod keepalived;
mod network;
mod packet_filter;
mod pauses;
mod reclaim;
mod report;
mod worker;

use std::io::BufRead as _;

use heads::{Active, Fault, Heads};
use keepalived::Keepalived;
use network::Network;
use report::Injected;
use worker::{Ledger, Worker};

use crate::prelude::*;

const CHILD: &str = "VOUCH_TEST_FAILOVER_NETWORK";
const SET_UP: &str = "VOUCH_TEST_FAILOVER_SET_UP";
const COUNT: &str = "VOUCH_TEST_FAILOVERS";
const KILLS: &str = "VOUCH_TEST_FAILOVER_KILLS";
const WORKERS: usize = 4;

#[test]
#[ignore = "needs root"]
fn heads_take_over_by_waiting_for_the_lease() {
    run_in_network("wait");
}

#[test]
#[ignore = "needs root"]
fn heads_take_over_by_fencing() {
    run_in_network("fence");
}

#[test]
#[ignore = "needs root and keepalived"]
fn keepalived_moves_the_address_to_the_active_head() {
    require_program("keepalived");
    run_in_network("keepalived");
}

/// The clients of this test live in a namespace, so the test starts itself there.
fn run_in_network(set_up: &str) {
    let network = Network::make();
    let mut command = in_namespace(&network.client, &this_test("failover::clients_process"));
    command.env(CHILD, network.names()).env(SET_UP, set_up);
    let mut child = KillOnDrop(command.stdout(Stdio::piped()).spawn().expect("ip(8)"));
    let lines =
        BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    lines.filter(|line| line.starts_with("failover")).for_each(|line| println!("{line}"));
    assert!(child.wait().expect("the child ends").success(), "see the lines of the child");
}

/// The child in the clients' namespace; does nothing without its variable.
#[test]
fn clients_process() {
    let Ok(names) = std::env::var(CHILD) else { return };
    let set_up = std::env::var(SET_UP).expect("from the parent");
    let number = |variable| std::env::var(variable).ok().and_then(|text| text.parse().ok());
    let faults: Vec<Fault> = match number(KILLS) {
        Some(kills) => vec![Fault::Kill; kills],
        None => FAULTS.into_iter().cycle().take(number(COUNT).unwrap_or(4)).collect(),
    };
    run_faults(Network::of(&names), &set_up, &faults);
}

fn run_faults(network: Network, set_up: &str, faults: &[Fault]) {
    let site = Arc::new(TestSite::with_directories(&["data"]));
    site.state_directory("shared");
    let public = site.run_ok(["audit", "keygen", "trail"]);
    let mut options = vec!["--state-lease", "2s", "--audit", "trail", "--audit-policy", "block"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    if set_up == "fence" {
        add_fencing(&site, &mut options);
    }
    let has_keepalived = set_up == "keepalived";
    let _keepalived: Vec<_> = (0..2)
        .filter(|_| has_keepalived)
        .map(|head| Keepalived::start(&site, &network, head))
        .collect();
    let heads = Heads::start(site.clone(), network, options, !has_keepalived);
    let _killed_at_the_end = KillHeads(heads.clone());
    let keeper = {
        let heads = heads.clone();
        std::thread::spawn(move || heads.keep_running())
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let ledger = Arc::new(Ledger::default());
    let (mut progress, mut tasks) = (Vec::new(), Vec::new());
    wait_for_epoch(&heads, 0);
    for number in 0..WORKERS {
        let worker =
            runtime.block_on(Worker::connect(number, heads.service.clone(), ledger.clone()));
        progress.push(worker.progress.clone());
        tasks.push(runtime.spawn(worker.work()));
    }
    let mut injected = Vec::new();
    for (number, &fault) in faults.iter().enumerate() {
        let active = wait_for_progress(&heads, &progress, &tasks, changes_before(number));
        injected.push(inject(&heads, active, fault));
        if (number + 1) % 100 == 0 {
            println!("failover ({set_up}): {} faults until now", number + 1);
        }
    }
    wait_for_progress(&heads, &progress, &tasks, 6);
    ledger.stop.store(true, Ordering::SeqCst);
    let workers: Vec<Worker> = tasks
        .into_iter()
        .map(|task| runtime.block_on(task).expect("a worker without a fault"))
        .collect();
    heads.stop();
    keeper.join().expect("the thread for the heads");
    heads.shut_down();
    let verified = site.run(["audit", "verify", "--public", public.trim(), "trail"]);
    report::print_and_assert(&site, &workers, &ledger, &injected, set_up);
    let verified =
        (verified.status.success(), String::from_utf8_lossy(&verified.stdout).into_owned());
    println!("failover: audit trail: {}", verified.1.lines().next().unwrap_or_default());
    assert!(verified.0, "the audit trail is broken: {}", verified.1);
}

struct KillHeads(Arc<Heads>);

impl Drop for KillHeads {
    fn drop(&mut self) {
        self.0.kill();
    }
}

const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Stop, Fault::Kill, Fault::Shutdown];

/// The program kills the process that the other head's file names, and waits for its end.
fn add_fencing(site: &TestSite, options: &mut Vec<String>) {
    let script = "pid=$(cat \"pid-$VOUCH_FENCE_HEAD\") && kill -KILL $pid\nwhile [ -e /proc/$pid/exe ]; do sleep 0.02; done\n";
    site.write("fence", script);
    options.extend([
        "--fence".to_owned(),
        format!("/bin/sh {}", site.path("fence").display()),
        "--fence-required".to_owned(),
    ]);
}

fn wait_for_epoch(heads: &Heads, after: u64) -> Active {
    let mut found = None;
    let is_there = eventually(Duration::from_secs(300), || {
        found = heads.active().filter(|active| {
            active.epoch > after && active.epoch == heads.service.epoch.load(Ordering::SeqCst)
        });
        found.is_some()
    });
    assert!(is_there, "no head takes over\n{}", heads.logs());
    found.expect("just found")
}

/// Changes of each worker between two faults. Every eighth fault comes while clients reclaim.
fn changes_before(fault: usize) -> u64 {
    if fault % 8 == 7 { 0 } else { fault as u64 * 5 % 12 + 1 }
}

fn wait_for_progress(
    heads: &Heads,
    progress: &[Arc<AtomicU64>],
    tasks: &[tokio::task::JoinHandle<Worker>],
    changes: u64,
) -> Active {
    let goals: Vec<u64> =
        progress.iter().map(|count| count.load(Ordering::SeqCst) + changes).collect();
    let is_reached =
        || progress.iter().zip(&goals).all(|(count, goal)| count.load(Ordering::SeqCst) >= *goal);
    let went_on = eventually(Duration::from_secs(600), || {
        tasks.iter().any(|task| task.is_finished()) || is_reached()
    });
    assert!(went_on && is_reached(), "the workers do not go on\n{}", heads.logs());
    wait_for_epoch(heads, 0)
}

fn inject(heads: &Heads, active: Active, fault: Fault) -> Injected {
    let pid = heads.pid(active.head);
    let at = heads.disturb(active, fault);
    wait_for_epoch(heads, active.epoch);
    if fault == Fault::Stop {
        heads.continue_stopped(pid);
    }
    Injected { fault, active, at }
}
