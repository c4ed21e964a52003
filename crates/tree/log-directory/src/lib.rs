//! A transparency log in a local directory, with the layout of C2SP tlog-tiles: stock tools read
//! it.
//!
//! `checkpoint` is the truth: it is replaced by a rename after all files of its tree are durable.
//! So a killed writer leaves the log before its change or after it. Files of no checkpoint are
//! overwritten by the next append.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use vouch_log::append::{AppendError, Appender, LogFile};
use vouch_log::checkpoint::{CheckpointError, SignedCheckpoint};
use vouch_log::merkle::Hash;
use vouch_log::note::NOTE_LEN_MAX;
use vouch_log::reader::{LogReader, ReadError, TileSource};
use vouch_log::tile::{CHECKPOINT_PATH, LEVEL_MAX, TILE_WIDTH, TileId, TileKind, hashes_at_level};

/// Why a log in a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("{step} {}: {error}", .path.display())]
    Io { step: &'static str, path: PathBuf, error: io::Error },
    #[error("{}: {error}", .path.display())]
    Checkpoint { path: PathBuf, error: CheckpointError },
    #[error("{}: {error}", .path.display())]
    Read { path: PathBuf, error: ReadError },
    #[error("{}: {error}", .path.display())]
    Append { path: PathBuf, error: AppendError },
    #[error("{}: the new entries do not give the root hash of the checkpoint", .0.display())]
    OtherRoot(PathBuf),
}

type Result<T> = std::result::Result<T, Error>;

/// The log. One writer at a time; the caller holds a lock.
#[derive(Debug, Clone)]
pub struct LogDirectory {
    path: PathBuf,
    mode: u32,
}

impl LogDirectory {
    /// Touches nothing. `mode`: of new files; directories can be entered by the same users.
    pub fn new(path: PathBuf, mode: u32) -> Self {
        Self { path, mode }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The head. `None` for a log that has not begun.
    pub fn checkpoint(&self) -> Result<Option<SignedCheckpoint>> {
        let path = self.path.join(CHECKPOINT_PATH);
        match read_file(&path, NOTE_LEN_MAX) {
            Ok(bytes) => match SignedCheckpoint::parse(&bytes) {
                Ok(checkpoint) => Ok(Some(checkpoint)),
                Err(error) => Err(Error::Checkpoint { path, error }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Io { step: "read", path, error }),
        }
    }

    /// Verifies the right edge of the tree.
    pub fn open(&self, head: &SignedCheckpoint) -> Result<LogReader<&Self>> {
        let head = head.checkpoint();
        LogReader::open(self, head.size, head.root).map_err(|error| self.read_error(error))
    }

    /// Continues the log after its head.
    pub fn append(&self) -> Result<Append<'_>> {
        let (size, tree) = match self.checkpoint()? {
            None => (0, Appender::new()),
            Some(head) => {
                let mut reader = self.open(&head)?;
                let tree = Appender::open(&mut reader).map_err(|error| self.read_error(error))?;
                (head.checkpoint().size, tree)
            }
        };
        Ok(Append { log: self, begin: size, tree })
    }

    /// Replaces the head by one of the same tree: with other signatures.
    pub fn write_checkpoint(&self, checkpoint: &SignedCheckpoint) -> Result<()> {
        let path = self.path.join(CHECKPOINT_PATH);
        let next = self.path.join("checkpoint.new");
        let text = checkpoint.to_text();
        write_durable(&next, text.as_bytes(), self.mode)?;
        fs::rename(&next, &path).map_err(|error| Error::Io {
            step: "replace",
            path: path.clone(),
            error,
        })?;
        sync(&self.path)
    }

    fn put(&self, file: &LogFile) -> Result<()> {
        let path = self.path.join(file.id.path());
        if read_file(&path, file.bytes.len()).is_ok_and(|bytes| bytes == file.bytes) {
            // A killed writer may have written it without making it durable.
            sync(&path)?;
            return sync(path.parent().unwrap_or(&self.path));
        }
        self.create_directories(path.parent().unwrap_or(&self.path))?;
        write_durable(&path, &file.bytes, self.mode)?;
        sync(path.parent().unwrap_or(&self.path))
    }

    /// Each name is durable on return.
    fn create_directories(&self, path: &Path) -> Result<()> {
        let missing: Vec<_> = path.ancestors().take_while(|dir| !dir.is_dir()).collect();
        for dir in missing.into_iter().rev() {
            let mode = 0o700 | self.mode | (self.mode & 0o444) >> 2;
            DirBuilder::new().mode(mode).create(dir).map_err(|error| Error::Io {
                step: "create",
                path: dir.to_owned(),
                error,
            })?;
            dir.parent().map_or(Ok(()), sync)?;
        }
        Ok(())
    }

    /// C2SP tlog-tiles, "Partial Tiles": they may go once the full one is there, or a wider one.
    fn remove_partial_files(&self, before: u64, now: u64) {
        for level in 0..=LEVEL_MAX {
            let (old, new) = (hashes_at_level(before, level), hashes_at_level(now, level));
            let width = (old % TILE_WIDTH as u64) as u16;
            if width == 0 || old == new {
                continue;
            }
            let entries = (level == 0).then_some(TileKind::Entries);
            for kind in [TileKind::Hashes(level)].into_iter().chain(entries) {
                let id = TileId { kind, index: old / TILE_WIDTH as u64, width };
                // One that stays costs room alone.
                let path = self.path.join(id.path());
                let _ = fs::remove_file(&path);
                let _ = path.parent().map(fs::remove_dir);
            }
        }
    }

    fn read_error(&self, error: ReadError) -> Error {
        Error::Read { path: self.path.clone(), error }
    }
}

impl TileSource for LogDirectory {
    fn read(&self, path: &str, len_max: usize) -> io::Result<Vec<u8>> {
        read_file(&self.path.join(path), len_max)
    }
}

/// New entries that no checkpoint has yet.
pub struct Append<'a> {
    log: &'a LogDirectory,
    begin: u64,
    tree: Appender,
}

impl Append<'_> {
    /// Entries, new ones included.
    pub const fn size(&self) -> u64 {
        self.tree.size()
    }

    /// Root hash, new entries included.
    pub fn root(&self) -> Hash {
        self.tree.root()
    }

    /// Writes full files at once, so that memory does not grow with the number of entries.
    pub fn push(&mut self, entry: &[u8]) -> Result<u64> {
        let path = || self.log.path.clone();
        let index = self.tree.push(entry);
        let index = index.map_err(|error| Error::Append { path: path(), error })?;
        self.tree.take_full().iter().try_for_each(|file| self.log.put(file))?;
        Ok(index)
    }

    /// The log has the new entries from here on.
    pub fn commit(self, checkpoint: &SignedCheckpoint) -> Result<()> {
        let head = checkpoint.checkpoint();
        if (head.size, head.root) != (self.tree.size(), self.tree.root()) {
            return Err(Error::OtherRoot(self.log.path.clone()));
        }
        self.log.create_directories(&self.log.path)?;
        self.tree.finish().iter().try_for_each(|file| self.log.put(file))?;
        self.log.write_checkpoint(checkpoint)?;
        self.log.remove_partial_files(self.begin, head.size);
        Ok(())
    }
}

fn read_file(path: &Path, len_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(len_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > len_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
    }
    Ok(bytes)
}

fn write_durable(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| Error::Io { step: "write", path: path.to_owned(), error })
}

fn sync(path: &Path) -> Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|error| Error::Io {
        step: "sync",
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use vouch_log::checkpoint::Checkpoint;
    use vouch_log::key::{Algorithm, Signer};

    use super::*;

    fn append(log: &LogDirectory, count: u64) -> SignedCheckpoint {
        let mut tree = log.append().unwrap();
        for _ in 0..count {
            let entry = format!("entry {}", tree.size());
            tree.push(entry.as_bytes()).unwrap();
        }
        let head = Checkpoint::new("example.org/log", tree.size(), tree.root());
        let mut head = SignedCheckpoint::unsigned(&head).unwrap();
        let signer = Signer::from_seed("example.org/log", Algorithm::Ed25519, &[1; 32]).unwrap();
        head.note_mut().sign(&signer, 1).unwrap();
        tree.commit(&head).unwrap();
        head
    }

    #[test]
    fn log_grows_over_tiles_and_keeps_no_old_partial_files() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogDirectory::new(dir.path().join("log"), 0o644);
        assert!(log.checkpoint().unwrap().is_none());
        for count in [1, 0, 200, 55, 1, 600] {
            let head = append(&log, count);
            assert_eq!(log.checkpoint().unwrap(), Some(head.clone()));
            let mut reader = log.open(&head).unwrap();
            for index in 0..reader.size() {
                assert_eq!(reader.entry(index).unwrap(), format!("entry {index}").as_bytes());
            }
        }
        let names = fs::read_dir(log.path().join("tile/0")).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["000", "001", "002", "003.p"]);
    }

    #[test]
    fn entries_of_a_killed_writer_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogDirectory::new(dir.path().join("log"), 0o600);
        append(&log, 255);
        let mut killed = log.append().unwrap();
        killed.push(b"another entry").unwrap();
        drop(killed);
        let head = append(&log, 1);
        assert_eq!(log.open(&head).unwrap().entry(255).unwrap(), b"entry 255");
    }

    #[test]
    fn checkpoint_of_another_tree_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogDirectory::new(dir.path().join("log"), 0o600);
        let head = append(&log, 2);
        let mut tree = log.append().unwrap();
        tree.push(b"more").unwrap();
        assert!(matches!(tree.commit(&head), Err(Error::OtherRoot(_))));
    }
}
