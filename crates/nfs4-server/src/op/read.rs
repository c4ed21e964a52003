//! READ (RFC 8881, section 18.22).

use vouch_nfs4::Status;
use vouch_nfs4::op::{ReadArgs, ReadWriter};
use vouch_vfs::{Content, ReadInto};

use crate::io::{self, Use};
use crate::stop::Outcome;
use crate::walk::Walk;

/// From this length on data is sent as a span of the file: below, a copy costs less than the extra
/// system call.
const SPAN_LEN_MIN: usize = 16 * 1024;

pub(crate) fn read(walk: &mut Walk<'_>, args: &ReadArgs) -> Outcome {
    let file = walk.current_file(Status::ISDIR)?;
    let open = io::open_for(walk, &file, &args.stateid, Use::Read)?;
    let len = args.count.min(walk.server.config().limits.io_len_max) as usize;
    let span_allowed = walk.spans_allowed && len >= SPAN_LEN_MIN;
    let writer = ReadWriter::begin(walk.out);
    if !span_allowed {
        // With what protects the reply behind it: to grow once more for that would copy the data, and let
        // the buffer get too long to be used again.
        let behind = vouch_xdr::pad_len(len) + walk.tail_len;
        walk.out.bytes_mut().reserve(len + behind);
    }
    let content = open.file().read(args.offset, len, ReadInto { bytes: walk.out.bytes_mut(), span_allowed }, walk.patience)?;
    match content {
        Content::Bytes { len, eof } => {
            writer.finish(walk.out, eof);
            walk.bytes_read += len as u64;
        }
        Content::Span { span, eof } => {
            walk.out.truncate(writer.result_start());
            let len = span.len;
            ReadWriter::head(walk.out, eof, u32::try_from(len).expect("a read is bounded by the limit of I/O"));
            let at = walk.out.len();
            walk.out.bytes_mut().resize(at + vouch_xdr::pad_len(len), 0);
            walk.spans.push((at, span));
            walk.spans_len += len;
            walk.bytes_read += len as u64;
        }
    }
    Ok(())
}
