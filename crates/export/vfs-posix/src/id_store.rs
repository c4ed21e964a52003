//! File names on disk, for servers that cannot open files by handle and for `subtree_check`.
//!
//! A record has a file's identity, its directory's identity, and its name. A look-up follows
//! records up to a known directory, then opens downward and compares identities at each step. So a
//! wrong record costs a directory search but never opens another file.
//!
//! Memory holds pending records (up to [`PENDING_MAX`]) and a bounded set of written ones. A log
//! beside the database has the pending records until [`IdStore::flush`], about once a second. A
//! kill loses none; a power failure loses the last second.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use redb::{Database, ReadableDatabase, StorageBackend, TableDefinition};
use vouch_vfs::FileId;

use crate::id_log::IdLog;

/// Opens or creates the file of a database of the server, which only its own user may open.
///
/// # Errors
/// As open(2).
pub fn open_database_file(path: &Path) -> io::Result<File> {
    // Threads that serve calls have a umask of 0.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Identity of the file → length of the directory's identity, that identity, name.
const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("vouch names of files, 1");

const PENDING_MAX: usize = 4096;

/// Written records save look-ups in the database.
const WRITTEN_KNOWN_MAX: usize = 65_536;

const DATABASE_CACHE_LEN: usize = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum IdStoreError {
    #[error("name store: {0}")]
    Database(#[source] Box<redb::Error>),
    #[error("log of the name store: {0}")]
    Log(#[source] io::Error),
}

impl<E: Into<redb::Error>> From<E> for IdStoreError {
    fn from(error: E) -> Self {
        IdStoreError::Database(Box::new(error.into()))
    }
}

pub(crate) type Record = Option<(FileId, Vec<u8>)>;

struct Pending {
    records: HashMap<FileId, Record>,
    log: IdLog,
}

impl Pending {
    fn put(&mut self, id: FileId, record: Record) {
        self.log.append(&id, record.as_ref());
        self.records.insert(id, record);
    }
}

pub struct IdStore {
    database: Database,
    pending: Mutex<Pending>,
    written: Cache<FileId, u64>,
    hasher: RandomState,
}

impl IdStore {
    /// Creates a missing store.
    ///
    /// # Errors
    /// If the file cannot be opened, is in use, or is not a store.
    pub fn open(path: &Path) -> Result<Self, IdStoreError> {
        let file = open_database_file(path).map_err(redb::Error::Io)?;
        Self::begin(Database::builder().set_cache_size(DATABASE_CACHE_LEN).create_file(file)?, path)
    }

    /// The database is in `backend`, without a file lock of its own; the log is beside `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(path: &Path, backend: impl StorageBackend) -> Result<Self, IdStoreError> {
        Self::begin(
            Database::builder().set_cache_size(DATABASE_CACHE_LEN).create_with_backend(backend)?,
            path,
        )
    }

    fn begin(database: Database, path: &Path) -> Result<Self, IdStoreError> {
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        // After the database: its lock protects both.
        let (log, records) = IdLog::open(&path.with_extension("log")).map_err(IdStoreError::Log)?;
        let pending = Mutex::new(Pending { records, log });
        let store = IdStore {
            database,
            pending,
            written: Cache::new(WRITTEN_KNOWN_MAX),
            hasher: RandomState::new(),
        };
        store.flush()?;
        Ok(store)
    }

    pub(crate) fn note(&self, id: &FileId, directory: &FileId, name: &[u8]) {
        let sum = self.hasher.hash_one((directory, name));
        if self.written.get(id) == Some(sum) {
            return;
        }
        let mut pending = self.pending.lock();
        pending.put(*id, Some((*directory, name.to_vec())));
        self.written.insert(*id, sum);
        if pending.records.len() >= PENDING_MAX {
            // An unwritable store works from memory; its losses are stale files after a restart.
            let _ = self.write(&mut pending);
            pending.records.clear();
        }
    }

    pub(crate) fn find(&self, id: &FileId) -> Option<(FileId, Vec<u8>)> {
        if let Some(record) = self.pending.lock().records.get(id) {
            return record.clone();
        }
        let transaction = self.database.begin_read().ok()?;
        let table = transaction.open_table(RECORDS).ok()?;
        let record = table.get(id.as_bytes()).ok()??;
        let (&len, rest) = record.value().split_first()?;
        let (directory, name) = rest.split_at_checked(len.into())?;
        Some((FileId::new(directory)?, name.to_vec()))
    }

    pub(crate) fn forget(&self, id: &FileId) {
        self.written.remove(id);
        self.pending.lock().put(*id, None);
    }

    /// # Errors
    /// If the database cannot be written. The records stay pending until the next call.
    pub fn flush(&self) -> Result<(), IdStoreError> {
        self.write(&mut self.pending.lock())
    }

    fn write(&self, pending: &mut Pending) -> Result<(), IdStoreError> {
        if pending.records.is_empty() {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(RECORDS)?;
            for (id, record) in &pending.records {
                match record {
                    None => drop(table.remove(id.as_bytes())?),
                    Some((directory, name)) => {
                        let directory = directory.as_bytes();
                        let len =
                            u8::try_from(directory.len()).expect("an identity is at most 64 bytes");
                        let value = [&[len], directory, name].concat();
                        table.insert(id.as_bytes(), value.as_slice())?;
                    }
                }
            }
        }
        transaction.commit()?;
        pending.records.clear();
        pending.log.clear();
        Ok(())
    }
}

impl Drop for IdStore {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn store_is_private_to_its_user() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids.redb");
        let _store = IdStore::open(&path).unwrap();
        for file in [path.clone(), path.with_extension("log")] {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
