//! The observer must see name changes at once and in order, to know where each file is.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use vouch_vfs::Blocking;

/// Renames run alone, creations and removals concurrently.
#[derive(Debug, Default)]
pub struct NameOrder {
    turn: RwLock<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Exclusive,
    Shared,
}

impl NameOrder {
    /// `None` if the turn would have to wait.
    pub(crate) fn take(&self, turn: Turn, blocking: Blocking) -> Option<NameOrderGuard<'_>> {
        Some(match (turn, blocking) {
            (Turn::Exclusive, Blocking::Allowed) => NameOrderGuard::Exclusive(self.turn.write()),
            (Turn::Exclusive, Blocking::Forbidden) => {
                NameOrderGuard::Exclusive(self.turn.try_write()?)
            }
            (Turn::Shared, Blocking::Allowed) => NameOrderGuard::Shared(self.turn.read()),
            (Turn::Shared, Blocking::Forbidden) => NameOrderGuard::Shared(self.turn.try_read()?),
        })
    }
}

pub(crate) enum NameOrderGuard<'a> {
    Exclusive(#[expect(dead_code, reason = "held until dropped")] RwLockWriteGuard<'a, ()>),
    Shared(#[expect(dead_code, reason = "held until dropped")] RwLockReadGuard<'a, ()>),
}
