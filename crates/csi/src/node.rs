//! The Node service: volumes at the paths where pods use them.

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;
use tonic::{Code, Request, Response, Status};

use crate::attributes::{Attributes, invalid};
use crate::bind::unmount_all;
use crate::csi_v1::node_service_capability::{self, Rpc, rpc};
use crate::csi_v1::volume_capability::AccessType;
use crate::csi_v1::volume_capability::access_mode::Mode;
use crate::csi_v1::volume_health::VolumeHealthEntry;
use crate::csi_v1::volume_usage::Unit;
use crate::csi_v1::*;
use crate::locks::Locks;
use crate::mount_spec::MountSpec;
use crate::mounts::{Mounts, blocking};
use crate::pod_tickets::PodTickets;
use crate::records::{AddError, Record, Records, Volume};

mod exports;

pub(crate) struct NodeService {
    pub(crate) node_id: String,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) records: Arc<Records>,
    /// One operation at a time for each target: a broker or a server that is away delays one pod only.
    pub(crate) targets: Locks,
    /// One thread at a time asks the file system at each target: one that never answers keeps no other
    /// thread.
    pub(crate) asked: Locks,
    pub(crate) tickets: Arc<PodTickets>,
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let target = target_path(&request.target_path)?;
        let flags = mount_flags(request.volume_capability.as_ref())?;
        let attributes = Attributes::parse(&request.volume_context)?;
        if matches!(attributes, Attributes::Export(_))
            && is_inline(&request.volume_id, &request.volume_context)
        {
            return Err(Status::permission_denied(
                "server: a volume within a pod is no export, because the node would mount with its own \
                 rights what the pod's author names; use a claim",
            ));
        }
        let _lock = self.lock(&target).await;
        match attributes {
            Attributes::Tree(tree, path) => {
                let volume = Volume::Tree { key: tree.key(), path: path.clone() };
                if self.is_published(&request.volume_id, &target, &volume).await? {
                    return Ok(Response::new(NodePublishVolumeResponse {}));
                }
                self.begin(&request, &target, volume).await?;
                let name = tree.name.clone();
                let published = self.mounts.publish(&MountSpec::Tree(tree), &path, &target).await;
                self.end_failed(&target, published).await?;
                let path = if path.is_empty() { "/" } else { &path };
                tracing::info!("{}: {path} of {name}", target.display());
            }
            Attributes::Export(export) => {
                self.publish_export(&request, &target, export, &flags).await?;
            }
        }
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let target = target_path(&request.target_path)?;
        let _lock = self.lock(&target).await;
        self.end(&target).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        required("volume_path", &request.volume_path)?;
        let record = self.record(&request.volume_id, &request.volume_path)?;
        let usage = self.usage(record.target).await?;
        Ok(Response::new(NodeGetVolumeStatsResponse { usage }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let record = self.record(&request.volume_id, &request.volume_publish_path)?;
        let fault = self.mounts.fault(&record);
        let health_statuses = match self.usage(record.target).await {
            Ok(_) => Vec::new(),
            Err(status) => vec![VolumeHealthEntry {
                status: VolumeHealthErrorType::Inaccessible.into(),
                reason: if status.code() == Code::Unavailable { "NoAnswer" } else { "MountDead" }
                    .into(),
                message: fault.unwrap_or_else(|| status.message().to_owned()),
            }],
        };
        let volume_health = Some(VolumeHealth { volume_id: request.volume_id, health_statuses });
        Ok(Response::new(NodeGetVolumeHealthResponse { volume_health }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capability = |kind: rpc::Type| NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = [
            rpc::Type::GetVolumeStats,
            rpc::Type::GetVolumeHealth,
            rpc::Type::SingleNodeMultiWriter,
        ]
        .map(capability)
        .into();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.node_id.clone(),
            ..Default::default()
        }))
    }
}

impl NodeService {
    async fn lock(&self, target: &Path) -> OwnedMutexGuard<()> {
        self.targets.lock(&target.to_string_lossy()).await
    }

    /// True if the volume is there already. Another volume at the same path is an error.
    async fn is_published(
        &self,
        volume_id: &str,
        target: &Path,
        volume: &Volume,
    ) -> Result<bool, Status> {
        Ok(self.is_recorded(volume_id, target, volume)?
            && self.usage(target.to_owned()).await.is_ok())
    }

    fn is_recorded(&self, volume_id: &str, target: &Path, volume: &Volume) -> Result<bool, Status> {
        match self.records.get(target) {
            Some(record) if record.volume_id != volume_id || record.volume != *volume => {
                Err(Status::already_exists(format!(
                    "{}: volume {} is published here",
                    target.display(),
                    record.volume_id
                )))
            }
            record => Ok(record.is_some()),
        }
    }

    async fn usage(&self, target: PathBuf) -> Result<Vec<VolumeUsage>, Status> {
        let name = target.display().to_string();
        let ask = async {
            let lock = self.asked.lock(&name).await;
            blocking(move || {
                let usage = usage(&target);
                drop(lock);
                usage
            })
            .await
        };
        tokio::time::timeout(USAGE_WAIT, ask).await.unwrap_or_else(|_| {
            Err(Status::unavailable(format!(
                "{name}: its file system does not answer; is its server reachable?"
            )))
        })
    }

    /// Makes the record and the directory.
    async fn begin(
        &self,
        request: &NodePublishVolumeRequest,
        target: &Path,
        volume: Volume,
    ) -> Result<(), Status> {
        let is_exclusive = is_exclusive(request.volume_capability.as_ref());
        let (records, volume_id, target) =
            (self.records.clone(), request.volume_id.clone(), target.to_owned());
        blocking(move || {
            match records.add(&volume_id, &target, volume, is_exclusive) {
                Ok(()) => {}
                Err(AddError::Io(error)) => return Err(local(&target, error)),
                // Access mode ReadWriteOncePod.
                Err(AddError::InUse(other)) => {
                    return Err(Status::failed_precondition(format!(
                        "volume {volume_id} is for one pod, and is in use at {}",
                        other.display()
                    )));
                }
            }
            match DirBuilder::new().recursive(true).mode(0o750).create(&target) {
                // A dead mount.
                Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => Ok(()),
                created => created.map_err(|error| local(&target, error)),
            }
        })
        .await
    }

    async fn end_failed(&self, target: &Path, published: Result<(), Status>) -> Result<(), Status> {
        if let Err(failure) = &published {
            tracing::warn!("{}: {}", target.display(), failure.message());
            self.end(target).await?;
        }
        published
    }

    async fn end(&self, target: &Path) -> Result<(), Status> {
        let volume = self.records.get(target).map(|record| record.volume);
        if let Some(key) = volume.as_ref().and_then(Volume::mount_key) {
            self.mounts.unpublish(key, target).await?;
        }
        let (records, target) = (self.records.clone(), target.to_owned());
        let tickets = self.tickets.clone();
        blocking(move || {
            // The kernel's client writes its data first; a mount of ours has none after close(2).
            let is_ours = vouch_tree_mount::mount_on(&target)
                .is_ok_and(|mount| mount.is_some_and(|mount| mount.is_ours()));
            unmount_all(&target, is_ours)?;
            match fs::remove_dir(&target) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(local(&target, error));
                }
                _ => {}
            }
            if let Some(job) = volume.as_ref().and_then(Volume::job) {
                tickets.end(job);
            }
            records.remove(&target).map_err(|error| local(&target, error))
        })
        .await
    }

    /// Some callers give no path.
    fn record(&self, volume_id: &str, path: &str) -> Result<Record, Status> {
        let mut records = self.records.all().into_iter();
        records
            .find(|record| {
                record.volume_id == volume_id
                    && (path.is_empty() || record.target == Path::new(path))
            })
            .ok_or_else(|| {
                Status::not_found(format!(
                    "volume {volume_id} is not published at {path:?} on this node"
                ))
            })
    }
}

/// Asks the file system, also that of a tree.
fn usage(path: &Path) -> Result<Vec<VolumeUsage>, Status> {
    let space = statvfs(path).map_err(|error| {
        Status::internal(format!(
            "{}: {}; the driver makes a dead mount again within seconds",
            path.display(),
            io::Error::from(error)
        ))
    })?;
    if vouch_tree_mount::mount_on(path).ok().flatten().is_none() {
        return Err(Status::not_found(format!("{}: nothing is mounted here", path.display())));
    }
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let bytes = |blocks: u64| number(blocks.saturating_mul(space.f_frsize));
    Ok(vec![
        VolumeUsage {
            unit: Unit::Bytes.into(),
            total: bytes(space.f_blocks),
            available: bytes(space.f_bavail),
            used: bytes(space.f_blocks.saturating_sub(space.f_bfree)),
        },
        VolumeUsage {
            unit: Unit::Inodes.into(),
            total: number(space.f_files),
            available: number(space.f_favail),
            used: number(space.f_files.saturating_sub(space.f_ffree)),
        },
    ])
}

pub(crate) fn required(field: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() { Err(invalid(&format!("{field} is missing"))) } else { Ok(()) }
}

fn target_path(text: &str) -> Result<PathBuf, Status> {
    required("target_path", text)?;
    let path = PathBuf::from(text);
    if !path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir)
    {
        return Err(invalid("target_path is not an absolute path"));
    }
    Ok(path)
}

/// Options of mount(8) from the capability.
pub(crate) fn mount_flags(capability: Option<&VolumeCapability>) -> Result<Vec<String>, Status> {
    let capability = capability.ok_or_else(|| invalid("volume_capability is missing"))?;
    match &capability.access_type {
        Some(AccessType::Mount(mount)) => Ok(mount.mount_flags.clone()),
        Some(AccessType::Block(_)) => {
            Err(invalid("volumes are file systems; volumeMode: Block is not possible"))
        }
        None => Err(invalid("volume_capability has no access type")),
    }
}

fn is_exclusive(capability: Option<&VolumeCapability>) -> bool {
    let mode = capability.and_then(|capability| capability.access_mode);
    mode.is_some_and(|mode| mode.mode() == Mode::SingleNodeSingleWriter)
}

/// True for a volume whose attributes stand in the pod. kubelet says so, and gives it such an id.
fn is_inline(volume_id: &str, context: &HashMap<String, String>) -> bool {
    let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    context.get("csi.storage.k8s.io/ephemeral").is_some_and(|value| value == "true")
        || volume_id.strip_prefix("csi-").is_some_and(is_digest)
}

fn local(path: &Path, error: io::Error) -> Status {
    Status::internal(format!("{}: {error}", path.display()))
}

pub(crate) type Parameters = HashMap<String, String>;

/// For a file system that answers.
const USAGE_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
