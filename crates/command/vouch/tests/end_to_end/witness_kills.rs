//! Publisher, witnesses and store are killed at seeded random instants. Revisions and log never
//! differ, no witness has cosigned a head that is gone, and `log/checkpoint`, which web servers show,
//! is at most one step behind, which `vouch verify` says and the next writer mends.
//!
//! `VOUCH_WITNESS_KILLS` sets the number of rounds.

use crate::bucket::{BucketSite, DB};
use crate::litewitness::{self, Litewitness};
use crate::prelude::*;

const ROUNDS_DEFAULT: u64 = 5;

fn rounds() -> u64 {
    let text = std::env::var("VOUCH_WITNESS_KILLS").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS_DEFAULT)
}

/// Three witnesses, of which the root key demands two.
fn witnesses(site: &TestSite) -> Vec<Litewitness> {
    litewitness::install(site);
    let witnesses: Vec<_> =
        ["w1", "w2", "w3"].iter().map(|name| Litewitness::new(site, name)).collect();
    let line =
        |(number, witness): (u32, &Litewitness)| format!("witness w{number} {}\n", witness.line);
    let lines: String = (1..).zip(&witnesses).map(line).collect();
    site.write("policy", format!("{lines}group two 2 w1 w2 w3\nquorum two\n"));
    site.write("all", format!("{lines}group all all w1 w2 w3\nquorum all\n"));
    site.run_ok("certify keys --policy policy --keep-log-key keys/log.cert");
    witnesses
}

/// Numbers of the revisions that readers see, and of those in the log, newest last.
fn revisions(site: &TestSite, db: &str) -> (Vec<u64>, Vec<u64>) {
    let numbers = |args: &[&str]| {
        let text = site.run_ok(args);
        let row = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
        let mut numbers: Vec<_> =
            text.lines().filter_map(|line| row(line)["revision"].as_u64()).collect();
        numbers.sort_unstable();
        numbers
    };
    (numbers(&["log", "--db", db, "--json"]), numbers(&["log", "--entries", "--db", db, "--json"]))
}

/// The parts that are killed beside the publisher and the witnesses.
trait Store {
    fn site(&self) -> &TestSite;
    /// The file behind `log/checkpoint`.
    fn checkpoint(&self) -> PathBuf;
    /// A killed store may have lost a file that it was replacing. A directory has the old or the new.
    fn may_lose_replaced_file(&self) -> bool;
    fn kill(&mut self);
    fn restart(&mut self);
}

/// Entries of the checkpoint that web servers show. `None` without the file.
fn shown_entries(store: &impl Store) -> Option<u64> {
    let text = match fs::read_to_string(store.checkpoint()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        text => text.expect("the store's directory can be read"),
    };
    let entries = text.lines().nth(1).and_then(|line| line.parse().ok());
    Some(entries.unwrap_or_else(|| panic!("torn checkpoint: {text:?}")))
}

/// Before a writer mends it: returns how many entries the shown checkpoint lacks.
fn lag(store: &impl Store, db: &str, place: &str) -> u64 {
    let (_, logged) = revisions(store.site(), db);
    let head = *logged.last().expect("a revision");
    let report = store.site().run_ok(["verify", "--db", db]);
    let is_reported = report.contains("log/checkpoint is an older");
    let Some(shown) = shown_entries(store) else {
        assert!(store.may_lose_replaced_file(), "{place}: no checkpoint");
        assert!(is_reported, "{place}: the missing checkpoint is not reported");
        return head;
    };
    assert!(shown == head || shown + 1 == head, "{place}: {shown} of {head} entries");
    assert_eq!(is_reported, shown < head, "{place}: {report}");
    head - shown
}

/// Asks all witnesses, which mends the checkpoint. Returns the number of the newest revision.
fn mend(store: &impl Store, db: &str, place: &str) -> u64 {
    let site = store.site();
    // Each witness refuses a head that does not continue the last one that it has cosigned.
    let ask_all = format!("witness {db} --policy all --wait 60s --witness-wait 60s --json");
    let asked = site.run(&ask_all);
    assert!(asked.status.success(), "{place}: {}", String::from_utf8_lossy(&asked.stderr));
    let report: Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    assert_eq!(report["missing"], serde_json::json!([]), "{place}");
    assert_eq!(report["cosigned"].as_array().map(Vec::len), Some(3), "{place}");
    let (seen, logged) = revisions(site, db);
    assert_eq!(seen, logged, "{place}");
    let newest = *seen.last().expect("a revision");
    assert_eq!(report["revision"], newest, "{place}");
    let verified = site.run_ok(["verify", "--db", db]);
    assert_contains!(verified, "sound");
    assert!(!verified.contains("note:"), "{place}: {verified}");
    assert_eq!(shown_entries(store), Some(newest), "{place}");
    newest
}

/// A directory: nothing to kill.
struct Directory(TestSite);

impl Store for Directory {
    fn site(&self) -> &TestSite {
        &self.0
    }

    fn checkpoint(&self) -> PathBuf {
        self.0.path("db/log/checkpoint")
    }

    fn may_lose_replaced_file(&self) -> bool {
        false
    }

    fn kill(&mut self) {}

    fn restart(&mut self) {}
}

impl Store for BucketSite {
    fn site(&self) -> &TestSite {
        &self.site
    }

    /// The server keeps each object as a file of its name.
    fn checkpoint(&self) -> PathBuf {
        self.site.path(DB.replace("s3://", "objects/")).join("log/checkpoint")
    }

    fn may_lose_replaced_file(&self) -> bool {
        true
    }

    fn kill(&mut self) {
        self.kill_server();
    }

    fn restart(&mut self) {
        self.restart_server();
    }
}

fn campaign(mut store: impl Store, db: &str, seed: u64) {
    store.site().small_tree();
    let mut witnesses = witnesses(store.site());
    let publisher = |store: &dyn Store| {
        let location = store.site().location();
        let line = format!(
            "publish src --db {db} --keys keys --location {location} --witness-wait 2s --too-few hold"
        );
        let mut command = store.site().command(&line);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        KillOnDrop(child.expect("the binary starts"))
    };
    assert!(publisher(&store).wait().expect("it ends").success());
    let begun = Instant::now();
    assert!(publisher(&store).wait().expect("it ends").success());
    let undisturbed_us = begun.elapsed().as_micros() as u64;
    let (mut random, mut before, mut behind, mut killed) = (SplitMix64(seed), 2, 0_u64, [0_u64; 3]);
    for round in 0..rounds() {
        store.site().write("src/round", format!("{round}\n"));
        let mut child = publisher(&store);
        std::thread::sleep(Duration::from_micros(random.roll(undisturbed_us)));
        // At least one of them.
        let victims = 1 + random.roll(31);
        let mut order = [0, 1, 2, 3, 4];
        order.rotate_left(random.roll(5) as usize);
        for victim in order.into_iter().filter(|victim| victims & (1 << victim) != 0) {
            std::thread::sleep(Duration::from_micros(random.roll(undisturbed_us / 10)));
            match victim {
                0 => {
                    let _ = child.kill();
                    killed[0] += u64::from(!child.wait().expect("it ends").success());
                }
                1 => {
                    store.kill();
                    killed[1] += 1;
                }
                number => {
                    witnesses[number - 2].kill();
                    killed[2] += 1;
                }
            }
        }
        std::thread::sleep(Duration::from_micros(random.roll(undisturbed_us / 2)));
        store.restart();
        let _ = child.wait();
        witnesses.iter_mut().for_each(|witness| witness.start(store.site()));
        let place = format!("seed {seed}, round {round}");
        behind += u64::from(lag(&store, db, &place) > 0);
        let newest = mend(&store, db, &place);
        assert!(newest == before || newest == before + 1, "{place}: {newest} after {before}");
        before = newest;
    }
    fs::remove_file(store.checkpoint()).expect("the checkpoint");
    assert_contains!(store.site().run_ok(["verify", "--db", db]), "of 0 entries");
    store.site().write("src/round", "last\n");
    assert!(publisher(&store).wait().expect("it ends").success());
    assert_eq!(mend(&store, db, "after a loss"), before + 1);
    let names = ["publishers", "stores", "witnesses"];
    println!(
        "{} rounds, {before} revisions, {behind} older checkpoint files, killed {names:?}: {killed:?}",
        rounds()
    );
}

#[test]
#[ignore = "needs Go and ssh-agent"]
fn kills_leave_revision_and_log_of_a_directory_the_same() {
    campaign(Directory(TestSite::new()), "db", 37);
}

#[test]
#[ignore = "needs Go, ssh-agent and versitygw"]
fn kills_leave_revision_and_log_of_a_bucket_the_same() {
    campaign(BucketSite::new(), DB, 38);
}
