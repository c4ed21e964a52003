//! The Controller service: volumes of a StorageClass.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tonic::{Request, Response, Status};

use crate::attributes::{Attributes, invalid};
use crate::copies::Pending;
use crate::csi_v1::controller_service_capability::{self, Rpc, rpc};
use crate::csi_v1::validate_volume_capabilities_response::Confirmed;
use crate::csi_v1::*;
use crate::exports::ExportServer;
use crate::locks::Locks;
use crate::mounts::blocking;
use crate::node::{Parameters, mount_flags, required};
use crate::provisioned::{Provisioned, ProvisionedVolumes, Snapshots, id, is_id};
use crate::snapshots::{content_source, source_name, volume_name};

pub(crate) struct ControllerService {
    pub(crate) volumes: Arc<ProvisionedVolumes>,
    /// None for a driver of trees.
    pub(crate) exports: Option<Arc<ExportServer>>,
    /// One operation at a time for each volume and snapshot: a long deletion delays no other one.
    pub(crate) operations: Locks,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) pending: Pending,
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        required("name", &request.name)?;
        capabilities(&request.volume_capabilities)?;
        let source = self.source(request.volume_content_source.as_ref())?;
        let volume_id = id(&request.name);
        let (attributes, options, mode) = self.attributes(&volume_id, request.parameters)?;
        let range = request.capacity_range.unwrap_or_default();
        if range.required_bytes < 0 || range.limit_bytes < 0 {
            return Err(invalid("capacity_range is negative"));
        }
        if range.limit_bytes > 0 && range.limit_bytes < range.required_bytes {
            return Err(Status::out_of_range("capacity_range: the limit is below the requirement"));
        }
        let volume = Provisioned {
            name: request.name,
            capacity_bytes: if range.required_bytes > 0 {
                range.required_bytes
            } else {
                range.limit_bytes
            },
            attributes,
            export_options: options,
            nodes: Default::default(),
            source,
        };
        let volume = self.provision(&volume_id, volume, mode, &range).await?;
        let volume = Volume {
            capacity_bytes: volume.capacity_bytes,
            volume_id,
            volume_context: volume.attributes.into_iter().collect(),
            content_source: volume.source.map(content_source),
            ..Default::default()
        };
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let volume_id = request.into_inner().volume_id;
        required("volume_id", &volume_id)?;
        let lock = self.operations.lock(&volume_name(&volume_id)).await;
        let Some(volume) = self.volumes.get(&volume_id) else {
            return Ok(Response::new(DeleteVolumeResponse {}));
        };
        if !volume.nodes.is_empty() {
            return Err(Status::failed_precondition(format!(
                "{volume_id}: is in use by {}",
                words(&volume)
            )));
        }
        self.pending.refuse(&volume_name(&volume_id))?;
        let (volumes, exports) = (self.volumes.clone(), self.exports.clone());
        blocking(move || {
            let _lock = lock;
            exports.map_or(Ok(()), |exports| exports.delete(&volume_id))?;
            volumes.remove(&volume_id).map_err(failed)
        })
        .await?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        required("node_id", &request.node_id)?;
        mount_flags(request.volume_capability.as_ref())?;
        let lock = self.operations.lock(&volume_name(&request.volume_id)).await;
        let Some(mut volume) = self.volumes.get(&request.volume_id) else {
            return Err(unknown(&request.volume_id));
        };
        let node = request.node_id;
        if node.parse::<IpAddr>().is_err() {
            return Err(Status::not_found(format!(
                "node {node}: its id is no address; start the node's driver with --node-id ADDRESS"
            )));
        }
        // A copy reads it, and may rely on its having no user.
        self.pending.refuse(&volume_name(&request.volume_id))?;
        volume.nodes.insert(node);
        self.export(volume, lock).await?;
        Ok(Response::new(ControllerPublishVolumeResponse::default()))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let lock = self.operations.lock(&volume_name(&request.volume_id)).await;
        if let Some(mut volume) = self.volumes.get(&request.volume_id) {
            volume.nodes.retain(|node| !request.node_id.is_empty() && *node != request.node_id);
            self.export(volume, lock).await?;
        }
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(invalid("volume_capabilities are missing"));
        }
        if self.volumes.get(&request.volume_id).is_none() {
            return Err(unknown(&request.volume_id));
        }
        let answer = match capabilities(&request.volume_capabilities) {
            Ok(()) => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    ..Default::default()
                }),
                ..Default::default()
            },
            Err(status) => ValidateVolumeCapabilitiesResponse {
                message: status.message().to_owned(),
                ..Default::default()
            },
        };
        Ok(Response::new(answer))
    }

    async fn get_capacity(
        &self,
        _: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let Some(exports) = self.exports.clone() else {
            return Err(Status::unimplemented("trees take no capacity"));
        };
        let available_capacity = blocking(move || exports.free_bytes().map_err(failed)).await?;
        Ok(Response::new(GetCapacityResponse { available_capacity, ..Default::default() }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        use rpc::Type::{
            CloneVolume, CreateDeleteSnapshot, CreateDeleteVolume, ExpandVolume, GetCapacity,
            ListSnapshots, PublishUnpublishVolume, SingleNodeMultiWriter,
        };
        let mut all = vec![CreateDeleteVolume, SingleNodeMultiWriter];
        if let Some(exports) = &self.exports {
            all.extend([PublishUnpublishVolume, GetCapacity, ExpandVolume]);
            if exports.has_copies() {
                all.extend([CreateDeleteSnapshot, ListSnapshots, CloneVolume]);
            }
        }
        let capability = |kind: &rpc::Type| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: (*kind).into() })),
        };
        Ok(Response::new(ControllerGetCapabilitiesResponse {
            capabilities: all.iter().map(capability).collect(),
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let snapshot = self.make_snapshot(request.into_inner()).await?;
        Ok(Response::new(CreateSnapshotResponse { snapshot: Some(snapshot) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        self.remove_snapshot(&request.into_inner().snapshot_id).await?;
        Ok(Response::new(DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        self.snapshot_list(&request.into_inner()).map(Response::new)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let wanted = request
            .capacity_range
            .ok_or_else(|| invalid("capacity_range is missing"))?
            .required_bytes;
        let lock = self.operations.lock(&volume_name(&request.volume_id)).await;
        let Some(mut volume) = self.volumes.get(&request.volume_id) else {
            return Err(unknown(&request.volume_id));
        };
        if wanted > volume.capacity_bytes {
            volume.capacity_bytes = wanted;
            self.export(volume.clone(), lock).await?;
        }
        Ok(Response::new(ControllerExpandVolumeResponse {
            capacity_bytes: volume.capacity_bytes,
            node_expansion_required: false,
        }))
    }
}

impl ControllerService {
    /// The volume, made by this call or by an earlier one.
    async fn provision(
        &self,
        volume_id: &str,
        volume: Provisioned,
        mode: u32,
        range: &CapacityRange,
    ) -> Result<Provisioned, Status> {
        let own = volume_name(volume_id);
        let source = volume.source.as_ref().map(source_name);
        let locks = self
            .operations
            .lock_all([Some(own.clone()), source.clone()].into_iter().flatten().collect())
            .await;
        if let Some(there) = self.volumes.get(volume_id) {
            let is_same = there.attributes == volume.attributes
                && there.source == volume.source
                && fits(there.capacity_bytes, range);
            return match is_same {
                true => Ok(there),
                false => Err(Status::already_exists(format!(
                    "{volume_id}: exists with another capacity, source or other parameters"
                ))),
            };
        }
        let mut volume = volume;
        if let Some(source) = &volume.source {
            let least = self.capacity_of(source)?;
            if volume.capacity_bytes == 0 {
                volume.capacity_bytes = least;
            }
            if volume.capacity_bytes < least {
                return Err(Status::out_of_range(format!(
                    "capacity_range: the source has a capacity of {least} bytes"
                )));
            }
        }
        let pending = self.pending.begin(&own, source.as_deref())?;
        // A copy takes its time. Pods on its source may end meanwhile.
        drop(locks);
        let (volumes, exports, id) =
            (self.volumes.clone(), self.exports.clone(), volume_id.to_owned());
        blocking(move || {
            let _pending = pending;
            if let Some(exports) = exports {
                let free = exports.free_bytes().map_err(failed)?;
                if volume.capacity_bytes > free {
                    return Err(Status::resource_exhausted(format!(
                        "{}: has {} MiB of free space; the volume wants {}",
                        exports.root.display(),
                        free >> 20,
                        volume.capacity_bytes >> 20
                    )));
                }
                match &volume.source {
                    Some(source) => exports.create_from(source, &id)?,
                    None => exports.create(&id, mode)?,
                }
            }
            volumes.put(volume.clone()).map_err(failed)?;
            Ok(volume)
        })
        .await
    }

    /// Attributes of the volume, its options in the export list, and the mode of its directory.
    fn attributes(
        &self,
        volume_id: &str,
        mut parameters: Parameters,
    ) -> Result<(BTreeMap<String, String>, String, u32), Status> {
        let Some(exports) = &self.exports else {
            if parameters.contains_key("server") {
                return Err(invalid(
                    "server: this driver has no --export-root, so it makes no exports",
                ));
            }
            Attributes::parse(&parameters)?;
            return Ok((parameters.into_iter().collect(), String::new(), 0));
        };
        let mode = parameters.remove("mode").unwrap_or_else(|| "0770".into());
        let mode = u32::from_str_radix(&mode, 8)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .ok_or_else(|| invalid("mode: write an octal mode, as 0770"))?;
        let options = parameters.remove("exportOptions").unwrap_or_default();
        if options.bytes().any(|b| b.is_ascii_whitespace() || b"()\"#\\".contains(&b)) {
            return Err(invalid("exportOptions: write options of exports(5), separated by commas"));
        }
        if parameters.contains_key("share") {
            return Err(invalid("share: the driver sets it for each volume"));
        }
        let share = exports.root.join(volume_id).to_string_lossy().into_owned();
        parameters.insert("share".into(), share);
        let Attributes::Export(export) = Attributes::parse(&parameters)? else {
            return Err(invalid("name: this driver makes exports; use the driver of trees"));
        };
        let mut list = vec!["rw".to_owned()];
        list.extend(export.sec.iter().map(|sec| format!("sec={sec}")));
        list.extend(export.xprtsec.iter().map(|security| format!("xprtsec={security}")));
        // Under sec=sys, root of the node makes the files and gives them to their users. With mtls, a
        // certificate names the user.
        let is_of_certificate = export.xprtsec.as_deref() == Some("mtls");
        if export.is_fuse
            && !is_of_certificate
            && export.sec.as_deref().is_none_or(|sec| sec == "sys")
        {
            list.push("no_root_squash".into());
        }
        list.extend((!options.is_empty()).then_some(options));
        Ok((parameters.into_iter().collect(), list.join(","), mode))
    }

    /// Stores the volume's nodes, and exports it to them. Also where nothing changes: the server may not
    /// have answered before. `lock` is held until it is done, also if the caller gave up waiting.
    async fn export(&self, volume: Provisioned, lock: OwnedMutexGuard<()>) -> Result<(), Status> {
        let (volumes, exports) = (self.volumes.clone(), self.exports.clone());
        blocking(move || {
            let _lock = lock;
            volumes.put(volume).map_err(failed)?;
            exports.map_or(Ok(()), |exports| exports.publish(&volumes))
        })
        .await
    }
}

fn capabilities(given: &[VolumeCapability]) -> Result<(), Status> {
    if given.is_empty() {
        return Err(invalid("volume_capabilities are missing"));
    }
    given.iter().try_for_each(|capability| mount_flags(Some(capability)).map(|_| ()))
}

fn fits(capacity_bytes: i64, range: &CapacityRange) -> bool {
    capacity_bytes >= range.required_bytes
        && (range.limit_bytes == 0 || capacity_bytes <= range.limit_bytes)
        && !(range.required_bytes > 0
            && range.limit_bytes == 0
            && capacity_bytes != range.required_bytes)
}

pub(crate) fn unknown(volume_id: &str) -> Status {
    let known = if is_id(volume_id) { "" } else { ", and is no id of this driver" };
    Status::not_found(format!("volume {volume_id:?} does not exist{known}"))
}

fn words(volume: &Provisioned) -> String {
    volume.nodes.iter().cloned().collect::<Vec<_>>().join(", ")
}

pub(crate) fn failed(error: std::io::Error) -> Status {
    Status::internal(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::time::Duration;

    use rustix::mount::{UnmountFlags, unmount};

    use super::*;
    use crate::bind::mount_without_answers;
    use crate::csi_v1::volume_capability::{AccessType, MountVolume};

    fn service(root: &Path) -> ControllerService {
        let (list, socket) = (root.join("list"), root.join("socket"));
        let exports = ExportServer::new(root.to_owned(), list, socket, false).unwrap();
        ControllerService {
            volumes: Arc::new(ProvisionedVolumes::open(root.join("records")).unwrap()),
            exports: Some(Arc::new(exports)),
            operations: Locks::default(),
            snapshots: Arc::new(Snapshots::open(root.join("snapshots")).unwrap()),
            pending: Pending::default(),
        }
    }

    fn volume() -> Provisioned {
        Provisioned {
            name: "v".into(),
            capacity_bytes: 0,
            attributes: BTreeMap::new(),
            export_options: "rw".into(),
            nodes: ["192.0.2.1".to_owned()].into(),
            source: None,
        }
    }

    #[test]
    fn root_of_a_node_is_believed_only_without_certificates() {
        let root = tempfile::tempdir().unwrap();
        let service = service(root.path());
        let options = |more: &[(&str, &str)]| {
            let given = [&[("server", "f"), ("client", "fuse")], more].concat();
            let given = given.iter().map(|(key, value)| ((*key).into(), (*value).into()));
            service.attributes("v", given.collect()).unwrap().1
        };
        assert_eq!(options(&[]), "rw,no_root_squash");
        assert_eq!(options(&[("xprtsec", "tls")]), "rw,xprtsec=tls,no_root_squash");
        assert_eq!(options(&[("xprtsec", "mtls")]), "rw,xprtsec=mtls");
    }

    #[tokio::test]
    async fn volume_that_is_copied_gets_no_user() {
        let root = tempfile::tempdir().unwrap();
        let service = service(root.path());
        service.volumes.put(volume()).unwrap();
        let _copy = service.pending.begin("volume w", Some("volume v")).unwrap();
        let request = ControllerPublishVolumeRequest {
            volume_id: "v".into(),
            node_id: "192.0.2.2".into(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
                access_mode: None,
            }),
            ..Default::default()
        };
        let refused = service.controller_publish_volume(Request::new(request)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Aborted);
        assert_eq!(service.volumes.get("v").unwrap().nodes.len(), 1);
    }

    /// A mount within the volume, whose process never answers, holds the deletion up.
    #[tokio::test]
    #[ignore = "needs root and /dev/fuse"]
    async fn slow_deletion_delays_no_other_volume() {
        let root = tempfile::tempdir().unwrap();
        let service = Arc::new(service(root.path()));
        for name in ["slow", "other"] {
            let nodes = Default::default();
            service.volumes.put(Provisioned { name: name.into(), nodes, ..volume() }).unwrap();
            std::fs::create_dir_all(root.path().join(name).join("within")).unwrap();
        }
        let device = mount_without_answers(&root.path().join("slow/within"));
        let delete = |name: &str| {
            let (service, volume_id) = (service.clone(), name.to_owned());
            let request = DeleteVolumeRequest { volume_id, ..Default::default() };
            tokio::spawn(async move { service.delete_volume(Request::new(request)).await })
        };
        let slow = delete("slow");
        while !root.path().join("slow.removed").exists() {
            tokio::task::yield_now().await;
        }
        let other = tokio::time::timeout(Duration::from_secs(20), delete("other")).await;
        let is_waiting = !service.operations.is_free("volume slow");
        // Ends the connection, and so the deletion.
        drop(device);
        drop(slow.await.unwrap());
        unmount(root.path().join("slow.removed/within"), UnmountFlags::DETACH).unwrap();
        assert!(is_waiting);
        other.expect("no wait").unwrap().unwrap();
        assert!(!root.path().join("other").exists() && service.volumes.get("other").is_none());
    }

    #[tokio::test]
    async fn lock_lasts_as_long_as_its_work() {
        let root = tempfile::tempdir().unwrap();
        let service = service(root.path());
        let server = UnixListener::bind(root.path().join("socket")).unwrap();
        service.volumes.put(volume()).unwrap();
        let request = ControllerUnpublishVolumeRequest {
            volume_id: "v".into(),
            node_id: "192.0.2.1".into(),
            ..Default::default()
        };
        let call = service.controller_unpublish_volume(Request::new(request));
        let connected = tokio::task::spawn_blocking(move || server.accept());
        // The server does not answer, and the caller gives up.
        let connection = tokio::select! {
            connection = connected => connection.unwrap().unwrap(),
            answer = call => panic!("{answer:?}"),
        };
        assert!(!service.operations.is_free("volume v"));
        drop(connection);
        drop(service.operations.lock("volume v").await);
    }
}
