//! Two Linux guests and a user-space client work, with audit on. The test kills the active head at
//! random moments.
//!
//! `VOUCH_TEST_FAILOVER_KILLS`: number of kills. `VOUCH_TEST_SEED`: seed of their moments.
//! `VOUCH_TEST_STATE_LEASE`: as `--state-lease`. `VOUCH_TEST_FAILOVER_WITHOUT`: with the word
//! `fencing`, heads wait for the lease; with `filter`, dead heads refuse connections.
//! `VOUCH_TEST_FAILOVER_SEC`: flavour of each guest, `sys,krb5p` by default.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;
use vouch_testkit::words;

use super::audited_operations::AuditedOperations;
use super::observer::{GuestReport, Observer};
use super::pair::{Pair, SetUp};
use super::pauses::{self, FirstSuccesses};
use super::realm::{self, Realm};
use super::worker::{Ledger, Missing, Worker, missing};
use crate::export_files::ExportFiles;
use crate::guest::{Guest, Network, RunningGuest};
use crate::prelude::*;

const GUEST_VERSIONS: [&str; 2] = ["4.2", "4.1"];

/// The guest that runs Linux 6.12, if it is there.
const NEWER_VERSION: &str = "4.2";

/// Pauses above this limit are printed with the time of their kill.
const LONG_PAUSE: Duration = Duration::from_secs(5);

struct Kill {
    epoch: u64,
    at: Instant,
    time: SystemTime,
    serves: Instant,
}

struct Campaign {
    kills: u64,
    seed: u64,
    state_lease: String,
    without: String,
    /// Of the guests.
    flavours: [String; 2],
}

#[test]
#[ignore = "needs root and guests"]
fn kills_lose_no_acknowledged_change_lock_or_record() {
    let (first, second) = (Network::new(), Network::new());
    let campaign = Campaign::from_environment();
    let needs_realm = campaign.flavours.iter().any(|flavour| flavour != "sys");
    let realm = needs_realm.then(|| Realm::start([&first, &second]));
    let (files, site) = (ExportFiles::create(), TestSite::new());
    let trail = files.root().join("trail");
    let public = site.run_ok(["audit", "keygen", &trail.to_string_lossy()]);
    let mut pair = campaign.start_pair(&first, files, &trail, realm.as_ref());
    pair.join(&second);
    pair.join_this_machine(&first);
    let ledger = Arc::new(Ledger::default());
    let observer = Observer::start(&first.address, GUEST_VERSIONS.len(), &pair.service, &ledger);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let worker = runtime.block_on(Worker::connect(0, pair.service.clone(), ledger.clone()));
    let own = worker.progress.clone();
    let worker = runtime.spawn(worker.work());
    let guests = campaign.start_guests(&pair, [&first, &second], &observer, realm.as_ref());
    let mut clients = Clients { own, observer, guests };
    let kills = kill_heads(&mut pair, &mut clients, campaign.kills, campaign.seed);
    ledger.stop.store(true, Ordering::SeqCst);
    let worker = runtime.block_on(worker).expect("a worker without a fault");
    clients.guests.into_iter().for_each(|guest| println!("failover: {}", guest.ok().trim()));
    pair.shut_down();
    let verified =
        site.run(["audit", "verify", "--public", public.trim(), &trail.to_string_lossy()]);
    let Campaign { kills: count, seed, state_lease, without, flavours } = &campaign;
    println!(
        "failover: seed {seed}, {count} kills, lease {state_lease}, without: {without}, sec: {}",
        flavours.join(",")
    );
    let reports: Vec<_> = clients.observer.reports.iter().map(|report| report.lock()).collect();
    let reports: Vec<&GuestReport> = reports.iter().map(|report| &**report).collect();
    print_pauses(&worker, &reports, &kills, flavours);
    let audited = AuditedOperations::read(&trail);
    assert_nothing_lost(&pair.files.path(""), &audited, &worker, &reports, &ledger);
    flavours
        .iter()
        .enumerate()
        .for_each(|(number, flavour)| assert_callers(&audited, number, flavour));
    let text = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.status.success(), "the audit trail is broken: {text}");
}

impl Campaign {
    fn from_environment() -> Campaign {
        let text = |variable: &str| std::env::var(variable).ok();
        let flavours = text("VOUCH_TEST_FAILOVER_SEC").unwrap_or_else(|| "sys,krb5p".to_owned());
        let mut flavours = flavours.split(',').map(str::to_owned).cycle();
        Campaign {
            kills: number("VOUCH_TEST_FAILOVER_KILLS").unwrap_or(2),
            seed: number("VOUCH_TEST_SEED").unwrap_or(1),
            state_lease: text("VOUCH_TEST_STATE_LEASE").unwrap_or_else(|| "2s".to_owned()),
            without: text("VOUCH_TEST_FAILOVER_WITHOUT").unwrap_or_default(),
            flavours: [(); 2].map(|()| flavours.next().expect("a text has a first part")),
        }
    }

    fn start_pair(
        &self,
        network: &Network,
        files: ExportFiles,
        trail: &Path,
        realm: Option<&Realm>,
    ) -> Pair {
        // The guests are several users.
        fs::set_permissions(files.path(""), fs::Permissions::from_mode(0o777))
            .expect("an own directory");
        fs::write(files.root().join("fence"), fence(&files)).expect("a file");
        let trail = trail.to_string_lossy();
        let mut set_up = SetUp::new(&words(&format!(
            "--lease 60 --state-lease {} --audit {trail} --audit-policy block",
            self.state_lease
        )));
        set_up.fences = !self.without.contains("fencing");
        if let Some(realm) = realm {
            realm.add_to_heads(&mut set_up);
        }
        let pair = Pair::start_with(network, files, set_up);
        if !self.without.contains("filter") && Command::new("nft").arg("--version").output().is_ok()
        {
            pair.load_packet_filter();
        }
        pair
    }

    fn start_guests(
        &self,
        pair: &Pair,
        networks: [&Network; 2],
        observer: &Observer,
        realm: Option<&Realm>,
    ) -> Vec<RunningGuest> {
        let limit = 900 + 60 * u32::try_from(self.kills).expect("a small number");
        let start = |(index, (network, version)): (usize, (&Network, &str))| {
            let mut guest = Guest::with_port(network, pair.port())
                .set("VERSION", version)
                .set("SERVER", &pair.address());
            if version == NEWER_VERSION && Path::new("/opt/vouch-guest").exists() {
                guest = guest.newer_kernel();
            }
            guest = guest.set("FLAVOUR", &self.flavours[index]);
            if let Some(realm) = realm.filter(|_| self.flavours[index] != "sys") {
                guest = realm.add_to_guest(guest, index);
            }
            let guest = guest
                .set("NUMBER", &(index + 1).to_string())
                .set("OBSERVER", &observer.address.to_string())
                .limit(limit);
            guest
                .set("SECOND_ADDRESS", &format!("10.77.{}.{}", networks[0].index(), 20 + index))
                .start("failover_load.sh")
        };
        networks.into_iter().zip(GUEST_VERSIONS).enumerate().map(start).collect()
    }
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
            let went_on =
                self.progress().iter().zip(&before).all(|(now, before)| *now >= before + changes);
            went_on || self.guests.iter_mut().any(RunningGuest::has_ended)
        });
        assert!(goes_on, "the clients do not go on");
        if let Some(ended) = self.guests.iter_mut().position(RunningGuest::has_ended) {
            panic!("a guest has ended: {}", self.guests.remove(ended).ok());
        }
    }
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
        let (epoch, time) = (pair.active.epoch, SystemTime::now());
        let (at, serves) = pair.fail_over("KILL");
        kills.push(Kill { epoch, at, time, serves });
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

fn print_pauses(worker: &Worker, reports: &[&GuestReport], kills: &[Kill], flavours: &[String; 2]) {
    let print = |of: &str, successes: &FirstSuccesses| {
        let pauses: Vec<_> =
            kills.iter().map(|kill| successes.pause_after(kill.epoch, kill.at)).collect();
        for ((number, kill), pause) in (1..).zip(kills).zip(&pauses) {
            if let Some(pause) = pause.filter(|pause| *pause > LONG_PAUSE) {
                let time = kill.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                println!(
                    "failover: {of}: {:.2} s after kill {number} at {:.3}",
                    pause.as_secs_f64(),
                    time.as_secs_f64()
                );
            }
        }
        pauses::print(of, pauses.into_iter().flatten().collect());
    };
    pauses::print(
        "kill until the next head serves",
        kills.iter().map(|kill| kill.serves.duration_since(kill.at)).collect(),
    );
    for ((version, flavour), report) in GUEST_VERSIONS.iter().zip(flavours).zip(reports) {
        print(&format!("Linux, {version}, {flavour}, pause of changes"), &report.first_changes);
        print(&format!("Linux, {version}, {flavour}, pause of new locks"), &report.first_locks);
    }
    print("user-space client, pause of changes", &worker.first_changes);
}

fn assert_nothing_lost(
    data: &Path,
    audited: &AuditedOperations,
    worker: &Worker,
    reports: &[&GuestReport],
    ledger: &Ledger,
) {
    let acknowledged: Vec<u64> = [worker.acknowledged]
        .into_iter()
        .chain(reports.iter().map(|report| report.acknowledged))
        .collect();
    let mut all = Missing { changes: ledger.lost_increments(data), audit_records: 0 };
    for (client, &acknowledged) in acknowledged.iter().enumerate() {
        let of_client = missing(client, acknowledged, data, audited);
        all.changes += of_client.changes;
        all.audit_records += of_client.audit_records;
    }
    let renamed: Vec<&String> = reports.iter().flat_map(|report| &report.renamed).collect();
    all.audit_records += renamed.iter().filter(|name| !audited.renamed.contains(**name)).count();
    let [granted, twice] =
        [&ledger.granted, &ledger.granted_twice].map(|count| count.load(Ordering::SeqCst));
    let denied: u64 = reports.iter().map(|report| report.denied).sum();
    let changes = acknowledged.iter().sum::<u64>() as usize + renamed.len();
    println!(
        "failover: changes acknowledged {changes}, lost {}; without an audit record {}",
        all.changes, all.audit_records
    );
    let refused: Vec<u64> = reports.iter().map(|report| report.refused).collect();
    println!("failover: operations without a context from rpc.gssd, by guest: {refused:?}");
    println!(
        "failover: locks granted {granted}, twice {twice}; locks held by another client denied {denied}"
    );
    let faults: Vec<&String> = reports.iter().flat_map(|report| &report.faults).collect();
    assert_eq!((all, twice, faults), (Missing::default(), 0, Vec::new()));
}

/// The audit trail must name the user of this guest for each name that only this guest changes.
fn assert_callers(audited: &AuditedOperations, number: usize, flavour: &str) {
    let (client, expected) = (number + 1, HashSet::from([realm::caller(flavour, number)]));
    let beginnings = ["created", "turn"].map(|kind| format!("{kind}-{client}-"));
    let is_own = |name: &str| {
        name == format!("own-{client}")
            || beginnings.iter().any(|beginning| name.starts_with(beginning))
    };
    let own: Vec<_> = audited.callers.iter().filter(|(name, _)| is_own(name)).collect();
    let others: Vec<_> = own.iter().filter(|(_, callers)| **callers != expected).collect();
    println!(
        "failover: audited as {expected:?}: {} names, {} as another caller",
        own.len() - others.len(),
        others.len()
    );
    assert!(!own.is_empty() && others.is_empty(), "not {expected:?}: {others:?}");
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
