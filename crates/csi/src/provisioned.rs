//! Volumes and snapshots that the controller has made, one file for each. Those of exports are beside their
//! directories, so that a new controller finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::records::{SUFFIX, digest, read_all, remove_if_there, replace, write_durably};

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
    /// What it was copied from.
    #[serde(default)]
    pub(crate) source: Option<Source>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Volume(String),
    Snapshot(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) volume_id: String,
    /// A volume from it needs as much.
    pub(crate) capacity_bytes: i64,
    /// Seconds since 1970.
    pub(crate) created_s: i64,
}

pub(crate) trait Named {
    /// By which the caller knows it before it has an id.
    fn name(&self) -> &str;
}

impl Named for Provisioned {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for Snapshot {
    fn name(&self) -> &str {
        &self.name
    }
}

pub(crate) type ProvisionedVolumes = Collection<Provisioned>;
pub(crate) type Snapshots = Collection<Snapshot>;

pub(crate) struct Collection<T> {
    directory: PathBuf,
    by_id: Mutex<BTreeMap<String, T>>,
}

impl<T: Named + Clone + Serialize + DeserializeOwned> Collection<T> {
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let all = read_all::<T>(&directory)?;
        let by_id = all.into_iter().map(|(_, made)| (id(made.name()), made)).collect();
        Ok(Self { directory, by_id: Mutex::new(by_id) })
    }

    pub(crate) fn get(&self, id: &str) -> Option<T> {
        self.by_id.lock().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<(String, T)> {
        self.by_id.lock().iter().map(|(id, made)| (id.clone(), made.clone())).collect()
    }

    pub(crate) fn put(&self, made: T) -> io::Result<()> {
        let id = id(made.name());
        write_durably(&self.path(&id), &made)?;
        self.by_id.lock().insert(id, made);
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

/// The directory of exports is this driver's alone: the export list of another one would keep nodes that
/// this one takes out.
pub(crate) fn claim(directory: &Path, driver_name: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join("driver");
    match fs::read_to_string(&path) {
        Ok(owner) if owner == driver_name => Ok(()),
        Ok(owner) => Err(io::Error::other(format!(
            "the volumes here are those of the driver {owner}; give {driver_name} a directory of its own, or \
             remove {} if {owner} does not run any more",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            replace(&path, driver_name.as_bytes())
        }
        Err(error) => Err(error),
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

    #[test]
    fn a_directory_of_exports_has_one_driver() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(".vouch-csi");
        claim(&directory, "a.csi.vouch").unwrap();
        claim(&directory, "a.csi.vouch").unwrap();
        let error = claim(&directory, "b.csi.vouch").unwrap_err().to_string();
        assert!(error.contains("those of the driver a.csi.vouch"), "{error}");
        fs::remove_file(directory.join("driver")).unwrap();
        claim(&directory, "b.csi.vouch").unwrap();
    }
}
