//! OFFLOAD_STATUS and OFFLOAD_CANCEL (RFC 7862 §15.9 and 15.8).

use vouch_nfs4::Status;
use vouch_nfs4::op::{OffloadCancelArgs, OffloadStatusArgs, OffloadStatusOk, Results};

use crate::compound::context::CompoundContext;
use crate::error::OpResult;

pub(crate) fn status(context: &mut CompoundContext<'_>, args: &OffloadStatusArgs) -> OpResult {
    let file = context.current_file(Status::BAD_STATEID)?;
    let (client, now) = (context.turn()?.client, context.now.mono_ms);
    let progress =
        context.state(|state| state.copy_status(client, &args.stateid, &file.key(), now))?;
    Results::OffloadStatus(Ok(OffloadStatusOk { count: progress.copied, complete: progress.end }))
        .encode(context.out);
    Ok(())
}

pub(crate) fn cancel(context: &mut CompoundContext<'_>, args: &OffloadCancelArgs) -> OpResult {
    let file = context.current_file(Status::BAD_STATEID)?;
    let (client, now) = (context.turn()?.client, context.now.mono_ms);
    context.state(|state| state.copy_cancel(client, &args.stateid, &file.key(), now))?;
    Results::OffloadCancel(Ok(())).encode(context.out);
    Ok(())
}
