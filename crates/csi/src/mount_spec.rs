//! What a shared FUSE mount shows. It is stored beside the mount, so that a dead one is made again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::attributes::TreeMount;
use crate::records::digest;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum MountSpec {
    Export(ExportSpec),
    Tree(TreeMount),
}

/// An export that `vouch nfs-mount` mounts. Pods without an identity of their own share equal ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExportSpec {
    pub(crate) source: String,
    /// Of `vouch nfs-mount`.
    pub(crate) options: Vec<OsString>,
    /// The path where the one pod uses it whose tickets or certificate it has.
    pub(crate) target: Option<PathBuf>,
    /// The tickets of this pod.
    pub(crate) cache: Option<PathBuf>,
}

impl MountSpec {
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Tree(tree) => tree.key(),
            Self::Export(export) => export.key(),
        }
    }

    /// For people, and in the kernel's mount table.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Tree(tree) => &tree.name,
            Self::Export(export) => &export.source,
        }
    }

    pub(crate) fn is_alive(&self, point: &Path) -> bool {
        match self {
            Self::Tree(tree) => point.exists() && vouch_tree_mount::is_mounted(&tree.name, point),
            Self::Export(export) => {
                let mount = vouch_tree_mount::mount_on(point).ok().flatten();
                let source = vouch_tree_mount::device_name(&export.source).into_bytes();
                mount.is_some_and(|mount| mount.is_ours() && mount.source == source)
                    && is_served(point)
            }
        }
    }
}

impl ExportSpec {
    pub(crate) fn key(&self) -> String {
        let shared = Self { cache: None, ..self.clone() };
        EXPORT.to_owned() + &digest(&serde_json::to_vec(&shared).expect("texts"))
    }
}

/// True for the key of a mount of an export.
pub(crate) fn is_of_export(key: &str) -> bool {
    key.starts_with(EXPORT)
}

/// `vouch nfs-mount` answers for an attribute of this name without a call to its server, which may be away.
fn is_served(point: &Path) -> bool {
    getxattr(point, "system.vouch", &mut [0_u8; 0]) != Err(Errno::NOTCONN)
}

const EXPORT: &str = "export-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_with_an_identity_is_shared_by_nobody() {
        let spec = |target: Option<&str>, cache: Option<&str>| ExportSpec {
            source: "s:/v".into(),
            options: vec!["--sec=krb5p".into()],
            target: target.map(PathBuf::from),
            cache: cache.map(PathBuf::from),
        };
        assert_eq!(spec(None, None).key(), spec(None, None).key());
        assert_ne!(spec(Some("/a"), None).key(), spec(Some("/b"), None).key());
        // A new driver finds the mount by the record alone.
        assert_eq!(spec(Some("/a"), None).key(), spec(Some("/a"), Some("/cache")).key());
        let stored = serde_json::to_vec(&MountSpec::Export(spec(Some("/a"), None))).unwrap();
        let read: MountSpec = serde_json::from_slice(&stored).unwrap();
        assert_eq!(read, MountSpec::Export(spec(Some("/a"), None)));
    }
}
