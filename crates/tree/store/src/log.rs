//! The transparency log of the tree's revisions: files below `log/`, as C2SP tlog-tiles has them.
//!
//! The manifest's evidence has the signed head of the log. Files of the log are durable before the
//! manifest; `log/checkpoint` follows it.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use vouch_log::append::LogFile;
use vouch_log::checkpoint::SignedCheckpoint;
use vouch_log::evidence::LogEvidence;
use vouch_log::reader::{LogReader, ReadError, TileSource};
use vouch_log::tile::{CHECKPOINT_PATH, TILE_WIDTH, TileId, TileKind, hashes_at_level};
use vouch_tree::statement::OFFERED_LEN_MAX;
use vouch_xdr::Xdr as _;

use crate::commit::check_limit;
use crate::layout::{LOG_DIR, Layout};
use crate::manifest::Manifest;
use crate::pack_stream::{UNSYNCED_COUNT_MAX, Unsynced};
use crate::writer::Writer;
use crate::{Error, Result, Snapshot};

/// The files of a database's log.
#[derive(Debug, Clone)]
pub struct LogFiles(Layout);

impl TileSource for LogFiles {
    fn read(&self, path: &str, len_max: usize) -> io::Result<Vec<u8>> {
        if let Some(bucket) = self.0.bucket() {
            let found = bucket.read_object(&format!("{LOG_DIR}/{path}"), len_max as u64)?;
            return found.ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        read_file(&self.0.log().join(path), len_max)
    }
}

pub(crate) fn read_file(path: &Path, len_max: usize) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, len_max as u64 + 1), &mut bytes)?;
    if bytes.len() > len_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
    }
    Ok(bytes)
}

impl Writer {
    /// The evidence about the head. `None` for a tree without a log.
    pub fn evidence(&self) -> Result<Option<LogEvidence>> {
        let committed = self.committed.lock();
        match committed.evidence() {
            Some(evidence) => Ok(Some((**evidence).clone())),
            None if committed.evidence_bytes().is_none() => Ok(None),
            None => Err(Error::damaged(
                &self.file_factory.layout.manifest(),
                "its evidence of the log cannot be read",
            )),
        }
    }

    /// Readers get this evidence about the head instead of the earlier one: its checkpoint has more
    /// cosignatures.
    pub fn set_evidence(&self, evidence: &LogEvidence) -> Result<()> {
        self.check_unbroken()?;
        check_limit("bytes of evidence", evidence.to_xdr().len(), OFFERED_LEN_MAX)?;
        let mut committed = self.committed.lock();
        let mut next = committed.clone();
        next.set_evidence(evidence);
        self.write_generation(&mut committed, next, None)
    }

    pub fn log_files(&self) -> LogFiles {
        LogFiles(self.file_factory.layout.clone())
    }

    /// Durable with the next commit. Replaces a file that a killed writer has left; the caller puts
    /// no file that the committed log has.
    pub fn put_log_file(&self, file: &LogFile) -> Result<()> {
        self.check_unbroken()?;
        let (layout, disk) = (&self.file_factory.layout, &self.file_factory.disk);
        let path = layout.log().join(file.id.path());
        let mut dirs = BTreeSet::new();
        for dir in path.ancestors().skip(1).take_while(|dir| *dir != layout.root()) {
            dirs.insert(dir.to_owned());
        }
        let put = || -> Result<()> {
            for dir in dirs.iter().filter(|dir| !dir.is_dir()) {
                disk.create_dir(dir).map_err(Error::io("create", dir))?;
            }
            let found = match read_file(&path, file.bytes.len()) {
                Ok(bytes) if bytes == file.bytes => Some(disk.reopen(&path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                _ => {
                    disk.remove(&path).map_err(Error::io("remove", &path))?;
                    None
                }
            };
            let stored = match found {
                Some(reopened) => reopened.map_err(Error::io("open", &path))?,
                None => {
                    let new = disk.create(&path).map_err(Error::io("create", &path))?;
                    new.append(&[&file.bytes]).map_err(Error::io("write", &path))?;
                    new
                }
            };
            // A head is signed after its files have been read, and those of a bucket are read there.
            if layout.bucket().is_some() {
                stored.sync().map_err(Error::io("write", &path))?;
                return disk.remove(&path).map_err(Error::io("remove", &path));
            }
            stored.start_sync();
            let mut unsynced = self.unsynced_log.lock();
            unsynced.push(Unsynced { path: path.clone(), file: stored });
            if unsynced.len() == UNSYNCED_COUNT_MAX {
                Unsynced::sync_all(&std::mem::take(&mut *unsynced))?;
            }
            Ok(())
        };
        self.break_on_error(put())?;
        self.log_dirs.lock().extend(dirs);
        Ok(())
    }

    /// The names of new files, before the manifest.
    pub(crate) fn sync_log_dirs(&self) -> Result<()> {
        let dirs = std::mem::take(&mut *self.log_dirs.lock());
        if dirs.is_empty() {
            return Ok(());
        }
        let root = self.file_factory.layout.root().to_owned();
        for dir in dirs.into_iter().chain([root]) {
            self.file_factory.disk.sync_dir(&dir).map_err(Error::io("sync", &dir))?;
        }
        Ok(())
    }

    /// `log/checkpoint` has more entries than the manifest's: the database was restored from an
    /// older copy, and another head of this size may be signed.
    pub fn check_log_is_newest(&self) -> Result<()> {
        let size = self.committed.lock().log_size();
        match read_checkpoint(&self.log_files())? {
            Some(found) if found.checkpoint().size > size => Err(Error::OlderThanLog {
                path: self.file_factory.layout.name().to_owned(),
                size,
                found: found.checkpoint().size,
            }),
            _ => Ok(()),
        }
    }

    /// After the commit, which stands if this fails: the next writer does it again.
    pub(crate) fn follow_log(&self, before: &Manifest, now: &Manifest) {
        if before.evidence_bytes() == now.evidence_bytes() {
            return;
        }
        let Some(checkpoint) = now.checkpoint() else { return };
        if let Err(error) = self.write_checkpoint(checkpoint) {
            tracing::warn!(%error, "log/checkpoint is not written, and stays behind until the next publication");
        }
        self.remove_partial_files(before.log_size(), checkpoint.checkpoint().size);
    }

    /// A killed writer has committed, and not written `log/checkpoint`.
    pub(crate) fn mend_checkpoint(&self) -> Result<()> {
        let Some(wanted) = self.committed.lock().checkpoint().cloned() else { return Ok(()) };
        let found = read_checkpoint(&self.log_files())?;
        let is_ahead =
            found.as_ref().is_some_and(|found| found.checkpoint().size > wanted.checkpoint().size);
        if is_ahead || found.as_ref() == Some(&wanted) {
            return Ok(());
        }
        self.write_checkpoint(&wanted)
    }

    fn write_checkpoint(&self, checkpoint: &SignedCheckpoint) -> Result<()> {
        let (layout, disk) = (&self.file_factory.layout, &self.file_factory.disk);
        let (path, next) = (layout.checkpoint(), layout.checkpoint_next());
        if !layout.log().is_dir() {
            disk.create_dir(&layout.log()).map_err(Error::io("create", &layout.log()))?;
        }
        if next.exists() {
            disk.remove(&next).map_err(Error::io("remove", &next))?;
        }
        let file = disk.create(&next).map_err(Error::io("create", &next))?;
        let text = checkpoint.to_text();
        file.append(&[text.as_bytes()]).map_err(Error::io("write", &next))?;
        file.sync().map_err(Error::io("sync", &next))?;
        disk.rename(&next, &path).map_err(Error::io("replace", &path))
    }

    /// C2SP tlog-tiles, "Partial Tiles": they may go once the full one is there, which readers then
    /// take. Only the tiles that were partial before have any.
    fn remove_partial_files(&self, before: u64, now: u64) {
        let (layout, disk) = (&self.file_factory.layout, &self.file_factory.disk);
        let hashes = (0..=7).map(TileKind::Hashes);
        for kind in hashes.chain([TileKind::Entries]) {
            let level = if let TileKind::Hashes(level) = kind { level } else { 0 };
            let index = hashes_at_level(before, level) / TILE_WIDTH as u64;
            let had_partial = !hashes_at_level(before, level).is_multiple_of(TILE_WIDTH as u64);
            if !had_partial || index >= hashes_at_level(now, level) / TILE_WIDTH as u64 {
                continue;
            }
            let full = TileId { kind, index, width: TILE_WIDTH as u16 };
            let dir = format!("{LOG_DIR}/{}.p", full.path());
            let removed = match layout.bucket() {
                Some(bucket) => bucket.list(&dir, "").and_then(|found| {
                    let names: Vec<_> =
                        found.into_iter().map(|(name, _)| format!("{dir}/{name}")).collect();
                    bucket.delete(&names)
                }),
                None => remove_files(&**disk, &layout.root().join(&dir)),
            };
            if let Err(error) = removed {
                tracing::warn!(dir, %error, "old files of the log could not be removed");
            }
        }
    }
}

fn remove_files(disk: &dyn crate::disk::Disk, dir: &Path) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        disk.remove(&entry?.path())?;
    }
    std::fs::remove_dir(dir)
}

/// `None` if it is missing or torn.
pub(crate) fn read_checkpoint(files: &LogFiles) -> Result<Option<SignedCheckpoint>> {
    match files.read(CHECKPOINT_PATH, vouch_log::note::NOTE_LEN_MAX) {
        // A torn one is written again.
        Ok(bytes) => Ok(SignedCheckpoint::parse(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", &files.0.checkpoint())(error)),
    }
}

impl Snapshot {
    pub fn log_files(&self) -> LogFiles {
        LogFiles(self.layout().clone())
    }

    /// `None` for a tree without a log.
    pub fn evidence(&self) -> Option<LogEvidence> {
        self.view().manifest().evidence().map(|evidence| (**evidence).clone())
    }

    /// In words, if `log/checkpoint`, which web servers and stock tools read, is not that of the
    /// manifest: a writer was killed between the two, or the database was restored from an older copy.
    pub fn checkpoint_lag(&self) -> Result<Option<String>> {
        let view = self.view();
        let Some(wanted) = view.checkpoint() else { return Ok(None) };
        let found = read_checkpoint(&self.log_files())?;
        if found.as_ref() == Some(wanted) {
            return Ok(None);
        }
        let size = wanted.checkpoint().size;
        let found = found.map_or(0, |found| found.checkpoint().size);
        if found > size {
            let path = self.layout().name().to_owned();
            return Ok(Some(Error::OlderThanLog { path, size, found }.to_string()));
        }
        Ok(Some(format!(
            "log/checkpoint is an older head, of {found} entries where the log has {size}: a writer was killed. Web servers show it until the next writer, such as `vouch witness` or `vouch gc`, replaces it"
        )))
    }

    /// A file of the log, if the head that the manifest names has it.
    pub fn log_file(&self, id: &TileId) -> Result<Option<Vec<u8>>> {
        let view = self.view();
        let size = view.checkpoint().map_or(0, |found| found.checkpoint().size);
        if !id.is_in_tree(size) {
            return Ok(None);
        }
        match self.log_files().read(&id.path(), id.len_max()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &self.layout().log())(error)),
        }
    }
}

/// Opens the log at the head that the manifest names, and verifies its right edge.
pub fn open_log(
    files: LogFiles,
    checkpoint: &SignedCheckpoint,
) -> std::result::Result<LogReader<LogFiles>, ReadError> {
    let head = checkpoint.checkpoint();
    LogReader::open(files, head.size, head.root)
}
