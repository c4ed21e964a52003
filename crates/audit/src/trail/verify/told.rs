//! What says how far a trail must go and what was removed from it: the small files beside it, and records of the writer's own.

use std::io;
use std::path::{Path, PathBuf};

use crate::Record;
use crate::record::{Class, class_of};
use crate::seal::Seal;
use crate::trail::files::{self, CHECKPOINT, KEY};
use crate::trail::prune::PRUNED;

/// What is known of a trail from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The trail's first public key, as `keygen` printed it.
    pub public: Option<[u8; 32]>,
    /// Seals that were copied out of the server's reach: the trail must hold them.
    pub checkpoints: Vec<Seal>,
    /// The key's file, if it lies elsewhere than in the trail.
    pub key: Option<PathBuf>,
}

/// What lies beside a trail and says how far it must go.
pub(super) struct Ends {
    pub(super) checkpoint: io::Result<Seal>,
    pub(super) key: io::Result<u64>,
    pub(super) key_path: PathBuf,
}

impl Ends {
    pub(super) fn of(directory: &Path, trust: &Trust) -> Ends {
        let key_path = trust.key.clone().unwrap_or_else(|| directory.join(KEY));
        // A step that was not made when the program died is one less: the seal is there, and more than is wanted.
        let key = files::read_key(&key_path).map(|key| key.epoch());
        Ends { checkpoint: files::read_checkpoint(&directory.join(CHECKPOINT)), key, key_path }
    }
}

/// Act and detail of an administrative record; most are none.
pub(super) fn administrative(body: &[u8]) -> Option<(u16, String)> {
    if class_of(body)? != Class::Administrative as u8 {
        return None;
    }
    let mut scratch = Vec::new();
    let record = Record::decode(body, &mut scratch).ok()?;
    Some((record.operation, String::from_utf8_lossy(record.detail).into_owned()))
}

/// The last segment that a record of retention names.
pub(super) fn told_removed(detail: &str) -> Option<u64> {
    detail.strip_prefix(PRUNED)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
