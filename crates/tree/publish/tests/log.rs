//! The log of revisions that publications write.

mod reference;

use std::fs;
use std::sync::Arc;

use reference::Publisher;
use vouch_log::merkle::{Hash, verify_consistency, verify_inclusion};
use vouch_log::revision::{LogCert, LogSigners, parse_revision_entry, revision_entry};
use vouch_tree::key::SecretKey;
use vouch_tree_publish::{Fault, LogPublisher, Options, Republication, Signer, republish};
use vouch_tree_store::{Database, WriteOptions, open_log};

fn log_keys(serial: u64, seed: u8) -> Arc<LogPublisher> {
    let root = SecretKey::from_seed(&[1; 32]);
    let hostid = root.public().hostid();
    let signers = LogSigners::from_seeds(&hostid, &[seed; 32], Some(&[seed + 1; 32])).unwrap();
    let cert = LogCert::issue(&root, hostid, signers.keys(), serial, 0, u64::MAX);
    Arc::new(LogPublisher { cert, signers })
}

fn with_log(publisher: &Publisher, log: &Arc<LogPublisher>) -> Options {
    Options { log: Some(log.clone()), ..publisher.options() }
}

/// The log's entries, all verified, as numbers of revisions.
fn entries(publisher: &Publisher) -> Vec<u64> {
    let snapshot = Database::open_read(&publisher.db()).unwrap();
    let evidence = snapshot.evidence().expect("the tree has a log");
    let checkpoint = &evidence.proof.checkpoint;
    let keys = evidence.cert.keys().all();
    let keys: Vec<_> = keys.iter().collect();
    assert_eq!(checkpoint.note().verify(&keys).unwrap().len(), 2, "both keys sign");
    let head = checkpoint.checkpoint();
    let leaf = Hash::leaf(&revision_entry(&snapshot.head().unwrap()));
    verify_inclusion(leaf, evidence.proof.index, head.size, &evidence.proof.hashes, head.root)
        .unwrap();
    let written = fs::read_to_string(publisher.db().join("log/checkpoint")).unwrap();
    assert_eq!(written, checkpoint.to_text());
    assert!(Database::verify(&publisher.db(), None).unwrap().is_sound());
    let mut reader = open_log(snapshot.log_files(), checkpoint).unwrap();
    let entry = |index| {
        let entry = reader.entry(index).unwrap();
        let (signed, _) = parse_revision_entry(&entry).unwrap();
        signed.open(&snapshot.hostid()).unwrap().revision
    };
    (0..head.size).map(entry).collect()
}

#[test]
fn each_publication_appends_its_revision() {
    let (publisher, log) = (Publisher::new(), log_keys(1, 5));
    for number in 1..=3 {
        fs::write(publisher.source().join("file"), format!("{number}")).unwrap();
        publisher.publish(&with_log(&publisher, &log)).unwrap();
        assert_eq!(entries(&publisher), (1..=number).collect::<Vec<u64>>());
    }
}

#[test]
fn first_publication_with_log_brings_history() {
    let (publisher, log) = (Publisher::new(), log_keys(1, 5));
    for _ in 0..3 {
        publisher.publish(&Options { keep: Some(1), ..publisher.options() }).unwrap();
    }
    publisher.publish(&with_log(&publisher, &log)).unwrap();
    assert_eq!(entries(&publisher), [1, 2, 3, 4]);
}

#[test]
fn republication_appends_each_new_revision() {
    let (publisher, log) = (Publisher::new(), log_keys(1, 5));
    for _ in 0..2 {
        publisher.publish(&with_log(&publisher, &log)).unwrap();
    }
    let writer = Database::open_write(&publisher.db(), WriteOptions::default()).unwrap();
    let options = Republication {
        of: 1,
        start: publisher.start,
        duration_s: None,
        tag: Some("stable".to_owned()),
        message: None,
        keeps_newest: true,
        log: Some(log),
    };
    let key = SecretKey::from_seed(&[2; 32]);
    republish(&writer, &Signer { key: &key, cert: publisher.cert() }, &options).unwrap();
    drop(writer);
    assert_eq!(entries(&publisher), [1, 2, 3, 4]);
}

#[test]
fn new_key_continues_the_log_and_replaced_key_is_refused() {
    let (publisher, old, new) = (Publisher::new(), log_keys(1, 5), log_keys(2, 9));
    publisher.publish(&with_log(&publisher, &old)).unwrap();
    let head = |publisher: &Publisher| {
        let evidence = Database::open_read(&publisher.db()).unwrap().evidence().unwrap();
        let head = evidence.proof.checkpoint.checkpoint().clone();
        (head.size, head.root)
    };
    let before = head(&publisher);
    publisher.publish(&with_log(&publisher, &new)).unwrap();
    assert_eq!(entries(&publisher), [1, 2]);
    let snapshot = Database::open_read(&publisher.db()).unwrap();
    let checkpoint = snapshot.evidence().unwrap().proof.checkpoint;
    let proof = open_log(snapshot.log_files(), &checkpoint).unwrap().consistency_proof(1).unwrap();
    verify_consistency(before, head(&publisher), &proof).unwrap();

    let refused = publisher.publish(&with_log(&publisher, &old)).unwrap_err();
    assert_eq!(refused.fault(), Fault::Refused);
    assert!(refused.to_string().contains("certificate 2 has replaced"), "{refused}");
    let refused = publisher.publish(&publisher.options()).unwrap_err();
    assert!(refused.to_string().contains("has no log.key"), "{refused}");
    assert_eq!(entries(&publisher), [1, 2]);
}

#[test]
fn files_of_killed_publication_are_replaced() {
    let (publisher, log) = (Publisher::new(), log_keys(1, 5));
    publisher.publish(&with_log(&publisher, &log)).unwrap();
    let db = publisher.db();
    for left in ["log/tile/0/000.p/2", "log/tile/entries/000.p/2"] {
        fs::write(db.join(left), "left").unwrap();
    }
    fs::remove_file(db.join("log/checkpoint")).unwrap();
    publisher.publish(&with_log(&publisher, &log)).unwrap();
    assert_eq!(entries(&publisher), [1, 2]);
}

#[test]
fn database_older_than_its_log_signs_no_second_head() {
    let (publisher, log) = (Publisher::new(), log_keys(1, 5));
    publisher.publish(&with_log(&publisher, &log)).unwrap();
    let old = fs::read(publisher.db().join("manifest")).unwrap();
    publisher.publish(&with_log(&publisher, &log)).unwrap();
    fs::write(publisher.db().join("manifest"), old).unwrap();
    let refused = publisher.publish(&with_log(&publisher, &log)).unwrap_err();
    assert!(refused.to_string().contains("restored from an older copy"), "{refused}");
}

#[test]
fn full_tiles_replace_partial_ones() {
    let (publisher, log) = (Publisher::new(), log_keys(1, 5));
    for _ in 0..255 {
        publisher.publish(&Options { keep: Some(1), ..publisher.options() }).unwrap();
    }
    publisher.publish(&with_log(&publisher, &log)).unwrap();
    publisher.publish(&with_log(&publisher, &log)).unwrap();
    assert_eq!(entries(&publisher), (1..=257).collect::<Vec<u64>>());
    let tiles = publisher.db().join("log/tile");
    assert!(tiles.join("0/000").exists() && tiles.join("0/001.p/1").exists());
    assert!(!tiles.join("0/000.p").exists() && !tiles.join("entries/000.p").exists());
}
