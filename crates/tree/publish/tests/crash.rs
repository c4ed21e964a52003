//! `kill -9` at any moment: the previous revision stays intact, and the next run reuses stored
//! frames.

mod reference;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reference::{Publisher, log_keys, publish_into};
use vouch_tree::TreeName;
use vouch_tree_publish::{Options, Progress};
use vouch_tree_store::Database;

#[test]
fn child() {
    let Some(dir) = std::env::var_os("VOUCH_TEST_PUBLISH_IN") else { return };
    let dir = Path::new(&dir);
    let snapshot = Database::open_read(&dir.join("db")).unwrap();
    let name = TreeName::new("localhost", snapshot.hostid()).unwrap();
    let log = Some(log_keys(1, 5));
    let options = Options { log, ..Options::new(dir.join("source"), name, 1_000_000, 86_400) };
    publish_into(&dir.join("db"), &options, &Progress::default()).unwrap();
}

fn run_child(dir: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env("VOUCH_TEST_PUBLISH_IN", dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_publication_keeps_previous_revision_and_frames() {
    let publisher = Publisher::new();
    let source = publisher.source();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut write = |round: u64| {
        for n in 0..40 {
            let dir = source.join(format!("{}", n % 7));
            fs::create_dir_all(&dir).unwrap();
            let bytes: Vec<u8> = (0..random() % 200_000)
                .map(|i| (i.wrapping_mul(round * 40 + n + 1) >> 3) as u8)
                .collect();
            fs::write(dir.join(format!("{round}-{n}")), bytes).unwrap();
        }
    };
    write(0);
    publisher.publish_and_compare();
    let began = Instant::now();
    assert!(run_child(publisher.dir.path()).wait().unwrap().success());
    let whole = began.elapsed() * 2;
    let (mut revision, mut killed) = (2, 0);
    for round in 1..=25u32 {
        write(round.into());
        let mut child = run_child(publisher.dir.path());
        std::thread::sleep(whole * (round * 7 % 25) / 25 + Duration::from_millis(1));
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        let found = Database::verify(&publisher.db(), None).unwrap();
        assert!(found.is_sound(), "{found:?}");
        let tree = publisher.tree();
        // The commit of a run that was killed at its end is completed by the next one.
        let newest = tree.fsinfo.revision;
        assert!((revision..=revision + 2).contains(&newest), "{revision}, now {newest}");
        assert_eq!(found.log_entries, newest, "the log and the revision change together");
        revision = newest;
    }
    eprintln!("{killed} of 25 were killed before their end, {} committed", revision - 2);
    let options = Options { log: Some(log_keys(1, 5)), ..publisher.options() };
    let summary = publisher.publish(&options).unwrap();
    publisher.tree().compare(&publisher.source());
    assert!((revision + 1..=revision + 2).contains(&summary.revision));
    assert!(killed > 0);
}
