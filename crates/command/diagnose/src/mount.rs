//! A mount: its process, the tree that it shows, its cache and its replicas.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use vouch_tree::TreeName;
use vouch_tree_client::{TreeOptions, location_of_name};
use vouch_tree_mount::{MountStatus, TreeStatus};

use crate::finding::{Fault, Finding, Findings};
use crate::network::ReplicaAddress;
use crate::{MachineStatus, local};

/// Checks the mount at `point`. Returns the trees to check, with their replicas.
pub fn check(
    point: &Path,
    machine: &MachineStatus,
    findings: &mut Findings,
) -> Vec<(TreeName, TreeOptions)> {
    let Some((daemon, mount)) = machine.mounts().find(|(_, mount)| mount.point == point) else {
        findings.add(without_status(point));
        return Vec::new();
    };
    findings.add(Finding::ok(point.display(), format_args!("mounted by process {}", daemon.pid)));
    if let Some(cache) = &mount.disk_cache {
        local::check_cache(&cache.directory, cache.quota_bytes, findings);
    }
    failures(&mount, daemon, findings);
    mount.trees.iter().filter_map(|tree| tree_of(tree, findings)).collect()
}

fn without_status(point: &Path) -> Finding {
    let (send, receive) = mpsc::channel();
    let copy = point.to_owned();
    // The call cannot be ended: a thread that hangs ends with this process.
    thread::spawn(move || send.send(rustix::fs::statvfs(&copy)));
    let Ok(answer) = receive.recv_timeout(ANSWER_MAX) else {
        let what = format!("the mount has not answered for {} s", ANSWER_MAX.as_secs());
        return Finding::problem(Fault::DaemonSilent, point.display(), what)
            .cure("its process may be stuck or stopped: look at its log, and restart it");
    };
    match answer {
        Err(rustix::io::Errno::NOTCONN) => {
            Finding::problem(Fault::MountDead, point.display(), "the mount's process has ended without unmounting").cure(format_args!(
                "run `vouch umount {}`, and mount again; look in the log for why it ended (`journalctl -k | grep -i oom`)",
                point.display()
            ))
        }
        Err(error) => Finding::problem(Fault::MountFails, point.display(), format_args!("the mount answers: {error}"))
            .cure(format_args!("look at the log of the mount; run `vouch umount {}`, and mount again", point.display())),
        Ok(_) => Finding::note(Fault::MountWithoutStatus, point.display(), "the mount works, but its status socket does not answer this user")
            .cure("run as root, or with the VOUCH_RUNTIME_DIR of the mount"),
    }
}

fn failures(
    mount: &MountStatus,
    daemon: &vouch_daemon::status::DaemonStatus,
    findings: &mut Findings,
) {
    for replica in
        mount.trees.iter().flat_map(|tree| &tree.replicas).filter(|replica| replica.lies > 0)
    {
        findings.add(
            Finding::problem(
                Fault::ReplicaLies,
                &replica.host,
                format_args!(
                    "sent wrong data to this mount {} times: {}",
                    replica.lies,
                    replica.last_error.as_deref().unwrap_or("no detail")
                ),
            )
            .cure(
                "the mount uses other replicas; tell its administrator to run `vouch verify --db`",
            ),
        );
    }
    findings.add_logged_errors(mount.point.display(), daemon);
}

const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The tree with the replicas that the mount uses.
fn tree_of(tree: &TreeStatus, findings: &mut Findings) -> Option<(TreeName, TreeOptions)> {
    if let Some(trouble) = &tree.trouble {
        findings.add(
            Finding::problem(Fault::TreeNotServed, &tree.name, trouble)
                .cure("see the findings about its replicas below"),
        );
    }
    let name = tree.name.parse::<TreeName>().ok()?;
    let own = ReplicaAddress::parse(&location_of_name(&name));
    let places = tree.replicas.iter().map(|replica| {
        if replica.host.contains("://") { replica.host.clone() } else { replica.address.clone() }
    });
    let replicas: Vec<String> =
        places.filter(|replica| ReplicaAddress::parse(replica) != own).collect();
    // Its own host may be left out of the mount on purpose.
    let only_replicas = !replicas.is_empty();
    Some((name, TreeOptions { replicas, only_replicas, refuse_forwarding: false }))
}
