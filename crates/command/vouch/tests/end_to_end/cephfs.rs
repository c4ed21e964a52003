//! An export over a real CephFS: a cluster that stalls, and two heads on it.

use vouch_nfs4::op::LockType;
use vouch_nfs4::{Status, Verifier};
use vouch_nfs4_client::{Config, Identity, Lock, OpenFile, Plain};
use vouch_oncrpc::AuthSys;

use crate::prelude::*;
use vouch_testkit::cephfs_cluster::{Cluster, Mounted, PROGRAMS};

pub(crate) fn cluster() -> Cluster {
    require("root", is_root());
    require_programs(&PROGRAMS);
    Cluster::start()
}

async fn new_file(client: &Client, directory: &str, name: &str) -> Result<OpenFile, Error> {
    let directory = client.walk(directory.as_bytes()).await?.handle;
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    client.open(&directory, name.as_bytes(), ShareAccess::BOTH, Some(&mode)).await
}

const STALLED: usize = 64;

#[test]
#[ignore = "needs root and Ceph"]
fn stalled_cluster_delays_no_other_export() {
    let cluster = cluster();
    let site = TestSite::with_directories(&["local"]);
    let _mounted = cluster.mount(&site.path("ceph"));
    let [local, ceph] = ["local", "ceph"].map(|name| site.path(name));
    let list = format!(
        "{} *(rw,insecure,no_root_squash)\n{} *(rw,insecure,no_root_squash)\n",
        local.display(),
        ceph.display()
    );
    site.write("exports", list);
    let export = Export::start(&site, &["--exports", "exports"]);
    let [local, ceph] =
        [local, ceph].map(|path| path.to_string_lossy().trim_start_matches('/').to_owned());
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let writer = connect(export.address, 2, "writer", 0).await.expect("connected");
        let other = connect(export.address, 2, "other", 0).await.expect("connected");
        let (file, at_hand) = (
            new_file(&writer, &ceph, "file").await.expect("a file"),
            new_file(&other, &local, "file").await.expect("a file"),
        );
        for daemon in [cluster.osd(), cluster.mds()] {
            let paused = daemon.pause();
            let stalled: Vec<_> = (0..STALLED)
                .map(|number| {
                    let (writer, file, ceph) = (writer.clone(), file.clone(), ceph.clone());
                    tokio::spawn(async move {
                        writer
                            .write(
                                &file,
                                number as u64 * 8192,
                                &[number as u8; 4096],
                                StableHow::FileSync,
                            )
                            .await?;
                        let name = format!("new-{number}");
                        // The name may be there from the other daemon's round.
                        new_file(&writer, &ceph, &name).await.map(drop)
                    })
                })
                .collect();
            for number in 0..20 {
                let written = other
                    .write(&at_hand, number * 4096, &[1; 4096], StableHow::FileSync)
                    .await
                    .expect("the other export works");
                assert_eq!(written.0, 4096);
            }
            let third =
                connect(export.address, 2, "third", 0).await.expect("a new client connects");
            new_file(&third, &local, "by-third").await.expect("and creates a file");
            assert!(stalled.iter().any(|task| !task.is_finished()), "the cluster does not stall");
            drop(paused);
            for task in stalled {
                task.await.expect("no panic").expect("the call ends well when the cluster goes on");
            }
        }
        let (bytes, _) = writer.read(&file, 63 * 8192, 4096).await.expect("readable");
        assert_eq!(bytes, [63; 4096]);
    });
}

/// The process ends before its mount.
struct Head {
    _process: KillOnDrop,
    address: SocketAddr,
    _mounted: Mounted,
}

/// A head that cannot renew it ends, so it is longer than a busy machine delays CephFS.
const STATE_LEASE: &str = "20s";

fn start_head(cluster: &Cluster, site: &TestSite, name: &str) -> Head {
    let point = site.path(name);
    let mounted = cluster.mount(&point);
    let [data, state] =
        ["data", "state"].map(|part| point.join(part).to_string_lossy().into_owned());
    for part in [&data, &state] {
        site.run_tool("install", &["-d", "-m", "700", part]);
    }
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listen = address.to_string();
    let fixed = format!(
        "export --dir {data} --options rw,insecure,no_root_squash,fsid=7 --state {state} --shared-state"
    );
    let fixed = words(&fixed);
    let more = ["--head", name, "--state-lease", STATE_LEASE, "--lease", "60", "--listen", &listen];
    let started = site.command([&fixed[..], &more].concat()).stdout(Stdio::null()).spawn();
    Head { _process: KillOnDrop(started.expect("the binary starts")), address, _mounted: mounted }
}

pub(crate) async fn connect_without_reclaim(address: SocketAddr, name: &str) -> Client {
    let identity = Identity {
        reclaim_complete: false,
        ..Identity::new(name.as_bytes().to_vec(), Verifier([7; 8]))
    };
    let root = Plain::sys(&AuthSys::default());
    for attempt in 1.. {
        // A standby may not answer. A slow machine gets more time at each attempt.
        let connecting = Client::connect(Config::new(address, 2, identity.clone(), root.clone()));
        match tokio::time::timeout(Duration::from_secs(attempt), connecting).await {
            Ok(Ok(client)) => return client,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    unreachable!("the loop ends by a connection")
}

#[test]
#[ignore = "needs root and Ceph"]
fn head_on_another_mount_takes_over_open_file_and_lock() {
    let cluster = cluster();
    let site = TestSite::new();
    let first = start_head(&cluster, &site, "a");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = connect_without_reclaim(first.address, "holder").await;
        let second = start_head(&cluster, &site, "b");
        client.reclaim_complete().await.expect("nothing to reclaim");
        let mut file = new_file(&client, "export", "file").await.expect("a file");
        client.write(&file, 0, b"acknowledged", StableHow::FileSync).await.expect("written");
        client
            .lock(&mut file, b"owner", LockType::Write, 0, 10)
            .await
            .expect("answered")
            .expect("locked");
        drop(first);
        let client = connect_without_reclaim(second.address, "holder").await;
        client
            .reclaim_open(&mut file)
            .await
            .expect("the open is reclaimed by the same file handle");
        let _lock: Lock = client
            .reclaim_lock(&mut file, b"owner", LockType::Write, 0, 10)
            .await
            .expect("the lock is reclaimed");
        client.reclaim_complete().await.expect("complete");
        assert_eq!(client.read(&file, 0, 100).await.expect("readable").0, b"acknowledged");
        client.write(&file, 12, b", continued", StableHow::FileSync).await.expect("written");
        let rival = connect(second.address, 2, "rival", 0).await.expect("connected");
        let mut same = loop {
            match new_file(&rival, "export", "file").await {
                Err(error) if matches!(error.status(), Some(Status::GRACE | Status::DELAY)) => {
                    tokio::time::sleep(Duration::from_millis(50)).await
                }
                opened => break opened.expect("the file opens"),
            }
        };
        assert!(
            rival
                .lock(&mut same, b"rival", LockType::Write, 5, 1)
                .await
                .expect("answered")
                .is_err(),
            "the lock is held"
        );
        assert_eq!(
            rival.read(&same, 0, 100).await.expect("readable").0,
            b"acknowledged, continued"
        );
    });
}

/// The state directory is on other storage, which does not stall.
#[test]
#[ignore = "needs root and Ceph"]
fn head_that_stops_while_cluster_stalls_keeps_its_lease() {
    let cluster = cluster();
    let site = TestSite::new();
    site.state_directory("shared");
    let _mounted = cluster.mount(&site.path("ceph"));
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listen = address.to_string();
    let fixed = words(
        "export --dir ceph --options rw,insecure,no_root_squash --state shared --shared-state",
    );
    let more = ["--head", "a", "--state-lease", "1h", "--lease", "60", "--listen", &listen];
    let log = fs::File::create(site.path("log")).expect("a file");
    let mut head = Export::spawn(site.command([&fixed[..], &more].concat()).stderr(log), address);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (client, file) = runtime.block_on(async {
        let client = connect(address, 2, "writer", 0).await.expect("connected");
        let file = new_file(&client, "export", "file").await.expect("a file");
        (client, file)
    });
    let paused = cluster.osd().pause();
    let write =
        runtime.spawn(async move { client.write(&file, 0, &[1; 4096], StableHow::FileSync).await });
    let waiting = || {
        let status = site.run(["export", "status", "--json", "--state", "shared", "--head", "a"]);
        serde_json::from_slice::<Value>(&status.stdout)
            .ok()
            .and_then(|status| status["waiting_calls"].as_u64())
    };
    within(120, "the write does not wait", || waiting() == Some(1));
    signal("TERM", head.child.id());
    let log = || fs::read_to_string(site.path("log")).expect("the log");
    assert!(
        eventually(Duration::from_secs(120), || log()
            .contains("hang in the exported file systems")),
        "{}",
        log()
    );
    let record = || fs::read_to_string(site.path("shared/lease/epoch-1")).expect("the record");
    assert!(record().contains("\ntenure active\n"), "{}", record());
    assert!(!write.is_finished(), "the cluster does not stall");
    drop(paused);
    // The cluster executes the write after the stop. The record must stay active, so that the next
    // head fences first.
    assert!(!head.child.wait().expect("a child").success());
    assert!(record().contains("\ntenure active\n"), "{}", record());
    assert_eq!(fs::read(site.path("ceph/file")).expect("the file"), [1; 4096]);
}
