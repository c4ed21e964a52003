//! `user.vouch.*`: the client's state of a file. Never listed, so `cp -a`, `rsync -X` and `getfattr
//! -d` do not copy them. A tree's attributes of these names are hidden: a publisher must not state
//! what only the client knows. Expired and revoked trees have them too.

use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::time_text::Utc;
use vouch_tree::{Blob, BlockHandle, Content, Inode};
use vouch_tree_client::{ReplicaState, ReplicaStatus};

use crate::error::OpError;
use crate::state::MountState;
use crate::volume::Volume;

pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

impl MountState {
    pub(crate) fn file_status(&self, id: NodeId, name: &[u8]) -> Result<Vec<u8>, OpError> {
        let view = self.table.get(id).ok_or(OpError::Gone)?;
        let volume = view.volume.as_ref().ok_or(OpError::NoData)?;
        let value = match name.strip_prefix(PREFIX).unwrap_or_default() {
            b"tree" => volume.label().to_owned(),
            b"revision" => volume.shown().number().to_string(),
            b"handle" => {
                handle(&view.inode).map_or_else(|| "inline".to_owned(), |handle| handle.to_string())
            }
            b"replica" => replica(volume).ok_or(OpError::NoData)?,
            b"cached" => self.cached(id, &view.inode, volume)?,
            b"verified" => verified(volume),
            _ => return Err(OpError::NoData),
        };
        Ok(value.into_bytes())
    }

    /// Bytes in the client's caches, and length of the content.
    fn cached(&self, id: NodeId, inode: &Inode, volume: &Volume) -> Result<String, OpError> {
        let Content::Regular { blob, .. } = &inode.content else { return Err(OpError::NoData) };
        let whole = if self.open_files.backing(id).is_some() {
            Some(blob.size)
        } else {
            volume.tree().cached_len(blob)
        };
        Ok(whole.map_or_else(|| "unknown".to_owned(), |cached| format!("{cached}/{}", blob.size)))
    }
}

fn handle(inode: &Inode) -> Option<BlockHandle> {
    let of_blob = |blob: &Blob| blob.top().map(|(_, handle)| handle);
    match &inode.content {
        Content::Regular { blob, .. } => of_blob(blob),
        Content::Directory { top: Some(top), .. } => Some(top.handle),
        _ => None,
    }
}

/// The fastest that answers: the client asks it first.
fn replica(volume: &Volume) -> Option<String> {
    let answers = |replica: &ReplicaStatus| {
        matches!(replica.state, ReplicaState::Up | ReplicaState::Slow | ReplicaState::Stale)
    };
    let replicas = volume.tree().replicas().into_iter().filter(answers);
    let best = replicas.min_by_key(|replica| replica.latency)?;
    Some(if best.host.contains("://") { best.host } else { best.address.to_string() })
}

fn verified(volume: &Volume) -> String {
    match volume.tree().revision() {
        Ok(_) => format!(
            "yes, valid until {}",
            Utc(u64::try_from(volume.shown().expires()).unwrap_or(0))
        ),
        Err(error) => format!("no: {error}"),
    }
}

const PREFIX: &[u8] = b"user.vouch.";
