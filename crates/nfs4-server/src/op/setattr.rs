//! SETATTR (RFC 8881, section 18.30).

use vouch_nfs4::attr::Attr;
use vouch_nfs4::op::{Results, SetattrArgs, SetattrFailure, SetattrOk};
use vouch_nfs4::{Stateid, Status};
use vouch_vfs::{Attributes, FileType, PosixAclKind, SetTime};

use super::delegated;
use crate::OpenHandle;
use crate::attribute::{Settings, settings};
use crate::io::{self, Held, Use};
use crate::stop::{Outcome, Stop};
use crate::walk::{FileRef, Object, Walk};

pub(crate) fn setattr(walk: &mut Walk<'_>, args: &SetattrArgs<'_>) -> Outcome {
    let file = walk.current_file(Status::ROFS)?;
    let attributes = file.files().attributes(&file.id, walk.patience)?;
    let supported = walk.supported(&Object::File(file.clone()));
    let mut settings = settings(&args.attrs, supported, attributes.file_type == FileType::Directory, false, &walk.owners())?;
    walk.new_owner = (settings.set.uid, settings.set.gid);
    if attributes.file_type == FileType::Symlink && settings.set.mode.is_some() {
        // The mode of a symbolic link means nothing to POSIX, and can't be set on Linux: it is left, and
        // not told as set.
        (settings.set.mode, settings.set.mode_mask) = (None, None);
        settings.mask = settings.mask.without(Attr::MODE.0).without(Attr::MODE_SET_MASKED.0);
    }
    file.writable()?;
    if let Some(size) = settings.set.size {
        super::may_free(walk, attributes.size.saturating_sub(size))?;
    }
    let open = match settings.set.size {
        Some(_) => Some(open_for_size(walk, &file, attributes.file_type, &args.stateid)?),
        None => None,
    };
    // RFC 8881, section 10.4: attributes are cached by those who hold delegations.
    delegated::recall_for_setattr(walk, &file, settings.set.size.is_some())?;
    take_times(walk, &file, &args.stateid, &attributes, &mut settings)?;
    if !settings.set.is_empty() {
        file.files().set_attributes(&file.grant.caller, &file.id, open.as_deref().map(Held::file), &settings.set)?;
    }
    if let Err(stop) = set_acls(&file, &settings) {
        // RFC 8881, section 18.30.3: what was set is told when the rest fails. Everything but the ACL was
        // set.
        let Stop::Status(status) = stop else { return Err(stop) };
        let attrs_set = settings.mask.minus(crate::attribute::ACL);
        Results::Setattr(Err(SetattrFailure { status, attrs_set })).encode(walk.out);
        return Err(Stop::Written(status));
    }
    walk.must_sync(&file.grant, &[file.id]);
    Results::Setattr(Ok(SetattrOk { attrs_set: settings.mask })).encode(walk.out);
    Ok(())
}

/// RFC 9754, section 5: the holder of a delegation tells the times that it kept, by its stateid.
/// Those that are no later than what the file has are passed over.
fn take_times(walk: &mut Walk<'_>, file: &FileRef, stateid: &Stateid, now: &Attributes, settings: &mut Settings) -> Result<(), Stop> {
    let (accessed, modified) = settings.kept;
    if accessed.is_none() && modified.is_none() {
        return Ok(());
    }
    let stateid = walk.substituted(stateid)?;
    let (client, key, at, wall) = (walk.client_of_session(), file.key(), walk.now.mono_ms, walk.now.wall);
    walk.state(|state| state.keeps_times(client, &stateid, &key, modified.is_some(), at))?;
    let later = |known, told: Option<vouch_nfs4::Time>| {
        told.map(|told| delegated::newest(known, told, wall)).filter(|&time| time > known).map(SetTime::To)
    };
    settings.set.accessed = settings.set.accessed.or(later(now.accessed, accessed));
    settings.set.modified = settings.set.modified.or(later(now.modified, modified));
    Ok(())
}

/// A new size is a write: the stateid must allow it (RFC 8881, section 18.30.3).
fn open_for_size(walk: &mut Walk<'_>, file: &FileRef, kind: FileType, stateid: &Stateid) -> Result<OpenHandle, Stop> {
    match kind {
        FileType::Regular => io::open_for(walk, file, stateid, Use::Write),
        FileType::Directory => Err(Status::ISDIR.into()),
        _ => Err(Status::INVAL.into()),
    }
}

/// Sets what was given of ACLs. RFC 8881, section 6.4.1.3: after the mode.
pub(crate) fn set_acls(file: &FileRef, settings: &Settings) -> Result<(), Stop> {
    let set = |kind, acl| file.files().set_acl(&file.grant.caller, &file.id, kind, acl);
    if let Some(acl) = &settings.access_acl {
        set(PosixAclKind::Access, acl)?;
    }
    if let Some(acl) = &settings.default_acl {
        set(PosixAclKind::Default, acl)?;
    }
    Ok(())
}
