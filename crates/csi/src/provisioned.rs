//! Volumes that the controller has made, one file for each. Those of exports are beside their
//! directories, so that a new controller finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::records::{SUFFIX, digest, read_all, remove_if_there, write_durably};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provisioned {
    pub(crate) name: String,
    pub(crate) capacity_bytes: i64,
    /// Of the volume, as pods' nodes get them.
    pub(crate) attributes: BTreeMap<String, String>,
    /// For the export list. Empty for trees.
    pub(crate) export_options: String,
    /// The nodes that may use an export, by address.
    pub(crate) nodes: BTreeSet<String>,
}

pub(crate) struct ProvisionedVolumes {
    directory: PathBuf,
    by_id: Mutex<BTreeMap<String, Provisioned>>,
}

impl ProvisionedVolumes {
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let volumes = read_all::<Provisioned>(&directory)?;
        let by_id = volumes.into_iter().map(|(_, volume)| (id(&volume.name), volume)).collect();
        Ok(Self { directory, by_id: Mutex::new(by_id) })
    }

    pub(crate) fn get(&self, id: &str) -> Option<Provisioned> {
        self.by_id.lock().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<(String, Provisioned)> {
        self.by_id.lock().iter().map(|(id, volume)| (id.clone(), volume.clone())).collect()
    }

    pub(crate) fn put(&self, volume: Provisioned) -> io::Result<()> {
        let id = id(&volume.name);
        write_durably(&self.path(&id), &volume)?;
        self.by_id.lock().insert(id, volume);
        Ok(())
    }

    pub(crate) fn remove(&self, id: &str) -> io::Result<()> {
        if self.by_id.lock().remove(id).is_some() {
            remove_if_there(&self.path(id))?;
        }
        Ok(())
    }

    fn path(&self, id: &str) -> PathBuf {
        self.directory.join(id.to_owned() + SUFFIX)
    }
}

/// The id of a volume is also the name of its directory. Names of other forms get a digest.
pub(crate) fn id(name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) {
        name.to_owned()
    } else {
        format!("volume-{}", digest(name.as_bytes()))
    }
}

/// True for ids that are names of files.
pub(crate) fn is_id(text: &str) -> bool {
    id(text) == text && !Path::new(text).is_absolute()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_names_of_files() {
        assert_eq!(id("pvc-1-2"), "pvc-1-2");
        for odd in ["", "..", "a/b", "a b", &"a".repeat(65)] {
            assert!(id(odd).starts_with("volume-") && is_id(&id(odd)) && !is_id(odd), "{odd}");
        }
    }
}
