//! Changes of names, told to the observer in the order in which they are made.

use std::sync::atomic::Ordering;

use vouch_vfs::Error;

use super::file_ref::FileRef;
use crate::ExportId;
use crate::compound::context::CompoundContext;
use crate::observer::interface::Naming;
use crate::observer::name_order::Turn;

impl CompoundContext<'_> {
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
        self.call.named = observer.named(export, self.call.op, &naming(&made, before));
        Ok(made)
    }
}
