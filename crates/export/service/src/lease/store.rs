//! Records as files `lease/epoch-N` of the state directory. The shared storage must show a created
//! or renamed file to all heads at once, as local and cluster file systems do.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::LeaseError;
use super::record::{Epoch, LeaseRecord, Tenure};

pub(super) struct LeaseStore {
    directory: PathBuf,
    /// Of this process only.
    scratch: PathBuf,
}

impl LeaseStore {
    /// Creates the directory.
    pub(super) fn open(state: &Path, head: &str, process: u64) -> Result<Self, LeaseError> {
        let directory = state.join("lease");
        let failed = |source| LeaseError::Io { path: directory.clone(), source };
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let kind = rustix::fs::statfs(&directory).map_err(|errno| failed(errno.into()))?.f_type;
        if kind == NFS_SUPER_MAGIC {
            return Err(LeaseError::Uncoherent(directory));
        }
        let scratch = directory.join(format!("new-{head}-{process:016x}"));
        Ok(LeaseStore { directory, scratch })
    }

    /// The record of the highest epoch.
    pub(super) fn latest(&self) -> io::Result<Option<LeaseRecord>> {
        latest(&self.directory)
    }

    pub(super) fn read(&self, epoch: Epoch) -> io::Result<Option<LeaseRecord>> {
        read(&self.directory, epoch)
    }

    /// Returns false if the epoch is taken.
    pub(super) fn claim(&self, record: &LeaseRecord) -> io::Result<bool> {
        self.write_scratch(record)?;
        let linked = fs::hard_link(&self.scratch, self.path(record.epoch));
        let _ = fs::remove_file(&self.scratch);
        match linked {
            Ok(()) => self.sync().map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn renew(&self, record: &LeaseRecord) -> io::Result<()> {
        self.write_scratch(record)?;
        fs::rename(&self.scratch, self.path(record.epoch))?;
        self.sync()
    }

    /// For the head that serves in `epoch`. What stays is removed by the next head.
    pub(super) fn remove_before(&self, epoch: Epoch) {
        let earlier = epochs(&self.directory).into_iter().flatten().filter(|other| *other < epoch);
        earlier.for_each(|other| drop(fs::remove_file(self.path(other))));
    }

    fn path(&self, epoch: Epoch) -> PathBuf {
        path(&self.directory, epoch)
    }

    fn write_scratch(&self, record: &LeaseRecord) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&self.scratch)?;
        file.write_all(record.to_text().as_bytes())?;
        file.sync_all()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

impl Drop for LeaseStore {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.scratch);
    }
}

/// The head that has a lease of this state directory and has not released it.
pub(crate) fn holder(state: &Path) -> io::Result<Option<String>> {
    match latest(&state.join("lease")) {
        Ok(record) => {
            Ok(record.filter(|record| record.tenure != Tenure::Released).map(|record| record.head))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn latest(directory: &Path) -> io::Result<Option<LeaseRecord>> {
    // A file may disappear between the two steps: the next head removes old ones.
    for _ in 0..READ_TRIES_MAX {
        let Some(epoch) = epochs(directory)?.into_iter().max() else { return Ok(None) };
        if let Some(record) = read(directory, epoch)? {
            return Ok(Some(record));
        }
    }
    Err(io::Error::other("the highest epoch has no record"))
}

fn read(directory: &Path, epoch: Epoch) -> io::Result<Option<LeaseRecord>> {
    let path = path(directory, epoch);
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(RECORD_LEN_MAX).read_to_string(&mut text)) {
        Ok(_) => match LeaseRecord::parse(&text).filter(|record| record.epoch == epoch) {
            Some(record) => Ok(Some(record)),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: not a lease record", path.display()),
            )),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn epochs(directory: &Path) -> io::Result<Vec<Epoch>> {
    let mut epochs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        epochs.extend(number.map(Epoch));
    }
    Ok(epochs)
}

fn path(directory: &Path, epoch: Epoch) -> PathBuf {
    directory.join(format!("{PREFIX}{epoch}"))
}

const PREFIX: &str = "epoch-";

const READ_TRIES_MAX: usize = 10;

/// With the names of hundreds of heads.
const RECORD_LEN_MAX: u64 = 64 << 10;

/// statfs(2).
const NFS_SUPER_MAGIC: i64 = 0x6969;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u64, head: &str, renewal: u64) -> LeaseRecord {
        LeaseRecord {
            epoch: Epoch(epoch),
            head: head.into(),
            process: 1,
            renewal,
            tenure: Tenure::Claimed,
            before: Vec::new(),
            lease_ms: None,
        }
    }

    #[test]
    fn one_head_claims_an_epoch() {
        let directory = tempfile::tempdir().unwrap();
        let stores: Vec<_> = (0..8)
            .map(|n| LeaseStore::open(directory.path(), &format!("h{n}"), n).unwrap())
            .collect();
        for epoch in 1..=20 {
            let claim = |n: usize| stores[n].claim(&record(epoch, &format!("h{n}"), 0)).unwrap();
            let winners = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..stores.len()).map(|n| scope.spawn(move || claim(n).then_some(n))).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            let [winner] = winners[..] else { panic!("winners of epoch {epoch}: {winners:?}") };
            assert_eq!(stores[0].latest().unwrap(), Some(record(epoch, &format!("h{winner}"), 0)));
        }
    }

    #[test]
    fn late_renewal_of_earlier_epoch_does_not_hide_the_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let open = |head| LeaseStore::open(directory.path(), head, 1).unwrap();
        let (first, second) = (open("a"), open("b"));
        assert_eq!(first.latest().unwrap(), None);
        assert!(
            first.claim(&record(9, "a", 0)).unwrap() && second.claim(&record(10, "b", 0)).unwrap()
        );
        second.remove_before(Epoch(10));
        assert_eq!(first.read(Epoch(9)).unwrap(), None);
        first.renew(&record(9, "a", 1)).unwrap();
        assert_eq!(first.latest().unwrap(), Some(record(10, "b", 0)));
    }

    #[test]
    fn damaged_record_is_an_error_and_no_free_epoch() {
        let directory = tempfile::tempdir().unwrap();
        let store = LeaseStore::open(directory.path(), "a", 1).unwrap();
        fs::write(directory.path().join("lease/epoch-3"), "vouch export lease 1\nepoch 3\n")
            .unwrap();
        assert_eq!(store.latest().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
