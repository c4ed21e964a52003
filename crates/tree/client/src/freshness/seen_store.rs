//! The newest revision seen of each tree, for rollback protection. One file per tree, outside every
//! cache. Processes may share the directory: each update locks the file and merges.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use tokio::task::JoinError;
use vouch_log::evidence::EVIDENCE_LEN_MAX;
use vouch_tree::HostId;
use vouch_tree::fsinfo::SIGNED_LEN_MAX;
use vouch_tree::statement::{Body, KeyStatement, STATEMENT_LEN_MAX};
use vouch_tree::verify::NewestSeen;
use vouch_trust::Access;
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::{Error, Result};

const MAGIC: u64 = 0x564f_5543_4853_4545;
const VERSION: u32 = 3;

const VERSION_WITHOUT_LOG: u32 = 2;

const VERSION_WITHOUT_TIME: u32 = 1;

const STATEMENTS_MAX: usize = 2;

const HASH_LEN: usize = 32;

const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

const FILE_LEN_MAX: usize =
    256 + SIGNED_LEN_MAX + EVIDENCE_LEN_MAX + STATEMENTS_MAX * (STATEMENT_LEN_MAX + 4) + HASH_LEN;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SeenRecord {
    pub(crate) seen: NewestSeen,
    /// Latest verification, in seconds since 1970; never after the end of that revision.
    pub(crate) time_seen: u64,
    /// For a restart without replicas. May be empty.
    pub(crate) signed: Vec<u8>,
    pub(crate) statements: Vec<KeyStatement>,
    /// Serial number of the log's certificate in `evidence`; 0 without.
    pub(crate) log_serial: u64,
    /// About `signed`, or about an earlier revision if that one came without. Its certificate says
    /// what the tree demands. XDR of a `LogEvidence`.
    pub(crate) evidence: Vec<u8>,
}

impl SeenRecord {
    fn merge(self, other: Self) -> Self {
        let rank = |record: &Self| (record.log_serial, record.seen.order());
        let other_is_newer = rank(&other) >= rank(&self);
        let mut signed = if other.seen.order() >= self.seen.order() {
            other.signed
        } else {
            self.signed.clone()
        };
        if signed.is_empty() {
            signed = self.signed;
        }
        let time_seen = self.time_seen.max(other.time_seen);
        let (log_serial, evidence) = if other_is_newer {
            (other.log_serial, other.evidence)
        } else {
            (self.log_serial, self.evidence)
        };
        let mut merged = Self {
            seen: self.seen.merge(other.seen),
            time_seen,
            signed,
            statements: self.statements,
            log_serial,
            evidence,
        };
        for statement in other.statements {
            merged.add_statement(statement);
        }
        merged
    }

    pub(crate) fn time(&self) -> u64 {
        self.seen.start.max(self.time_seen)
    }

    pub(crate) fn add_statement(&mut self, statement: KeyStatement) -> bool {
        let is_revocation =
            |s: &KeyStatement| matches!(s.verified(), Some(Body::Revocation { .. }));
        let revokes = is_revocation(&statement);
        match self.statements.iter_mut().find(|have| is_revocation(have) == revokes) {
            Some(have) if revokes || have.time() >= statement.time() => false,
            Some(have) => {
                *have = statement;
                true
            }
            None => {
                self.statements.push(statement);
                true
            }
        }
    }
}

impl Xdr for SeenRecord {
    fn encode(&self, w: &mut Writer) {
        w.u64(MAGIC);
        w.u32(VERSION);
        self.seen.encode(w);
        w.u64(self.time_seen);
        w.opaque(&self.signed);
        w.count(self.statements.len());
        self.statements.iter().for_each(|s| w.opaque(&s.to_xdr()));
        w.u64(self.log_serial);
        w.opaque(&self.evidence);
    }

    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, XdrError> {
        if r.u64()? != MAGIC {
            return Err(XdrError::Invalid("not a state file"));
        }
        let version = match r.u32()? {
            version @ (VERSION_WITHOUT_TIME | VERSION_WITHOUT_LOG | VERSION) => version,
            value => return Err(XdrError::Unknown { what: "file version", value }),
        };
        let seen = NewestSeen::decode(r)?;
        let time_seen = if version == VERSION_WITHOUT_TIME { 0 } else { r.u64()? };
        let signed = r.opaque(SIGNED_LEN_MAX)?.to_vec();
        let count = r.count(STATEMENTS_MAX)?;
        let statements = (0..count)
            .map(|_| KeyStatement::from_xdr(r.opaque(STATEMENT_LEN_MAX)?))
            .collect::<std::result::Result<_, _>>()?;
        let (log_serial, evidence) = if version == VERSION {
            (r.u64()?, r.opaque(EVIDENCE_LEN_MAX)?.to_vec())
        } else {
            (0, Vec::new())
        };
        Ok(Self { seen, time_seen, signed, statements, log_serial, evidence })
    }
}

/// Atomic: after a crash the file has the old or the new content.
type WriteFile = fn(&Path, &[u8]) -> io::Result<()>;

pub(crate) struct SeenStore {
    dir: Option<PathBuf>,
    required: bool,
    has_threads: bool,
    record: Mutex<HashMap<HostId, SeenRecord>>,
    write: WriteFile,
    /// Of the latest write, if it failed.
    fault: Mutex<Option<String>>,
}

impl SeenStore {
    /// `None`: memory only. `required`: a missing directory or failed write is an error. An
    /// unreadable file always is.
    pub(crate) fn new(dir: Option<PathBuf>, required: bool) -> Self {
        Self {
            dir,
            required,
            has_threads: true,
            record: Mutex::default(),
            write: write_atomically,
            fault: Mutex::default(),
        }
    }

    /// Without threads, work on files blocks the calling task.
    pub(crate) fn with_threads(mut self, has_threads: bool) -> Self {
        self.has_threads = has_threads;
        self
    }

    #[cfg(test)]
    fn with_writer(mut self, write: WriteFile) -> Self {
        self.write = write;
        self
    }

    /// Without a file the work runs here, so that a simulation has one thread and one order of
    /// events.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::result::Result<T, JoinError> {
        match self.dir {
            Some(_) if self.has_threads => tokio::task::spawn_blocking(work).await,
            _ => Ok(work()),
        }
    }

    /// Takes no lock: files are replaced atomically, and a stopped lock holder must not block
    /// readers.
    pub(crate) fn load(&self, hostid: &HostId) -> Result<SeenRecord> {
        let stored = match (self.file(hostid), &self.dir) {
            (Some(path), Some(dir)) => {
                check_directory(dir)?;
                match read(&path) {
                    Err(error) if self.required || !is_absence(&error) => {
                        return Err(unreadable(&path, error));
                    }
                    read => read.unwrap_or_default(),
                }
            }
            _ if self.required => return Err(Error::NoState),
            _ => SeenRecord::default(),
        };
        let mut all = self.record.lock();
        let entry = all.entry(*hostid).or_default();
        *entry = std::mem::take(entry).merge(stored);
        Ok(entry.clone())
    }

    /// Merges `newer` into the record. Blocks on the file and its fsync.
    pub(crate) fn advance(&self, hostid: &HostId, newer: SeenRecord) -> Result<SeenRecord> {
        let merged = {
            let mut all = self.record.lock();
            let entry = all.entry(*hostid).or_default();
            *entry = std::mem::take(entry).merge(newer);
            entry.clone()
        };
        let Some(path) = self.file(hostid) else { return Ok(merged) };
        let written = self.locked(&path, |path| {
            // Never replaces an unreadable file: it may hold a newer record.
            let stored = read(path).map_err(|e| unreadable(path, e))?;
            let merged = stored.clone().merge(merged.clone());
            if merged != stored {
                (self.write)(path, &encode_file(&merged))
                    .map_err(|e| Error::local("write the newest revision seen to", path, e))?;
            }
            Ok(merged)
        });
        match written {
            Ok(merged) => {
                self.record.lock().insert(*hostid, merged.clone());
                self.fault.lock().take();
                Ok(merged)
            }
            Err(error) if self.required || matches!(error, Error::StateUnreadable { .. }) => {
                Err(error)
            }
            Err(error) => {
                let fault = format!("{error}; the newest revision seen is kept in memory only");
                tracing::warn!(tree = %hostid, "{fault}");
                self.fault.lock().replace(fault);
                Ok(merged)
            }
        }
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// For evidence that the keys of the tree have signed a contradiction.
    pub(crate) fn fork_directory(&self, hostid: &HostId) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.join("fork").join(hostid.to_string()))
    }

    fn file(&self, hostid: &HostId) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.join(hostid.to_string()))
    }

    fn locked<T>(&self, path: &Path, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let lock = || {
            if let Some(dir) = path.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            }
            let path = path.with_extension("lock");
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(LOCK_MODE)
                .open(path)?;
            if lock.metadata()?.permissions().mode() & 0o777 != LOCK_MODE {
                lock.set_permissions(fs::Permissions::from_mode(LOCK_MODE))?;
            }
            lock_within(&lock, LOCK_WAIT_MAX)?;
            Ok(lock)
        };
        let _held: File = lock().map_err(|e| Error::local("lock", path, e))?;
        work(path)
    }
}

/// Any process that opens the file can hold the lock.
const LOCK_MODE: u32 = 0o600;

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::StateUnreadable { path: path.to_owned(), source: Arc::new(error) }
}

/// Refuses a directory that other users can write to or replace: they could restore an older record.
fn check_directory(dir: &Path) -> Result<()> {
    let Some(metadata) = fs::metadata(dir).ok().filter(fs::Metadata::is_dir) else { return Ok(()) };
    vouch_trust::check(dir, &metadata, Access::Read).map_err(Error::StateExposed)?;
    if let Err(exposure) = vouch_trust::check(dir, &metadata, Access::Nothing) {
        tracing::warn!("state directory {exposure}");
    }
    Ok(())
}

fn lock_within(file: &File, wait_max: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < wait_max => {
                std::thread::sleep(LOCK_PAUSE)
            }
            done => return Ok(done?),
        }
    }
}

fn read(path: &Path) -> io::Result<SeenRecord> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(FILE_LEN_MAX as u64 + 1).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SeenRecord::default()),
        Err(error) => return Err(error),
    };
    decode_file(&bytes)
}

fn decode_file(bytes: &[u8]) -> io::Result<SeenRecord> {
    let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (body, hash) = bytes
        .split_last_chunk::<HASH_LEN>()
        .ok_or_else(|| damaged("the file is truncated".into()))?;
    if blake3::hash(body) != blake3::Hash::from_bytes(*hash) {
        return Err(damaged("the file is damaged: wrong checksum".into()));
    }
    SeenRecord::from_xdr(body).map_err(|e| damaged(e.to_string()))
}

fn encode_file(record: &SeenRecord) -> Vec<u8> {
    let mut bytes = record.to_xdr();
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    bytes
}

pub(crate) fn exercise(file: &[u8]) {
    let Ok(record) = decode_file(file) else { return };
    assert!(
        decode_file(&encode_file(&record)).is_ok_and(|again| again == record),
        "a written record must round-trip"
    );
    let merged = record.clone().merge(SeenRecord::default());
    assert_eq!(
        merged.seen.order(),
        record.seen.order().max(NewestSeen::default().order()),
        "a merge must not move backward"
    );
    let _ = record.clone().merge(record);
}

fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let written = (|| {
        let mut file = File::create(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    })();
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

#[cfg(test)]
mod tests;
