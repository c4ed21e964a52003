//! Two heads in two network namespaces, with one state directory, one audit trail and one address.
//! The active head is killed, stopped and shut down under load.
//!
//! `VOUCH_TEST_FAILOVERS`: number of faults.

mod heads;
mod instances;
mod keepalived;
mod network;
mod reclaim;
mod worker;

use heads::{Active, Fault, Heads};
use keepalived::Keepalived;
use network::Network;
use worker::{Ledger, Worker};

use crate::prelude::*;

const CHILD: &str = "VOUCH_TEST_FAILOVER_NETWORK";
const SET_UP: &str = "VOUCH_TEST_FAILOVER_SET_UP";
const COUNT: &str = "VOUCH_TEST_FAILOVERS";
const WORKERS: usize = 4;

#[test]
fn heads_take_over_by_waiting_for_the_lease() {
    run_in_network("wait");
}

#[test]
fn heads_take_over_by_fencing() {
    run_in_network("fence");
}

#[test]
fn keepalived_moves_the_address_to_the_active_head() {
    if !Keepalived::is_installed() {
        println!("skipped: needs the package keepalived");
        return;
    }
    run_in_network("keepalived");
}

/// The clients of this test live in a namespace, so the test starts itself there.
fn run_in_network(set_up: &str) {
    let Some(network) = Network::make() else { return };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &network.client]).arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", "failover::clients_process", "--nocapture"]);
    command.env(CHILD, network.names()).env(SET_UP, set_up);
    let out = command.stdin(Stdio::null()).output().expect("ip(8)");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}");
    text.lines().filter(|line| line.starts_with("failover")).for_each(|line| println!("{line}"));
}

/// The child in the clients' namespace; does nothing without its variable.
#[test]
fn clients_process() {
    let Ok(names) = std::env::var(CHILD) else { return };
    let set_up = std::env::var(SET_UP).expect("from the parent");
    let count = std::env::var(COUNT).ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    run_faults(Network::of(&names), &set_up, count);
}

fn run_faults(network: Network, set_up: &str, count: usize) {
    let world = Arc::new(TestSite::with_directories(&["data"]));
    let public = world.run_ok(["audit", "keygen", "trail"]);
    let mut options = vec!["--state-lease", "2s", "--audit", "trail", "--audit-policy", "block"].into_iter().map(str::to_owned).collect();
    if set_up == "fence" {
        add_fencing(&world, &mut options);
    }
    let has_keepalived = set_up == "keepalived";
    let _keepalived: Vec<_> = (0..2).filter(|_| has_keepalived).map(|head| Keepalived::start(&world, &network, head)).collect();
    let heads = Heads::start(world.clone(), network, options, !has_keepalived);
    let _killed_at_the_end = KillHeads(heads.clone());
    let tending = {
        let heads = heads.clone();
        std::thread::spawn(move || heads.tend())
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let ledger = Arc::new(Ledger::default());
    let (mut progress, mut tasks) = (Vec::new(), Vec::new());
    wait_for_epoch(&heads, 0);
    for number in 0..WORKERS {
        let worker = runtime.block_on(Worker::connect(number, heads.clone(), ledger.clone()));
        progress.push(worker.progress.clone());
        tasks.push(runtime.spawn(worker.work()));
    }
    let mut faults = Vec::new();
    for number in 0..count {
        let active = wait_for_progress(&heads, &progress, &tasks);
        faults.push(inject(&heads, active, FAULTS[number % FAULTS.len()]));
    }
    wait_for_progress(&heads, &progress, &tasks);
    ledger.stop.store(true, Ordering::SeqCst);
    let workers: Vec<Worker> = tasks.into_iter().map(|task| runtime.block_on(task).expect("a worker without a fault")).collect();
    heads.stop();
    tending.join().expect("the thread for the heads");
    heads.shut_down();
    workers.iter().for_each(|worker| worker.verify(&world.path("data")));
    ledger.verify(&world.path("data"));
    let verified = world.run_ok(["audit", "verify", "--public", public.trim(), "trail"]);
    report(&workers, &ledger, &faults, set_up);
    println!("failover: audit trail: {}", verified.lines().next().unwrap_or_default());
}

struct KillHeads(Arc<Heads>);

impl Drop for KillHeads {
    fn drop(&mut self) {
        self.0.kill();
    }
}

const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Stop, Fault::Kill, Fault::Shutdown];

/// The program kills the process that the other head's file names, and waits for its end.
fn add_fencing(world: &TestSite, options: &mut Vec<String>) {
    let script = "pid=$(cat \"pid-$VOUCH_FENCE_HEAD\") && kill -KILL $pid\nwhile [ -e /proc/$pid/exe ]; do sleep 0.02; done\n";
    world.write("fence", script);
    options.extend(["--fence".to_owned(), format!("/bin/sh {}", world.path("fence").display()), "--fence-required".to_owned()]);
}

fn wait_for_epoch(heads: &Heads, after: u64) -> Active {
    let mut found = None;
    let is_there = eventually(Duration::from_secs(300), || {
        found = heads.active().filter(|active| active.epoch > after && active.epoch == heads.epoch.load(Ordering::SeqCst));
        found.is_some()
    });
    assert!(is_there, "no head takes over\n{}", heads.logs());
    found.expect("just found")
}

/// Until every worker has made some changes.
fn wait_for_progress(heads: &Heads, progress: &[Arc<AtomicU64>], tasks: &[tokio::task::JoinHandle<Worker>]) -> Active {
    let goals: Vec<u64> = progress.iter().map(|count| count.load(Ordering::SeqCst) + 6).collect();
    let is_reached = || progress.iter().zip(&goals).all(|(count, goal)| count.load(Ordering::SeqCst) >= *goal);
    let went_on = eventually(Duration::from_secs(600), || tasks.iter().any(|task| task.is_finished()) || is_reached());
    assert!(went_on && is_reached(), "the workers do not go on\n{}", heads.logs());
    wait_for_epoch(heads, 0)
}

fn inject(heads: &Heads, active: Active, fault: Fault) -> (Fault, Active, Instant) {
    let pid = heads.pid(active.head);
    let at = heads.disturb(active, fault);
    wait_for_epoch(heads, active.epoch);
    if fault == Fault::Stop {
        heads.continue_stopped(pid);
    }
    (fault, active, at)
}

fn report(workers: &[Worker], ledger: &Ledger, faults: &[(Fault, Active, Instant)], set_up: &str) {
    let changes: u64 = workers.iter().map(|worker| worker.acknowledged).sum();
    println!(
        "failover ({set_up}): {} faults: {changes} changes acknowledged, 0 lost; {} locks granted, 0 twice",
        faults.len(),
        ledger.granted.load(Ordering::SeqCst)
    );
    let changes_of: Vec<_> = workers.iter().map(|worker| &worker.first_changes).collect();
    let locks_of: Vec<_> = workers.iter().map(|worker| &worker.first_locks).collect();
    for fault in [Fault::Kill, Fault::Stop, Fault::Shutdown] {
        let of_kind = || faults.iter().filter(|(kind, ..)| *kind == fault);
        let changes = of_kind().flat_map(|fault| pauses_after(fault, &changes_of)).collect();
        // The other workers wait for the one that gets the lock.
        let locks = of_kind().filter_map(|fault| pauses_after(fault, &locks_of).into_iter().min()).collect();
        print_pauses(fault, "changes, for each client", changes);
        print_pauses(fault, "new locks, for the first client", locks);
    }
}

/// From the fault to the first event of each worker in a later epoch.
fn pauses_after((_, active, at): &(Fault, Active, Instant), events: &[&Vec<(u64, Instant)>]) -> Vec<Duration> {
    let first =
        |list: &&Vec<(u64, Instant)>| list.iter().find(|(epoch, _)| *epoch > active.epoch).map(|(_, first)| first.duration_since(*at));
    events.iter().filter_map(first).collect()
}

fn print_pauses(fault: Fault, what: &str, mut pauses: Vec<Duration>) {
    pauses.sort();
    let Some(last) = pauses.len().checked_sub(1) else { return };
    let at = |percent: usize| pauses[last * percent / 100].as_secs_f64();
    println!("failover: {fault:?}, pause of {what}: p50 {:.2} s, p99 {:.2} s, most {:.2} s of {}", at(50), at(99), at(100), pauses.len());
}
