//! CLOSE (RFC 8881 §18.2).

use vouch_nfs4::Status;
use vouch_nfs4::op::{CloseArgs, CloseOk, Results};

use crate::compound::context::CompoundContext;
use crate::compound::owner_sequence::{in_turn, in_turn_by_stateid};
use crate::error::OpResult;

pub(crate) fn close(context: &mut CompoundContext<'_>, args: &CloseArgs) -> OpResult {
    let file = context.current_file(Status::BAD_STATEID)?;
    let stateid = context.substituted(&args.stateid)?;
    let now = context.now.mono_ms;
    let turn = in_turn_by_stateid(context, stateid, args.seq);
    in_turn(context, turn, |context| {
        let client = context.client_of_session();
        let held = if context.details.is_tracked {
            context.state(|state| state.open_file(client, &stateid, &file.key(), now))
        } else {
            None
        };
        let stateid = context.state(|state| state.close(client, &stateid, &file.key(), now))?;
        context.details.totals = held.map(|held| held.usage().take(now));
        context.result_stateid(stateid);
        Results::Close(Ok(CloseOk { stateid })).encode(context.out);
        Ok(())
    })
}
