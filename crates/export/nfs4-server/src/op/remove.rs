//! REMOVE (RFC 8881 §18.25).

use vouch_nfs4::op::{RemoveArgs, RemoveOk, Results};
use vouch_nfs4::{ChangeId, ChangeInfo, Status};

use vouch_vfs::{Error, FileType, mutant};

use crate::compound::context::{CompoundContext, change_info};
use crate::error::OpResult;
use crate::files::delegation_conflict::{self, RETRIES_OF_NAMES};
use crate::observer::interface::NameChange;
use crate::observer::name_order::Turn;

pub(crate) fn remove(context: &mut CompoundContext<'_>, args: &RemoveArgs<'_>) -> OpResult {
    remove_found(context, args, RETRIES_OF_NAMES)
}

fn remove_found(
    context: &mut CompoundContext<'_>,
    args: &RemoveArgs<'_>,
    retries: u32,
) -> OpResult {
    let directory = context.current_file(Status::ROFS)?;
    crate::files::directory::require_directory(context, &directory)?;
    let name = crate::files::directory::name(args.name)?;
    directory.writable()?;
    crate::files::directory::require_no_junction(context, &directory, name)?;
    let found =
        directory.files().lookup(&directory.grant.caller, &directory.id, name, context.blocking);
    if mutant("remove-of-missing-name-succeeds") && found.is_err() {
        let change = ChangeInfo { atomic: false, before: ChangeId(0), after: ChangeId(1) };
        Results::Remove(Ok(RemoveOk { change })).encode(context.out);
        return Ok(());
    }
    let (id, attributes) = found?;
    if attributes.links == 1 {
        crate::files::open_file::may_free(context, attributes.size)?;
    }
    delegation_conflict::recall_for_names(context, &directory)?;
    // §10.4.
    delegation_conflict::recall_for_change(context, &directory.with(id))?;
    // Another file at the name by now may have delegations, and is looked up again.
    let removed = context.change_names(
        &directory,
        Turn::Shared,
        || directory.files().remove(&directory.grant.caller, &directory.id, name, Some(&id)),
        |_| NameChange::Removed(&id, (&directory.id, args.name.0)),
    );
    if retries > 0 && matches!(removed, Err(Error::NameChanged)) {
        return remove_found(context, args, retries - 1);
    }
    let (change, gone) = removed?;
    if gone.is_some() {
        let removed = directory.with(id).key();
        context.server.forget_anonymous(&removed);
        if attributes.file_type == FileType::Directory {
            context.state(|state| state.end_delegations_of_removed(&removed));
        }
    }
    context.must_sync(&directory.grant, &[directory.id]);
    Results::Remove(Ok(RemoveOk { change: change_info(change) })).encode(context.out);
    Ok(())
}
