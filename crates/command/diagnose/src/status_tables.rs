//! Tables of `vouch status`. All text comes from other processes, so it is made printable.

use std::collections::BTreeMap;

use vouch_daemon::printable::printable;
use vouch_daemon::table;
use vouch_export::{HeadRole, HeadStatus};
use vouch_tree::time_text::{RelativeTime, Utc};
use vouch_tree_mount::{MountStatus, TreeStatus};

use crate::{MachineStatus, bytes};

/// All tables that have rows.
pub fn all(machine: &MachineStatus, now_s: u64) -> String {
    let tables = [
        ("MOUNTS", mounts(machine, now_s)),
        ("WITNESSES OF MOUNTS", witnesses(machine, now_s)),
        ("REPLICAS OF MOUNTS", replicas(machine)),
        ("CACHES", caches(machine)),
        ("SERVED TREES", served(machine, now_s)),
        ("GATEWAYS", gateways(machine, now_s)),
        ("MONITORED TREES", monitored(machine, now_s)),
        ("EXPORTS", exports(machine)),
        ("NFS MOUNTS", nfs_mounts(machine)),
        ("CSI DRIVERS", csi_drivers(machine)),
        ("BROKERS OF JOBS", jobs_brokers(machine, now_s)),
        ("AGENTS OF JOBS", jobs_agents(machine, now_s)),
        ("WARNINGS AND ERRORS OF THE LAST HOUR", errors(machine)),
        ("NO ANSWER", unanswered(machine)),
    ];
    let mut text = String::new();
    for (title, table) in tables.into_iter().filter(|(_, table)| !table.is_empty()) {
        text.push_str(&format!("{}{title}\n{table}", if text.is_empty() { "" } else { "\n" }));
    }
    if text.is_empty() { NO_DAEMON.to_owned() } else { text }
}

fn mounts(machine: &MachineStatus, now_s: u64) -> String {
    let mut rows = Vec::new();
    for (daemon, mount) in machine.mounts() {
        let failed: u64 = mount.requests.iter().map(|count| count.failed).sum();
        let cells = |tree: Option<&TreeStatus>| {
            let shown = tree.map_or_else(
                || ("(all trees)".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()),
                |tree| tree_cells(tree, now_s),
            );
            [
                text(&mount.point.to_string_lossy()),
                shown.0,
                shown.1,
                shown.2,
                shown.3,
                failed.to_string(),
                logged(daemon),
            ]
            .to_vec()
        };
        if mount.trees.is_empty() {
            rows.push(cells(None));
        }
        rows.extend(mount.trees.iter().map(|tree| cells(Some(tree))));
    }
    let without = "no status: the process ended, is stuck, or belongs to another user";
    rows.extend(
        machine
            .mounts_without_status
            .iter()
            .map(|point| [text(&point.to_string_lossy()), without.to_owned()].to_vec()),
    );
    table(
        "MOUNT POINT | TREE | REVISION | VALID UNTIL | CACHE HITS | FAILED REQUESTS | ERRORS/H",
        rows,
        &[2, 4, 5, 6],
    )
}

fn tree_cells(tree: &TreeStatus, now_s: u64) -> (String, String, String, String) {
    let valid = match &tree.trouble {
        Some(trouble) => format!("not readable: {}", text(trouble)),
        None => until(u64::try_from(tree.expires).unwrap_or(0), now_s),
    };
    (
        text(&tree.name),
        tree.revision.to_string(),
        valid,
        hit_rate(tree.frames_from_memory + tree.frames_from_disk, tree.frames_from_network),
    )
}

fn witnesses(machine: &MachineStatus, now_s: u64) -> String {
    let mut rows = Vec::new();
    for (_, mount) in machine.mounts() {
        for tree in &mount.trees {
            let Some(found) = &tree.witnesses else { continue };
            rows.push(vec![
                text(&mount.point.to_string_lossy()),
                text(&tree.name),
                format!("{} of {}", found.cosigned, found.witnesses),
                until(found.quorum_time, now_s),
                until(found.oldest, now_s),
                until(found.newest, now_s),
            ]);
        }
    }
    table("MOUNT POINT | TREE | COSIGNED | QUORUM | OLDEST | NEWEST", rows, &[])
}

fn replicas(machine: &MachineStatus) -> String {
    let mut rows = Vec::new();
    for (_, mount) in machine.mounts() {
        for (tree, replica) in mount
            .trees
            .iter()
            .flat_map(|tree| tree.replicas.iter().map(move |replica| (tree, replica)))
        {
            let place = if replica.host.contains("://") {
                replica.host.clone()
            } else {
                format!("{} {}", replica.host, replica.address)
            };
            let latency = replica
                .latency_seconds
                .map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", seconds * 1e3));
            rows.push(vec![
                text(&place),
                text(&replica.state),
                latency,
                replica.revision.to_string(),
                replica.calls.to_string(),
                replica.failed_calls.to_string(),
                replica.lies.to_string(),
                text(&mount.point.to_string_lossy()),
                text(&tree.name),
            ]);
        }
    }
    table(
        "REPLICA | STATE | LATENCY | REVISION | CALLS | FAILED | LIES | MOUNT POINT | TREE",
        rows,
        &[2, 3, 4, 5, 6],
    )
}

fn caches(machine: &MachineStatus) -> String {
    // Processes share a directory.
    let mut caches: BTreeMap<String, (u64, u64, usize)> = BTreeMap::new();
    let mut memory = (0, 0);
    for (_, MountStatus { disk_cache, memory_cache_bytes, .. }) in machine.mounts() {
        memory = (memory.0 + memory_cache_bytes, memory.1 + 1);
        if let Some(disk) = disk_cache {
            let cache = caches.entry(text(&disk.directory.to_string_lossy())).or_default();
            *cache = (cache.0.max(disk.bytes), cache.1.max(disk.quota_bytes), cache.2 + 1);
        }
    }
    let mut rows: Vec<_> = caches
        .into_iter()
        .map(|(directory, (used, quota, users))| {
            vec![directory, bytes(used), bytes(quota), users.to_string()]
        })
        .collect();
    if memory.1 > 0 {
        rows.push(vec![
            "(memory)".to_owned(),
            bytes(memory.0),
            "-".to_owned(),
            memory.1.to_string(),
        ]);
    }
    table("CACHE | USED | QUOTA | MOUNTS", rows, &[1, 2, 3])
}

fn served(machine: &MachineStatus, now_s: u64) -> String {
    let mut rows = Vec::new();
    for (daemon, serve) in machine.replicas() {
        for tree in &serve.trees {
            let state = tree.trouble.as_ref().map_or_else(
                || tree.state.name().to_owned(),
                |why| format!("{}: {}", tree.state.name(), text(why)),
            );
            rows.push(vec![
                text(&serve.addresses.join(", ")),
                text(&tree.hostid),
                state,
                tree.revision.map_or_else(|| "-".to_owned(), |revision| revision.to_string()),
                tree.expires.map_or_else(|| "-".to_owned(), |expires| until(expires, now_s)),
                serve.connections.to_string(),
                bytes(serve.sent_bytes),
                logged(daemon),
                tree.database.as_deref().map_or_else(|| "-".to_owned(), text),
            ]);
        }
    }
    table(
        "ADDRESS | TREE | STATE | REVISION | VALID UNTIL | CONNECTIONS | SENT | ERRORS/H | DATABASE",
        rows,
        &[3, 5, 6, 7],
    )
}

fn monitored(machine: &MachineStatus, now_s: u64) -> String {
    let mut rows = Vec::new();
    let ago = |time: u64| match time {
        0 => "never".to_owned(),
        at => RelativeTime { at, now: now_s }.to_string(),
    };
    for (daemon, tree) in machine
        .monitors()
        .flat_map(|(daemon, monitor)| monitor.trees.into_iter().map(move |tree| (daemon, tree)))
    {
        rows.push(vec![
            match (&tree.error, &tree.alarms[..]) {
                (_, [alarm, ..]) => format!("ALARM {}", alarm.kind.name()),
                (Some(error), []) => text(error),
                (None, []) => "good".to_owned(),
            },
            tree.revision.to_string(),
            tree.entries.to_string(),
            ago(tree.fresh),
            ago(tree.checked),
            format!("{} of {}", tree.good_replicas, tree.replicas),
            logged(daemon),
            text(&tree.tree),
        ]);
    }
    let heading =
        "STATE | REVISION | LOG ENTRIES | FRESH | CHECKED | REPLICAS UP | ERRORS/H | TREE";
    table(heading, rows, &[1, 2, 5, 6])
}

fn gateways(machine: &MachineStatus, now_s: u64) -> String {
    let mut rows = Vec::new();
    for (daemon, gateway) in machine.gateways() {
        rows.push(vec![
            text(&gateway.addresses.join(", ")),
            text(&gateway.state),
            gateway.revision.to_string(),
            until(u64::try_from(gateway.expires).unwrap_or(0), now_s),
            hit_rate(
                gateway.frames_from_memory + gateway.frames_from_disk,
                gateway.frames_from_network,
            ),
            format!("{} of {}", gateway.good_replicas, gateway.replicas),
            gateway.connections.to_string(),
            bytes(gateway.sent_bytes),
            gateway.failed_responses.to_string(),
            logged(daemon),
            text(&gateway.tree),
        ]);
    }
    let heading = "ADDRESS | STATE | REVISION | VALID UNTIL | CACHE HITS | REPLICAS UP | CONNECTIONS | SENT | FAILED RESPONSES | ERRORS/H | TREE";
    table(heading, rows, &[2, 4, 5, 6, 7, 8, 9])
}

fn nfs_mounts(machine: &MachineStatus) -> String {
    let mut rows = Vec::new();
    for (daemon, mount) in machine.nfs_mounts() {
        let server = match mount.is_server_silent() {
            true => format!("silent for {} s", mount.silent_s),
            false => "answers".to_owned(),
        };
        rows.push(vec![
            text(&mount.point.to_string_lossy()),
            text(&mount.source),
            server,
            mount.open_files.to_string(),
            mount.unwritten_bytes.to_string(),
            mount.requests_failed.to_string(),
            mount.recoveries.to_string(),
            logged(daemon),
        ]);
    }
    let heading = "MOUNT | EXPORT | SERVER | OPEN | UNWRITTEN | FAILED | RECOVERIES | ERRORS/H";
    table(heading, rows, &[3, 4, 5, 6, 7])
}

fn csi_drivers(machine: &MachineStatus) -> String {
    let mut rows = Vec::new();
    for (daemon, driver) in machine.csi_drivers() {
        rows.push(vec![
            text(&driver.driver),
            text(&driver.node),
            driver.trees.to_string(),
            (driver.published_trees + driver.published_exports).to_string(),
            driver.volumes.to_string(),
            driver.healed.to_string(),
            driver.faults.len().to_string(),
            logged(daemon),
        ]);
    }
    let heading = "DRIVER | NODE | TREES | PUBLISHED | VOLUMES MADE | HEALED | FAULTS | ERRORS/H";
    table(heading, rows, &[2, 3, 4, 5, 6, 7])
}

fn exports(machine: &MachineStatus) -> String {
    let mut rows = Vec::new();
    for (daemon, status) in machine.exports() {
        let opens: usize = status.clients.iter().map(|client| client.opens).sum();
        let head = status.head.as_ref().map_or_else(|| "-".to_owned(), head);
        if status.exports.is_empty() {
            let none = || "-".to_owned();
            rows.push(vec![
                none(),
                none(),
                none(),
                head.clone(),
                none(),
                none(),
                none(),
                logged(daemon),
                text(&status.site.state),
            ]);
        }
        for export in &status.exports {
            rows.push(vec![
                text(&status.site.addresses.join(", ")),
                text(&export.pseudo_path),
                text(&export.source),
                head.clone(),
                status.clients.len().to_string(),
                opens.to_string(),
                status.connections.to_string(),
                logged(daemon),
                text(&status.site.state),
            ]);
        }
    }
    let heading = "ADDRESS | PATH | SOURCE | HEAD | CLIENTS | OPENS | CONNECTIONS | ERRORS/H | STATE DIRECTORY";
    table(heading, rows, &[4, 5, 6, 7])
}

/// Role and epoch of a head of a shared state directory.
fn head(head: &HeadStatus) -> String {
    let role = match head.role {
        HeadRole::Active => "active",
        HeadRole::Standby => "standby",
    };
    format!("{} {role} {}", text(&head.head), head.epoch)
}

fn jobs_brokers(machine: &MachineStatus, now_s: u64) -> String {
    let rows = machine.jobs_brokers().map(|(daemon, broker)| {
        vec![
            text(&broker.addresses.join(", ")),
            state_of_peer("KDC", broker.outage.as_ref(), now_s),
            broker.live_jobs.to_string(),
            broker.users.to_string(),
            broker.holders.to_string(),
            broker.tickets_minted.to_string(),
            broker.refused.to_string(),
            broker.connections.to_string(),
            logged(daemon),
            text(&broker.principal),
        ]
    });
    let heading = "ADDRESS | STATE | JOBS | USERS | WITH TICKETS | MINTED | REFUSED | CONNECTIONS | ERRORS/H | PRINCIPAL";
    table(heading, rows.collect(), &[2, 3, 4, 5, 6, 7, 8])
}

fn jobs_agents(machine: &MachineStatus, now_s: u64) -> String {
    let rows = machine.jobs_agents().map(|(daemon, agent)| {
        vec![
            text(&agent.node),
            state_of_peer("broker", agent.outage.as_ref(), now_s),
            agent.jobs.to_string(),
            agent.users.to_string(),
            agent.users_without_tickets.len().to_string(),
            agent.next_end_s.map_or_else(|| "-".to_owned(), |end_s| until(end_s, now_s)),
            agent.renewals_failed.to_string(),
            agent.refused.to_string(),
            logged(daemon),
            text(&agent.broker),
        ]
    });
    let heading = "NODE | STATE | JOBS | USERS | NO TICKETS | NEXT END | FAILED RENEWALS | REFUSED | ERRORS/H | BROKER";
    table(heading, rows.collect(), &[2, 3, 4, 6, 7, 8])
}

fn state_of_peer(peer: &str, outage: Option<&vouch_jobs::OutageStatus>, now_s: u64) -> String {
    let Some(outage) = outage else { return "ok".to_owned() };
    format!("{peer} gives no tickets ({})", RelativeTime { at: outage.since_s, now: now_s })
}

fn errors(machine: &MachineStatus) -> String {
    let mut entries: Vec<_> = machine
        .daemons
        .iter()
        .flat_map(|daemon| daemon.status.log.newest.iter().map(move |entry| (entry, daemon)))
        .collect();
    entries.sort_by_key(|(entry, _)| entry.at);
    let newest = entries.split_off(entries.len().saturating_sub(ERRORS_SHOWN));
    let rows = newest.into_iter().map(|(entry, daemon)| {
        let level = if entry.is_error { "error" } else { "warning" };
        let process = format!("{} {}", daemon.status.kind.name(), daemon.status.pid);
        vec![Utc(entry.at).to_string(), process, level.to_owned(), text(&entry.message)]
    });
    table("TIME | PROCESS | LEVEL | MESSAGE", rows.collect(), &[])
}

fn unanswered(machine: &MachineStatus) -> String {
    let rows = machine
        .unanswered
        .iter()
        .map(|daemon| vec![text(&daemon.socket.to_string_lossy()), text(&daemon.why)]);
    table("SOCKET | WHY", rows.collect(), &[])
}

/// Share of frames that needed no replica. The kernel's page cache is not counted.
fn hit_rate(cached: u64, fetched: u64) -> String {
    match cached + fetched {
        0 => "-".to_owned(),
        all => format!("{:.1} %", 100.0 * cached as f64 / all as f64),
    }
}

fn logged(daemon: &vouch_daemon::status::DaemonStatus) -> String {
    daemon.log.errors_last_hour.to_string()
}

fn until(at: u64, now_s: u64) -> String {
    format!(
        "{} ({})",
        minutes(i64::try_from(at).unwrap_or(i64::MAX)),
        RelativeTime { at, now: now_s }
    )
}

fn text(text: &str) -> String {
    printable(text.as_bytes())
}

/// `heading`: names between bars.
fn table(heading: &str, rows: Vec<Vec<String>>, right: &[usize]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let heading = heading.split(" | ").map(str::to_owned).collect();
    table::table(&[vec![heading], rows].concat(), right)
}

const NO_DAEMON: &str =
    "No mount or service of vouch runs on this machine that this user may ask.\n";

const ERRORS_SHOWN: usize = 20;

fn minutes(seconds: i64) -> String {
    let instant = jiff::Timestamp::from_second(seconds);
    instant.map_or_else(
        |_| format!("@{seconds}"),
        |instant| instant.strftime("%Y-%m-%d %H:%M").to_string(),
    )
}
