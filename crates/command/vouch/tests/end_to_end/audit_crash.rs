//! SIGKILL at seeded random instants under load: every acknowledged operation has a record.

use std::collections::HashSet;

use vouch_audit::keys::Ratchet;
use vouch_audit::operations;
use vouch_audit::trail::{KEY_FILE, SystemDisk, Trust, create_key, segments, verify};

use crate::prelude::*;

const KILLS: u64 = 40;
const KILLS_VARIABLE: &str = "VOUCH_AUDIT_KILLS";
const WORKERS: u64 = 3;
const SEGMENT: &str = "64K";

type Acknowledged = (&'static str, String);

#[test]
fn every_acknowledged_operation_has_a_record_after_kill() {
    let kills = std::env::var(KILLS_VARIABLE)
        .ok()
        .map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let site = TestSite::with_directories(&["data", "trail"]);
    let trail = site.path("trail");
    let key = Ratchet::new([3; 16], &[4; 32]);
    create_key(&SystemDisk, &trail.join(KEY_FILE), &key).expect("a key");
    let (mut random, mut total) = (SplitMix64(17), 0);
    for round in 0..kills {
        let first = segments(&trail).expect("the trail").last().map_or(1, |file| file.number);
        let done: Arc<Mutex<Vec<Acknowledged>>> = Arc::default();
        let mut export = start(&site, round);
        let address = export.address;
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        for worker in 0..WORKERS {
            let done = done.clone();
            runtime.spawn(async move { drop(run_operations(address, round, worker, &done).await) });
        }
        within(60, &format!("kill {round}: no operation was acknowledged"), || {
            !done.lock().is_empty()
        });
        std::thread::sleep(Duration::from_millis(random.roll(120)));
        export.child.kill().expect("the process runs");
        export.child.wait().expect("the server has ended");
        std::thread::sleep(Duration::from_millis(20));
        runtime.shutdown_timeout(Duration::from_secs(30));
        let (done, recorded) =
            (std::mem::take(&mut *done.lock()), recorded_operations(&trail, first));
        total += done.len();
        for operation in done {
            assert!(
                recorded.contains(&operation),
                "kill {round}: {operation:?} was acknowledged and has no record"
            );
        }
    }
    start(&site, kills).terminate();
    let report =
        verify(&trail, &Trust { public: Some(key.public()), ..Trust::default() }, |_, _| {})
            .expect("the trail is read");
    assert_eq!((report.faults, report.unsealed), (vec![], 0));
    assert!(
        report.records >= total as u64 && total as u64 >= kills,
        "{total} operations, {} records",
        report.records
    );
    println!(
        "{kills} kills, {total} operations acknowledged, {} records in {} segments",
        report.records, report.segments
    );
}

fn start(site: &TestSite, round: u64) -> Export {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut command =
        site.command(&format!("export --options rw,insecure,no_root_squash --listen {address}"));
    command.args(words(&format!("--dir data --audit trail --state exporting-{round} --lease 5")));
    command.args(words(&format!(
        "--audit-policy block --audit-sync each --audit-segment {SEGMENT} --audit-seal 1s"
    )));
    Export::spawn(&mut command, address)
}

async fn run_operations(
    address: SocketAddr,
    round: u64,
    worker: u64,
    done: &Mutex<Vec<Acknowledged>>,
) -> Result<(), Error> {
    let client =
        connect(address, 1, &format!("{round}-{worker}"), rustix::process::getuid().as_raw())
            .await?;
    let root = client.walk(b"export").await?;
    let note = |operation, name: &str| done.lock().push((operation, name.to_owned()));
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    for number in 0.. {
        let name = |kind: &str| format!("{kind}-{round}-{worker}-{number}");
        let (directory, file, other) = (name("d"), name("f"), name("g"));
        client.mkdir(&root.handle, directory.as_bytes(), 0o755).await?;
        note("CREATE", &directory);
        let open =
            client.open(&root.handle, file.as_bytes(), ShareAccess::BOTH, Some(&mode)).await?;
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
    let read = records(trail, first, |record| {
        if (record.class, record.result) == (Class::Operation, 0) {
            let path = String::from_utf8_lossy(record.path).into_owned();
            found.insert((
                operations::name(record.operation),
                path.rsplit('/').next().unwrap_or_default().to_owned(),
            ));
        }
    });
    read.expect("the trail is read");
    found
}
