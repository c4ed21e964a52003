//! An export over a CephFS with two active MDS and a standby. Both active MDS are killed in turn.

mod held;
mod load;

use tokio::task::JoinHandle;
use vouch_nfs4::Filehandle;
use vouch_nfs4_client::OpenFile;

use crate::cephfs::{cluster, connect_without_reclaim};
use crate::prelude::*;
use held::Held;
use load::Load;
use vouch_testkit::cephfs_cluster::Cluster;

/// Each with the rank of its MDS.
const DIRECTORIES: [(&str, &str); 3] = [("first", "0"), ("second", "1"), ("apart", "0")];

/// No lease and no grace period ends during the test.
const LEASE_S: &str = "600";

/// A machine under load is slow, but the test does not hang.
const STEP_MAX: Duration = Duration::from_secs(300);

#[test]
#[ignore = "needs root and Ceph"]
fn export_outlives_loss_of_each_of_two_mds_under_load() {
    let mut cluster = cluster();
    let site = TestSite::new();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mounted = cluster.mount(&site.path("ceph"));
    start_second_rank(&mut cluster, &site);
    let export = start_export(&site, address);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut held = runtime.block_on(async {
        let holder = connect_without_reclaim(address, "holder").await;
        holder.reclaim_complete().await.expect("nothing to reclaim");
        let [first, second, apart] = directories(&holder).await;
        let mut held = Held::create(&holder, &[first, second]).await;
        held.check(&holder, address).await;
        let load = Load::start(&holder, [first, second]);
        load.wait_for_rounds().await;
        cluster.kill_mds("b");
        let waiting = check_while_second_rank_is_lost(&site, &holder, second, apart).await;
        cluster.ceph(&["mds", "fail", "b"]);
        cluster.wait_for_rank(1, "c");
        waiting.await.expect("no panic").expect("the call ends well when the standby serves");
        load.wait_for_rounds().await;
        cluster.start_mds("a");
        cluster.wait_for_rank(0, "a");
        load.wait_for_rounds().await;
        load.finish(&holder).await;
        held.check(&holder, address).await;
        held
    });
    drop(export);
    drop(mounted);
    let _mounted = cluster.mount(&site.path("ceph"));
    let _export = start_export(&site, address);
    runtime.block_on(async {
        let holder = connect_without_reclaim(address, "holder").await;
        held.reclaim(&holder).await;
        held.check(&holder, address).await;
    });
}

fn start_second_rank(cluster: &mut Cluster, site: &TestSite) {
    cluster.start_mds("b");
    cluster.ceph(&["fs", "set", "test", "max_mds", "2"]);
    cluster.wait_for_rank(1, "b");
    cluster.start_mds("c");
    for (name, rank) in DIRECTORIES {
        let directory = site.path("ceph/data").join(name);
        fs::create_dir_all(&directory).expect("a directory");
        // An empty directory stays where it is.
        fs::write(directory.join(FIRST_FILE), "").expect("a file");
        site.run_tool(
            "setfattr",
            &["-n", "ceph.dir.pin", "-v", rank, &directory.to_string_lossy()],
        );
    }
    assert!(
        eventually(STEP_MAX, || is_authority(cluster, "b", "/data/second")),
        "the MDS does not get its directory"
    );
}

fn is_authority(cluster: &Cluster, mds: &str, path: &str) -> bool {
    let subtrees: Value =
        serde_json::from_str(&cluster.ceph(&["tell", &format!("mds.{mds}"), "get", "subtrees"]))
            .expect("JSON");
    let mut subtrees = subtrees.as_array().expect("a list").iter();
    subtrees.any(|subtree| subtree["is_auth"] == true && subtree["dir"]["path"] == path)
}

fn start_export(site: &TestSite, address: SocketAddr) -> Export {
    let listen = address.to_string();
    let fixed =
        words("export --dir ceph/data --pseudo /export --options rw,insecure,no_root_squash");
    let more = ["--state", "exporting", "--lease", LEASE_S, "--listen", &listen];
    Export::spawn(&mut site.command([&fixed[..], &more].concat()), address)
}

async fn directories(client: &Client) -> [Filehandle; 3] {
    let mut handles = Vec::new();
    for (name, _) in DIRECTORIES {
        handles.push(
            client.walk(format!("export/{name}").as_bytes()).await.expect("a directory").handle,
        );
    }
    handles.try_into().expect("one for each directory")
}

async fn create_in(client: &Client, directory: &Filehandle, name: &str) -> Result<OpenFile, Error> {
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    client.open(directory, name.as_bytes(), ShareAccess::BOTH, Some(&mode)).await
}

/// Calls that need the other MDS do not wait. Returns one that does.
async fn check_while_second_rank_is_lost(
    site: &TestSite,
    client: &Client,
    lost: Filehandle,
    apart: Filehandle,
) -> JoinHandle<Result<(), Error>> {
    let creating = client.clone();
    let waiting = tokio::spawn(async move { create_in(&creating, &lost, WAITING).await.map(drop) });
    for number in 0..10 {
        let file = create_in(client, &apart, &format!("file-{number}"))
            .await
            .expect("the other MDS works");
        client.write(&file, 0, b"apart", StableHow::FileSync).await.expect("written");
        client.close_file(file).await.expect("closed");
    }
    let calls = || {
        let status = site.run(["export", "status", "--json", "--state", "exporting"]);
        serde_json::from_slice::<Value>(&status.stdout)
            .ok()
            .and_then(|status| status["waiting_calls"].as_u64())
    };
    assert!(eventually(STEP_MAX, || calls() > Some(0)), "no call waits");
    assert!(!waiting.is_finished(), "the call does not need the lost MDS");
    waiting
}

const FIRST_FILE: &str = "first-file";

/// A file, whose creation waits for the lost MDS.
const WAITING: &str = "waiting";
