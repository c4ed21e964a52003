//! The Controller service: volumes of a StorageClass.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::attributes::{Attributes, invalid};
use crate::csi_v1::controller_server::Controller;
use crate::csi_v1::controller_service_capability::{self, Rpc, rpc};
use crate::csi_v1::validate_volume_capabilities_response::Confirmed;
use crate::csi_v1::*;
use crate::exports::ExportServer;
use crate::locks::Locks;
use crate::node::{Parameters, mount_flags, required};
use crate::provisioned::{Provisioned, ProvisionedVolumes, id, is_id};
use crate::trees::blocking;

pub(crate) struct ControllerService {
    pub(crate) volumes: Arc<ProvisionedVolumes>,
    /// None for a driver of trees.
    pub(crate) exports: Option<Arc<ExportServer>>,
    pub(crate) operations: Locks,
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
        if request.volume_content_source.is_some() {
            return Err(invalid("volume_content_source: snapshots and clones are not supported"));
        }
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
        };
        let _lock = self.operations.lock("").await;
        match self.volumes.get(&volume_id) {
            Some(there)
                if there.attributes != volume.attributes || !fits(there.capacity_bytes, &range) =>
            {
                return Err(Status::already_exists(format!(
                    "{volume_id}: exists with another capacity or other parameters"
                )));
            }
            Some(_) => {}
            None => {
                let (volumes, exports, id) =
                    (self.volumes.clone(), self.exports.clone(), volume_id.clone());
                let volume = volume.clone();
                blocking(move || {
                    if let Some(exports) = exports {
                        if volume.capacity_bytes > exports.free_bytes().map_err(failed)? {
                            return Err(Status::resource_exhausted(format!(
                                "{}: has less free space than the volume wants",
                                exports.root.display()
                            )));
                        }
                        exports.create(&id, mode).map_err(failed)?;
                    }
                    volumes.put(volume).map_err(failed)
                })
                .await?;
            }
        }
        let volume = self.volumes.get(&volume_id).unwrap_or(volume);
        let volume = Volume {
            capacity_bytes: volume.capacity_bytes,
            volume_id,
            volume_context: volume.attributes.into_iter().collect(),
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
        let _lock = self.operations.lock("").await;
        let Some(volume) = self.volumes.get(&volume_id) else {
            return Ok(Response::new(DeleteVolumeResponse {}));
        };
        if !volume.nodes.is_empty() {
            return Err(Status::failed_precondition(format!(
                "{volume_id}: is in use by {}",
                words(&volume)
            )));
        }
        let (volumes, exports) = (self.volumes.clone(), self.exports.clone());
        blocking(move || {
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
        let _lock = self.operations.lock("").await;
        let Some(mut volume) = self.volumes.get(&request.volume_id) else {
            return Err(unknown(&request.volume_id));
        };
        let node = request.node_id;
        if node.parse::<IpAddr>().is_err() {
            return Err(Status::not_found(format!(
                "node {node}: its id is no address; start the node's driver with --node-id ADDRESS"
            )));
        }
        volume.nodes.insert(node);
        self.export(volume).await?;
        Ok(Response::new(ControllerPublishVolumeResponse::default()))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let _lock = self.operations.lock("").await;
        if let Some(mut volume) = self.volumes.get(&request.volume_id) {
            volume.nodes.retain(|node| !request.node_id.is_empty() && *node != request.node_id);
            self.export(volume).await?;
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
            CreateDeleteVolume, ExpandVolume, GetCapacity, PublishUnpublishVolume,
            SingleNodeMultiWriter,
        };
        let all: &[rpc::Type] = match self.exports {
            Some(_) => &[
                CreateDeleteVolume,
                SingleNodeMultiWriter,
                PublishUnpublishVolume,
                GetCapacity,
                ExpandVolume,
            ],
            None => &[CreateDeleteVolume, SingleNodeMultiWriter],
        };
        let capability = |kind: &rpc::Type| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: (*kind).into() })),
        };
        Ok(Response::new(ControllerGetCapabilitiesResponse {
            capabilities: all.iter().map(capability).collect(),
        }))
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
        let _lock = self.operations.lock("").await;
        let Some(mut volume) = self.volumes.get(&request.volume_id) else {
            return Err(unknown(&request.volume_id));
        };
        if wanted > volume.capacity_bytes {
            volume.capacity_bytes = wanted;
            self.export(volume.clone()).await?;
        }
        Ok(Response::new(ControllerExpandVolumeResponse {
            capacity_bytes: volume.capacity_bytes,
            node_expansion_required: false,
        }))
    }
}

impl ControllerService {
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
        list.extend(export.sec.map(|sec| format!("sec={sec}")));
        list.extend(export.xprtsec.map(|security| format!("xprtsec={security}")));
        list.extend((!options.is_empty()).then_some(options));
        Ok((parameters.into_iter().collect(), list.join(","), mode))
    }

    /// Stores the volume's nodes, and exports it to them. Also where nothing changes: the server may not
    /// have answered before.
    async fn export(&self, volume: Provisioned) -> Result<(), Status> {
        let (volumes, exports) = (self.volumes.clone(), self.exports.clone());
        blocking(move || {
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

fn unknown(volume_id: &str) -> Status {
    let known = if is_id(volume_id) { "" } else { ", and is no id of this driver" };
    Status::not_found(format!("volume {volume_id:?} does not exist{known}"))
}

fn words(volume: &Provisioned) -> String {
    volume.nodes.iter().cloned().collect::<Vec<_>>().join(", ")
}

fn failed(error: std::io::Error) -> Status {
    Status::internal(error.to_string())
}
