//! What clients do becomes records, and nothing is acknowledged without its record where the administrator wants it so.

use std::path::Path;
use std::sync::Arc;

use vouch_audit::frame::Kind;
use vouch_audit::keys::Ratchet;
use vouch_audit::record::{Act, Class};
use vouch_audit::trail::{Durable, KEY, Keeping, Policy, Rotation, SystemDisk, Trust, create, entries, verify};
use vouch_audit::{Flavour, Record, operations};
use vouch_nfs4::op::{ShareAccess, StableHow};
use vouch_nfs4::{Attributes, Verifier};
use vouch_nfs4_client::{Client, Config, Identity, Plain};
use vouch_oncrpc::AuthSys;

use super::*;
use crate::export::AuditConfig;

fn key() -> Ratchet {
    Ratchet::new([3; 16], &[4; 32])
}

fn config(directory: &Path, rules: Option<&str>, keeping: Keeping) -> AuditConfig {
    create(&SystemDisk, &directory.join(KEY), &key()).unwrap();
    let rules = rules.map(|text| {
        let path = directory.join("rules");
        std::fs::write(&path, text).unwrap();
        path
    });
    AuditConfig { directory: directory.to_owned(), key: None, rules, keeping, rotation: Rotation::default(), deny: Vec::new() }
}

/// A line a record: operation, path, new path, key, result; or the act.
fn read(directory: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    entries(directory, 1, |entry| {
        if entry.kind == Kind::Record {
            let mut scratch = Vec::new();
            let record = Record::decode(&entry.body, &mut scratch).unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            lines.push(match record.class {
                Class::Operation => {
                    assert_eq!((record.flavour, record.address.is_some(), record.uid), (Flavour::Sys, true, Some(0)));
                    let fields = [text(record.path), text(record.path2), text(record.key)].join(" ");
                    let totals = record.open_ns.map_or_else(String::new, |_| format!(" {:?} {:?}", record.read, record.written));
                    format!("{} {fields} {}{totals}", operations::name(record.operation), record.result)
                }
                Class::Administrative => Act::of(record.operation).unwrap().name().to_owned(),
                other => other.name().to_owned(),
            });
        }
        true
    })
    .unwrap();
    lines
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn client(server: &Running, name: &str) -> Client {
    let identity = Identity::new(name.as_bytes(), Verifier([1; 8]));
    let root = AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid: 0, gid: 0, gids: Vec::new() };
    Client::connect(Config::new(server.address, 1, identity, Plain::sys(&root))).await.unwrap()
}

#[test]
fn who_did_what_is_recorded_by_the_rules_and_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "-a never,exit -F path=/data/d/quiet\n-a always,exit -S OPEN,CLOSE,CREATE,RENAME,REMOVE -k change\n-a always,exit -S LOOKUP -F success=0 -k failed\n";
    let config = config(directory.path(), Some(rules), Keeping::default());
    let server = Running::start(|all| all.audit = Some(config));
    block_on(async {
        let client = client(&server, "one").await;
        let data = client.walk(b"/data").await.unwrap();
        let below = client.mkdir(&data.handle, b"d", 0o755).await.unwrap();
        let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
        let file = client.open(&below, b"f", ShareAccess::BOTH, Some(&mode)).await.unwrap();
        client.write(&file, 0, b"hello", StableHow::FileSync).await.unwrap();
        assert_eq!(client.read(&file, 0, 100).await.unwrap().0, b"hello");
        client.rename(&data.handle, b"d", &data.handle, b"e").await.unwrap();
        client.close_file(file).await.unwrap();
        let quiet = client.open(&below, b"quiet", ShareAccess::BOTH, Some(&mode)).await.unwrap();
        client.close_file(quiet).await.unwrap();
        client.remove(&below, b"f").await.unwrap();
        assert!(client.walk(b"/data/e/f").await.is_err());
        client.close().await.unwrap();
    });
    drop(server);
    assert_eq!(
        read(directory.path()),
        [
            "start",
            "CREATE /data/d  change 0",
            "OPEN /data/d/f  change 0",
            "RENAME /data/d /data/e change 0",
            // Its directory has another name now, and so has it.
            "CLOSE /data/e/f  change 0 Some(5) Some(5)",
            "OPEN /data/e/quiet  change 0",
            "CLOSE /data/e/quiet  change 0 Some(0) Some(0)",
            "REMOVE /data/e/f  change 0",
            "LOOKUP /data/e/f  failed 2",
            "stop",
        ]
    );
    let report = verify(directory.path(), &Trust { public: Some(key().public()), ..Trust::default() }, |_, _| {}).unwrap();
    assert_eq!((report.faults, report.unsealed), (vec![], 0));
}

#[test]
fn under_block_a_reply_finds_its_record_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let keeping = Keeping { policy: Policy::Block, durable: Durable::Each, ..Keeping::default() };
    let config = config(directory.path(), None, keeping);
    let server = Running::start(|all| all.audit = Some(config));
    block_on(async {
        let client = client(&server, "one").await;
        let data = client.walk(b"/data").await.unwrap();
        for number in 0..30 {
            let name = format!("d{number}");
            client.mkdir(&data.handle, name.as_bytes(), 0o755).await.unwrap();
            let wanted = format!("CREATE /data/{name}   0");
            assert!(read(directory.path()).contains(&wanted), "{wanted}");
        }
        client.close().await.unwrap();
    });
}

#[test]
fn rules_are_read_anew_and_faulty_ones_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), Some("-a always,exit -S CREATE\n"), Keeping::default());
    let rules = config.rules.clone().unwrap();
    let audit = Arc::new(crate::export::audit::Audit::open(config).unwrap());
    std::fs::write(&rules, "-a always,exit -S CREATE\n-a always,exit -S nothing-such\n").unwrap();
    let error = audit.reload().unwrap_err();
    assert!(error.contains("line 2"), "{error}");
    std::fs::write(&rules, "").unwrap();
    audit.reload().unwrap();
    audit.stop();
    assert_eq!(read(directory.path()), ["turned-down", "stop"]);
}
