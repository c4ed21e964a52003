//! What the daemons of this machine say.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use serde::Serialize;
use vouch_daemon::failure::{At as _, Outcome};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_client;
use vouch_tree_mount::Mount;

/// The state of the machine, as far as this user may know it.
#[derive(Debug, Serialize)]
pub struct MachineStatus {
    pub daemons: Vec<Daemon>,
    /// Sockets whose daemon gave no answer.
    pub unanswered: Vec<Unanswered>,
    /// Mount points whose process has no answering socket.
    pub mounts_without_status: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
pub struct Daemon {
    pub socket: PathBuf,
    #[serde(flatten)]
    pub status: DaemonStatus,
}

#[derive(Debug, Serialize)]
pub struct Unanswered {
    pub socket: PathBuf,
    pub why: String,
    /// The daemon is another user's, so nothing is wrong with it.
    pub is_forbidden: bool,
}

impl MachineStatus {
    /// Asks all daemons of this machine that answer this user.
    ///
    /// # Errors
    /// Those of the directory of sockets and of the list of mounts.
    pub fn read() -> Outcome<Self> {
        let mut machine = MachineStatus {
            daemons: Vec::new(),
            unanswered: Vec::new(),
            mounts_without_status: Vec::new(),
        };
        for (socket, answer) in status_client::all().at("status sockets")? {
            match answer {
                Ok(status) => machine.daemons.push(Daemon { socket, status }),
                Err(error) => {
                    let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
                    let why = if is_forbidden {
                        "belongs to another user".to_owned()
                    } else {
                        error.to_string()
                    };
                    machine.unanswered.push(Unanswered { socket, why, is_forbidden });
                }
            }
        }
        let trees = machine.mounts().map(|(_, mount)| mount.point);
        let known: Vec<PathBuf> =
            trees.chain(machine.nfs_mounts().map(|(_, mount)| mount.point)).collect();
        // The topmost of each path: the driver of Kubernetes mounts above dead ones.
        let mut ours: BTreeMap<PathBuf, Mount> =
            vouch_tree_mount::mounts().at("/proc/self/mountinfo")?.into_iter().collect();
        ours.retain(|_, mount| mount.is_ours());
        // A bind mount, as those in pods, has the device of its original.
        let answering: BTreeSet<String> = ours
            .iter()
            .filter(|(point, _)| known.contains(point))
            .map(|(_, mount)| mount.device.clone())
            .collect();
        let silent = ours.into_iter().filter(|(_, mount)| !answering.contains(&mount.device));
        machine.mounts_without_status = silent.map(|(point, _)| point).collect();
        Ok(machine)
    }

    pub fn mounts(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_tree_mount::MountStatus)> {
        self.details(DaemonKind::Mount)
    }

    pub fn replicas(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_replica::ServeStatus)> {
        self.details(DaemonKind::Serve)
    }

    pub fn exports(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_export::Status)> {
        self.details(DaemonKind::Export)
    }

    pub fn gateways(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_gateway::GatewayStatus)> {
        self.details(DaemonKind::Gateway)
    }

    pub fn csi_drivers(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_csi::CsiStatus)> {
        self.details(DaemonKind::Csi)
    }

    pub fn nfs_mounts(
        &self,
    ) -> impl Iterator<Item = (&DaemonStatus, vouch_nfs_mount::NfsMountStatus)> {
        self.details(DaemonKind::NfsMount)
    }

    pub fn monitors(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_monitor::MonitorStatus)> {
        self.details(DaemonKind::Monitor)
    }

    pub fn jobs_brokers(
        &self,
    ) -> impl Iterator<Item = (&DaemonStatus, vouch_jobs::broker::BrokerStatus)> {
        self.details(DaemonKind::JobsBroker)
    }

    pub fn jobs_agents(
        &self,
    ) -> impl Iterator<Item = (&DaemonStatus, vouch_jobs::agent::AgentStatus)> {
        self.details(DaemonKind::JobsAgent)
    }

    /// The daemons of a kind. A daemon of another version may have another form of detail; `--json`
    /// still shows it.
    fn details<T: serde::de::DeserializeOwned>(
        &self,
        kind: DaemonKind,
    ) -> impl Iterator<Item = (&DaemonStatus, T)> {
        let of_kind = self.daemons.iter().filter(move |daemon| daemon.status.kind == kind);
        of_kind.filter_map(|daemon| {
            Some((&daemon.status, serde_json::from_value(daemon.status.detail.clone()).ok()?))
        })
    }
}
