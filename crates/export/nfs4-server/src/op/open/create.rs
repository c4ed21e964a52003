//! OPEN that may create the file (RFC 8881 §18.16.3).

use vouch_nfs4::attr::Attr;
use vouch_nfs4::op::CreateHow;
use vouch_nfs4::{Bitmap, ChangeId, ChangeInfo, Name, Status};
use vouch_vfs::{CreateHow as Make, Created, Error, OpenAccess};

use super::{OpenOutcome, OpenRequest, existing};
use crate::attributes::{self, Settings, settings};
use crate::compound::context::{CompoundContext, change_info};
use crate::error::OpError;
use crate::files::delegation_conflict;
use crate::files::file_ref::{FileRef, Object};
use crate::files::open_file::handle_of;
use crate::observer::interface::{NameChange, requested};
use crate::observer::name_order::Turn;
use crate::state::Opened;

/// The client sets them again (§18.16.3).
const VERIFIER_TIMES: Bitmap = Bitmap::of(&[Attr::TIME_ACCESS.0, Attr::TIME_MODIFY.0]);

pub(super) fn create(
    context: &mut CompoundContext<'_>,
    request: &OpenRequest<'_>,
    name: Name<'_>,
    how: &CreateHow<'_>,
) -> Result<(FileRef, OpenOutcome, Opened), OpError> {
    let Object::File(directory) = context.current_object()? else {
        return Err(Status::ROFS.into());
    };
    if context.origin.minor == 0 && matches!(how, CreateHow::Exclusive41(_)) {
        return Err(Status::BADXDR.into());
    }
    crate::files::directory::require_directory(context, &directory)?;
    let component = crate::files::directory::name(name)?;
    let settings = settings_for_creation(context, &directory, how)?;
    directory.writable()?;
    let now = context.now.mono_ms;
    context.state(|state| state.admits(request.client, now))?;
    if let CreateHow::Unchecked(_) = how {
        match super::by_name(context, name) {
            Ok(file) => return open_existing(context, request, &directory, file, &settings),
            Err(OpError::Status(Status::NOENT)) => {}
            Err(stop) => return Err(stop),
        }
    }
    require_room(context, request, name, now)?;
    delegation_conflict::recall_for_names(context, &directory)?;
    let make = vfs_creation(how);
    // Setting a size is a write.
    let sized = settings.set.size.is_some_and(|size| size > 0);
    let access = OpenAccess { read: request.share.reads(), write: request.share.writes() || sized };
    let mut named = directory.id;
    let created = context.change_names(
        &directory,
        Turn::Shared,
        || {
            directory.files().create(
                &directory.grant.caller,
                &directory.id,
                component,
                make,
                &settings.set,
                access,
            )
        },
        |created| {
            named = created.id;
            NameChange::Created(&named, (&directory.id, name.0))
        },
    );
    let created = created.map_err(|error| match error {
        Error::IsSymlink | Error::WrongType | Error::IsDirectory if make != Make::Unchecked => {
            OpError::Status(Status::EXIST)
        }
        error => error.into(),
    })?;
    let file = directory.with(created.id);
    if created.new {
        let new_file = NewFile { directory: &directory, name: component, settings: &settings };
        open_created(context, request, &new_file, file, created, how)
    } else {
        open_earlier(context, request, &directory, file, created, how, &settings)
    }
}

struct NewFile<'n> {
    directory: &'n FileRef,
    name: vouch_vfs::Name<'n>,
    settings: &'n Settings,
}

fn open_created(
    context: &mut CompoundContext<'_>,
    request: &OpenRequest<'_>,
    new_file: &NewFile<'_>,
    file: FileRef,
    created: Created,
    how: &CreateHow<'_>,
) -> Result<(FileRef, OpenOutcome, Opened), OpError> {
    let NewFile { directory, name, settings } = *new_file;
    let now = context.now.mono_ms;
    if let Err(stop) = crate::files::creation::set_acls_and_label(&file, settings) {
        drop(created.open);
        return Err(remove_created_file(context, directory, name, &file, settings, stop));
    }
    context.must_sync(&directory.grant, &[file.id, directory.id]);
    let call = request.call(&file, file.grant.caller.uid);
    let open = handle_of(created.open, context, &file);
    let opened = match context.granting(&file, |state| state.open(&call, open, request.share, now))
    {
        // No room, or the export changed: the new file must not stay.
        Err(
            status @ (Status::NOSPC
            | Status::RESOURCE
            | Status::STALE
            | Status::DELAY
            | Status::WRONGSEC
            | Status::ACCESS),
        ) => {
            return Err(remove_created_file(
                context,
                directory,
                name,
                &file,
                settings,
                status.into(),
            ));
        }
        opened => opened?,
    };
    let outcome = OpenOutcome {
        change: change_info(created.directory),
        attrs_set: attributes_set(how, settings),
        done: requested::CREATE,
    };
    Ok((file, outcome, opened))
}

fn open_earlier(
    context: &mut CompoundContext<'_>,
    request: &OpenRequest<'_>,
    directory: &FileRef,
    file: FileRef,
    created: Created,
    how: &CreateHow<'_>,
    settings: &Settings,
) -> Result<(FileRef, OpenOutcome, Opened), OpError> {
    let change = change_info(created.directory);
    if matches!(how, CreateHow::Unchecked(_)) {
        let truncate = settings.set.size == Some(0);
        let opened = existing(context, request, &file, truncate, None)?;
        return Ok((
            file,
            OpenOutcome { change, attrs_set: Bitmap::EMPTY, done: truncate_bit(truncate) },
            opened,
        ));
    }
    crate::files::creation::set_acls_and_label(&file, settings)?;
    let opened = existing(context, request, &file, false, Some(created.open))?;
    context.must_sync(&directory.grant, &[file.id, directory.id]);
    Ok((
        file,
        OpenOutcome { change, attrs_set: attributes_set(how, settings), done: requested::CREATE },
        opened,
    ))
}

/// Fails without room for another open file. Checked before the creation, which could not be
/// undone.
fn require_room(
    context: &mut CompoundContext<'_>,
    request: &OpenRequest<'_>,
    name: Name<'_>,
    now: u64,
) -> Result<(), OpError> {
    let Err(status) = context
        .state(|state| state.has_room_to_open(request.client, request.owner, request.opener, now))
    else {
        return Ok(());
    };
    match super::by_name(context, name) {
        Err(OpError::Status(Status::NOENT)) => Err(status.into()),
        Err(stop @ (OpError::WouldBlock | OpError::NamesWouldBlock | OpError::TurnOver)) => {
            Err(stop)
        }
        _ => Ok(()),
    }
}

const fn vfs_creation(how: &CreateHow<'_>) -> Make {
    match how {
        CreateHow::Unchecked(_) => Make::Unchecked,
        CreateHow::Guarded(_) => Make::Guarded,
        CreateHow::Exclusive(verifier) => Make::Exclusive(verifier.0),
        CreateHow::Exclusive41(both) => Make::Exclusive(both.verifier.0),
    }
}

/// Does nothing if others use the file or have written to it.
fn remove_created_file(
    context: &mut CompoundContext<'_>,
    directory: &FileRef,
    name: vouch_vfs::Name<'_>,
    file: &FileRef,
    settings: &Settings,
    why: OpError,
) -> OpError {
    let key = file.key();
    let size = settings.set.size.unwrap_or(0);
    let is_unchanged = file
        .files()
        .attributes(&file.id, context.blocking)
        .is_ok_and(|attributes| attributes.size == size);
    if !is_unchanged || context.state(|state| state.has_state(&key)) {
        return why;
    }
    crate::files::creation::remove_unfinished(context, directory, name, &file.id, why)
}

fn settings_for_creation(
    context: &CompoundContext<'_>,
    directory: &FileRef,
    how: &CreateHow<'_>,
) -> Result<Settings, OpError> {
    let supported = context.supported(&Object::File(directory.clone()));
    let read = |attrs| settings(attrs, supported, false, true, &context.owners());
    match how {
        CreateHow::Unchecked(attrs) | CreateHow::Guarded(attrs) => read(attrs),
        CreateHow::Exclusive(_) => Ok(Settings::default()),
        CreateHow::Exclusive41(both) => {
            let wanted = read(&both.attrs)?;
            // §18.16.3.
            match wanted.mask.minus(attributes::EXCLUSIVE_CREATE).is_empty() {
                true => Ok(wanted),
                false => Err(Status::INVAL.into()),
            }
        }
    }
}

fn open_existing(
    context: &mut CompoundContext<'_>,
    request: &OpenRequest<'_>,
    directory: &FileRef,
    file: FileRef,
    settings: &Settings,
) -> Result<(FileRef, OpenOutcome, Opened), OpError> {
    let truncate = settings.set.size == Some(0);
    let change = match directory.files().attributes(&directory.id, context.blocking) {
        Err(Error::WouldBlock) => return Err(OpError::WouldBlock),
        attributes => ChangeId(attributes.map_or(0, |attributes| attributes.change)),
    };
    let opened = existing(context, request, &file, truncate, None)?;
    let attrs_set = if truncate { Bitmap::of(&[Attr::SIZE.0]) } else { Bitmap::EMPTY };
    Ok((
        file,
        OpenOutcome {
            change: ChangeInfo { atomic: true, before: change, after: change },
            attrs_set,
            done: truncate_bit(truncate),
        },
        opened,
    ))
}

fn truncate_bit(truncate: bool) -> u32 {
    if truncate { requested::TRUNCATE } else { 0 }
}

fn attributes_set(how: &CreateHow<'_>, settings: &Settings) -> Bitmap {
    match how {
        CreateHow::Exclusive(_) | CreateHow::Exclusive41(_) => settings.mask.or(VERIFIER_TIMES),
        _ => settings.mask,
    }
}
