//! Changes of names, told to the observer as soon as they are made and in the order in which they
//! are, whenever their operations are told: who follows where files are must not take a file for
//! being where it was a moment ago, or where an earlier change has put it. Costs a look at whether
//! the observer wants that where it doesn't.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use vouch_vfs::{Error, Patience};

use crate::ExportId;
use crate::observer::Naming;
use crate::walk::{FileRef, Walk};

/// The order of an export's changes of names: what moves them is done and told alone, what makes
/// and removes them beside others of its kind.
#[derive(Debug, Default)]
pub struct NameOrder {
    turn: RwLock<()>,
    /// How many changes were made.
    changes: AtomicU64,
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
    fn take(&self, turn: Turn, patience: Patience) -> Option<Taken<'_>> {
        Some(match (turn, patience) {
            (Turn::Alone, Patience::Any) => Taken::Alone(self.turn.write()),
            (Turn::Alone, Patience::None) => Taken::Alone(self.turn.try_write()?),
            (Turn::AmongOthers, Patience::Any) => Taken::AmongOthers(self.turn.read()),
            (Turn::AmongOthers, Patience::None) => Taken::AmongOthers(self.turn.try_read()?),
        })
    }
}

/// A turn, until it is dropped.
enum Taken<'a> {
    Alone(#[expect(dead_code, reason = "it is held")] RwLockWriteGuard<'a, ()>),
    AmongOthers(#[expect(dead_code, reason = "it is held")] RwLockReadGuard<'a, ()>),
}

impl Walk<'_> {
    /// How many changes of names were made in an export, if that is known.
    pub(crate) fn name_changes(&self, export: ExportId) -> Option<u64> {
        self.server.observer().name_order(export).map(|order| order.changes.load(Ordering::SeqCst))
    }

    /// Makes a change of names and tells it; [`Error::WouldBlock`] before anything is made where
    /// its turn has to be waited for and the walk has no patience. `naming`: what was
    /// changed, when so many changes had been made before.
    pub(crate) fn change_names<'n, T>(
        &mut self,
        directory: &FileRef,
        turn: Turn,
        make: impl FnOnce() -> vouch_vfs::Result<T>,
        naming: impl FnOnce(&T, u64) -> Naming<'n>,
    ) -> vouch_vfs::Result<T> {
        let export = &directory.grant.site.export;
        let observer = self.server.observer();
        let Some(order) = observer.name_order(export.id) else { return make() };
        let _turn = order.take(turn, self.patience).ok_or(Error::WouldBlock)?;
        let made = make()?;
        let before = order.changes.fetch_add(1, Ordering::SeqCst);
        self.core.named = observer.named(export, self.core.op, &naming(&made, before));
        Ok(made)
    }
}
