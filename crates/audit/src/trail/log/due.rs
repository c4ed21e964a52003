//! Recovery steps that failed because the disk was full. They are retried in order before anything
//! else is written. Until then, the trail is in the state that a killed start leaves.

use std::io;
use std::path::PathBuf;

use super::{At as _, Log, LogError, lost};
use crate::keys::Ratchet;
use crate::seal::Seal;
use crate::trail::files;

/// A recovery step. A step that was interrupted can be repeated.
pub(super) enum Step {
    /// Install the key that follows a durable seal.
    Key(Ratchet),
    /// Write the checkpoint.
    Checkpoint(Seal),
    /// Sync the directory.
    Names,
    /// Rewrite and sync a segment from an offset on.
    Again { segment: PathBuf, bytes: Vec<u8>, from: u64 },
    /// Copy the damaged bytes at a segment's end to a quarantine file, then cut them off.
    Cut {
        segment: PathBuf,
        aside: PathBuf,
        bytes: Vec<u8>,
        /// Length of the intact part.
        len: u64,
    },
    /// Rename a segment without a header to a quarantine file.
    Aside { segment: PathBuf, aside: PathBuf },
    /// Remove an empty segment file.
    Remove(PathBuf),
    /// Create or reset the file that counts lost records.
    Lost,
}

impl Log {
    /// Returns the error that keeps the recovery from being written, if the disk was full.
    pub fn refused(&self) -> Option<&LogError> {
        self.refused.as_ref()
    }

    /// Returns the gap record from recovery while it is not written: its sequence number, the
    /// number of lost records, and since when.
    pub(in crate::trail) fn told_unwritten(&self) -> Option<(u64, u64, u64)> {
        self.told.filter(|_| self.refused.is_some())
    }

    /// Runs a step, or queues it if the disk is full.
    pub(super) fn take(&mut self, step: Step) -> Result<(), LogError> {
        self.due.push_back(step);
        self.try_now(Log::catch_up).map(drop)
    }

    /// Returns whether `what` succeeded. A full disk is recorded, and counts as false.
    pub(super) fn try_now(&mut self, what: impl FnOnce(&mut Log) -> Result<(), LogError>) -> Result<bool, LogError> {
        match what(self) {
            Ok(()) => Ok(true),
            Err(error) if error.is_full() => {
                self.refused.get_or_insert(error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs all queued steps.
    pub(super) fn catch_up(&mut self) -> Result<(), LogError> {
        while let Some(step) = self.due.front() {
            self.do_step(step)?;
            self.due.pop_front();
        }
        Ok(())
    }

    fn do_step(&self, step: &Step) -> Result<(), LogError> {
        let disk = &*self.disk;
        match step {
            Step::Key(key) => files::replace_key(disk, &self.key_path, key).at(&self.key_path),
            Step::Checkpoint(seal) => self.write_checkpoint(seal),
            Step::Names => disk.sync_dir(&self.directory).at(&self.directory),
            Step::Again { segment, bytes, from } => {
                let file = disk.open(segment).at(segment)?;
                // Always rewritten: an earlier sync, even by another process, may have failed and
                // dropped the bytes.
                file.write_at(bytes, *from).and_then(|()| file.sync()).at(segment)?;
                disk.sync_dir(&self.directory).at(&self.directory)
            }
            Step::Cut { segment, aside, bytes, len } => {
                files::replace(disk, aside, bytes).at(aside)?;
                disk.open(segment).and_then(|file| file.set_len(*len)).at(segment)
            }
            Step::Aside { segment, aside } => {
                // The last attempt may have renamed the file but not synced the directory.
                if !aside.exists() {
                    disk.rename(segment, aside).at(segment)?;
                }
                disk.sync_dir(&self.directory).at(&self.directory)
            }
            Step::Remove(segment) => match disk.remove(segment) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at(segment),
                _ => Ok(()),
            },
            Step::Lost => {
                let made = lost::reset(disk, &self.directory).at(&self.directory);
                made.or_else(|error| {
                    if error.is_full() {
                        return Err(error);
                    }
                    tracing::warn!(%error, "there is no file for what the disk refuses: what is lost at the end will not be counted at the next start");
                    Ok(())
                })
            }
        }
    }
}

impl LogError {
    /// Returns whether the disk is full or a quota is exhausted.
    pub fn is_full(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if files::is_full(source))
    }
}
