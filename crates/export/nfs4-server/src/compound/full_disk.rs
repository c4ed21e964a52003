use vouch_nfs4::Status;
use vouch_vfs::Blocking;

use super::context::CompoundContext;
use crate::error::{OpError, OpResult};

/// Where the disk is full or a quota is reached, removed files that clients with expired leases hold
/// open give their space back, and the operation runs again.
pub(crate) fn retry_with_freed_space(
    context: &mut CompoundContext<'_>,
    run: impl Fn(&mut CompoundContext<'_>) -> OpResult,
) -> OpResult {
    let outcome = run(context);
    let (server, now) = (context.server, context.now);
    let Err(OpError::Status(Status::NOSPC | Status::DQUOT)) = outcome else { return outcome };
    let object = context.current.object.as_ref();
    let Some(file) = object.and_then(|object| object.file()) else { return outcome };
    let system = file.key().system();
    if !server.may_free_removed_files(now) {
        return outcome;
    }
    if context.blocking == Blocking::Forbidden {
        return Err(OpError::WouldBlock);
    }
    if !server.free_removed_files(system, now, &mut context.call.effects) {
        return outcome;
    }
    context.call.space.truncate(context.out, context.call.result.at);
    let is_tracked = context.details.is_tracked;
    context.call.forget_details();
    context.call.details.is_tracked = is_tracked;
    run(context)
}
