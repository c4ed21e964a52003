//! OPEN_CONFIRM (RFC 7530 §16.18) and OPEN_DOWNGRADE (RFC 8881 §18.18).

use vouch_nfs4::Status;
use vouch_nfs4::op::{
    OpenConfirmArgs, OpenConfirmOk, OpenDowngradeArgs, OpenDowngradeOk, Results, ShareAccess,
};

use crate::compound::context::CompoundContext;
use crate::compound::owner_sequence::{in_turn, in_turn_by_stateid};
use crate::error::OpResult;
use crate::state::Share;

pub(crate) fn confirm(context: &mut CompoundContext<'_>, args: &OpenConfirmArgs) -> OpResult {
    let file = context.current_file(Status::BAD_STATEID)?;
    let now = context.now.mono_ms;
    let turn = in_turn_by_stateid(context, args.stateid, args.seq);
    in_turn(context, turn, |context| {
        let stateid = context.state(|state| state.confirm_open(&args.stateid, &file.key(), now))?;
        Results::OpenConfirm(Ok(OpenConfirmOk { stateid })).encode(context.out);
        Ok(())
    })
}

pub(crate) fn downgrade(context: &mut CompoundContext<'_>, args: &OpenDowngradeArgs) -> OpResult {
    let file = context.current_file(Status::BAD_STATEID)?;
    let stateid = context.substituted(&args.stateid)?;
    let now = context.now.mono_ms;
    let turn = in_turn_by_stateid(context, stateid, args.seq);
    in_turn(context, turn, |context| {
        // RFC 8881 §18.18.3: 4.1 ignores delegation wants here.
        if context.origin.minor == 0 && args.access.0 & !ShareAccess::BOTH.0 != 0 {
            return Err(Status::INVAL.into());
        }
        let share = Share::new(args.access, args.deny)?;
        let client = context.client_of_session();
        let stateid =
            context.state(|state| state.downgrade(client, &stateid, &file.key(), share, now))?;
        context.result_stateid(stateid);
        Results::OpenDowngrade(Ok(OpenDowngradeOk { stateid })).encode(context.out);
        Ok(())
    })
}
