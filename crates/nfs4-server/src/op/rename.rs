//! RENAME (RFC 8881, section 18.26).

use vouch_nfs4::op::{RenameArgs, RenameOk, Results};
use vouch_nfs4::{ChangeId, ChangeInfo, Status};
use vouch_vfs::Error;

use super::delegated;
use crate::naming::Turn;
use crate::observer::Naming;
use crate::stop::{Outcome, Stop};
use crate::walk::{FileRef, Walk, change_info};

pub(crate) fn rename(walk: &mut Walk<'_>, args: &RenameArgs<'_>) -> Outcome {
    let from = walk.saved_file(Status::ROFS)?;
    let to = walk.current_file(Status::ROFS)?;
    super::require_directory(walk, &from)?;
    super::require_directory(walk, &to)?;
    let (old, new) = (super::name(args.old)?, super::name(args.new)?);
    if !from.same_export(&to) {
        return Err(Status::XDEV.into());
    }
    from.writable()?;
    super::not_a_junction(walk, &from, old)?;
    super::not_a_junction(walk, &to, new)?;
    let caller = &to.grant.caller;
    let changes = walk.name_changes(to.grant.site.export.id);
    let (moved, _) = from.files().lookup(caller, &from.id, old, walk.patience)?;
    let replaced = match to.files().lookup(caller, &to.id, new, walk.patience) {
        Ok(found) => Some(found),
        Err(Error::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    // RFC 8881, section 18.26.3: two names of one file, and so a name and itself: nothing is done, and
    // nothing changes.
    if replaced.as_ref().is_some_and(|(id, _)| *id == moved) {
        let (source, target) = (unchanged(walk, &from)?, unchanged(walk, &to)?);
        Results::Rename(Ok(RenameOk { source, target })).encode(walk.out);
        return Ok(());
    }
    if let Some((_, attributes)) = &replaced
        && attributes.links == 1
    {
        super::may_free(walk, attributes.size)?;
    }
    // RFC 8881, section 10.4: renaming, and being replaced, conflict with delegations.
    delegated::recall_for_change(walk, &from.with(moved))?;
    if let Some((id, _)) = replaced {
        delegated::recall_for_change(walk, &to.with(id))?;
    }
    let patience = walk.patience;
    let mut named = moved;
    let renamed = walk.change_names(
        &to,
        Turn::Alone,
        || to.files().rename(caller, &from.id, old, &to.id, new),
        |_, before| {
            // Another file may have got the old name since the look, and it is told which one has the new name.
            if changes != Some(before)
                && let Ok((found, _)) = to.files().lookup(caller, &to.id, new, patience)
            {
                named = found;
            }
            Naming::Renamed(&named, (&from.id, args.old.0), (&to.id, args.new.0))
        },
    );
    let renamed = renamed.map_err(|error| match error {
        // RFC 8881, section 18.26.3: a target of another kind, or a directory that isn't empty, is EXIST.
        Error::NotDirectory | Error::IsDirectory | Error::NotEmpty => Stop::Status(Status::EXIST),
        error => error.into(),
    })?;
    if let Some(id) = renamed.replaced {
        walk.server.forget_anonymous(&to.with(id).key());
    }
    walk.must_sync(&to.grant, &[from.id, to.id]);
    Results::Rename(Ok(RenameOk { source: change_info(renamed.from), target: change_info(renamed.to) })).encode(walk.out);
    Ok(())
}

fn unchanged(walk: &Walk<'_>, directory: &FileRef) -> Result<ChangeInfo, Stop> {
    let change = ChangeId(directory.files().attributes(&directory.id, walk.patience)?.change);
    Ok(ChangeInfo { atomic: true, before: change, after: change })
}
