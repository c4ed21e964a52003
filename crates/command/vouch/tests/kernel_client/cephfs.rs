//! An export over the kernel's client of CephFS. The guest is the server and its NFS client.

use std::path::Path;

use crate::guest::{Guest, Network, has_program, work};
use vouch_testkit::cephfs_cluster::{Cluster, PROGRAMS};
use vouch_testkit::require;

#[test]
#[ignore = "needs root and guests"]
fn ordinary_tools_work_over_kernel_client_of_cephfs() {
    let network = Network::new();
    let cluster = cluster(&network);
    let out = guest(&network, &cluster).file(&work("files.sh")).run("cephfs.sh");
    for done in ["ok: a second mount sees the same", "ok: open file after a remount"] {
        assert!(out.contains(done), "{out}");
    }
}

#[test]
#[ignore = "needs root and guests"]
fn acls_work_over_kernel_client_of_cephfs() {
    let network = Network::new();
    require("ceph-module of script/install-needs", Path::new(MODULE_WITH_ACLS).exists());
    let cluster = cluster(&network);
    let out = guest(&network, &cluster)
        .file(&work("acl.sh"))
        .set("CEPH_MODULE", MODULE_WITH_ACLS)
        .run("cephfs_acl.sh");
    for done in ["ok: acls", "ok: ACLs on both sides"] {
        assert!(out.contains(done), "{out}");
    }
}

fn cluster(network: &Network) -> Cluster {
    require("the programs of Ceph", PROGRAMS.iter().all(|program| has_program(program)));
    Cluster::start_at(&network.address)
}

fn guest(network: &Network, cluster: &Cluster) -> Guest {
    let guest =
        Guest::with_port(network, 2049).newer_kernel().limit(400).file(&work("cephfs.bash"));
    guest
        .set("VOUCH", env!("CARGO_BIN_EXE_vouch"))
        .set("MONITOR", cluster.monitor_address())
        .set("VERSION", "4.2")
}

/// Debian's kernel for guests has the client without POSIX ACLs.
const MODULE_WITH_ACLS: &str = "/opt/vouch-guest/ceph-with-acls/ceph.ko";
