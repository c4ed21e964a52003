//! SEEK (RFC 7862 §15.11).

use vouch_nfs4::Status;
use vouch_nfs4::op::{DataContent, Results, SeekArgs, SeekOk};
use vouch_vfs::{Blocking, Error, SeekTarget};

use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::open_file::{self, IoPurpose};

/// A search passes over each extent, or over each page in memory, up to the end of the file.
pub(crate) const SEARCH_LEN_LONG: u64 = 256 << 20;

pub(crate) fn seek(context: &mut CompoundContext<'_>, args: &SeekArgs) -> OpResult {
    let file = context.current_file(Status::ISDIR)?;
    let open = open_file::open_for(context, &file, &args.stateid, IoPurpose::Read)?;
    let size = open.file().attributes()?.size;
    // §15.11.3.
    if args.offset >= size {
        return Err(Status::NXIO.into());
    }
    if context.blocking == Blocking::Forbidden && size - args.offset >= SEARCH_LEN_LONG {
        return Err(OpError::WouldBlock);
    }
    let target = match args.what {
        DataContent::Data => SeekTarget::Data,
        DataContent::Hole => SeekTarget::Hole,
    };
    let ok = match open.file().seek(args.offset, target) {
        Ok(offset) => SeekOk { eof: offset >= size, offset },
        // §15.11.3.
        Err(Error::NoSuchRegion) => SeekOk { eof: true, offset: size },
        Err(error) => return Err(error.into()),
    };
    Results::Seek(Ok(ok)).encode(context.out);
    Ok(())
}
