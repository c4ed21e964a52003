//! READLINK (RFC 8881, section 18.24).

use vouch_nfs4::op::{LINK_TEXT_LEN_MAX, ReadlinkOk, Results};
use vouch_nfs4::{Bytes, Status};
use vouch_vfs::FileType;

use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn readlink(walk: &mut Walk<'_>) -> Outcome {
    // RFC 8881, section 18.24.3: what is no symbolic link is WRONG_TYPE; RFC 7530, section 16.24.4:
    // INVAL.
    let wrong = if walk.minor == 0 { Status::INVAL } else { Status::WRONG_TYPE };
    let file = walk.current_file(wrong)?;
    if file.files().attributes(&file.id, walk.patience)?.file_type != FileType::Symlink {
        return Err(wrong.into());
    }
    let text = file.files().read_link(&file.grant.caller, &file.id, walk.patience)?;
    if text.len() > LINK_TEXT_LEN_MAX {
        return Err(Status::NAMETOOLONG.into());
    }
    Results::Readlink(Ok(ReadlinkOk { link: Bytes(&text) })).encode(walk.out);
    Ok(())
}
