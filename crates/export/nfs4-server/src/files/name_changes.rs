use vouch_vfs::Error;

use super::file_ref::FileRef;
use crate::compound::context::CompoundContext;
use crate::observer::interface::NameChange;
use crate::observer::name_order::Turn;

impl CompoundContext<'_> {
    pub(crate) fn change_names<'n, T>(
        &mut self,
        directory: &FileRef,
        turn: Turn,
        make: impl FnOnce() -> vouch_vfs::Result<T>,
        change: impl FnOnce(&T) -> NameChange<'n>,
    ) -> vouch_vfs::Result<T> {
        let export = &directory.grant.site.export;
        let observer = self.server.observer();
        let Some(order) = observer.name_order(export.id) else { return make() };
        let _turn = order.take(turn, self.blocking).ok_or(Error::WouldBlock)?;
        let made = make()?;
        self.call.details.paths =
            observer.name_changed(export, self.call.result.op, &change(&made));
        Ok(made)
    }
}
