//! The order of name changes. The observer must see them at once and in order, to know where each
//! file is. The order costs nothing if the observer does not follow names.

use std::sync::atomic::AtomicU64;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use vouch_vfs::Patience;

/// Orders the name changes of one export: renames run alone, creations and removals run
/// concurrently.
#[derive(Debug, Default)]
pub struct NameOrder {
    turn: RwLock<()>,
    /// Number of changes so far.
    pub(crate) changes: AtomicU64,
}

/// Concurrency of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Alone,
    AmongOthers,
}

impl NameOrder {
    /// Takes a turn. With [`Patience::None`] it returns `None` if the turn would have to wait.
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
