//! RFC 8881 §10.4.2 to 10.4.4. READDIR of 4.0 asks no holder: a holder that lists its own directory
//! would be asked for each file.

use vouch_nfs4::attr::Attr;
use vouch_nfs4::{Bitmap, Status};
use vouch_vfs::{Access, Attributes, Blocking, Time, mutant};

use crate::attributes::View;
use crate::compound::context::CompoundContext;
use crate::error::OpError;
use crate::files::file_ref::{FileRef, Object};
use crate::server::HOLDER_WAIT_MS;
use crate::state::{AccessWithoutOpen, Holder, HolderAttributes};

/// Of a change of names that met another file than the one whose delegations were recalled. Then
/// the client gets DELAY.
pub(crate) const RETRIES_OF_NAMES: u32 = 4;

const HELD: Bitmap = Bitmap::of(&[Attr::CHANGE.0, Attr::SIZE.0]);
/// RFC 9754 §5.
const HELD_TIMES: Bitmap =
    Bitmap::of(&[Attr::TIME_ACCESS.0, Attr::TIME_METADATA.0, Attr::TIME_MODIFY.0]);

pub(crate) fn recall_for_change(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
) -> Result<(), OpError> {
    recall_for_access(context, file, AccessWithoutOpen::Name)
}

/// Before a change of the directory's names. A caller who may not change them recalls nothing.
pub(crate) fn recall_for_names(
    context: &mut CompoundContext<'_>,
    directory: &FileRef,
) -> Result<(), OpError> {
    const CHANGES: Access = Access(Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0);
    let key = directory.key();
    if context.state(|state| state.is_delegated(&key)) {
        let (caller, files) = (&directory.grant.caller, directory.files());
        let granted = files.access(caller, &directory.id, CHANGES, context.blocking)?;
        if granted.0 & CHANGES.0 == 0 {
            return Ok(());
        }
    }
    match recall_for_change(context, directory) {
        Err(_) if mutant("directory-recall-is-not-awaited") => Ok(()),
        recalled => recalled,
    }
}

pub(crate) fn recall_for_setattr(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    size: bool,
) -> Result<(), OpError> {
    recall_for_access(
        context,
        file,
        if size { AccessWithoutOpen::Change } else { AccessWithoutOpen::Attributes },
    )
}

fn recall_for_access(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    access: AccessWithoutOpen,
) -> Result<(), OpError> {
    context.wait_for_records();
    let (client, key, now) = (context.client_of_session(), file.key(), context.now.mono_ms);
    Ok(context.state(|state| state.recall_for_access(&key, client, access, now))?)
}

const QUESTIONS_MAX: usize = 64;

pub(crate) fn must_ask_holders(context: &mut CompoundContext<'_>, wanted: Bitmap) -> bool {
    let held = !wanted.and(HELD.or(HELD_TIMES)).is_empty();
    held && context.origin.minor > 0
        && context.server.delegates()
        && context.state(|state| state.totals().delegations > 0)
}

pub(crate) fn ask_holders(
    context: &mut CompoundContext<'_>,
    files: impl Iterator<Item = FileRef>,
    wanted: Bitmap,
) -> bool {
    let (client, now, times) =
        (context.client_of_session(), context.now.mono_ms, wanted.and(HELD).is_empty());
    let before = context.effects.len();
    for file in files {
        if context.effects.len() >= before + QUESTIONS_MAX {
            break;
        }
        let _ = context.state(|state| state.delegated_attributes(&file.key(), client, times, now));
    }
    context.effects.len() > before
}

/// With what the holder of a write delegation has (§10.4.3).
pub(crate) fn current_view(
    context: &mut CompoundContext<'_>,
    object: &Object,
    wanted: Bitmap,
) -> Result<View, OpError> {
    let ended = context.server.write_delegations_ended();
    let mut view = context.view(object, wanted)?;
    if let Object::File(file) = object {
        ask_holder(context, file, wanted, ended, &mut view.attributes)?;
    }
    Ok(view)
}

/// §10.4.3: size and change, and times if the holder keeps them. Waits shortly, because DELAY costs
/// the client more. `ended`: [`crate::Server::write_delegations_ended`] from before `attributes`
/// were read.
pub(crate) fn ask_holder(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    wanted: Bitmap,
    ended: u64,
    attributes: &mut Attributes,
) -> Result<(), OpError> {
    if wanted.and(HELD.or(HELD_TIMES)).is_empty()
        || attributes.file_type != vouch_vfs::FileType::Regular
        || !context.server.delegates()
    {
        return Ok(());
    }
    let (client, key, now, times) =
        (context.client_of_session(), file.key(), context.now.mono_ms, wanted.and(HELD).is_empty());
    // For a question of another call, then for this one's.
    let mut waits = 0;
    loop {
        let sent = context.effects.len();
        match context.state(|state| state.delegated_attributes(&key, client, times, now))? {
            // A holder may have written back and returned the delegation since the attributes were
            // read.
            Holder::None if waits > 0 || context.server.write_delegations_ended() != ended => {
                *attributes = file.files().attributes(&file.id, context.blocking)?;
                return Ok(());
            }
            Holder::None => return Ok(()),
            Holder::Reported(reported) => {
                let (own, change) = (attributes.change, reported.change);
                attributes.change =
                    context.state(|state| state.use_answer(&key, client, own, change));
                overlay(attributes, &reported, context.now.wall);
                return Ok(());
            }
            Holder::Pending(at) if waits == 2 || now >= at + HOLDER_WAIT_MS => {
                return Err(Status::DELAY.into());
            }
            // The question must leave before the wait.
            Holder::Pending(_)
                if context.blocking == Blocking::Forbidden || context.effects.len() > sent =>
            {
                return Err(OpError::WouldBlock);
            }
            Holder::Pending(_) => {
                context.server.await_holder(&key, client);
                waits += 1;
            }
        }
    }
}

fn overlay(attributes: &mut Attributes, reported: &HolderAttributes, wall: Time) {
    attributes.size = reported.size;
    if let Some(accessed) = reported.accessed {
        attributes.accessed = newest(attributes.accessed, accessed, wall);
    }
    if let Some(modified) = reported.modified {
        attributes.modified = newest(attributes.modified, modified, wall);
        attributes.changed = attributes.changed.max(attributes.modified);
    }
}

/// RFC 9754 §5: the holder's time counts if it is later than the server's and not in the future.
pub(crate) fn newest(known: Time, reported: vouch_nfs4::Time, wall: Time) -> Time {
    known.max(Time { seconds: reported.seconds, nanos: reported.nanoseconds }.min(wall))
}
