//! READ (RFC 8881 §18.22).

use vouch_nfs4::Status;
use vouch_nfs4::op::{ReadArgs, ReadWriter};
use vouch_vfs::{Content, ReadInto};

use crate::compound::context::CompoundContext;
use crate::error::OpResult;
use crate::files::open_file::{self, IoPurpose};

/// Longer data is sent as a span of the file. Below, a copy is cheaper than a system call.
const SPAN_LEN_MIN: usize = 16 * 1024;

pub(crate) fn read(context: &mut CompoundContext<'_>, args: &ReadArgs) -> OpResult {
    let file = context.current_file(Status::ISDIR)?;
    let open = match file.layout_change {
        Some(_) => open_file::open_for_layout(context, &file, &args.stateid)?,
        None => open_file::open_for(context, &file, &args.stateid, IoPurpose::Read)?,
    };
    let len = args.count.min(context.server.config().limits.io_len_max) as usize;
    let span_allowed = context.space.spans_allowed && len >= SPAN_LEN_MIN;
    let writer = ReadWriter::begin(context.out);
    if !span_allowed {
        let behind = vouch_xdr::pad_len(len) + context.space.tail_len;
        context.out.bytes_mut().reserve(len + behind);
    }
    let content = open.file().read(
        args.offset,
        len,
        ReadInto { bytes: context.out.bytes_mut(), span_allowed },
        context.blocking,
    )?;
    // Checked after the data was read.
    file.check_layout(context.blocking)?;
    match content {
        Content::Bytes { len, eof } => {
            writer.finish(context.out, eof);
            context.details.bytes_read += len as u64;
        }
        Content::Span { span, eof } => {
            context.out.truncate(writer.result_start());
            let len = span.len;
            ReadWriter::head(
                context.out,
                eof,
                u32::try_from(len).expect("a read is bounded by the limit of I/O"),
            );
            let at = context.out.len();
            context.out.bytes_mut().resize(at + vouch_xdr::pad_len(len), 0);
            context.space.push_span(at, span);
            context.details.bytes_read += len as u64;
        }
    }
    Ok(())
}
