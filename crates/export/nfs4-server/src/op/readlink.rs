//! READLINK (RFC 8881 §18.24).

use vouch_nfs4::op::{LINK_TEXT_LEN_MAX, ReadlinkOk, Results};
use vouch_nfs4::{Bytes, Status};
use vouch_vfs::FileType;

use crate::compound::context::CompoundContext;
use crate::error::OpResult;

pub(crate) fn readlink(context: &mut CompoundContext<'_>) -> OpResult {
    // RFC 8881 §18.24.3; RFC 7530 §16.24.4.
    let wrong = if context.origin.minor == 0 { Status::INVAL } else { Status::WRONG_TYPE };
    let file = context.current_file(wrong)?;
    if file.files().attributes(&file.id, context.blocking)?.file_type != FileType::Symlink {
        return Err(wrong.into());
    }
    let text = file.files().read_link(&file.grant.caller, &file.id, context.blocking)?;
    if text.len() > LINK_TEXT_LEN_MAX {
        return Err(Status::NAMETOOLONG.into());
    }
    Results::Readlink(Ok(ReadlinkOk { link: Bytes(&text) })).encode(context.out);
    Ok(())
}
