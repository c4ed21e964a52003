//! READ_PLUS (RFC 7862 §15.10): data, and holes where the file system records them.

use vouch_nfs4::Status;
use vouch_nfs4::op::{ReadPlusArgs, ReadPlusWriter};
use vouch_vfs::{Blocking, Content, Error, OpenFile, ReadInto, SeekTarget};

use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::open_file::{self, IoPurpose};
use crate::op::seek::SEARCH_LEN_LONG;

/// A file of many small holes is sent as data.
const SEGMENTS_MAX: u32 = 64;

pub(crate) fn read_plus(context: &mut CompoundContext<'_>, args: &ReadPlusArgs) -> OpResult {
    let file = context.current_file(Status::ISDIR)?;
    let open = open_file::open_for(context, &file, &args.stateid, IoPurpose::Read)?;
    let size = open.file().attributes()?.size;
    if context.blocking == Blocking::Forbidden
        && file.grant.site.traits().sparse
        && size.saturating_sub(args.offset) >= SEARCH_LEN_LONG
    {
        return Err(OpError::WouldBlock);
    }
    let len = u64::from(args.count.min(context.server.config().limits.io_len_max));
    let end = args.offset.saturating_add(len).min(size);
    let mut writer = ReadPlusWriter::begin(context.out);
    let (mut at, mut segments) = (args.offset, 0);
    while at < end && segments < SEGMENTS_MAX {
        segments += 1;
        let data_at = match file.grant.site.traits().sparse && segments < SEGMENTS_MAX {
            true => next(open.file(), at, SeekTarget::Data)?.unwrap_or(end).min(end),
            false => at,
        };
        if data_at > at {
            writer.hole(context.out, at, data_at - at);
            at = data_at;
            continue;
        }
        let hole_at = match file.grant.site.traits().sparse && segments < SEGMENTS_MAX {
            true => next(open.file(), at, SeekTarget::Hole)?.unwrap_or(end).clamp(at, end),
            false => end,
        };
        let start = writer.begin_data(context.out, at);
        let wanted = usize::try_from(hole_at - at).expect("a read is bounded by the limit of I/O");
        let into = ReadInto { bytes: context.out.bytes_mut(), span_allowed: false };
        let Content::Bytes { len, .. } = open.file().read(at, wanted, into, context.blocking)?
        else {
            unreachable!("a span was not allowed");
        };
        writer.end_data(context.out, start);
        context.details.bytes_read += len as u64;
        at += len as u64;
        if len == 0 {
            break;
        }
    }
    // §15.10.3.
    writer.finish(context.out, at >= size || args.offset >= size);
    Ok(())
}

fn next(open: &dyn OpenFile, at: u64, target: SeekTarget) -> Result<Option<u64>, OpError> {
    match open.seek(at, target) {
        Ok(offset) => Ok(Some(offset)),
        Err(Error::NoSuchRegion) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
