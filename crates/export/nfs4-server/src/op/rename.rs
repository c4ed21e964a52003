//! RENAME (RFC 8881 §18.26).

use vouch_nfs4::op::{RenameArgs, RenameOk, Results};
use vouch_nfs4::{ChangeId, ChangeInfo, Status};
use vouch_vfs::{Attributes, Error, FileId, FilesToRename};

use crate::compound::context::{CompoundContext, change_info};
use crate::error::{OpError, OpResult};
use crate::files::delegation_conflict::{self, RETRIES_OF_NAMES};
use crate::files::file_ref::FileRef;
use crate::observer::interface::NameChange;
use crate::observer::name_order::Turn;

pub(crate) fn rename(context: &mut CompoundContext<'_>, args: &RenameArgs<'_>) -> OpResult {
    rename_found(context, args, RETRIES_OF_NAMES)
}

fn rename_found(
    context: &mut CompoundContext<'_>,
    args: &RenameArgs<'_>,
    retries: u32,
) -> OpResult {
    let from = context.saved_file(Status::ROFS)?;
    let to = context.current_file(Status::ROFS)?;
    crate::files::directory::require_directory(context, &from)?;
    crate::files::directory::require_directory(context, &to)?;
    let (old, new) =
        (crate::files::directory::name(args.old)?, crate::files::directory::name(args.new)?);
    if !from.same_export(&to) {
        return Err(Status::XDEV.into());
    }
    from.writable()?;
    crate::files::directory::require_no_junction(context, &from, old)?;
    crate::files::directory::require_no_junction(context, &to, new)?;
    let caller = &to.grant.caller;
    let (moved, _) = from.files().lookup(caller, &from.id, old, context.blocking)?;
    let replaced = match to.files().lookup(caller, &to.id, new, context.blocking) {
        Ok(found) => Some(found),
        Err(Error::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    // Two names of one file (§18.26.3).
    if replaced.as_ref().is_some_and(|(id, _)| *id == moved) {
        let (source, target) = (unchanged(context, &from)?, unchanged(context, &to)?);
        Results::Rename(Ok(RenameOk { source, target })).encode(context.out);
        return Ok(());
    }
    delegation_conflict::recall_for_names(context, &from)?;
    delegation_conflict::recall_for_names(context, &to)?;
    recall_before_rename(context, &from.with(moved), &to, replaced.as_ref())?;
    let expected = FilesToRename { moved, replaced: replaced.as_ref().map(|(id, _)| *id) };
    let renamed = context.change_names(
        &to,
        Turn::Exclusive,
        || to.files().rename(caller, &from.id, old, &to.id, new, Some(&expected)),
        |_| NameChange::Renamed(&moved, (&from.id, args.old.0), (&to.id, args.new.0)),
    );
    // Other files at the names by now may have delegations, and are looked up again.
    if retries > 0 && matches!(renamed, Err(Error::NameChanged)) {
        return rename_found(context, args, retries - 1);
    }
    let renamed = renamed.map_err(|error| match error {
        // §18.26.3.
        Error::NotDirectory | Error::IsDirectory | Error::NotEmpty => {
            OpError::Status(Status::EXIST)
        }
        error => error.into(),
    })?;
    if let Some(id) = renamed.replaced {
        let replaced = to.with(id).key();
        context.server.forget_anonymous(&replaced);
        context.state(|state| state.end_delegations_of_removed(&replaced));
    }
    context.must_sync(&to.grant, &[from.id, to.id]);
    Results::Rename(Ok(RenameOk {
        source: change_info(renamed.from),
        target: change_info(renamed.to),
    }))
    .encode(context.out);
    Ok(())
}

/// §10.4.
fn recall_before_rename(
    context: &mut CompoundContext<'_>,
    moved: &FileRef,
    to: &FileRef,
    replaced: Option<&(FileId, Attributes)>,
) -> Result<(), OpError> {
    if let Some((_, attributes)) = replaced
        && attributes.links == 1
    {
        crate::files::open_file::may_free(context, attributes.size)?;
    }
    delegation_conflict::recall_for_change(context, moved)?;
    if let Some((id, _)) = replaced {
        delegation_conflict::recall_for_change(context, &to.with(*id))?;
    }
    Ok(())
}

fn unchanged(context: &CompoundContext<'_>, directory: &FileRef) -> Result<ChangeInfo, OpError> {
    let change = ChangeId(directory.files().attributes(&directory.id, context.blocking)?.change);
    Ok(ChangeInfo { atomic: true, before: change, after: change })
}
