//! A separate program: a forking child briefly holds its parent's locks.

mod fixtures;
mod power_cut;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fixtures::{database, leaf, logged, revision};
use vouch_testkit::{SplitMix64, this_test};
use vouch_tree_store::{CollectOptions, Database, FrameSource, WriteOptions};

const CHILD: &str = "VOUCH_STORE_TEST_CHILD";

#[test]
fn child_that_writes_until_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let path = Path::new(&path);
    let options = || WriteOptions {
        pack_len: Some(50_000),
        fresh_count_max: 30,
        lock_wait: Duration::from_secs(10),
        ..Default::default()
    };
    loop {
        let writer = Database::open_write(path, options()).unwrap();
        for _ in 0..3 {
            let number = writer.revisions().last().map_or(0, |r| r.number) + 1;
            let mut new = revision(&writer, number, number * 20..number * 20 + 60);
            new.keep = Some(3);
            let new = logged(&writer, new).unwrap();
            writer.commit(new).unwrap();
            println!("\nacknowledged {number}");
        }
        drop(writer);
        for grace in [None, Some(Duration::ZERO)] {
            Database::collect(
                path,
                CollectOptions { pack_len: Some(50_000), grace, ..Default::default() },
            )
            .unwrap();
        }
    }
}

#[test]
fn killed_writer_loses_nothing_acknowledged() {
    let (_dir, path) = database();
    let mut random = SplitMix64(7);
    let mut acknowledged = 0;
    for round in 0..KILLS {
        let mut child = this_test("child_that_writes_until_killed")
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn(move || {
            let numbers = lines
                .map_while(std::result::Result::ok)
                .filter_map(|line| line.strip_prefix("acknowledged ")?.parse().ok());
            numbers.max().unwrap_or(0_u64)
        });
        std::thread::sleep(Duration::from_millis(30 + random.roll(400)));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged = reader.join().unwrap().max(acknowledged);
        let reader = Database::open_read(&path).unwrap();
        let revisions = reader.revisions();
        let head = revisions.last().map_or(0, |r| r.number);
        assert!(
            head >= acknowledged,
            "kill {round}: revision {acknowledged} was acknowledged, {head} is there"
        );
        for (handle, frame) in
            revisions.iter().flat_map(|r| r.number * 20..r.number * 20 + 60).map(leaf)
        {
            assert_eq!(reader.get(&handle).unwrap(), Some(frame), "kill {round}");
        }
        let verified = Database::verify(&path, None).unwrap();
        assert!(verified.is_sound(), "kill {round}: {:?}", verified.problems);
    }
    let collect = CollectOptions { grace: Some(Duration::ZERO), ..Default::default() };
    Database::collect(&path, collect).unwrap();
    let newest = Database::open_read(&path).unwrap();
    for dir in ["packs", "index"] {
        for entry in std::fs::read_dir(path.join(dir)).unwrap() {
            let name = format!("{dir}/{}", entry.unwrap().file_name().to_str().unwrap());
            assert!(newest.file(&name).unwrap().is_some(), "no manifest names {name}");
        }
    }
    assert!(acknowledged > 0, "no child came as far as a commit");
}

const KILLS: u64 = 20;
