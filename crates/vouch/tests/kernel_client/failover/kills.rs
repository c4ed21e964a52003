//! Two Linux guests and a user-space client work, with audit on. The test kills the active head at
//! random moments.
//!
//! `VOUCH_TEST_FAILOVER_KILLS`: number of kills. `VOUCH_TEST_SEED`: seed of their moments.
//! `VOUCH_TEST_STATE_LEASE`: as `--state-lease`. `VOUCH_TEST_FAILOVER_WITHOUT`: with the word
//! `fencing`, heads wait for the lease; with `filter`, dead heads refuse connections.

use super::audited_operations::AuditedOperations;
use super::observer::{GuestReport, Observer};
use super::pair::Pair;
use super::pauses::{self, FirstSuccesses};
use super::worker::{Ledger, Missing, Worker, missing};
use crate::export_files::ExportFiles;
use crate::guest::{Guest, Network, RunningGuest};
use crate::prelude::*;

const GUEST_VERSIONS: [&str; 2] = ["4.2", "4.1"];

/// The guest that runs Linux 6.12, if it is there.
const NEWER_VERSION: &str = "4.2";

struct Kill {
    epoch: u64,
    at: Instant,
    serves: Instant,
}

#[test]
fn kills_lose_no_acknowledged_change_lock_or_record() {
    let (Some(first), Some(second)) = (Network::new(), Network::new()) else { return };
    let (count, seed) = (number("VOUCH_TEST_FAILOVER_KILLS").unwrap_or(2), number("VOUCH_TEST_SEED").unwrap_or(1));
    let without = std::env::var("VOUCH_TEST_FAILOVER_WITHOUT").unwrap_or_default();
    let lease = std::env::var("VOUCH_TEST_STATE_LEASE").unwrap_or_else(|_| "2s".to_owned());
    let (files, site) = (ExportFiles::create(), TestSite::new());
    let trail = files.root().join("trail");
    let public = site.run_ok(["audit", "keygen", &trail.to_string_lossy()]);
    std::fs::write(files.root().join("fence"), fence(&files)).expect("a file");
    let options = ["--lease", "60", "--state-lease", &lease, "--audit", &trail.to_string_lossy(), "--audit-policy", "block"];
    let mut pair = Pair::start_with(&first, files, &options, !without.contains("fencing"));
    if !without.contains("filter") && Command::new("nft").arg("--version").output().is_ok() {
        pair.load_packet_filter();
    }
    pair.join(&second);
    pair.join_this_machine(&first);
    let ledger = Arc::new(Ledger::default());
    let observer = Observer::start(&first.address, GUEST_VERSIONS.len(), &pair.service, &ledger);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let worker = runtime.block_on(Worker::connect(0, pair.service.clone(), ledger.clone()));
    let own = worker.progress.clone();
    let worker = runtime.spawn(worker.work());
    let guests = start_guests(&pair, [&first, &second], &observer, count);
    let mut clients = Clients { own, observer, guests };
    let kills = kill_heads(&mut pair, &mut clients, count, seed);
    ledger.stop.store(true, Ordering::SeqCst);
    let worker = runtime.block_on(worker).expect("a worker without a fault");
    clients.guests.into_iter().for_each(|guest| println!("failover: {}", guest.ok().trim()));
    pair.shut_down();
    let verified = site.run(["audit", "verify", "--public", public.trim(), &trail.to_string_lossy()]);
    println!("failover: seed {seed}, {count} kills, lease {lease}, without: {without}");
    let reports: Vec<_> = clients.observer.reports.iter().map(|report| report.lock()).collect();
    let reports: Vec<&GuestReport> = reports.iter().map(|report| &**report).collect();
    print_pauses(&worker, &reports, &kills);
    assert_nothing_lost(&pair.files.path(""), &AuditedOperations::read(&trail), &worker, &reports, &ledger);
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.status.success(), "the audit trail is broken: {text}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

struct Clients {
    own: Arc<AtomicU64>,
    observer: Observer,
    guests: Vec<RunningGuest>,
}

impl Clients {
    /// The number of acknowledged changes of each client.
    fn progress(&self) -> Vec<u64> {
        let of_guests = self.observer.reports.iter().map(|report| report.lock().acknowledged);
        of_guests.chain([self.own.load(Ordering::SeqCst)]).collect()
    }

    /// Waits until each client has made this number of further changes.
    fn wait_for_progress(&mut self, pair: &mut Pair, changes: u64) {
        let before = self.progress();
        let goes_on = eventually(Duration::from_secs(600), || {
            pair.follow();
            let went_on = self.progress().iter().zip(&before).all(|(now, before)| *now >= before + changes);
            went_on || self.guests.iter_mut().any(RunningGuest::has_ended)
        });
        assert!(goes_on, "the clients do not go on");
        assert!(!self.guests.iter_mut().any(RunningGuest::has_ended), "a guest has ended");
    }
}

fn start_guests(pair: &Pair, networks: [&Network; 2], observer: &Observer, kill_count: u64) -> Vec<RunningGuest> {
    let limit = 900 + 60 * u32::try_from(kill_count).expect("a small number");
    let start = |(index, (network, version)): (usize, (&Network, &str))| {
        let mut guest = Guest::with_port(network, pair.port()).set("VERSION", version).set("SERVER", &pair.address());
        if version == NEWER_VERSION && Path::new("/opt/vouch-guest").exists() {
            guest = guest.newer_kernel();
        }
        let guest = guest.set("NUMBER", &(index + 1).to_string()).set("OBSERVER", &observer.address.to_string()).limit(limit);
        guest.set("SECOND_ADDRESS", &format!("10.77.{}.{}", networks[0].index(), 20 + index)).start("failover_load.sh")
    };
    networks.into_iter().zip(GUEST_VERSIONS).enumerate().map(start).collect()
}

fn kill_heads(pair: &mut Pair, clients: &mut Clients, count: u64, seed: u64) -> Vec<Kill> {
    let (mut random, mut kills) = (Random(seed), Vec::new());
    clients.wait_for_progress(pair, 1);
    for number in 1..=count {
        // Every fourth kill may come before the clients have reclaimed.
        if random.below(4) != 0 {
            clients.wait_for_progress(pair, 1);
        }
        std::thread::sleep(Duration::from_millis(random.below(700)));
        let epoch = pair.active.epoch;
        let (at, serves) = pair.fail_over("KILL");
        kills.push(Kill { epoch, at, serves });
        if number % 50 == 0 {
            println!("failover: {number} kills until now");
        }
    }
    clients.wait_for_progress(pair, 3);
    kills
}

/// Waits for the end of the killed process. Its number may belong to another process already.
fn fence(files: &ExportFiles) -> String {
    let (pid, state) = (files.root().join("pid-"), files.root().join("state"));
    let (pid, state) = (pid.display(), state.display());
    format!(
        "pid=$(cat \"{pid}$VOUCH_FENCE_HEAD\")\ngrep -qs \"{state}\" /proc/$pid/cmdline || exit 0\nkill -KILL $pid\nwhile [ -e /proc/$pid/exe ]; do sleep 0.02; done\n"
    )
}

fn print_pauses(worker: &Worker, reports: &[&GuestReport], kills: &[Kill]) {
    let of = |successes: &FirstSuccesses| kills.iter().filter_map(|kill| successes.pause_after(kill.epoch, kill.at)).collect();
    pauses::print("kill until the next head serves", kills.iter().map(|kill| kill.serves.duration_since(kill.at)).collect());
    for (version, report) in GUEST_VERSIONS.iter().zip(reports) {
        pauses::print(&format!("Linux, {version}, pause of changes"), of(&report.first_changes));
        pauses::print(&format!("Linux, {version}, pause of new locks"), of(&report.first_locks));
    }
    pauses::print("user-space client, pause of changes", of(&worker.first_changes));
}

fn assert_nothing_lost(data: &Path, audited: &AuditedOperations, worker: &Worker, reports: &[&GuestReport], ledger: &Ledger) {
    let acknowledged: Vec<u64> = [worker.acknowledged].into_iter().chain(reports.iter().map(|report| report.acknowledged)).collect();
    let mut all = Missing { changes: ledger.lost_increments(data), audit_records: 0 };
    for (client, &acknowledged) in acknowledged.iter().enumerate() {
        let of_client = missing(client, acknowledged, data, audited);
        all.changes += of_client.changes;
        all.audit_records += of_client.audit_records;
    }
    let renamed: Vec<&String> = reports.iter().flat_map(|report| &report.renamed).collect();
    all.audit_records += renamed.iter().filter(|name| !audited.renamed.contains(**name)).count();
    let [granted, twice] = [&ledger.granted, &ledger.granted_twice].map(|count| count.load(Ordering::SeqCst));
    let denied: u64 = reports.iter().map(|report| report.denied).sum();
    let changes = acknowledged.iter().sum::<u64>() as usize + renamed.len();
    println!("failover: changes acknowledged {changes}, lost {}; without an audit record {}", all.changes, all.audit_records);
    println!("failover: locks granted {granted}, twice {twice}; locks held by another client denied {denied}");
    let faults: Vec<&String> = reports.iter().flat_map(|report| &report.faults).collect();
    assert_eq!((all, twice, faults), (Missing::default(), 0, Vec::new()));
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
