use std::sync::atomic::Ordering;

use vouch_vfs::Error;

use super::file_ref::FileRef;
use crate::ExportId;
use crate::compound::context::CompoundContext;
use crate::observer::interface::NameChange;
use crate::observer::name_order::Turn;

impl CompoundContext<'_> {
    pub(crate) fn name_changes(&self, export: ExportId) -> Option<u64> {
        self.server.observer().name_order(export).map(|order| order.changes.load(Ordering::SeqCst))
    }

    pub(crate) fn change_names<'n, T>(
        &mut self,
        directory: &FileRef,
        turn: Turn,
        make: impl FnOnce() -> vouch_vfs::Result<T>,
        change: impl FnOnce(&T, u64) -> NameChange<'n>,
    ) -> vouch_vfs::Result<T> {
        let export = &directory.grant.site.export;
        let observer = self.server.observer();
        let Some(order) = observer.name_order(export.id) else { return make() };
        let _turn = order.take(turn, self.blocking).ok_or(Error::WouldBlock)?;
        let made = make()?;
        let before = order.changes.fetch_add(1, Ordering::SeqCst);
        self.call.details.paths =
            observer.name_changed(export, self.call.result.op, &change(&made, before));
        Ok(made)
    }
}
