//! Snapshots of volumes, and what volumes are made from.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;
use tonic::Status;

use crate::attributes::invalid;
use crate::controller::{ControllerService, failed, unknown};
use crate::copies::CopyMethod;
use crate::csi_v1::list_snapshots_response::Entry;
use crate::csi_v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::csi_v1::{
    CreateSnapshotRequest, ListSnapshotsRequest, ListSnapshotsResponse, Snapshot as Shown,
    VolumeContentSource,
};
use crate::exports::ExportServer;
use crate::mounts::blocking;
use crate::node::required;
use crate::provisioned::{Provisioned, Snapshot, Source, id};

impl ControllerService {
    pub(crate) async fn make_snapshot(
        &self,
        request: CreateSnapshotRequest,
    ) -> Result<Shown, Status> {
        required("name", &request.name)?;
        required("source_volume_id", &request.source_volume_id)?;
        if let Some(key) = request.parameters.keys().next() {
            return Err(invalid(&format!("{key}: a VolumeSnapshotClass has no parameters here")));
        }
        let exports = self.copying()?;
        let (snapshot_id, volume_id) = (id(&request.name), request.source_volume_id);
        let (made, source) = (snapshot_name(&snapshot_id), volume_name(&volume_id));
        let locks = self.operations.lock_all(vec![made.clone(), source.clone()]).await;
        if let Some(there) = self.snapshots.get(&snapshot_id) {
            return match there.volume_id == volume_id {
                true => Ok(shown(snapshot_id, there)),
                false => Err(Status::already_exists(format!(
                    "{snapshot_id}: is a snapshot of {}",
                    there.volume_id
                ))),
            };
        }
        let volume = self.volumes.get(&volume_id).ok_or_else(|| unknown(&volume_id))?;
        self.refuse_use(&volume_id, &volume)?;
        let pending = self.pending.begin(&made, Some(&source))?;
        drop(locks);
        let snapshots = self.snapshots.clone();
        blocking(move || {
            let _pending = pending;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let snapshot = Snapshot {
                name: request.name,
                volume_id: volume_id.clone(),
                capacity_bytes: volume.capacity_bytes,
                created_s: now.as_secs().cast_signed(),
            };
            exports.create_snapshot(&volume_id, &snapshot_id)?;
            snapshots.put(snapshot.clone()).map_err(failed)?;
            Ok(shown(snapshot_id, snapshot))
        })
        .await
    }

    pub(crate) async fn remove_snapshot(&self, snapshot_id: &str) -> Result<(), Status> {
        required("snapshot_id", snapshot_id)?;
        let lock = self.operations.lock(&snapshot_name(snapshot_id)).await;
        if self.snapshots.get(snapshot_id).is_none() {
            return Ok(());
        }
        self.pending.refuse(&snapshot_name(snapshot_id))?;
        let (exports, snapshots) = (self.copying()?, self.snapshots.clone());
        let snapshot_id = snapshot_id.to_owned();
        blocking(move || {
            let _lock = lock;
            exports.delete_snapshot(&snapshot_id)?;
            snapshots.remove(&snapshot_id).map_err(failed)
        })
        .await
    }

    pub(crate) fn snapshot_list(
        &self,
        request: &ListSnapshotsRequest,
    ) -> Result<ListSnapshotsResponse, Status> {
        let is_wanted = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
        let all = self.snapshots.all().into_iter().filter(|(snapshot_id, snapshot)| {
            is_wanted(&request.snapshot_id, snapshot_id)
                && is_wanted(&request.source_volume_id, &snapshot.volume_id)
        });
        let mut all: Vec<Shown> = all.map(|(id, snapshot)| shown(id, snapshot)).collect();
        // A token is the first id of the next page.
        let start = match &*request.starting_token {
            "" => 0,
            token => all
                .iter()
                .position(|snapshot| snapshot.snapshot_id == token)
                .ok_or_else(|| Status::aborted("starting_token: list again from the start"))?,
        };
        let mut page = all.split_off(start);
        let len_max = usize::try_from(request.max_entries).unwrap_or(0);
        let mut next_token = String::new();
        if len_max > 0 && page.len() > len_max {
            next_token.clone_from(&page[len_max].snapshot_id);
            page.truncate(len_max);
        }
        let entries = page.into_iter().map(|snapshot| Entry { snapshot: Some(snapshot) });
        Ok(ListSnapshotsResponse { entries: entries.collect(), next_token })
    }

    /// Of a request for a volume.
    pub(crate) fn source(
        &self,
        given: Option<&VolumeContentSource>,
    ) -> Result<Option<Source>, Status> {
        let Some(given) = given else { return Ok(None) };
        self.copying()?;
        match &given.r#type {
            Some(Type::Snapshot(source)) => Ok(Some(Source::Snapshot(source.snapshot_id.clone()))),
            Some(Type::Volume(source)) => Ok(Some(Source::Volume(source.volume_id.clone()))),
            None => Err(invalid("volume_content_source has no type")),
        }
    }

    /// With reflinks, cp(1) as root follows paths, which a pod could replace by links meanwhile.
    fn refuse_use(&self, volume_id: &str, volume: &Provisioned) -> Result<(), Status> {
        match self.copying()?.copy_method()? {
            CopyMethod::Reflink if !volume.nodes.is_empty() => {
                Err(Status::failed_precondition(format!(
                    "{volume_id}: is in use; with reflinks, end its pods first (btrfs copies volumes \
                     in use)"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Of a source that may be copied now.
    pub(crate) fn capacity_of(&self, source: &Source) -> Result<i64, Status> {
        match source {
            Source::Volume(id) => {
                let volume = self.volumes.get(id).ok_or_else(|| unknown(id))?;
                self.refuse_use(id, &volume)?;
                Ok(volume.capacity_bytes)
            }
            Source::Snapshot(id) => self
                .snapshots
                .get(id)
                .map(|snapshot| snapshot.capacity_bytes)
                .ok_or_else(|| Status::not_found(format!("snapshot {id:?} does not exist"))),
        }
    }

    fn copying(&self) -> Result<Arc<ExportServer>, Status> {
        let Some(exports) = &self.exports else {
            return Err(invalid(
                "volume_content_source: trees have revisions in place of snapshots",
            ));
        };
        exports.copy_method()?;
        Ok(exports.clone())
    }
}

fn shown(snapshot_id: String, snapshot: Snapshot) -> Shown {
    Shown {
        size_bytes: snapshot.capacity_bytes,
        snapshot_id,
        source_volume_id: snapshot.volume_id,
        creation_time: Some(Timestamp { seconds: snapshot.created_s, nanos: 0 }),
        ready_to_use: true,
        ..Default::default()
    }
}

pub(crate) fn content_source(source: Source) -> VolumeContentSource {
    VolumeContentSource {
        r#type: Some(match source {
            Source::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
            Source::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
        }),
    }
}

/// Names of pending work.
pub(crate) fn volume_name(id: &str) -> String {
    format!("volume {id}")
}

fn snapshot_name(id: &str) -> String {
    format!("snapshot {id}")
}

pub(crate) fn source_name(source: &Source) -> String {
    match source {
        Source::Volume(id) => volume_name(id),
        Source::Snapshot(id) => snapshot_name(id),
    }
}
