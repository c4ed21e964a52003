//! The log of revisions that publications write.

mod reference;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reference::{Publisher, log_keys};
use vouch_log::checkpoint::SignedCheckpoint;
use vouch_log::evidence::LogEvidence;
use vouch_log::key::{Algorithm, Signer as NoteSigner};
use vouch_log::merkle::{Hash, verify_consistency, verify_inclusion};
use vouch_log::revision::{parse_revision_entry, revision_entry};
use vouch_tree::key::SecretKey;
use vouch_tree_publish::{
    CosignOutcome, Fault, LogPublisher, Options, PendingLog, Republication, Signer, cosign,
    republish,
};
use vouch_tree_store::{CollectOptions, Database, WriteOptions, open_log};
use vouch_xdr::Xdr as _;

fn with_log(publisher: &Publisher, log: &Arc<LogPublisher>) -> Options {
    Options { log: Some(log.clone()), ..publisher.options() }
}

/// The log's entries, all verified, as numbers of revisions.
fn entries(publisher: &Publisher) -> Vec<u64> {
    let snapshot = Database::open_read(&publisher.db()).unwrap();
    let evidence = snapshot.evidence().expect("the tree has a log");
    // The revision beside it has its certificate.
    let statement = evidence.to_statement(&snapshot.head().expect("a revision"));
    assert!(LogEvidence::from_xdr(&statement).is_err());
    assert!(evidence.to_xdr().len() > statement.len() + 200);
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
        log: Some(log.clone()),
    };
    let key = SecretKey::from_seed(&[2; 32]);
    let signer = |cert| Signer { key: &key, cert };
    let refused = republish(&writer, &signer(publisher.cert()), &options).unwrap_err();
    assert!(refused.to_string().contains("one run of `vouch certify`"), "{refused}");
    republish(&writer, &signer(log.cert.signing_cert().unwrap().clone()), &options).unwrap();
    drop(writer);
    assert_eq!(entries(&publisher), [1, 2, 3, 4]);
}

#[test]
fn new_key_continues_the_log_and_replaced_key_is_refused() {
    let (publisher, old, new) = (Publisher::new(), log_keys(1, 5), log_keys(2, 9));
    publisher.publish(&with_log(&publisher, &old)).unwrap();
    let refused = publisher.publish(&publisher.options()).unwrap_err();
    assert!(refused.to_string().contains("has no log.key"), "{refused}");
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

/// Keys whose `cosign` is this.
fn asking(
    ask: impl Fn(&mut PendingLog<'_>) -> CosignOutcome + Send + Sync + 'static,
) -> Arc<LogPublisher> {
    let log = Arc::into_inner(log_keys(1, 5)).unwrap();
    Arc::new(LogPublisher { cosign: Some(Box::new(ask)), ..log })
}

fn with_cosignature(pending: &PendingLog<'_>) -> SignedCheckpoint {
    let witness = NoteSigner::from_seed("w.example", Algorithm::CosignatureEd25519, &[7; 32]);
    let mut checkpoint = pending.evidence().proof.checkpoint.clone();
    checkpoint.note_mut().sign(&witness.unwrap(), 1_000_000).unwrap();
    checkpoint
}

fn newest(db: &Path) -> u64 {
    Database::open_read(db).unwrap().revisions().last().map_or(0, |newest| newest.number)
}

#[test]
fn witnesses_see_a_durable_head_before_readers() {
    let publisher = Publisher::new();
    let db = publisher.db();
    let seen: Arc<Mutex<Vec<(u64, Hash)>>> = Arc::default();
    let known = seen.clone();
    let log = asking(move |pending| {
        let checkpoint = with_cosignature(pending);
        let head = checkpoint.checkpoint().clone();
        assert_eq!(newest(&db) + 1, head.size, "readers see it later");
        assert!(db.join("pending").exists());
        for before in known.lock().unwrap().iter() {
            let proof = pending.consistency_proof(before.0).unwrap();
            verify_consistency(*before, (head.size, head.root), &proof).unwrap();
        }
        known.lock().unwrap().push((head.size, head.root));
        CosignOutcome::Publish(checkpoint)
    });
    for number in 1..=3 {
        let summary = publisher.publish(&with_log(&publisher, &log)).unwrap();
        assert!(summary.is_visible);
        assert_eq!(entries(&publisher).len(), number);
        let evidence = Database::open_read(&publisher.db()).unwrap().evidence().unwrap();
        assert_eq!(evidence.proof.checkpoint.note().signatures().len(), 3);
        assert!(!publisher.db().join("pending").exists());
    }
    assert_eq!(seen.lock().unwrap().len(), 3);
}

#[test]
fn held_revision_waits_and_no_other_takes_its_place() {
    let publisher = Publisher::new();
    publisher.publish(&with_log(&publisher, &log_keys(1, 5))).unwrap();
    fs::write(publisher.source().join("file"), vec![7; 300_000]).unwrap();
    let hold = asking(|pending| CosignOutcome::Hold(pending.evidence().proof.checkpoint.clone()));
    let summary = publisher.publish(&with_log(&publisher, &hold)).unwrap();
    assert_eq!((summary.is_visible, newest(&publisher.db())), (false, 1));
    assert_eq!(entries(&publisher), [1]);
    let refused = publisher.publish(&with_log(&publisher, &hold)).unwrap_err();
    assert!(refused.to_string().contains("revision 2 waits for witnesses"), "{refused}");

    // Other writers go on, and keep its data.
    let writer = Database::open_write(&publisher.db(), WriteOptions::default()).unwrap();
    writer.set_statements(vec![b"statement".to_vec()]).unwrap();
    drop(writer);
    let collect = CollectOptions { grace: Some(Duration::ZERO), ..CollectOptions::default() };
    Database::collect(&publisher.db(), collect).unwrap();

    let writer = Database::open_write(&publisher.db(), WriteOptions::default()).unwrap();
    let publish = |pending: &mut PendingLog<'_>| CosignOutcome::Publish(with_cosignature(pending));
    let head = cosign(&writer, &publish).unwrap().unwrap();
    assert_eq!((head.revision, head.is_visible), (2, true));
    drop(writer);
    assert_eq!(entries(&publisher), [1, 2]);
    publisher.tree().compare(&publisher.source());
    publisher.publish(&with_log(&publisher, &hold)).unwrap();
    publisher.publish(&with_log(&publisher, &log_keys(1, 5))).unwrap();
    assert_eq!(entries(&publisher), [1, 2, 3, 4]);
}

#[test]
fn head_that_witnesses_saw_survives_a_killed_publisher() {
    let publisher = Publisher::new();
    publisher.publish(&with_log(&publisher, &log_keys(1, 5))).unwrap();
    let seen: Arc<Mutex<Option<Hash>>> = Arc::default();
    let shown = seen.clone();
    let killed = asking(move |pending| {
        *shown.lock().unwrap() = Some(pending.evidence().proof.checkpoint.checkpoint().root);
        panic!("killed here");
    });
    let options = with_log(&publisher, &killed);
    let run = std::panic::AssertUnwindSafe(|| drop(publisher.publish(&options)));
    std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(entries(&publisher), [1]);
    fs::write(publisher.source().join("later"), "").unwrap();
    publisher.publish(&with_log(&publisher, &log_keys(1, 5))).unwrap();
    assert_eq!(entries(&publisher), [1, 2, 3]);
    let snapshot = Database::open_read(&publisher.db()).unwrap();
    let checkpoint = snapshot.evidence().unwrap().proof.checkpoint;
    let root = open_log(snapshot.log_files(), &checkpoint).unwrap().root_at(2).unwrap();
    assert_eq!(Some(root), *seen.lock().unwrap());
}

#[test]
fn later_cosignatures_need_no_revision() {
    let publisher = Publisher::new();
    publisher.publish(&with_log(&publisher, &log_keys(1, 5))).unwrap();
    let writer = Database::open_write(&publisher.db(), WriteOptions::default()).unwrap();
    let ask = |pending: &mut PendingLog<'_>| CosignOutcome::Publish(with_cosignature(pending));
    let head = cosign(&writer, &ask).unwrap().unwrap();
    assert_eq!(head.evidence.proof.checkpoint.note().signatures().len(), 3);
    drop(writer);
    assert_eq!(entries(&publisher), [1]);
}
