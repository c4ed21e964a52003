//! LINK (RFC 8881, section 18.9).

use vouch_nfs4::Status;
use vouch_nfs4::op::{LinkArgs, LinkOk, Results};
use vouch_vfs::FileType;

use super::delegated;
use crate::naming::Turn;
use crate::observer::Naming;
use crate::stop::{Outcome, Stop};
use crate::walk::{Walk, change_info};

pub(crate) fn link(walk: &mut Walk<'_>, args: &LinkArgs<'_>) -> Outcome {
    let file = walk.saved_file(Status::ISDIR)?;
    let directory = walk.current_file(Status::ROFS)?;
    super::require_directory(walk, &directory)?;
    if file.files().attributes(&file.id, walk.patience)?.file_type == FileType::Directory {
        return Err(Status::ISDIR.into());
    }
    let name = super::name(args.name)?;
    if !file.same_export(&directory) {
        return Err(Status::XDEV.into());
    }
    directory.writable()?;
    super::not_a_junction(walk, &directory, name).map_err(|_| Stop::Status(Status::EXIST))?;
    // RFC 8881, section 10.4: a new link changes what a delegation's holder caches.
    delegated::recall_for_change(walk, &file)?;
    let change = walk.change_names(
        &directory,
        Turn::Alone,
        || directory.files().link(&directory.grant.caller, &file.id, &directory.id, name),
        |_, _| Naming::Linked(&file.id, (&directory.id, args.name.0)),
    )?;
    walk.must_sync(&directory.grant, &[file.id, directory.id]);
    Results::Link(Ok(LinkOk { change: change_info(change) })).encode(walk.out);
    Ok(())
}
