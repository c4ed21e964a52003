//! REMOVE (RFC 8881, section 18.25).

use vouch_nfs4::Status;
use vouch_nfs4::op::{RemoveArgs, RemoveOk, Results};

use super::delegated;
use crate::naming::Turn;
use crate::observer::Naming;
use crate::stop::Outcome;
use crate::walk::{Walk, change_info};

pub(crate) fn remove(walk: &mut Walk<'_>, args: &RemoveArgs<'_>) -> Outcome {
    let directory = walk.current_file(Status::ROFS)?;
    super::require_directory(walk, &directory)?;
    let name = super::name(args.name)?;
    directory.writable()?;
    super::not_a_junction(walk, &directory, name)?;
    let found = directory.files().lookup(&directory.grant.caller, &directory.id, name, walk.patience);
    let (id, attributes) = found?;
    if attributes.links == 1 {
        super::may_free(walk, attributes.size)?;
    }
    // RFC 8881, section 10.4: removing a file conflicts with any delegation of it.
    delegated::recall_for_change(walk, &directory.with(id))?;
    let (change, gone) = walk.change_names(
        &directory,
        Turn::AmongOthers,
        || directory.files().remove(&directory.grant.caller, &directory.id, name),
        |_, _| Naming::Removed(&id, (&directory.id, args.name.0)),
    )?;
    if gone.is_some() {
        walk.server.forget_anonymous(&directory.with(id).key());
    }
    walk.must_sync(&directory.grant, &[directory.id]);
    Results::Remove(Ok(RemoveOk { change: change_info(change) })).encode(walk.out);
    Ok(())
}
