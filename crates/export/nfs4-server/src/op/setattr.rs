//! SETATTR (RFC 8881 §18.30).

use vouch_nfs4::attr::Attr;
use vouch_nfs4::op::{Results, SetattrArgs, SetattrFailure, SetattrOk};
use vouch_nfs4::{Stateid, Status};
use vouch_vfs::{Attributes, FileType, SetTime};

use crate::OpenHandle;
use crate::attributes::{Settings, settings};
use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::creation::set_acls_and_label;
use crate::files::delegation_conflict;
use crate::files::file_ref::{FileRef, Object};
use crate::files::open_file::{self, IoPurpose};
use crate::files::open_handle::OpenState;

pub(crate) fn setattr(context: &mut CompoundContext<'_>, args: &SetattrArgs<'_>) -> OpResult {
    let file = context.current_file(Status::ROFS)?;
    let attributes = file.files().attributes(&file.id, context.blocking)?;
    let supported = context.supported(&Object::File(file.clone()));
    let mut settings = settings(
        &args.attrs,
        supported,
        attributes.file_type == FileType::Directory,
        false,
        &context.owners(),
    )?;
    context.details.new_owner = (settings.set.uid, settings.set.gid);
    if attributes.file_type == FileType::Symlink && settings.set.mode.is_some() {
        // Linux ignores the mode of a symbolic link.
        (settings.set.mode, settings.set.mode_mask) = (None, None);
        settings.mask = settings.mask.without(Attr::MODE.0).without(Attr::MODE_SET_MASKED.0);
    }
    file.writable()?;
    if let Some(size) = settings.set.size {
        crate::files::open_file::may_free(context, attributes.size.saturating_sub(size))?;
    }
    let open = match settings.set.size {
        Some(_) => Some(open_for_size(context, &file, attributes.file_type, &args.stateid)?),
        None => None,
    };
    // §10.4.
    delegation_conflict::recall_for_setattr(context, &file, settings.set.size.is_some())?;
    take_times(context, &file, &args.stateid, &attributes, &mut settings)?;
    if !settings.set.is_empty() {
        file.files().set_attributes(
            &file.grant.caller,
            &file.id,
            open.as_deref().map(OpenState::file),
            &settings.set,
        )?;
    }
    if let Err(stop) = set_acls_and_label(&file, &settings) {
        // All but ACL and label was set (§18.30.3).
        let OpError::Status(status) = stop else { return Err(stop) };
        let attrs_set = settings.mask.minus(crate::attributes::ACL).without(Attr::SEC_LABEL.0);
        Results::Setattr(Err(SetattrFailure { status, attrs_set })).encode(context.out);
        return Err(OpError::Encoded(status));
    }
    context.must_sync(&file.grant, &[file.id]);
    Results::Setattr(Ok(SetattrOk { attrs_set: settings.mask })).encode(context.out);
    Ok(())
}

/// Times from the holder of a delegation (RFC 9754 §5), unless not later than the file's.
fn take_times(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    stateid: &Stateid,
    now: &Attributes,
    settings: &mut Settings,
) -> Result<(), OpError> {
    let (accessed, modified) = settings.kept;
    if accessed.is_none() && modified.is_none() {
        return Ok(());
    }
    let stateid = context.substituted(stateid)?;
    let (client, key, at, wall) =
        (context.client_of_session(), file.key(), context.now.mono_ms, context.now.wall);
    context.state(|state| {
        state.check_times_delegation(client, &stateid, &key, modified.is_some(), at)
    })?;
    let later = |known, reported: Option<vouch_nfs4::Time>| {
        reported
            .map(|reported| delegation_conflict::newest(known, reported, wall))
            .filter(|&time| time > known)
            .map(SetTime::To)
    };
    settings.set.accessed = settings.set.accessed.or(later(now.accessed, accessed));
    settings.set.modified = settings.set.modified.or(later(now.modified, modified));
    Ok(())
}

/// §18.30.3.
fn open_for_size(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    kind: FileType,
    stateid: &Stateid,
) -> Result<OpenHandle, OpError> {
    match kind {
        FileType::Regular => open_file::open_for(context, file, stateid, IoPurpose::Resize),
        FileType::Directory => Err(Status::ISDIR.into()),
        _ => Err(Status::INVAL.into()),
    }
}
