//! Kills an audited export with SIGKILL at seeded random instants under load: every acknowledged
//! operation has a record.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vouch_audit::frame::Kind;
use vouch_audit::keys::Ratchet;
use vouch_audit::record::Class;
use vouch_audit::trail::{KEY_FILE, SystemDisk, Trust, create_key, entries, segments, verify};
use vouch_audit::{Record, operations};
use vouch_nfs4::op::{ShareAccess, StableHow};
use vouch_nfs4::{Attributes, Verifier};
use vouch_nfs4_client::{Client, Config, Error, Identity, Plain};
use vouch_oncrpc::AuthSys;

use crate::test_site::{TestSite, eventually};

const KILLS: u64 = 40;
const KILLS_VARIABLE: &str = "VOUCH_AUDIT_KILLS";
const WORKERS: u64 = 3;
/// Small, so that kills hit the end, indexing and compression of segments.
const SEGMENT: &str = "64K";

type Acknowledged = (&'static str, String);

#[test]
fn every_acknowledged_operation_has_a_record_after_kill() {
    let kills = std::env::var(KILLS_VARIABLE).ok().map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let world = TestSite::new();
    let trail = world.path("trail");
    for directory in ["data", "trail"] {
        std::fs::create_dir(world.path(directory)).expect("a directory");
    }
    let key = Ratchet::new([3; 16], &[4; 32]);
    create_key(&SystemDisk, &trail.join(KEY_FILE), &key).expect("a key");
    let (mut random, mut total) = (17u64, 0);
    for round in 0..kills {
        let first = segments(&trail).expect("the trail").last().map_or(1, |file| file.number);
        let done: Arc<Mutex<Vec<Acknowledged>>> = Arc::default();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (mut child, address) = start(&world, round);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        for worker in 0..WORKERS {
            let done = done.clone();
            runtime.spawn(async move { drop(run_operations(address, round, worker, &done).await) });
        }
        assert!(eventually(Duration::from_secs(60), || !done.lock().is_empty()), "kill {round}: no operation was acknowledged");
        std::thread::sleep(Duration::from_millis((random >> 33) % 120));
        child.0.kill().expect("the process runs");
        child.0.wait().expect("the server has ended");
        std::thread::sleep(Duration::from_millis(20));
        runtime.shutdown_timeout(Duration::from_secs(30));
        let (done, recorded) = (std::mem::take(&mut *done.lock()), recorded_operations(&trail, first));
        total += done.len();
        for operation in done {
            assert!(recorded.contains(&operation), "kill {round}: {operation:?} was acknowledged and has no record");
        }
    }
    let (mut child, _) = start(&world, kills);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child.0), rustix::process::Signal::TERM).expect("the process runs");
    child.0.wait().expect("the server has ended");
    let report = verify(&trail, &Trust { public: Some(key.public()), ..Trust::default() }, |_, _| {}).expect("the trail is read");
    assert_eq!((report.faults, report.unsealed), (vec![], 0));
    assert!(report.records >= total as u64 && total as u64 >= kills, "{total} operations, {} records", report.records);
    println!("{kills} kills, {total} operations acknowledged, {} records in {} segments", report.records, report.segments);
}

fn start(world: &TestSite, round: u64) -> (KillOnDrop, SocketAddr) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
    let listen = format!("127.0.0.1:{port}");
    // A new state directory, so that no grace period delays the round.
    let (state, data, trail) = (world.path(format!("exporting-{round}")), world.path("data"), world.path("trail"));
    let mut command = world.command(["export", "--options", "rw,insecure,no_root_squash", "--listen", &listen]);
    command.arg("--dir").arg(data).arg("--state").arg(state).arg("--audit").arg(trail);
    command.args(["--lease", "5", "--audit-policy", "block", "--audit-sync", "each"]);
    command.args(["--audit-segment", SEGMENT, "--audit-seal", "1s"]);
    let child = KillOnDrop(command.stdout(Stdio::null()).spawn().expect("the binary starts"));
    let address: SocketAddr = listen.parse().expect("an address");
    assert!(
        eventually(Duration::from_secs(60), || std::net::TcpStream::connect(address).is_ok()),
        "round {round}: the export does not start"
    );
    (child, address)
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Until the server is gone. Notes each acknowledged operation.
async fn run_operations(address: SocketAddr, round: u64, worker: u64, done: &Mutex<Vec<Acknowledged>>) -> Result<(), Error> {
    let identity = Identity::new(format!("{round}-{worker}").into_bytes(), Verifier([1; 8]));
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let me = AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid, gid, gids: Vec::new() };
    let client = Client::connect(Config::new(address, 1, identity, Plain::sys(&me))).await?;
    let root = client.walk(b"export").await?;
    let note = |operation, name: &str| done.lock().push((operation, name.to_owned()));
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    for number in 0.. {
        let name = |kind: &str| format!("{kind}-{round}-{worker}-{number}");
        let (directory, file, other) = (name("d"), name("f"), name("g"));
        client.mkdir(&root.handle, directory.as_bytes(), 0o755).await?;
        note("CREATE", &directory);
        let open = client.open(&root.handle, file.as_bytes(), ShareAccess::BOTH, Some(&mode)).await?;
        note("OPEN", &file);
        client.write(&open, 0, b"something", StableHow::Unstable).await?;
        note("WRITE", &file);
        client.close_file(open).await?;
        note("CLOSE", &file);
        client.rename(&root.handle, file.as_bytes(), &root.handle, other.as_bytes()).await?;
        note("RENAME", &file);
        client.remove(&root.handle, other.as_bytes()).await?;
        note("REMOVE", &other);
    }
    Ok(())
}

fn recorded_operations(trail: &std::path::Path, first: u64) -> HashSet<Acknowledged> {
    let mut found = HashSet::new();
    let read = entries(trail, first, |entry| {
        let mut scratch = Vec::new();
        if entry.kind == Kind::Record
            && let Ok(record) = Record::decode(&entry.body, &mut scratch)
            && record.class == Class::Operation
            && record.result == 0
        {
            let path = String::from_utf8_lossy(record.path).into_owned();
            found.insert((operations::name(record.operation), path.rsplit('/').next().unwrap_or_default().to_owned()));
        }
        true
    });
    read.expect("the trail is read");
    found
}
