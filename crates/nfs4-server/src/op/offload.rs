//! OFFLOAD_STATUS and OFFLOAD_CANCEL (RFC 7862, sections 15.9 and 15.8).

use vouch_nfs4::Status;
use vouch_nfs4::op::{OffloadCancelArgs, OffloadStatusArgs, OffloadStatusOk, Results};

use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn status(walk: &mut Walk<'_>, args: &OffloadStatusArgs) -> Outcome {
    let file = walk.current_file(Status::BAD_STATEID)?;
    let (client, now) = (walk.turn()?.client, walk.now.mono_ms);
    let progress = walk.state(|state| state.copy_status(client, &args.stateid, &file.key(), now))?;
    Results::OffloadStatus(Ok(OffloadStatusOk { count: progress.copied, complete: progress.end })).encode(walk.out);
    Ok(())
}

pub(crate) fn cancel(walk: &mut Walk<'_>, args: &OffloadCancelArgs) -> Outcome {
    let file = walk.current_file(Status::BAD_STATEID)?;
    let (client, now) = (walk.turn()?.client, walk.now.mono_ms);
    walk.state(|state| state.copy_cancel(client, &args.stateid, &file.key(), now))?;
    Results::OffloadCancel(Ok(())).encode(walk.out);
    Ok(())
}
