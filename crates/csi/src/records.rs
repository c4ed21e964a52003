//! Records of the volumes on this node, one file for each target path. The driver can be killed at any
//! time: a record is durable before its mount begins, and is removed after the mount has ended.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use vouch_jobs::names::JobId;

/// A volume at the path where a pod uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) volume_id: String,
    pub(crate) target: PathBuf,
    pub(crate) volume: Volume,
    /// Mounts of an earlier boot are gone.
    boot: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Volume {
    /// A directory of the tree whose mount has this key.
    Tree { key: String, path: String },
    Export {
        source: String,
        options: String,
        /// By which the pod has tickets.
        #[serde(default)]
        job: Option<JobId>,
    },
    /// An export by `vouch nfs-mount`: the mount with this key.
    FuseExport { key: String, source: String, job: Option<JobId> },
}

impl Volume {
    /// Of a mount by a process of ours.
    pub(crate) fn mount_key(&self) -> Option<&str> {
        match self {
            Self::Tree { key, .. } | Self::FuseExport { key, .. } => Some(key),
            Self::Export { .. } => None,
        }
    }

    pub(crate) fn path_within(&self) -> &str {
        if let Self::Tree { path, .. } = self { path } else { "" }
    }

    pub(crate) fn job(&self) -> Option<&JobId> {
        match self {
            Self::Export { job, .. } | Self::FuseExport { job, .. } => job.as_ref(),
            Self::Tree { .. } => None,
        }
    }
}

pub(crate) enum AddError {
    /// At this target.
    InUse(PathBuf),
    Io(io::Error),
}

pub(crate) struct Records {
    directory: PathBuf,
    boot: String,
    by_target: Mutex<BTreeMap<PathBuf, Record>>,
}

impl Records {
    /// Forgets the records of an earlier boot: kubelet publishes again what its pods need.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let mut by_target = BTreeMap::new();
        for (path, record) in read_all::<Record>(&directory)? {
            if record.boot == boot {
                by_target.insert(record.target.clone(), record);
            } else {
                fs::remove_file(path)?;
            }
        }
        Ok(Self { directory, boot, by_target: Mutex::new(by_target) })
    }

    pub(crate) fn get(&self, target: &Path) -> Option<Record> {
        self.by_target.lock().get(target).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Record> {
        self.by_target.lock().values().cloned().collect()
    }

    /// `is_exclusive`: only if the volume has no other target.
    pub(crate) fn add(
        &self,
        volume_id: &str,
        target: &Path,
        volume: Volume,
        is_exclusive: bool,
    ) -> Result<(), AddError> {
        let record = Record {
            volume_id: volume_id.to_owned(),
            target: target.to_owned(),
            volume,
            boot: self.boot.clone(),
        };
        {
            let mut by_target = self.by_target.lock();
            let is_other = |other: &&Record| other.volume_id == volume_id && other.target != target;
            if is_exclusive && let Some(other) = by_target.values().find(is_other) {
                return Err(AddError::InUse(other.target.clone()));
            }
            by_target.insert(target.to_owned(), record.clone());
        }
        write_durably(&self.path(target), &record).map_err(|error| {
            self.by_target.lock().remove(target);
            AddError::Io(error)
        })
    }

    pub(crate) fn remove(&self, target: &Path) -> io::Result<()> {
        remove_if_there(&self.path(target))?;
        self.by_target.lock().remove(target);
        Ok(())
    }

    fn path(&self, target: &Path) -> PathBuf {
        self.directory.join(digest(target.as_os_str().as_encoded_bytes()) + SUFFIX)
    }
}

/// A name for a file, from text of any length and form.
pub(crate) fn digest(text: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(text)[..16])
}

pub(crate) fn write_durably(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace(path, &serde_json::to_vec_pretty(value)?)
}

/// Old or new after a crash at any step.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, 0o666)
}

/// For root only.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, 0o600)
}

fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// The records of a directory. A file that is none is an error that names it.
pub(crate) fn read_all<T: DeserializeOwned>(directory: &Path) -> io::Result<Vec<(PathBuf, T)>> {
    let mut records = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == &SUFFIX[1..]) {
            records.push((path.clone(), read(&path)?));
        }
    }
    Ok(records)
}

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let named =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let bytes = fs::read(path).map_err(|error| named(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| named(&error))
}

pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) const SUFFIX: &str = ".json";

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(key: &str) -> Volume {
        Volume::Tree { key: key.into(), path: String::new() }
    }

    #[test]
    fn records_survive_the_driver_and_not_the_boot() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Records::open(directory.path().into()).unwrap();
        let records = open();
        let add = |volume_id: &str, target: &str, key: &str, is_exclusive: bool| {
            records.add(volume_id, Path::new(target), tree(key), is_exclusive).is_ok()
        };
        assert!(add("v1", "/pods/a", "k1", false) && add("v1", "/pods/b", "k1", false));
        assert!(add("v2", "/pods/c", "k2", true) && add("v2", "/pods/c", "k2", true));
        assert!(!add("v2", "/pods/d", "k2", true) && add("v2", "/pods/d", "k2", false));
        records.remove(Path::new("/pods/d")).unwrap();
        records.remove(Path::new("/pods/b")).unwrap();
        records.remove(Path::new("/pods/b")).unwrap();
        let again = open();
        assert_eq!(again.all(), records.all());
        assert_eq!(again.all().len(), 2);
        for entry in fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap().replace(&records.boot, "another boot");
            fs::write(path, text).unwrap();
        }
        assert_eq!(open().all(), []);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn half_written_record_is_ignored_and_damage_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x.new"), "{").unwrap();
        assert!(Records::open(directory.path().into()).is_ok());
        fs::write(directory.path().join("x.json"), "{").unwrap();
        let error = Records::open(directory.path().into()).err().unwrap();
        assert!(error.to_string().contains("x.json"), "{error}");
    }
}
