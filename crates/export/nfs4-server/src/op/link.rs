//! LINK (RFC 8881 §18.9).

use vouch_nfs4::Status;
use vouch_nfs4::op::{LinkArgs, LinkOk, Results};
use vouch_vfs::FileType;

use crate::compound::context::{CompoundContext, change_info};
use crate::error::{OpError, OpResult};
use crate::files::delegation_conflict;
use crate::observer::interface::NameChange;
use crate::observer::name_order::Turn;

pub(crate) fn link(context: &mut CompoundContext<'_>, args: &LinkArgs<'_>) -> OpResult {
    let file = context.saved_file(Status::ISDIR)?;
    let directory = context.current_file(Status::ROFS)?;
    crate::files::directory::require_directory(context, &directory)?;
    if file.files().attributes(&file.id, context.blocking)?.file_type == FileType::Directory {
        return Err(Status::ISDIR.into());
    }
    let name = crate::files::directory::name(args.name)?;
    if !file.same_export(&directory) {
        return Err(Status::XDEV.into());
    }
    directory.writable()?;
    crate::files::directory::require_no_junction(context, &directory, name)
        .map_err(|_| OpError::Status(Status::EXIST))?;
    delegation_conflict::recall_for_names(context, &directory)?;
    // §10.4: delegation holders cache the link count.
    delegation_conflict::recall_for_change(context, &file)?;
    let change = context.change_names(
        &directory,
        Turn::Exclusive,
        || directory.files().link(&directory.grant.caller, &file.id, &directory.id, name),
        |_| NameChange::Linked(&file.id, (&directory.id, args.name.0)),
    )?;
    context.must_sync(&directory.grant, &[file.id, directory.id]);
    Results::Link(Ok(LinkOk { change: change_info(change) })).encode(context.out);
    Ok(())
}
