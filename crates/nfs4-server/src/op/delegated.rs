//! What delegations of others mean for an operation: they are recalled, or their holder is asked
//! (RFC 8881, sections 10.4.2 to 10.4.4).
//!
//! READDIR of 4.0 asks nobody: that version does not tell who calls, and a holder that lists its
//! own directory would be asked for each of its files.

use vouch_nfs4::attr::Attr;
use vouch_nfs4::{Bitmap, Status};
use vouch_vfs::{Attributes, Patience, Time};

use crate::server::HOLDER_WAIT_MS;
use crate::state::{Holder, HolderAttributes, Touch};
use crate::stop::Stop;
use crate::walk::{FileRef, Walk};

/// What the holder of a write delegation may have changed without telling yet.
const HELD: Bitmap = Bitmap::of(&[Attr::CHANGE.0, Attr::SIZE.0]);
/// What else, if it keeps the file's times (RFC 9754, section 5).
const HELD_TIMES: Bitmap = Bitmap::of(&[Attr::TIME_ACCESS.0, Attr::TIME_METADATA.0, Attr::TIME_MODIFY.0]);

/// Before a name of the file is made, changed or removed.
pub(crate) fn recall_for_change(walk: &mut Walk<'_>, file: &FileRef) -> Result<(), Stop> {
    touch(walk, file, Touch::Name)
}

/// Before attributes are set.
pub(crate) fn recall_for_setattr(walk: &mut Walk<'_>, file: &FileRef, size: bool) -> Result<(), Stop> {
    touch(walk, file, if size { Touch::Change } else { Touch::Attributes })
}

fn touch(walk: &mut Walk<'_>, file: &FileRef, touch: Touch) -> Result<(), Stop> {
    walk.tell();
    let (client, key, now) = (walk.client_of_session(), file.key(), walk.now.mono_ms);
    Ok(walk.state(|state| state.touch(&key, client, touch, now))?)
}

/// Questions of one listing that are under way at once.
const QUESTIONS_MAX: usize = 64;

/// Whether a listing with these attributes has to ask holders about its entries.
pub(crate) fn asks_for_entries(walk: &mut Walk<'_>, wanted: Bitmap) -> bool {
    let held = !wanted.and(HELD.or(HELD_TIMES)).is_empty();
    held && walk.minor > 0 && walk.server.delegates() && walk.state(|state| state.totals().delegations > 0)
}

/// Asks the holders of all these files at once; each answer is then waited for by [`ask_holder`].
/// Whether there are new questions, which must leave before that.
pub(crate) fn ask_holders(walk: &mut Walk<'_>, files: impl Iterator<Item = FileRef>, wanted: Bitmap) -> bool {
    let (client, now, times) = (walk.client_of_session(), walk.now.mono_ms, wanted.and(HELD).is_empty());
    let before = walk.effects.len();
    for file in files {
        if walk.effects.len() >= before + QUESTIONS_MAX {
            break;
        }
        // What has come of it is found when the file's turn comes.
        let _ = walk.state(|state| state.delegated_attributes(&file.key(), client, times, now));
    }
    walk.effects.len() > before
}

/// Section 10.4.3: size and change of a file under a write delegation are asked of its holder, and
/// times where it keeps them. The answer is waited for a little: DELAY costs the client more.
pub(crate) fn ask_holder(walk: &mut Walk<'_>, file: &FileRef, wanted: Bitmap, attributes: &mut Attributes) -> Result<(), Stop> {
    if wanted.and(HELD.or(HELD_TIMES)).is_empty() || attributes.file_type != vouch_vfs::FileType::Regular || !walk.server.delegates() {
        return Ok(());
    }
    let (client, key, now, times) = (walk.client_of_session(), file.key(), walk.now.mono_ms, wanted.and(HELD).is_empty());
    let mut waited = false;
    loop {
        let sent = walk.effects.len();
        match walk.state(|state| state.delegated_attributes(&key, client, times, now))? {
            Holder::None => return Ok(()),
            Holder::Told(told) => {
                overlay(attributes, &told, walk.now.wall);
                return Ok(());
            }
            Holder::Asked(at) if waited || now >= at + HOLDER_WAIT_MS => return Err(Status::DELAY.into()),
            // The question leaves before the answer is waited for.
            Holder::Asked(_) if walk.patience == Patience::None || walk.effects.len() > sent => return Err(Stop::Blocked),
            Holder::Asked(_) => {
                walk.server.await_holder(&key, client);
                waited = true;
            }
        }
    }
}

fn overlay(attributes: &mut Attributes, told: &HolderAttributes, wall: Time) {
    attributes.size = told.size;
    // The holder counts its own changes from what it was given: a value that differs from ours says
    // that there were some.
    attributes.change = attributes.change.max(told.change);
    if let Some(accessed) = told.accessed {
        attributes.accessed = newest(attributes.accessed, accessed, wall);
    }
    if let Some(modified) = told.modified {
        attributes.modified = newest(attributes.modified, modified, wall);
        attributes.changed = attributes.changed.max(attributes.modified);
    }
}

/// RFC 9754, section 5: a holder's time counts if it is later than what the server knows, and never
/// as later than now.
pub(crate) fn newest(known: Time, told: vouch_nfs4::Time, wall: Time) -> Time {
    known.max(Time { seconds: told.seconds, nanos: told.nanoseconds }.min(wall))
}
