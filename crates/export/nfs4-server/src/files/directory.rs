use vouch_nfs4::{Name, Status};
use vouch_vfs::{Error, FileType};

use crate::compound::context::CompoundContext;
use crate::error::OpError;
use crate::files::file_ref::{FileRef, Object};
use crate::pseudo_fs::Child;

pub(crate) fn find(context: &CompoundContext<'_>, name: Name<'_>) -> Result<Object, OpError> {
    match context.current_any()? {
        Object::Pseudo(id) => {
            let name = name.component()?;
            let node = context.tree.node(*id).ok_or(Status::STALE)?;
            let place = node.child(name.as_bytes()).ok_or(Status::NOENT)?;
            let Some(child) = context.visible_child(place) else {
                if let Some(id) = place.export() {
                    context.report_denied(id, Status::STALE);
                }
                return Err(Status::NOENT.into());
            };
            enter(context, child)
        }
        // RFC 8881 §11.3.
        Object::File(directory) if directory.is_absent() => Err(Status::MOVED.into()),
        Object::File(directory) => {
            let component = match self::name(name) {
                Ok(component) => component,
                Err(status) => return Err(name_status(context, directory, status)),
            };
            if let Some(place) = context.tree.junction(
                directory.grant.site.export.id,
                &directory.id,
                component.as_bytes(),
            ) {
                match context.visible_child(place) {
                    Some(child) => return enter(context, child),
                    // The covered file must stay hidden while the export may still become visible.
                    None if context.is_undecided() => return Err(Status::DELAY.into()),
                    None => {}
                }
            }
            // The flavour of the found file counts. A caller with a wrong flavour looks up nothing.
            if !directory.grant.security_fits {
                return Ok(Object::File(directory.clone()));
            }
            let found = directory.files().lookup(
                &directory.grant.caller,
                &directory.id,
                component,
                context.blocking,
            );
            let (id, _) = found.map_err(|error| directory_error(context, directory, error))?;
            Ok(Object::File(directory.with(id)))
        }
    }
}

fn enter(context: &CompoundContext<'_>, child: Child) -> Result<Object, OpError> {
    match child {
        Child::Node(id) => Ok(Object::Pseudo(id)),
        Child::Export(id) => context.object(context.tree.site(id).ok_or(Status::NOENT)?.handle()),
    }
}

pub(crate) fn parent_of(context: &CompoundContext<'_>) -> Result<Object, OpError> {
    // RFC 8881 §18.14.3: the root has no parent.
    let above =
        |id| context.tree.parent_of(id, context.origin.connection.peer()).ok_or(Status::NOENT);
    match context.current_any()? {
        Object::Pseudo(id) => {
            context.tree.node(*id).ok_or(Status::STALE)?;
            context.object(above(*id)?)
        }
        Object::File(file) if file.is_absent() => Err(Status::MOVED.into()),
        Object::File(file) if file.id == file.grant.site.root => {
            context.object(above(file.grant.site.place)?)
        }
        Object::File(file) if !file.grant.security_fits => Ok(Object::File(file.clone())),
        Object::File(file) => {
            let parent = file.files().parent(&file.grant.caller, &file.id, context.blocking);
            let id = parent.map_err(|error| directory_error(context, file, error))?;
            Ok(Object::File(file.with(id)))
        }
    }
}

/// RFC 8881 §15.1.2.8.
pub(crate) fn directory_error(
    context: &CompoundContext<'_>,
    file: &FileRef,
    error: Error,
) -> OpError {
    if !matches!(error, Error::NotDirectory) {
        return error.into();
    }
    match file.files().attributes(&file.id, context.blocking) {
        Ok(attributes) if attributes.file_type == FileType::Symlink => Status::SYMLINK.into(),
        Err(Error::WouldBlock) => OpError::WouldBlock,
        _ => error.into(),
    }
}

fn name_status(context: &CompoundContext<'_>, directory: &FileRef, status: Status) -> OpError {
    match directory.files().attributes(&directory.id, context.blocking) {
        Ok(attributes) => context.require_directory(&attributes).err().unwrap_or(status).into(),
        Err(Error::WouldBlock) => OpError::WouldBlock,
        Err(_) => status.into(),
    }
}

pub(crate) fn name(name: Name<'_>) -> Result<vouch_vfs::Name<'_>, Status> {
    let component = name.component()?;
    Ok(vouch_vfs::Name::new(component.as_bytes()).expect("a valid component is a valid name"))
}

pub(crate) fn require_directory(
    context: &CompoundContext<'_>,
    file: &FileRef,
) -> Result<(), OpError> {
    let attributes = file.files().attributes(&file.id, context.blocking)?;
    match context.require_directory(&attributes) {
        // RFC 8881 lists SYMLINK for LOOKUP and OPEN only.
        Err(_) => Err(Status::NOTDIR.into()),
        Ok(()) => Ok(()),
    }
}

pub(crate) fn require_no_junction(
    context: &CompoundContext<'_>,
    directory: &FileRef,
    name: vouch_vfs::Name<'_>,
) -> Result<(), OpError> {
    match context.tree.junction(directory.grant.site.export.id, &directory.id, name.as_bytes()) {
        Some(_) => Err(Status::FILE_OPEN.into()),
        None => Ok(()),
    }
}
