//! That of the stateid, or a cached one for an anonymous stateid.

use std::sync::Arc;

use vouch_nfs4::{Stateid, Status};
use vouch_vfs::{Access, AccessOverride, Blocking, Error, OpenAccess, OpenFile};

use super::file_ref::FileRef;
use super::open_handle::{CloseQueue, FREED_LEN_LONG, Held, OpenHandle, OpenState, UsedBy};
use crate::compound::context::CompoundContext;
use crate::error::OpError;
use crate::observer::interface::Opener;
use crate::state::{Io, IoGrant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoPurpose {
    Read,
    Write,
    /// A write for which the owner needs permission too: without an open it comes from truncate(2), or
    /// from open(2) with O_RDONLY and O_TRUNC. Linux makes the same difference.
    Resize,
    Any,
}

/// Special stateids open with the caller's own rights (RFC 8881 §8.2.3).
pub(crate) fn open_for(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    stateid: &Stateid,
    purpose: IoPurpose,
) -> Result<OpenHandle, OpError> {
    let stateid = context.substituted(stateid)?;
    let io = match purpose {
        IoPurpose::Read | IoPurpose::Any => Io::Read,
        IoPurpose::Write | IoPurpose::Resize => Io::Write,
    };
    let (client, key, now) = (context.client_of_session(), file.key(), context.now.mono_ms);
    let caller = if context.origin.minor == 0 { context.proven() } else { None };
    let granted = context.state(|state| {
        if client.is_none() {
            let _ = state.authorize_v40_stateid(&stateid, caller.as_ref(), now);
        }
        match state.io(client, &stateid, &key, io, now) {
            Err(Status::OPENMODE) if purpose == IoPurpose::Any => {
                state.io(client, &stateid, &key, Io::Write, now)
            }
            granted => granted,
        }
    });
    let granted = granted.map_err(|status| match status {
        Status::BAD_STATEID | Status::DELEG_REVOKED | Status::ADMIN_REVOKED => {
            stale_or(status, file, context.blocking)
        }
        status => status.into(),
    })?;
    let delegated = matches!(granted, IoGrant::Delegated(_));
    match granted {
        IoGrant::Open(held) | IoGrant::Delegated(held) => {
            // A stateid proves no rights: callers other than the opener need their own (RFC 8881
            // §8.2.4 and 18.32.3).
            let opener = held.is_by(&file.grant.caller);
            let by = match (opener, delegated) {
                (false, _) => UsedBy::Another,
                (true, true) => UsedBy::Delegation,
                (true, false) => UsedBy::Opener,
            };
            // Before the check of rights: a refused attempt is recorded too.
            match purpose {
                IoPurpose::Read if context.details.is_tracked => {
                    context.used[0] = Some((held.clone(), by))
                }
                IoPurpose::Write | IoPurpose::Resize if context.details.is_tracked => {
                    context.used[1] = Some((held.clone(), by))
                }
                _ => {}
            }
            if by == UsedBy::Another && !context.is_machine_for(&file.grant) {
                rights(context, file, purpose)?;
            }
            Ok(held)
        }
        IoGrant::Anonymous => {
            context.wait_for_records();
            if purpose == IoPurpose::Resize {
                rights(context, file, purpose)?;
            }
            anonymous(context, file, purpose)
        }
    }
}

/// After a change of the export or the end of a snapshot, STALE says more than the state's status.
fn stale_or(status: Status, file: &FileRef, blocking: Blocking) -> OpError {
    match file.files().attributes(&file.id, blocking) {
        Err(Error::Stale) => Status::STALE.into(),
        Err(Error::WouldBlock) => OpError::WouldBlock,
        _ => status.into(),
    }
}

/// A read of a data server. The metadata server of the layout has the opens and share reservations;
/// the layout has the anonymous stateid (RFC 8435, section 5.1).
pub(crate) fn open_for_layout(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    stateid: &Stateid,
) -> Result<OpenHandle, OpError> {
    if *stateid != Stateid::ANONYMOUS {
        return Err(Status::BAD_STATEID.into());
    }
    anonymous(context, file, IoPurpose::Read)
}

/// The owner may always write, as in Linux (RFC 8881, section 18.3.4).
pub(crate) fn open_to_commit(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
) -> Result<OpenHandle, OpError> {
    let (key, caller) = (file.key(), &file.grant.caller);
    let client = context.client_of_session();
    if let Some(own) =
        context.state(|state| state.open_to_write(client, &key, |held| held.is_by(caller)))
    {
        return Ok(own);
    }
    let is_machine = context.is_machine_for(&file.grant);
    match context.state(|state| state.any_open(&key)) {
        Some(open) if is_machine => Ok(open),
        Some(open) => {
            if caller.uid != open.file().attributes()?.uid {
                rights(context, file, IoPurpose::Write)?;
            }
            Ok(open)
        }
        None => anonymous(context, file, IoPurpose::Write),
    }
}

fn rights(
    context: &CompoundContext<'_>,
    file: &FileRef,
    purpose: IoPurpose,
) -> Result<(), OpError> {
    let wanted = match purpose {
        // As in Linux, an executable file may be read.
        IoPurpose::Read | IoPurpose::Any => Access::READ | Access::EXECUTE,
        IoPurpose::Write | IoPurpose::Resize => Access::MODIFY,
    };
    let has = file.files().access(&file.grant.caller, &file.id, wanted, context.blocking)?;
    if (has & wanted) == Access::default() { Err(Status::ACCESS.into()) } else { Ok(()) }
}

fn anonymous(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    purpose: IoPurpose,
) -> Result<OpenHandle, OpError> {
    let access = match purpose {
        IoPurpose::Read | IoPurpose::Any => OpenAccess { read: true, write: false },
        IoPurpose::Write | IoPurpose::Resize => OpenAccess { read: false, write: true },
    };
    let (key, caller) = (file.key(), &file.grant.caller);
    if let Some(open) = context.server.anonymous().get(&key, caller, access, context.now.mono_ms) {
        return Ok(open);
    }
    let opened = file
        .files()
        .open(caller, &file.id, access, AccessOverride::Owner, context.blocking)
        .map_err(|error| wrong_type(context.origin.minor, error))?;
    let open = Arc::new(OpenState::new(
        Held::File(opened),
        caller,
        context.origin.connection.peer().ip(),
        context.now.mono_ms,
        None,
    ));
    let replaced = context.server.anonymous().put(
        key,
        caller.clone(),
        access,
        open.clone(),
        context.now.mono_ms,
    );
    let mut releases = CloseQueue::default();
    replaced.into_iter().for_each(|open| releases.add(open, &mut context.call.effects));
    releases.end(&mut context.call.effects);
    if context.server.tree().generation != context.tree.generation {
        context.server.anonymous().forget_exports(&[key.export]);
    }
    Ok(open)
}

/// RFC 8881 §18.22.3. RFC 7530 has INVAL for links and special files.
pub(crate) fn wrong_type(minor: u32, error: Error) -> OpError {
    match error {
        Error::IsSymlink | Error::WrongType if minor == 0 => Status::INVAL.into(),
        Error::IsSymlink => Status::SYMLINK.into(),
        error => error.into(),
    }
}

/// Freeing blocks of a long file must not delay other calls.
pub(crate) fn may_free(context: &CompoundContext<'_>, len: u64) -> Result<(), OpError> {
    if context.blocking == Blocking::Forbidden && len >= FREED_LEN_LONG {
        Err(OpError::WouldBlock)
    } else {
        Ok(())
    }
}

pub(crate) fn handle_of(
    open: Arc<dyn OpenFile>,
    context: &CompoundContext<'_>,
    file: &FileRef,
) -> OpenHandle {
    held_by(Held::File(open), context, file)
}

pub(crate) fn held_by(open: Held, context: &CompoundContext<'_>, file: &FileRef) -> OpenHandle {
    let by = &context.origin;
    let opener = || Opener {
        connection: by.connection.id(),
        peer: by.connection.peer(),
        principal: by.principal.clone(),
        flavour: by.flavour,
        enctype: by.enctype,
        minor: by.minor,
    };
    let origin = context.details.is_tracked.then(|| (opener(), file.clone()));
    Arc::new(OpenState::new(
        open,
        &file.grant.caller,
        context.origin.connection.peer().ip(),
        context.now.mono_ms,
        origin,
    ))
}
