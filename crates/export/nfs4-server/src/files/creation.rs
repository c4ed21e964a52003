use vouch_nfs4::Status;
use vouch_vfs::PosixAclKind;

use crate::attributes::Settings;
use crate::compound::context::CompoundContext;
use crate::error::OpError;
use crate::files::file_ref::{FileRef, Object};

/// After the mode (RFC 8881 §6.4.1.3).
pub(crate) fn set_acls_and_label(file: &FileRef, settings: &Settings) -> Result<(), OpError> {
    let set = |kind, acl| file.files().set_acl(&file.grant.caller, &file.id, kind, acl);
    if let Some(acl) = &settings.access_acl {
        set(PosixAclKind::Access, acl)?;
    }
    if let Some(acl) = &settings.default_acl {
        set(PosixAclKind::Default, acl)?;
    }
    if let Some(label) = &settings.label {
        file.files().set_label(&file.grant.caller, &file.id, label)?;
    }
    Ok(())
}

/// Removes only this file: without ACL and label it would be open to others. Returns the original
/// failure.
pub(crate) fn remove_unfinished(
    context: &CompoundContext<'_>,
    directory: &FileRef,
    name: vouch_vfs::Name<'_>,
    made: &vouch_vfs::FileId,
    why: OpError,
) -> OpError {
    if let Err(error) =
        directory.files().remove_incomplete(&directory.grant.caller, &directory.id, name, made)
    {
        let (object, source) = (
            Object::File(directory.with(*made)),
            std::io::Error::other(format!("could not be set up, nor removed: {error}")),
        );
        context.server.note_error(context.call, Some(&object), Status::IO, &source);
    }
    why
}
