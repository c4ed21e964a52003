//! Changes of names, told to the observer as soon as they are made and in the order in which they
//! are, whenever their operations are told: who follows where files are must not take a file for
//! being where it was a moment ago, or where an earlier change has put it. Costs a look at whether
//! the observer wants that where it doesn't.

use std::sync::atomic::AtomicU64;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use vouch_vfs::Patience;

/// The order of an export's changes of names: what moves them is done and told alone, what makes
/// and removes them beside others of its kind.
#[derive(Debug, Default)]
pub struct NameOrder {
    turn: RwLock<()>,
    /// How many changes were made.
    pub(crate) changes: AtomicU64,
}

/// Beside what a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Alone,
    AmongOthers,
}

impl NameOrder {
    /// Takes a turn; without patience none if others are in the way. They may be long at it, as
    /// whoever frees a big file, or for ever on a file system that does not answer.
    pub(crate) fn take(&self, turn: Turn, patience: Patience) -> Option<Taken<'_>> {
        Some(match (turn, patience) {
            (Turn::Alone, Patience::Any) => Taken::Alone(self.turn.write()),
            (Turn::Alone, Patience::None) => Taken::Alone(self.turn.try_write()?),
            (Turn::AmongOthers, Patience::Any) => Taken::AmongOthers(self.turn.read()),
            (Turn::AmongOthers, Patience::None) => Taken::AmongOthers(self.turn.try_read()?),
        })
    }
}

/// A turn, until it is dropped.
pub(crate) enum Taken<'a> {
    Alone(#[expect(dead_code, reason = "it is held")] RwLockWriteGuard<'a, ()>),
    AmongOthers(#[expect(dead_code, reason = "it is held")] RwLockReadGuard<'a, ()>),
}
