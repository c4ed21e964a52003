//! Copies the log of revisions, whole: its files are small beside the packs.

use std::path::{Path, PathBuf};

use vouch_log::evidence::{LogEvidence, is_evidence};
use vouch_log::reader::{LogReader, TileSource};
use vouch_log::tile::{TILE_WIDTH, TileId, new_files};
use vouch_tree_client::{DatabaseFiles, check_log_head};
use vouch_tree_store::{LOG_DIR, RemoteView};

use crate::cache::TreeCache;
use crate::{Error, Result, io_error};

struct Directory(PathBuf);

impl TileSource for Directory {
    fn read(&self, path: &str, len_max: usize) -> std::io::Result<Vec<u8>> {
        let path = self.0.join(path);
        if std::fs::metadata(&path)?.len() > len_max as u64 {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        std::fs::read(path)
    }
}

impl TreeCache {
    /// Before the manifest that names the head. Files that do not match it are removed: clients
    /// that want the log then ask another replica.
    pub(crate) async fn copy_log(&self, files: &DatabaseFiles, view: &RemoteView) -> Result<()> {
        let Some(new) = evidence_of(view) else { return Ok(()) };
        let stored = std::fs::read(self.dir().join(RemoteView::MANIFEST));
        let stored = stored.ok().and_then(|bytes| RemoteView::parse(&bytes).ok());
        let old =
            stored.filter(|stored| stored.iv() == view.iv()).and_then(|old| evidence_of(&old));
        // The size decides how many files are fetched, so the log's owner must have signed it.
        check_log_head(&new, self.options.name.hostid())
            .map_err(|what| Error::Origin { origin: files.url(), what: what.to_owned() })?;
        let size = |of: &LogEvidence| of.proof.checkpoint.checkpoint().size;
        let (before, now) = (old.as_ref().map_or(0, size), size(&new));
        let mut copied = Vec::new();
        let outcome = self.copy_files(files, before, now, &mut copied).await;
        let log = self.dir().join(LOG_DIR);
        if let Err(error) = outcome.and_then(|()| verify(&log, &new, before)) {
            for id in &copied {
                let _ = std::fs::remove_file(log.join(id.path()));
            }
            return Err(error);
        }
        for id in copied.iter().filter(|id| usize::from(id.width) == TILE_WIDTH) {
            let _ = std::fs::remove_dir_all(log.join(format!("{}.p", id.path())));
        }
        Ok(())
    }

    async fn copy_files(
        &self,
        files: &DatabaseFiles,
        before: u64,
        now: u64,
        copied: &mut Vec<TileId>,
    ) -> Result<()> {
        for id in new_files(before, now) {
            let bytes = files.log_file(&id).await?;
            let path = self.dir().join(LOG_DIR).join(id.path());
            let dir = path.parent().unwrap_or(&path);
            std::fs::create_dir_all(dir).map_err(io_error(dir))?;
            copied.push(id);
            std::fs::write(&path, bytes).map_err(io_error(&path))?;
        }
        Ok(())
    }

    pub(crate) fn log_len(&self) -> u64 {
        len_of(&self.dir().join(LOG_DIR))
    }
}

fn evidence_of(view: &RemoteView) -> Option<LogEvidence> {
    let bytes = view.statements().iter().find(|statement| is_evidence(statement))?;
    LogEvidence::from_statement(bytes, view.head()?).ok()
}

fn verify(log: &Path, evidence: &LogEvidence, before: u64) -> Result<()> {
    let refused = |error: vouch_log::reader::ReadError| Error::Origin {
        origin: log.display().to_string(),
        what: error.to_string(),
    };
    let head = evidence.proof.checkpoint.checkpoint();
    let mut reader =
        LogReader::open(Directory(log.to_owned()), head.size, head.root).map_err(refused)?;
    let mut index = before;
    while index < head.size {
        let (first, entries) = reader.bundle(index).map_err(refused)?;
        index = first + entries.len() as u64;
    }
    Ok(())
}

fn len_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => len_of(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
