//! The directories of the newest revision, by device and inode number: the next publication reads
//! only changes. Private to the publisher, optional, void for other revisions than that of its
//! fsinfo. Written after the commit: a crash in between only slows the next publication.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use parking_lot::Mutex;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableDefinition, WriteTransaction,
};
use vouch_tree::BlockHandle;
use vouch_xdr::Xdr as _;

use crate::record::Record;

/// Errors are logged and never fail a publication.
pub(crate) struct Cache {
    earlier: Option<ReadOnlyTable<Key, &'static [u8]>>,
    work: Mutex<Option<Work>>,
}

type Key = (u64, u64);
type Records = TableDefinition<'static, Key, &'static [u8]>;

struct Work {
    transaction: WriteTransaction,
    table: Records,
    waiting: Vec<(Key, Vec<u8>)>,
    waiting_len: usize,
    /// The table is new: unchanged records are written too.
    whole: bool,
    _database: Database,
}

impl Cache {
    /// `head`: the fsinfo of the newest revision. `fresh`: starts empty.
    pub(crate) fn open(dir: &Path, head: Option<&BlockHandle>, fresh: bool) -> Self {
        let path = dir.join(FILE_NAME);
        let opened = Self::try_open(&path, head, fresh).or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "the stat cache is damaged; starting a new one");
            let _ = std::fs::remove_file(&path);
            Self::try_open(&path, None, true)
        });
        opened.unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "no stat cache; the next publication will read every file");
            Self::none()
        })
    }

    pub(crate) const fn none() -> Self {
        Self { earlier: None, work: Mutex::new(None) }
    }

    fn try_open(path: &Path, head: Option<&BlockHandle>, fresh: bool) -> Result<Self, redb::Error> {
        // Root may publish into another user's directory: a link must not lead elsewhere.
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(no_follow)
            .open(path)?;
        let database = Database::builder().set_cache_size(MEMORY_LEN_MAX).create_file(file)?;
        let state = State::read(&database)?;
        let valid = !fresh && state.as_ref().is_some_and(|state| head == Some(&state.fsinfo));
        let current = state.as_ref().map_or(0, |state| state.table & 1);
        let earlier = if valid {
            Some(database.begin_read()?.open_table(TABLES[usize::from(current)])?)
        } else {
            None
        };
        // Replaces a void or sparse table.
        let whole = !valid || state.is_some_and(|state| state.is_sparse);
        let next = if whole { current ^ 1 } else { current };
        let mut transaction = database.begin_write()?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(|e| redb::Error::Io(std::io::Error::other(e)))?;
        let table = TABLES[usize::from(next)];
        if whole {
            transaction.delete_table(table)?;
        }
        let work = Work {
            transaction,
            table,
            waiting: Vec::new(),
            waiting_len: 0,
            whole,
            _database: database,
        };
        Ok(Self { earlier, work: Mutex::new(Some(work)) })
    }

    pub(crate) fn get(&self, key: Key) -> Option<Record> {
        let value = self.earlier.as_ref()?.get(key).ok()??;
        Record::from_xdr(value.value()).ok()
    }

    /// Prefers this publication's record to the newest revision's.
    pub(crate) fn get_fresh(&self, key: Key) -> Option<Record> {
        let own = || {
            let mut guard = self.work.lock();
            let work = guard.as_mut()?;
            work.flush().ok()?;
            let table = work.transaction.open_table(work.table).ok()?;
            let value = table.get(key).ok()??;
            Record::from_xdr(value.value()).ok()
        };
        own().or_else(|| self.get(key))
    }

    pub(crate) fn put(&self, key: Key, record: &Record, same: bool) {
        let mut guard = self.work.lock();
        let Some(work) = guard.as_mut() else { return };
        if same && !work.whole {
            return;
        }
        let bytes = record.to_xdr();
        work.waiting_len += bytes.len();
        work.waiting.push((key, bytes));
        if (work.waiting_len >= WAITING_LEN_MAX || work.waiting.len() >= WAITING_COUNT_MAX)
            && let Err(error) = work.flush()
        {
            tracing::warn!(%error, "cannot write the stat cache; the next publication will read every file");
            *guard = None;
        }
    }

    pub(crate) fn commit(self, fsinfo: &BlockHandle, directories: u64) {
        drop(self.earlier);
        let Some(work) = self.work.into_inner() else { return };
        if let Err(error) = work.commit(fsinfo, directories) {
            tracing::warn!(%error, "cannot write the stat cache; the next publication will read every file");
        }
    }
}

impl Work {
    fn flush(&mut self) -> Result<(), redb::Error> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // Sorted keys touch fewer pages.
        self.waiting.sort_by_key(|(key, _)| *key);
        let mut table = self.transaction.open_table(self.table)?;
        for (key, bytes) in self.waiting.drain(..) {
            table.insert(key, bytes.as_slice())?;
        }
        self.waiting_len = 0;
        Ok(())
    }

    fn commit(mut self, fsinfo: &BlockHandle, directories: u64) -> Result<(), redb::Error> {
        self.flush()?;
        let records = self.transaction.open_table(self.table)?.len()?;
        let current = u8::from(self.table.to_string() == TABLES[1].to_string());
        if self.whole {
            self.transaction.delete_table(TABLES[usize::from(current ^ 1)])?;
        }
        let state = State {
            fsinfo: *fsinfo,
            table: current,
            is_sparse: records > directories.saturating_mul(2) + SPARE_COUNT,
        };
        state.write(&self.transaction)?;
        self.transaction.commit()?;
        Ok(())
    }
}

struct State {
    fsinfo: BlockHandle,
    table: u8,
    is_sparse: bool,
}

impl State {
    fn read(database: &Database) -> Result<Option<Self>, redb::Error> {
        let table = match database.begin_read()?.open_table(STATE) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(value) = table.get(())? else { return Ok(None) };
        let Ok([fsinfo @ .., table, is_sparse]) = <[u8; 34]>::try_from(value.value()) else {
            return Ok(None);
        };
        Ok(Some(Self { fsinfo: BlockHandle::from_bytes(fsinfo), table, is_sparse: is_sparse != 0 }))
    }

    fn write(&self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        let bytes = [&self.fsinfo.as_bytes()[..], &[self.table, u8::from(self.is_sparse)]].concat();
        transaction.open_table(STATE)?.insert((), bytes.as_slice())?;
        Ok(())
    }
}

const FILE_NAME: &str = "stat.redb";

const STATE: TableDefinition<'static, (), &'static [u8]> =
    TableDefinition::new("state of format 1");

const TABLES: [Records; 2] =
    [TableDefinition::new("directories a"), TableDefinition::new("directories b")];

const MEMORY_LEN_MAX: usize = 24 << 20;

const WAITING_COUNT_MAX: usize = 512;
const WAITING_LEN_MAX: usize = 1 << 20;

const SPARE_COUNT: u64 = 1000;
