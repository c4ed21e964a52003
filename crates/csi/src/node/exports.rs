//! Volumes of exports: by the kernel's client, or by `vouch nfs-mount`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tonic::Status;

use super::{NodeService, local};
use crate::attributes::ExportMount;
use crate::csi_v1::NodePublishVolumeRequest;
use crate::fuse_export::Pod;
use crate::launcher::run_tool;
use crate::mount_spec::{ExportSpec, MountSpec};
use crate::mounts::{Counters, blocking};
use crate::pod_certificate;
use crate::pod_tickets::Shown;
use crate::records::Volume;

enum Client {
    /// Options of mount.nfs(8).
    Kernel(String),
    Fuse(ExportSpec),
}

impl NodeService {
    pub(super) async fn publish_export(
        &self,
        request: &NodePublishVolumeRequest,
        target: &Path,
        export: ExportMount,
        flags: &[String],
    ) -> Result<(), Status> {
        let pod = Shown::of_request(request, target, &export)?;
        let job = pod.as_ref().map(|pod| pod.job.clone());
        let source = export.source();
        let (client, volume) = if export.is_fuse {
            let described =
                Pod { context: &request.volume_context, secrets: &request.secrets, target };
            let spec = export.fuse(flags, request.readonly, &described)?;
            let volume = Volume::FuseExport { key: spec.key(), source: source.clone(), job };
            (Client::Fuse(spec), volume)
        } else {
            let (source, options) = export.mount(flags, request.readonly)?;
            (Client::Kernel(options.clone()), Volume::Export { source, options, job })
        };
        if self.is_recorded(&request.volume_id, target, &volume)? && is_in_table(target).await? {
            // Nothing here asks the server, which may be away: kubelet calls each minute for a newer
            // token, and a running pod keeps its mount.
            self.show(pod).await?;
            return self.store_certificate(request, &client).await;
        }
        self.begin(request, target, volume).await?;
        let mounted = self.mount_export(request, target, &source, client, pod).await;
        self.end_failed(target, mounted).await?;
        tracing::info!("{}: {source}", target.display());
        Ok(())
    }

    async fn mount_export(
        &self,
        request: &NodePublishVolumeRequest,
        target: &Path,
        source: &str,
        client: Client,
        pod: Option<Shown>,
    ) -> Result<(), Status> {
        let cache = self.show(pod).await?;
        self.store_certificate(request, &client).await?;
        match client {
            Client::Fuse(spec) => {
                let spec = MountSpec::Export(ExportSpec { cache, ..spec });
                self.mounts.publish(&spec, "", target).await
            }
            Client::Kernel(options) => {
                let arguments = [
                    OsStr::new("-t"),
                    "nfs".as_ref(),
                    "-o".as_ref(),
                    options.as_ref(),
                    source.as_ref(),
                    target.as_os_str(),
                ];
                let mounted = run_tool("mount", &arguments).await;
                let counters = &self.mounts.counters;
                Counters::add(if mounted.is_ok() { &counters.mounted } else { &counters.failed });
                mounted
            }
        }
    }

    async fn show(&self, pod: Option<Shown>) -> Result<Option<PathBuf>, Status> {
        let Some(pod) = pod else { return Ok(None) };
        let tickets = self.tickets.clone();
        blocking(move || tickets.show(pod)).await
    }

    async fn store_certificate(
        &self,
        request: &NodePublishVolumeRequest,
        client: &Client,
    ) -> Result<(), Status> {
        let Client::Fuse(spec) = client else { return Ok(()) };
        let (root, key) = (self.mounts.secrets.clone(), spec.key());
        let secrets = request.secrets.clone();
        blocking(move || {
            pod_certificate::store(&root, &key, &secrets).map_err(|error| local(&root, error))
        })
        .await
    }
}

/// Asks no server.
async fn is_in_table(target: &Path) -> Result<bool, Status> {
    let point = target.to_owned();
    let table = || vouch_tree_mount::mounts().map_err(|error| Status::internal(error.to_string()));
    blocking(move || Ok(table()?.iter().any(|(mounted, _)| *mounted == point))).await
}
