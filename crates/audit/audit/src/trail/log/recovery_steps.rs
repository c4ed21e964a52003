//! Recovery steps that failed on a full disk, retried in order before any other write.

use std::io;
use std::path::PathBuf;

use super::{Log, LogError, WithPath as _, lost_count};
use crate::keys::Ratchet;
use crate::seal::Seal;
use crate::trail::files;

/// Each step can be repeated after an interruption.
pub(super) enum RecoveryStep {
    ReplaceKey(Ratchet),
    WriteCheckpoint(Seal),
    SyncDirectory,
    Rewrite {
        segment: PathBuf,
        bytes: Vec<u8>,
        from: u64,
    },
    /// Copies the damaged end of a segment to a quarantine file, then truncates the segment.
    CutTorn {
        segment: PathBuf,
        quarantined: PathBuf,
        bytes: Vec<u8>,
        len: u64,
    },
    Quarantine {
        segment: PathBuf,
        quarantined: PathBuf,
    },
    RemoveEmpty(PathBuf),
    ResetLostCount,
}

impl Log {
    /// The error of a full disk that keeps the recovery from being written.
    pub fn recovery_error(&self) -> Option<&LogError> {
        self.recovery_error.as_ref()
    }

    pub(in crate::trail) fn unwritten_gap(&self) -> Option<(u64, u64, u64)> {
        self.reported_gap.filter(|_| self.recovery_error.is_some())
    }

    pub(super) fn run_or_queue(&mut self, step: RecoveryStep) -> Result<(), LogError> {
        self.recovery_steps.push_back(step);
        self.run_unless_full(Log::run_recovery_steps).map(drop)
    }

    pub(super) fn run_unless_full(
        &mut self,
        operation: impl FnOnce(&mut Log) -> Result<(), LogError>,
    ) -> Result<bool, LogError> {
        match operation(self) {
            Ok(()) => Ok(true),
            Err(error) if error.is_full() => {
                self.recovery_error.get_or_insert(error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn run_recovery_steps(&mut self) -> Result<(), LogError> {
        while let Some(step) = self.recovery_steps.front() {
            self.run_step(step)?;
            self.recovery_steps.pop_front();
        }
        Ok(())
    }

    fn run_step(&self, step: &RecoveryStep) -> Result<(), LogError> {
        let disk = &*self.disk;
        match step {
            RecoveryStep::ReplaceKey(key) => {
                files::replace_key(disk, &self.key_path, key).with_path(&self.key_path)
            }
            RecoveryStep::WriteCheckpoint(seal) => self.write_checkpoint(seal),
            RecoveryStep::SyncDirectory => {
                disk.sync_dir(&self.directory).with_path(&self.directory)
            }
            RecoveryStep::Rewrite { segment, bytes, from } => {
                let file = disk.open(segment).with_path(segment)?;
                // Always rewritten: an earlier failed sync may have dropped the bytes.
                file.write_at(bytes, *from).and_then(|()| file.sync()).with_path(segment)?;
                disk.sync_dir(&self.directory).with_path(&self.directory)
            }
            RecoveryStep::CutTorn { segment, quarantined, bytes, len } => {
                files::replace_file(disk, quarantined, bytes).with_path(quarantined)?;
                disk.open(segment).and_then(|file| file.set_len(*len)).with_path(segment)
            }
            RecoveryStep::Quarantine { segment, quarantined } => {
                // The last attempt may not have synced the directory.
                if !quarantined.exists() {
                    disk.rename(segment, quarantined).with_path(segment)?;
                }
                disk.sync_dir(&self.directory).with_path(&self.directory)
            }
            RecoveryStep::RemoveEmpty(segment) => match disk.remove(segment) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(error).with_path(segment)
                }
                _ => Ok(()),
            },
            RecoveryStep::ResetLostCount => {
                let made = lost_count::reset(disk, &self.directory).with_path(&self.directory);
                made.or_else(|error| {
                    if error.is_full() {
                        return Err(error);
                    }
                    tracing::warn!(%error, "could not create the file that counts lost audit records; losses at the end will not be reported at the next start");
                    Ok(())
                })
            }
        }
    }
}

impl LogError {
    /// The disk is full or a quota is exhausted.
    pub fn is_full(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if files::is_full(source))
    }
}
