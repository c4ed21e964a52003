//! IO_ADVISE (RFC 7862, section 15.5).

use vouch_nfs4::op::{IoAdvice, IoAdviseArgs, IoAdviseOk, Results};
use vouch_nfs4::{Bitmap, Status};
use vouch_vfs::Advice;

use crate::io::{self, Use};
use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn io_advise(walk: &mut Walk<'_>, args: &IoAdviseArgs) -> Outcome {
    let file = walk.current_file(Status::ISDIR)?;
    let open = io::open_for(walk, &file, &args.stateid, Use::Any)?;
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
    // RFC 7862, section 15.5.3: what is not made use of is left out of the answer.
    Results::IoAdvise(Ok(IoAdviseOk { hints: used })).encode(walk.out);
    Ok(())
}
