//! What a trail's start could not do since the disk had no room: done before anything is written,
//! in the order in which the start would have done it. Until then the trail stands as a start that
//! was killed leaves it.

use std::io;
use std::path::PathBuf;

use super::{At as _, Log, LogError, lost};
use crate::keys::Ratchet;
use crate::seal::Seal;
use crate::trail::files;

/// A step of the start. Those that were begun can be done again.
pub(super) enum Step {
    /// The key that a durable seal names, or that has not got to its place.
    Key(Ratchet),
    /// The latest seal.
    Checkpoint(Seal),
    /// The names in the directory are made durable.
    Names,
    /// What a segment holds from somewhere on is made durable.
    Again { segment: PathBuf, bytes: Vec<u8>, from: u64 },
    /// Bytes that a segment ends with and are no frames are kept for an investigator, then cut off.
    Cut {
        segment: PathBuf,
        aside: PathBuf,
        bytes: Vec<u8>,
        /// What there is before them.
        len: u64,
    },
    /// A segment that has no header is kept for an investigator, under another name.
    Aside { segment: PathBuf, aside: PathBuf },
    /// One of which there is nothing goes.
    Remove(PathBuf),
    /// There is a file for what the disk refuses.
    Lost,
}

impl Log {
    /// Why what the start has to write is not written: the disk had no room for it.
    pub fn refused(&self) -> Option<&LogError> {
        self.refused.as_ref()
    }

    /// What the start has told as lost before, where that is not written: the number of the record,
    /// how many it stands for, and since when they are.
    pub(in crate::trail) fn told_unwritten(&self) -> Option<(u64, u64, u64)> {
        self.told.filter(|_| self.refused.is_some())
    }

    /// Takes a step, or leaves it for when there is room.
    pub(super) fn take(&mut self, step: Step) -> Result<(), LogError> {
        self.due.push_back(step);
        self.try_now(Log::catch_up).map(drop)
    }

    /// Whether it could be done; not where the disk has no room, which is remembered.
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

    /// Does what is left of the start.
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
                // Written once more each time: a system that failed to sync it, for this program or the one before,
                // may have forgotten it.
                file.write_at(bytes, *from).and_then(|()| file.sync()).at(segment)?;
                disk.sync_dir(&self.directory).at(&self.directory)
            }
            Step::Cut { segment, aside, bytes, len } => {
                files::replace(disk, aside, bytes).at(aside)?;
                disk.open(segment).and_then(|file| file.set_len(*len)).at(segment)
            }
            Step::Aside { segment, aside } => {
                // It has its name already where that could not be made durable the last time.
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
    /// Whether the disk has no room, or a quota is used up.
    pub fn is_full(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if files::is_full(source))
    }
}
