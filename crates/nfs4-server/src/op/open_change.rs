//! OPEN_CONFIRM (RFC 7530, section 16.18) and OPEN_DOWNGRADE (RFC 8881, section 18.18).

use vouch_nfs4::Status;
use vouch_nfs4::op::{OpenConfirmArgs, OpenConfirmOk, OpenDowngradeArgs, OpenDowngradeOk, Results, ShareAccess};

use super::owner_call::{by_state, in_turn};
use crate::state::Share;
use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn confirm(walk: &mut Walk<'_>, args: &OpenConfirmArgs) -> Outcome {
    let file = walk.current_file(Status::BAD_STATEID)?;
    let now = walk.now.mono_ms;
    let turn = by_state(walk, args.stateid, args.seq);
    in_turn(walk, turn, |walk| {
        let stateid = walk.state(|state| state.confirm_open(&args.stateid, &file.key(), now))?;
        Results::OpenConfirm(Ok(OpenConfirmOk { stateid })).encode(walk.out);
        Ok(())
    })
}

pub(crate) fn downgrade(walk: &mut Walk<'_>, args: &OpenDowngradeArgs) -> Outcome {
    let file = walk.current_file(Status::BAD_STATEID)?;
    let stateid = walk.substituted(&args.stateid)?;
    let now = walk.now.mono_ms;
    let turn = by_state(walk, stateid, args.seq);
    in_turn(walk, turn, |walk| {
        // RFC 8881, section 18.18.3: wishes about delegations have no place here; 4.1 leaves them aside.
        if walk.minor == 0 && args.access.0 & !ShareAccess::BOTH.0 != 0 {
            return Err(Status::INVAL.into());
        }
        let share = Share::new(args.access, args.deny)?;
        let client = walk.client_of_session();
        let stateid = walk.state(|state| state.downgrade(client, &stateid, &file.key(), share, now))?;
        walk.result_stateid(stateid);
        Results::OpenDowngrade(Ok(OpenDowngradeOk { stateid })).encode(walk.out);
        Ok(())
    })
}
