//! Names by which files were given out, kept on disk: for a server that can't open files by handle,
//! and for exports that are checked name by name.
//!
//! A record is a file's identity, the identity of its directory, and its name there. Finding a file
//! walks such records up to the root or to a directory that is known, and then opens downward,
//! comparing identities at each step; so a record that is wrong costs a search of one directory and
//! never leads to another file.
//!
//! In memory are the records not yet written (up to [`PENDING_MAX`]) and a bounded set of those
//! known to be written; all else is asked of the database. Records are written together: when
//! enough have come, by [`IdStore::flush`] (which housekeeping calls about once a second) and on
//! drop. Until then they are in a log beside the database, so that a process that is killed loses
//! none; a machine that loses its power loses those of the last second, and clients that hold such
//! a file see it as stale.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use redb::{Database, ReadableDatabase, TableDefinition};
use vouch_vfs::FileId;

use crate::id_log::IdLog;

/// Identity of the file → length of the directory's identity, that identity, name.
const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("vouch names of files, 1");

/// Records that wait to be written, at most.
const PENDING_MAX: usize = 4096;

/// Records known to be written: each spares a look into the database when a file is seen again.
const WRITTEN_KNOWN_MAX: usize = 65_536;

/// Memory of the database's own cache, bytes.
const DATABASE_CACHE_LEN: usize = 8 << 20;

/// Why a store of names does not work.
#[derive(Debug, thiserror::Error)]
pub enum IdStoreError {
    /// The database.
    #[error("store of names: {0}")]
    Database(#[source] Box<redb::Error>),
    /// The log beside it.
    #[error("log of the store of names: {0}")]
    Log(#[source] io::Error),
}

impl<E: Into<redb::Error>> From<E> for IdStoreError {
    fn from(error: E) -> Self {
        IdStoreError::Database(Box::new(error.into()))
    }
}

/// Directory and name of a file; none if the record is to be removed.
pub(crate) type Record = Option<(FileId, Vec<u8>)>;

/// Records that wait to be written, and the log that has them meanwhile.
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

/// The store of one export.
pub struct IdStore {
    database: Database,
    pending: Mutex<Pending>,
    written: Cache<FileId, u64>,
    hasher: RandomState,
}

impl IdStore {
    /// Opens the store, or makes it.
    ///
    /// # Errors
    /// If the file can't be opened, is in use, or is not a store.
    pub fn open(path: &Path) -> Result<Self, IdStoreError> {
        let database = Database::builder().set_cache_size(DATABASE_CACHE_LEN).create(path)?;
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        // Only now: whoever has the database has the log.
        let (log, records) = IdLog::open(&path.with_extension("log")).map_err(IdStoreError::Log)?;
        let pending = Mutex::new(Pending { records, log });
        let store = IdStore { database, pending, written: Cache::new(WRITTEN_KNOWN_MAX), hasher: RandomState::new() };
        store.flush()?;
        Ok(store)
    }

    /// The file was given out as `name` in `directory`.
    pub(crate) fn note(&self, id: &FileId, directory: &FileId, name: &[u8]) {
        let sum = self.hasher.hash_one((directory, name));
        if self.written.get(id) == Some(sum) {
            return;
        }
        let mut pending = self.pending.lock();
        pending.put(*id, Some((*directory, name.to_vec())));
        self.written.insert(*id, sum);
        if pending.records.len() >= PENDING_MAX {
            // A store that can't be written to keeps working from memory; what it loses shows as stale files
            // after a restart.
            let _ = self.write(&mut pending);
            pending.records.clear();
        }
    }

    /// The directory and name by which the file was last given out.
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

    /// The file is gone.
    pub(crate) fn forget(&self, id: &FileId) {
        self.written.remove(id);
        self.pending.lock().put(*id, None);
    }

    /// Writes what is not yet written.
    ///
    /// # Errors
    /// If the database can't be written to; the records are kept for the next time.
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
                        let len = u8::try_from(directory.len()).expect("an identity is at most 64 bytes");
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
