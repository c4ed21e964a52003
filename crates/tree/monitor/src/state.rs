//! Files of one tree's monitor: the copy of the log, times, and alarms with their evidence.
//!
//! An alarm is a directory, which lasts until a person removes it. Its `alarm.json` is written
//! last, after the alarm was reported.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vouch_tree::HostId;

use crate::event::AlarmKind;
use crate::{Error, Result};

/// Something that a person must look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Its kind.
    pub kind: AlarmKind,
    /// For people.
    pub text: String,
    /// Seconds since 1970.
    pub raised: u64,
}

/// Survives restarts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// Until when the log is known to be alive, in seconds since 1970.
    pub(crate) fresh: u64,
    /// The newest revision, and the end of its validity.
    pub(crate) revision: u64,
    pub(crate) expires: u64,
    pub(crate) is_stopped: bool,
    /// Entries that a witness knows and no replica shows, and since when.
    pub(crate) hidden: Option<(u64, u64)>,
    /// Hashes of reported revisions that are in no log, the last ones.
    pub(crate) reported: Vec<String>,
}

pub(crate) struct State {
    path: PathBuf,
    pub(crate) record: Record,
    /// Released when the process ends.
    _lock: File,
}

const FILE_LEN_MAX: u64 = 1 << 20;
const REPORTED_MAX: usize = 64;

/// Alarms of a tree at most: beyond, a thief would fill the disk.
const ALARMS_MAX: usize = 64;

impl State {
    /// `dir`: of all monitored trees.
    pub(crate) fn open(dir: &Path, hostid: &HostId, now: u64) -> Result<Self> {
        let path = dir.join(hostid.to_string());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path.join("alarms"))
            .map_err(|error| Error::Io { step: "create", path: path.clone(), error })?;
        let lock_path = path.join("lock");
        let failed = |step, error| Error::Io { step, path: lock_path.clone(), error };
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|error| failed("open", error))?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Busy(path)),
            Err(error) => return Err(failed("lock", error.into())),
        }
        let record = match read(&path.join("state.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| Error::Damaged {
                path: path.join("state.json"),
                what: error.to_string(),
            })?,
            // The time without a head counts from the first look.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Record { fresh: now, ..Record::default() }
            }
            Err(error) => {
                return Err(Error::Io { step: "read", path: path.join("state.json"), error });
            }
        };
        Ok(Self { path, record, _lock: lock })
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn save(&mut self) -> Result<()> {
        let excess = self.record.reported.len().saturating_sub(REPORTED_MAX);
        self.record.reported.drain(..excess);
        let json = serde_json::to_vec(&self.record).unwrap_or_default();
        write(&self.path, "state.json", &json)
    }

    /// The certificate of our copy's head, and its proof.
    pub(crate) fn evidence(&self) -> Option<Vec<u8>> {
        read(&self.path.join("evidence")).ok()
    }

    pub(crate) fn write_evidence(&self, bytes: &[u8]) -> Result<()> {
        write(&self.path, "evidence", bytes)
    }

    /// Those that people have not removed.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        let entries = fs::read_dir(self.path.join("alarms")).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            serde_json::from_slice(&read(&entry.path().join("alarm.json")).ok()?).ok()
        });
        let mut found: Vec<Alarm> = found.take(ALARMS_MAX).collect();
        found.sort_by_key(|alarm| (alarm.raised, alarm.kind));
        found
    }

    pub(crate) fn has_alarm(&self, kind: AlarmKind, id: &[u8]) -> bool {
        self.alarm_dir(kind, id).join("alarm.json").exists()
    }

    fn alarm_dir(&self, kind: AlarmKind, id: &[u8]) -> PathBuf {
        let id = blake3::hash(id).to_hex();
        self.path.join("alarms").join(format!("{}-{}", kind.name(), &id[..16]))
    }

    /// Writes the evidence, and returns where it is. `None` if this alarm is raised already, or too
    /// many are. `id`: the same for the same cause.
    pub(crate) fn begin_alarm(
        &self,
        kind: AlarmKind,
        id: &[u8],
        evidence: &[(String, Vec<u8>)],
    ) -> Result<Option<PathBuf>> {
        let alarms = self.path.join("alarms");
        let dir = self.alarm_dir(kind, id);
        let is_full = || fs::read_dir(&alarms).is_ok_and(|found| found.count() >= ALARMS_MAX);
        if dir.join("alarm.json").exists() || (!dir.exists() && is_full()) {
            return Ok(None);
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|error| Error::Io {
            step: "create",
            path: dir.clone(),
            error,
        })?;
        evidence.iter().try_for_each(|(name, bytes)| write(&dir, name, bytes))?;
        Ok(Some(dir))
    }

    /// The alarm was reported.
    pub(crate) fn finish_alarm(&self, dir: &Path, alarm: &Alarm) -> Result<()> {
        write(dir, "alarm.json", &serde_json::to_vec(alarm).unwrap_or_default())?;
        sync(&self.path.join("alarms"))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_LEN_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces the file durably.
fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, next) = (dir.join(name), dir.join(format!("{name}.new")));
    let replace = || -> io::Result<()> {
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&next, &path)
    };
    replace().map_err(|error| Error::Io { step: "write", path: path.clone(), error })?;
    sync(dir)
}

fn sync(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|file| file.sync_all()).map_err(|error| Error::Io {
        step: "sync",
        path: dir.to_owned(),
        error,
    })
}
