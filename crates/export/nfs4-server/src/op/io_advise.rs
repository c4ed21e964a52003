//! IO_ADVISE (RFC 7862 §15.5).

use vouch_nfs4::op::{IoAdvice, IoAdviseArgs, IoAdviseOk, Results};
use vouch_nfs4::{Bitmap, Status};
use vouch_vfs::Advice;

use crate::compound::context::CompoundContext;
use crate::error::OpResult;
use crate::files::open_file::{self, IoPurpose};

pub(crate) fn io_advise(context: &mut CompoundContext<'_>, args: &IoAdviseArgs) -> OpResult {
    let file = context.current_file(Status::ISDIR)?;
    let open = open_file::open_for(context, &file, &args.stateid, IoPurpose::Any)?;
    let mut used = Bitmap::EMPTY;
    for (hint, advice) in [
        (IoAdvice::Normal, Advice::Normal),
        (IoAdvice::Sequential, Advice::Sequential),
        (IoAdvice::Random, Advice::Random),
        (IoAdvice::Willneed, Advice::WillNeed),
        (IoAdvice::Dontneed, Advice::DontNeed),
    ] {
        if args.hints.has(hint as u32) {
            open.file().advise(args.offset, args.count, advice);
            used = used.with(hint as u32);
        }
    }
    // §15.5.3.
    Results::IoAdvise(Ok(IoAdviseOk { hints: used })).encode(context.out);
    Ok(())
}
