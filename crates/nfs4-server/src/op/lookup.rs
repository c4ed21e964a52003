//! LOOKUP and LOOKUPP (RFC 8881, sections 18.13 and 18.14).

use vouch_nfs4::op::{LookupArgs, Results};
use vouch_nfs4::{Name, Status};
use vouch_vfs::{Error, FileType};

use crate::stop::{Outcome, Stop};
use crate::tree::Child;
use crate::walk::{FileRef, Object, Walk};

pub(crate) fn lookup(walk: &mut Walk<'_>, args: &LookupArgs<'_>) -> Outcome {
    walk.current_any()?;
    let found = find(walk, args.name)?;
    // RFC 8881, section 2.6.3.1.1.3: the flavour is judged by what was found.
    if matches!(&found, Object::File(file) if !file.grant.flavour_fits) {
        return Err(Status::WRONGSEC.into());
    }
    walk.set_current(found);
    Results::Lookup(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn lookupp(walk: &mut Walk<'_>) -> Outcome {
    let found = above(walk)?;
    if matches!(&found, Object::File(file) if !file.grant.flavour_fits) {
        return Err(Status::WRONGSEC.into());
    }
    walk.set_current(found);
    Results::Lookupp(Ok(())).encode(walk.out);
    Ok(())
}

/// What a name in the current directory leads to, whatever the flavour.
pub(crate) fn find(walk: &Walk<'_>, name: Name<'_>) -> Result<Object, Stop> {
    match walk.current_any()? {
        Object::Pseudo(id) => {
            let name = name.component()?;
            let node = walk.tree.node(*id).ok_or(Status::STALE)?;
            let place = node.child(name.as_bytes()).ok_or(Status::NOENT)?;
            let Some(child) = walk.seen(place) else {
                if let Some(id) = place.export() {
                    walk.tell_denied(id, false);
                }
                return Err(Status::NOENT.into());
            };
            enter(walk, child)
        }
        Object::File(directory) => {
            let component = match super::name(name) {
                Ok(component) => component,
                Err(status) => return Err(name_status(walk, directory, status)),
            };
            if let Some(place) = walk.tree.junction(directory.grant.site.export.id, &directory.id, component.as_bytes()) {
                match walk.seen(place) {
                    Some(child) => return enter(walk, child),
                    // Not what the export covers, as long as it may be for this client.
                    None if walk.is_undecided() => return Err(Status::DELAY.into()),
                    None => {}
                }
            }
            // The flavour is judged by what is found, which is of the directory's export: no name is looked up
            // for who may not be told of it.
            if !directory.grant.flavour_fits {
                return Ok(Object::File(directory.clone()));
            }
            let found = directory.files().lookup(&directory.grant.caller, &directory.id, component, walk.patience);
            let (id, _) = found.map_err(|error| directory_error(walk, directory, error))?;
            Ok(Object::File(directory.with(id)))
        }
    }
}

fn enter(walk: &Walk<'_>, child: Child) -> Result<Object, Stop> {
    match child {
        Child::Node(id) => Ok(Object::Pseudo(id)),
        Child::Export(id) => walk.object(walk.tree.site(id).ok_or(Status::NOENT)?.handle()),
    }
}

/// The directory above the current one, whatever the flavour.
pub(crate) fn above(walk: &Walk<'_>) -> Result<Object, Stop> {
    // RFC 8881, section 18.14.3: there is nothing above the root.
    let above = |id| walk.tree.above(id, walk.connection.peer()).ok_or(Status::NOENT);
    match walk.current_any()? {
        Object::Pseudo(id) => {
            walk.tree.node(*id).ok_or(Status::STALE)?;
            walk.object(above(*id)?)
        }
        Object::File(file) if file.id == file.grant.site.root => walk.object(above(file.grant.site.place)?),
        Object::File(file) if !file.grant.flavour_fits => Ok(Object::File(file.clone())),
        Object::File(file) => {
            let parent = file.files().parent(&file.grant.caller, &file.id, walk.patience);
            let id = parent.map_err(|error| directory_error(walk, file, error))?;
            Ok(Object::File(file.with(id)))
        }
    }
}

/// RFC 8881, section 15.1.2.8: an operation on a directory that meets a symbolic link says SYMLINK.
pub(crate) fn directory_error(walk: &Walk<'_>, file: &FileRef, error: Error) -> Stop {
    if !matches!(error, Error::NotDirectory) {
        return error.into();
    }
    match file.files().attributes(&file.id, walk.patience) {
        Ok(attributes) if attributes.file_type == FileType::Symlink => Status::SYMLINK.into(),
        Err(Error::WouldBlock) => Stop::Blocked,
        _ => error.into(),
    }
}

/// A bad name in what is no directory: the directory is judged first.
fn name_status(walk: &Walk<'_>, directory: &FileRef, status: Status) -> Stop {
    match directory.files().attributes(&directory.id, walk.patience) {
        Ok(attributes) => walk.require_directory(&attributes).err().unwrap_or(status).into(),
        Err(Error::WouldBlock) => Stop::Blocked,
        Err(_) => status.into(),
    }
}
