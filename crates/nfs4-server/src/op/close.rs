//! CLOSE (RFC 8881, section 18.2).

use vouch_nfs4::Status;
use vouch_nfs4::op::{CloseArgs, CloseOk, Results};

use super::owner_call::{by_state, in_turn};
use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn close(walk: &mut Walk<'_>, args: &CloseArgs) -> Outcome {
    let file = walk.current_file(Status::BAD_STATEID)?;
    let stateid = walk.substituted(&args.stateid)?;
    let now = walk.now.mono_ms;
    let turn = by_state(walk, stateid, args.seq);
    in_turn(walk, turn, |walk| {
        let client = walk.client_of_session();
        let held = if walk.tracks { walk.state(|state| state.open_file(client, &stateid, &file.key(), now)) } else { None };
        let stateid = walk.state(|state| state.close(client, &stateid, &file.key(), now))?;
        walk.totals = held.map(|held| held.tally().take(now));
        walk.result_stateid(stateid);
        Results::Close(Ok(CloseOk { stateid })).encode(walk.out);
        Ok(())
    })
}
