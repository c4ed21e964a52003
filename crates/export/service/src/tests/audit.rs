use std::path::Path;
use std::sync::Arc;

use vouch_audit::keys::Ratchet;
use vouch_audit::record::{Act, Class, Refusal};
use vouch_audit::trail::{
    Durability, KEY_FILE, Policy, Rotation, SystemDisk, Trust, WriterOptions, create_key, verify,
};
use vouch_audit::{Flavour, Record, operations};
use vouch_nfs4::op::{ShareAccess, StableHow};
use vouch_nfs4::{Attributes, Verifier};
use vouch_nfs4_client::{Client, Config, Identity, Plain};
use vouch_oncrpc::AuthSys;

mod blocked_replies;
mod client_names;
mod denied;
mod watches;

use super::*;
use crate::AuditConfig;
use vouch_daemon::audit_trail::TrailConfig;

fn key() -> Ratchet {
    Ratchet::new([3; 16], &[4; 32])
}

fn config(directory: &Path, rules: Option<&str>, keeping: WriterOptions) -> AuditConfig {
    create_key(&SystemDisk, &directory.join(KEY_FILE), &key()).unwrap();
    let rules = rules.map(|text| {
        let path = directory.join("rules");
        std::fs::write(&path, text).unwrap();
        path
    });
    let trail = TrailConfig {
        directory: directory.to_owned(),
        key: None,
        rules,
        keeping,
        rotation: Rotation::default(),
    };
    AuditConfig { trail, deny: Vec::new() }
}

fn configured(rules: Option<&str>) -> (tempfile::TempDir, AuditConfig) {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), rules, WriterOptions::default());
    (directory, config)
}

fn start_audited(rules: Option<&str>, files: MemoryFs) -> (tempfile::TempDir, Running) {
    let (directory, config) = configured(rules);
    (directory, Running::start_with(|all| all.audit = Some(config), files))
}

fn for_each_record(directory: &Path, see: impl FnMut(&Record<'_>)) {
    vouch_audit::trail::records(directory, 1, see).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn open(config: AuditConfig) -> crate::audit::Audit {
    let hosts = Arc::new(crate::hosts::Hosts::new(Arc::new(super::blocking::Nobody)));
    crate::audit::Audit::open(config, hosts, Arc::new(SystemDisk)).unwrap()
}

fn refusals(directory: &Path) -> Vec<(Refusal, u64, String)> {
    let mut found = Vec::new();
    for_each_record(directory, |record| {
        if record.class == Class::Refusal {
            found.push((
                Refusal::from_number(record.operation).unwrap(),
                record.gap.unwrap_or(0),
                text(record.detail),
            ));
        }
    });
    found
}

fn bad_credential(xid: u32) -> Vec<u8> {
    let cred = OpaqueAuth { flavor: vouch_oncrpc::Flavor::SYS, body: b"nothing of the kind" };
    record(|w| Call { cred, ..Call::new(xid, (100_003, 4), 1, b"") }.encode(w))
}

#[test]
fn flood_of_bad_credentials_is_counted_not_recorded() {
    let (directory, server) = start_audited(None, MemoryFs::new());
    let began = std::time::Instant::now();
    let count = 5000;
    let mut socket = server.connect();
    let mut reply = [0; 24];
    for xid in 0..count {
        socket.write_all(&bad_credential(xid)).unwrap();
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(reply[12..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    }
    drop((socket, server));
    let most = 100 + began.elapsed().as_secs() + 1;
    let found = refusals(directory.path());
    let recorded = found.iter().filter(|(why, ..)| *why == Refusal::Authentication);
    assert!(
        recorded
            .clone()
            .all(|(_, _, detail)| detail == "a credential of AUTH_SYS that can't be read"),
        "{found:?}"
    );
    let (recorded, left_out) =
        (recorded.count() as u64, found.iter().map(|(_, left_out, _)| left_out).sum::<u64>());
    assert!((100..=most).contains(&recorded), "{recorded} records of {count}, at most {most}");
    assert_eq!(recorded + left_out, u64::from(count));
    let (why, _, detail) = found.last().unwrap();
    assert!(*why == Refusal::Many && detail.ends_with(" of 127.0.0.1"), "{detail}");
}

#[test]
fn forged_filehandles_are_refusals_that_rules_can_exclude() {
    for (rules, wanted) in
        [("", 20), ("-a never,exit -F flavour=sys\n", 0), ("-a never,exit -S PUTFH\n", 20)]
    {
        let (directory, server) = start_audited(Some(rules), MemoryFs::new());
        block_on(async {
            let client = client(&server, "one").await;
            for number in 0..20u8 {
                drop(
                    client
                        .compound()
                        .putfh(&vouch_nfs4::Filehandle::new(&[number; 32]).unwrap())
                        .send()
                        .await,
                );
            }
            client.close().await.unwrap();
        });
        drop(server);
        let found = refusals(directory.path());
        assert_eq!(
            found.iter().filter(|(why, ..)| *why == Refusal::Handle).count(),
            wanted,
            "{rules:?}: {found:?}"
        );
    }
}

fn read(directory: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for_each_record(directory, |record| {
        lines.push(match record.class {
            Class::Operation => {
                assert_eq!(
                    (record.flavour, record.address.is_some(), record.uid),
                    (Flavour::Sys, true, Some(0))
                );
                let fields = [text(record.path), text(record.path2), text(record.key)].join(" ");
                let totals = record.open_ns.map_or_else(String::new, |_| {
                    format!(" {:?} {:?}", record.read, record.written)
                });
                let detail = if record.detail.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", text(record.detail))
                };
                format!(
                    "{} {fields} {}{totals}{detail}",
                    operations::name(record.operation),
                    record.result
                )
            }
            Class::Administrative => Act::from_number(record.operation).unwrap().name().to_owned(),
            other => other.name().to_owned(),
        });
    });
    lines
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn client(server: &Running, name: &str) -> Client {
    client_in_life(server, name, 1).await
}

async fn client_in_life(server: &Running, name: &str, life: u8) -> Client {
    client_of(server, name, life, 1).await
}

async fn client_of(server: &Running, name: &str, life: u8, minor: u32) -> Client {
    let identity = Identity::new(name.as_bytes(), Verifier([life; 8]));
    let root =
        AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid: 0, gid: 0, gids: Vec::new() };
    Client::connect(Config::new(server.address, minor, identity, Plain::sys(&root))).await.unwrap()
}

#[test]
fn operations_are_recorded_by_rules_and_verify() {
    let rules = "-a never,exit -F path=/data/d/quiet\n-a always,exit -S OPEN,CLOSE,CREATE,RENAME,REMOVE -k change\n-a always,exit -S LOOKUP -F success=0 -k failed\n";
    let (directory, server) = start_audited(Some(rules), MemoryFs::new());
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
            "CREATE /data/d  change 0 (makes a directory)",
            "OPEN /data/d/f  change 0",
            "RENAME /data/d /data/e change 0",
            "CLOSE /data/e/f  change 0 Some(5) Some(5)",
            "OPEN /data/e/quiet  change 0",
            "CLOSE /data/e/quiet  change 0 Some(0) Some(0)",
            "REMOVE /data/e/f  change 0",
            "LOOKUP /data/e/f  failed 2",
            "stop",
        ]
    );
    let report = verify(
        directory.path(),
        &Trust { public: Some(key().public()), ..Trust::default() },
        |_, _| {},
    )
    .unwrap();
    assert_eq!((report.faults, report.unsealed), (vec![], 0));
}

#[test]
fn abandoned_open_has_record_of_its_end() {
    let (directory, server) =
        start_audited(Some("-a always,exit -S OPEN,CLOSE -k use\n"), MemoryFs::new());
    block_on(async {
        let gone = client(&server, "one").await;
        let data = gone.walk(b"/data").await.unwrap();
        let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
        let file = gone.open(&data.handle, b"f", ShareAccess::BOTH, Some(&mode)).await.unwrap();
        gone.write(&file, 0, b"hello", StableHow::FileSync).await.unwrap();
        assert_eq!(gone.read(&file, 1, 100).await.unwrap().0, b"ello");
        drop((file, gone));
        client_in_life(&server, "one", 2).await.close().await.unwrap();
    });
    drop(server);
    let records = read(directory.path());
    let ended = "CLOSE /data/f  use 0 Some(4) Some(5) (ended by the server: the client restarted)";
    assert_eq!(records, ["start", "OPEN /data/f  use 0", ended, "stop"]);
}

#[test]
fn under_block_reply_follows_durable_record() {
    let directory = tempfile::tempdir().unwrap();
    let keeping = WriterOptions {
        policy: Policy::Block,
        durability: Durability::Each,
        ..WriterOptions::default()
    };
    let config = config(directory.path(), None, keeping);
    let server = Running::start(|all| all.audit = Some(config));
    block_on(async {
        let client = client(&server, "one").await;
        let data = client.walk(b"/data").await.unwrap();
        for number in 0..30 {
            let name = format!("d{number}");
            client.mkdir(&data.handle, name.as_bytes(), 0o755).await.unwrap();
            let wanted = format!("CREATE /data/{name}   0 (makes a directory)");
            assert!(read(directory.path()).contains(&wanted), "{wanted}");
        }
        client.close().await.unwrap();
    });
}

#[test]
fn rules_reload_and_faulty_rules_change_nothing() {
    let (directory, config) = configured(Some("-a always,exit -S CREATE\n"));
    let rules = config.trail.rules.clone().unwrap();
    let audit = Arc::new(open(config));
    std::fs::write(&rules, "-a always,exit -S CREATE\n-a always,exit -S nothing-such\n").unwrap();
    let error = audit.read_rules().err().expect("the value is faulty");
    assert!(error.contains("line 2"), "{error}");
    std::fs::write(&rules, "-a always,exit -S CREATE\n-a always,exit -S OPEN\n").unwrap();
    audit.apply_rules(audit.read_rules().unwrap());
    std::fs::write(&rules, "-a always,exit -S OPEN,CREATE,READ\n").unwrap();
    audit.apply_rules(audit.read_rules().unwrap());
    std::fs::write(&rules, "").unwrap();
    audit.apply_rules(audit.read_rules().unwrap());
    audit.stop();
    assert_eq!(read(directory.path()), ["rules", "rules", "turned-down", "stop"]);
}

#[test]
fn keytab_change_is_recorded_even_while_stopped() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = config(directory.path(), None, WriterOptions::default());
    let keytab = elsewhere.path().join("keytab");
    let change = |text: &str| {
        let new = elsewhere.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &keytab).unwrap();
    };
    let start = || {
        let audit = open(config.clone());
        audit.watch_keytab(keytab.clone());
        audit.started();
        audit
    };
    change("one key");
    let audit = start();
    audit.check_keytab();
    change("another");
    audit.check_keytab();
    audit.check_keytab();
    change("a third one");
    audit.stop();
    start().stop();
    change("a fourth");
    start().stop();
    start().stop();
    std::fs::remove_file(&keytab).unwrap();
    start().stop();
    let all = [
        "start", "key", "key", "stop", "start", "stop", "start", "key", "stop", "start", "stop",
        "start", "key", "stop",
    ];
    assert_eq!(read(directory.path()), all);
}

fn records(directory: &Path) -> Vec<(String, String, Vec<u8>)> {
    let mut found = Vec::new();
    for_each_record(directory, |record| {
        if record.class == Class::Operation {
            let what =
                [operations::name(record.operation), &text(record.path), &text(record.path2)]
                    .join(" ");
            found.push((what.trim_end().to_owned(), text(record.detail), record.file.to_vec()));
        }
    });
    found
}

#[test]
fn watch_applies_to_all_names_and_copies_name_their_source() {
    let (directory, server) =
        start_audited(Some("-w /data/secret -p r -k secret\n"), MemoryFs::new());
    block_on(async {
        let client = client(&server, "one").await;
        let data = client.walk(b"/data").await.unwrap();
        let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
        let file =
            client.open(&data.handle, b"secret", ShareAccess::BOTH, Some(&mode)).await.unwrap();
        client.write(&file, 0, b"hello", StableHow::FileSync).await.unwrap();
        client.close_file(file).await.unwrap();
        let secret = client.walk(b"/data/secret").await.unwrap();
        client.link(&secret.handle, &data.handle, b"other").await.unwrap();
        let other = client.open(&data.handle, b"other", ShareAccess::READ, None).await.unwrap();
        client.close_file(other).await.unwrap();
        client.close().await.unwrap();
    });
    drop(server);
    let found: Vec<(String, String)> =
        records(directory.path()).into_iter().map(|(what, detail, _)| (what, detail)).collect();
    assert_eq!(
        found,
        [
            ("OPEN /data/secret".to_owned(), String::new()),
            ("OPEN /data/other".to_owned(), "also named \"/data/secret\"".to_owned()),
        ]
    );
}

#[test]
fn name_records_identify_the_named_file() {
    let rules = "-a always,exit -S OPEN,RENAME,REMOVE,LOOKUP,SETATTR,CREATE\n";
    let (directory, server) = start_audited(Some(rules), MemoryFs::new());
    block_on(async {
        let client = client(&server, "one").await;
        let data = client.walk(b"/data").await.unwrap();
        let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
        let file = client.open(&data.handle, b"f", ShareAccess::BOTH, Some(&mode)).await.unwrap();
        client.close_file(file).await.unwrap();
        client.rename(&data.handle, b"f", &data.handle, b"g").await.unwrap();
        client.mkdir(&data.handle, b"d", 0o755).await.unwrap();
        client.remove(&data.handle, b"g").await.unwrap();
        assert!(client.walk(b"/data/none").await.is_err());
        assert!(client.open(&data.handle, b"none", ShareAccess::READ, None).await.is_err());
        client.close().await.unwrap();
    });
    drop(server);
    let found = records(directory.path());
    let of = |what: &str| {
        found
            .iter()
            .find(|(known, ..)| known == what)
            .unwrap_or_else(|| panic!("{what}: {found:?}"))
    };
    let (_, _, file) = of("OPEN /data/f");
    assert!(!file.is_empty());
    assert_eq!((&of("RENAME /data/f /data/g").2, &of("REMOVE /data/g").2), (file, file));
    assert!(of("LOOKUP /data/none").2.is_empty() && of("OPEN /data/none").2.is_empty());
    assert_eq!(of("CREATE /data/d").1, "makes a directory");
}

#[test]
fn new_owner_is_recorded_even_on_failure() {
    let files = MemoryFs::new();
    let (directory, server) = start_audited(Some("-a always,exit -S SETATTR\n"), files.clone());
    block_on(async {
        let client = client(&server, "one").await;
        let data = client.walk(b"/data").await.unwrap();
        let d = client.mkdir(&data.handle, b"d", 0o755).await.unwrap();
        let set = async |attributes: &Attributes<'_>, mask: &[u32]| {
            let mut values = Writer::new();
            attributes.encode(vouch_nfs4::Bitmap::of(mask), &mut values);
            let bytes = values.into_bytes();
            let attrs = <vouch_nfs4::Fattr<'_> as vouch_nfs4::Wire<'_>>::decode(
                &mut vouch_xdr::Reader::new(&bytes),
            )
            .unwrap();
            let args =
                vouch_nfs4::op::SetattrArgs { stateid: vouch_nfs4::Stateid::ANONYMOUS, attrs };
            client
                .compound()
                .putfh(&d)
                .op(&vouch_nfs4::op::Args::Setattr(args))
                .send()
                .await
                .is_ok()
        };
        let (user, group) = (Some(vouch_nfs4::Bytes(b"1000")), Some(vouch_nfs4::Bytes(b"7")));
        set(
            &Attributes {
                owner: user,
                owner_group: group,
                mode: Some(0o700),
                ..Attributes::default()
            },
            &[33, 36, 37],
        )
        .await;
        set(&Attributes { owner_group: group, ..Attributes::default() }, &[37]).await;
        files.set_fault(|call, _| {
            (call == vouch_vfs::memory::Call::SetAttributes).then_some(vouch_vfs::Error::Permission)
        });
        set(&Attributes { owner: user, ..Attributes::default() }, &[36]).await;
        client.close().await.unwrap();
    });
    drop(server);
    let details: Vec<_> =
        records(directory.path()).into_iter().map(|(_, detail, _)| detail).collect();
    assert_eq!(
        details,
        ["sets mode 0700, owner uid 1000 gid 7", "sets owner gid 7", "sets owner uid 1000"]
    );
}

#[test]
fn reduced_auditing_is_recorded_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let block = WriterOptions {
        policy: Policy::Block,
        durability: Durability::Each,
        ..WriterOptions::default()
    };
    let first = config(directory.path(), Some("-w /srv -p wa\n"), block);
    let rules = first.trail.rules.clone().unwrap();
    let start = |config: AuditConfig| {
        let audit = open(config);
        audit.started();
        audit.stop();
        read(directory.path()).split_off(0)
    };
    let again = |change: &dyn Fn(&mut AuditConfig)| {
        let mut config = first.clone();
        change(&mut config);
        let before = read(directory.path()).len();
        start(config).split_off(before)
    };
    assert_eq!(start(first.clone()), ["start", "stop"]);
    assert_eq!(again(&|_| ()), ["start", "stop"]);
    assert_eq!(
        again(&|config| config.trail.keeping.policy = Policy::Count),
        ["start", "turned-down", "stop"]
    );
    assert_eq!(again(&|config| config.deny = vec!["/srv".into()]), ["start", "stop"]);
    assert_eq!(again(&|_| ()), ["start", "turned-down", "stop"]);
    assert_eq!(
        again(&|config| config.trail.keeping.durability = Durability::System),
        ["start", "turned-down", "stop"]
    );
    assert_eq!(again(&|_| ()), ["start", "stop"]);
    assert_eq!(
        again(&|config| config.trail.rotation.seal_ns_max *= 2),
        ["start", "turned-down", "stop"]
    );
    assert_eq!(
        again(&|config| config.trail.keeping.retention.age_ns_max = Some(1 << 60)),
        ["start", "turned-down", "stop"]
    );
    assert_eq!(again(&|_| ()), ["start", "stop"]);
    std::fs::write(&rules, "-w /srv -p rwa\n").unwrap();
    assert_eq!(again(&|_| ()), ["start", "stop"]);
    std::fs::write(&rules, "-w /srv/data -p rwa\n").unwrap();
    assert_eq!(again(&|_| ()), ["start", "turned-down", "stop"]);
    std::fs::remove_file(directory.path().join("in-force")).unwrap();
    assert_eq!(again(&|_| ()), ["start", "turned-down", "stop"]);
    assert_eq!(again(&|_| ()), ["start", "stop"]);
}
