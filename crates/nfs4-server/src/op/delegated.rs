//! What delegations of others mean for an operation: they are recalled, or their holder is asked (RFC 8881, sections 10.4.2 to 10.4.4).

use vouch_nfs4::Bitmap;
use vouch_nfs4::attr::Attr;
use vouch_vfs::Attributes;

use crate::state::Touch;
use crate::stop::Stop;
use crate::walk::{FileRef, Walk};

/// What the holder of a write delegation may have changed without telling yet.
const HELD: Bitmap = Bitmap::of(&[Attr::CHANGE.0, Attr::SIZE.0]);

/// Before a name of the file is made, changed or removed.
pub(crate) fn recall_for_change(walk: &mut Walk<'_>, file: &FileRef) -> Result<(), Stop> {
    touch(walk, file, Touch::Name)
}

/// Before attributes are set.
pub(crate) fn recall_for_setattr(walk: &mut Walk<'_>, file: &FileRef, size: bool) -> Result<(), Stop> {
    touch(walk, file, if size { Touch::Change } else { Touch::Attributes })
}

fn touch(walk: &mut Walk<'_>, file: &FileRef, touch: Touch) -> Result<(), Stop> {
    let (client, key, now) = (walk.client_of_session(), file.key(), walk.now.mono_ms);
    Ok(walk.state(|state| state.touch(&key, client, touch, now))?)
}

/// Section 10.4.3: size and change of a file under a write delegation are asked of its holder.
pub(crate) fn ask_holder(walk: &mut Walk<'_>, file: &FileRef, wanted: Bitmap, attributes: &mut Attributes) -> Result<(), Stop> {
    if wanted.and(HELD).is_empty() || attributes.file_type != vouch_vfs::FileType::Regular || !walk.server.delegates() {
        return Ok(());
    }
    let (client, key, now) = (walk.client_of_session(), file.key(), walk.now.mono_ms);
    if let Some(told) = walk.state(|state| state.delegated_attributes(&key, client, now))? {
        attributes.size = told.size;
        // The holder counts its own changes from what it was given: a value that differs from ours says that there were some.
        attributes.change = attributes.change.max(told.change);
    }
    Ok(())
}
