//! An export over the kernel's client of CephFS. The guest is the server and its NFS client.

use std::process::Command;

use crate::cephfs_cluster::{Cluster, PROGRAMS};
use crate::guest::{Guest, Network, skip, work};

#[test]
fn ordinary_tools_work_over_kernel_client_of_cephfs() {
    let Some(network) = Network::new() else { return };
    let is_there = |program: &&str| {
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().is_ok_and(|found| found.status.success())
    };
    if !PROGRAMS.iter().all(is_there) {
        return skip("needs the programs of Ceph");
    }
    let cluster = Cluster::start_at(&network.address);
    let guest = Guest::with_port(&network, 2049).newer_kernel().limit(400).file(&work("files.sh"));
    let guest = guest.set("VOUCH", env!("CARGO_BIN_EXE_vouch")).set("MONITOR", cluster.monitor_address()).set("VERSION", "4.2");
    let out = guest.run("cephfs.sh");
    for done in ["ok: a second mount sees the same", "ok: open file after a remount"] {
        assert!(out.contains(done), "{out}");
    }
}
