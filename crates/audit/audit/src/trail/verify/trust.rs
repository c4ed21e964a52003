//! The first and the last record that a trail must have. The checkpoint, the key file, external
//! checkpoints and retention records prove them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::{Fault, FaultKind, Verifier};
use crate::Record;
use crate::record::{Class, class_of};
use crate::seal::Seal;
use crate::trail::files::{self, CHECKPOINT_FILE, KEY_FILE};
use crate::trail::prune::PRUNED_PREFIX;

/// What the verifier knows beside the trail.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The trail's first public key, as `keygen` prints it.
    pub public: Option<[u8; 32]>,
    /// Seals stored out of the server's reach. The trail must contain them.
    pub checkpoints: Vec<Seal>,
    /// Key file, if outside the trail's directory.
    pub key: Option<PathBuf>,
}

pub(super) struct KnownEnds {
    checkpoint: io::Result<Seal>,
    key: io::Result<KeyFile>,
    key_path: PathBuf,
    is_inside_trail: bool,
}

struct KeyFile {
    trail: [u8; 16],
    epoch: u64,
    public: [u8; 32],
    is_replaced: bool,
}

impl KnownEnds {
    pub(super) fn of(directory: &Path, trust: &Trust) -> KnownEnds {
        let key_path = trust.key.clone().unwrap_or_else(|| directory.join(KEY_FILE));
        let key = files::read_key(&key_path);
        let key = key.map(|key| KeyFile {
            trail: key.trail(),
            epoch: key.epoch(),
            public: key.public(),
            is_replaced: false,
        });
        let real = |path: &Path| path.canonicalize();
        let is_inside_trail = matches!((real(&key_path), real(directory)), (Ok(key), Ok(directory)) if key.starts_with(&directory));
        KnownEnds {
            checkpoint: files::read_checkpoint(&directory.join(CHECKPOINT_FILE)),
            key,
            key_path,
            is_inside_trail,
        }
    }

    pub(super) fn observe_seal(&mut self, seal: &Seal) {
        if let Ok(key) = &mut self.key {
            key.is_replaced |= seal.epoch == key.epoch && seal.public != key.public;
        }
    }
}

impl Verifier<'_> {
    pub(super) fn verify_end(&mut self) {
        let seq = self.next_seq.unwrap_or(1);
        self.check_removals();
        let mut known = self.check_external_checkpoints();
        match &self.ends.checkpoint {
            Ok(seal) => known = known.max(Some(seal.epoch + 1)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.report.notes.push("the trail's directory has no checkpoint".into());
            }
            // Readers of segments may lack permission for this file.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.report.notes.push(format!("{CHECKPOINT_FILE}: {error}"));
            }
            Err(error) => {
                let description = format!("{CHECKPOINT_FILE}: {error}");
                self.fault(FaultKind::Unreadable, 0, seq, description);
            }
        }
        let path = self.ends.key_path.display();
        match &self.ends.key {
            Ok(key) => {
                known = known.max(Some(key.epoch));
                // Anyone can create a key file: it must match the last seal.
                let is_replaced = key.is_replaced
                    || self
                        .key
                        .is_some_and(|(epoch, public)| epoch == key.epoch && public != key.public);
                let description = match self.report.trail {
                    Some(trail) if trail != key.trail => {
                        format!("{path} is the key of another trail")
                    }
                    _ if is_replaced => {
                        format!(
                            "{path} is not key {} of this trail: the file was replaced",
                            key.epoch
                        )
                    }
                    _ => String::new(),
                };
                if !description.is_empty() {
                    self.fault(FaultKind::Forged, 0, seq, description);
                }
            }
            Err(error) if self.trust.key.is_none() && is_inaccessible(error) => {}
            Err(error) => {
                let note = format!("{path}: {error}");
                self.report.notes.push(note);
            }
        }
        let has_external_end = !self.trust.checkpoints.is_empty()
            || (self.ends.key.is_ok() && !self.ends.is_inside_trail);
        if !has_external_end {
            self.report.notes.push(
                "nothing outside this directory shows how far the trail must extend, so a truncated end would go unnoticed: give a checkpoint or the key file that is stored elsewhere"
                    .into(),
            );
        }
        let newest_epoch = self.key.map(|(epoch, _)| epoch);
        if let Some(known) =
            known.filter(|known| newest_epoch.is_none_or(|newest_epoch| newest_epoch < *known))
        {
            let newest_epoch = newest_epoch.unwrap_or(0);
            self.fault(
                FaultKind::Cut,
                0,
                seq,
                format!("the trail has {newest_epoch} seals, but {known} were made"),
            );
        }
        self.report.unsealed = self.unsealed;
    }

    fn check_removals(&mut self) {
        if self.removed > 0 {
            self.report.notes.push(format!(
                "segments up to {} were removed by retention; their seals are valid",
                self.removed
            ));
        }
        if self.removed > self.recorded_removal && self.report.faults.is_empty() {
            let description = match self.recorded_removal {
                0 => format!(
                    "segments up to {} are missing, but no record says that retention removed any",
                    self.removed
                ),
                recorded => {
                    format!(
                        "segments up to {} are missing, but records say that retention removed only those up to {recorded}",
                        self.removed
                    )
                }
            };
            self.segment = self.removed;
            self.fault(FaultKind::Removed, 0, 1, description);
        }
    }

    fn check_external_checkpoints(&mut self) -> Option<u64> {
        let mut known: Option<u64> = None;
        for (index, checkpoint) in self.trust.checkpoints.iter().enumerate() {
            if let Some(trail) = self.report.trail.filter(|trail| *trail != checkpoint.trail) {
                let description = format!(
                    "the checkpoint belongs to another trail: {}, and this is {}",
                    Id(checkpoint.trail),
                    Id(trail)
                );
                self.fault(FaultKind::Forged, 0, self.next_seq.unwrap_or(1), description);
                continue;
            }
            let wanted = checkpoint.epoch + 1;
            let (next, has_end) = self.key.map_or((0, false), |(epoch, _)| (epoch, true));
            if !self.found_checkpoints[index] && has_end && next > checkpoint.epoch {
                self.report.faults.push(Fault {
                    kind: FaultKind::Rewritten,
                    segment: checkpoint.segment,
                    offset: 0,
                    seq: checkpoint.next_seq,
                    description: format!(
                        "seal {} of the trail differs from the given checkpoint",
                        checkpoint.epoch
                    ),
                });
            } else {
                known = known.max(Some(wanted));
            }
        }
        known
    }
}

struct Id([u8; 16]);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn is_inaccessible(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

pub(super) fn administrative(body: &[u8]) -> Option<(u16, String)> {
    if class_of(body)? != Class::Administrative as u8 {
        return None;
    }
    let mut scratch = Vec::new();
    let record = Record::decode(body, &mut scratch).ok()?;
    Some((record.operation, String::from_utf8_lossy(record.detail).into_owned()))
}

pub(super) fn recorded_removal(detail: &str) -> Option<u64> {
    detail.strip_prefix(PRUNED_PREFIX)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
