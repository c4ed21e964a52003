//! TEST_STATEID and FREE_STATEID (RFC 8881, sections 18.48 and 18.38).

use vouch_nfs4::List;
use vouch_nfs4::op::{FreeStateidArgs, Results, TestStateidArgs, TestStateidOk};

use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn test(walk: &mut Walk<'_>, args: &TestStateidArgs) -> Outcome {
    let client = walk.turn()?.client;
    let statuses = walk.state(|state| args.stateids.iter().map(|stateid| state.test_stateid(client, stateid)).collect());
    Results::TestStateid(Ok(TestStateidOk { statuses: List(statuses) })).encode(walk.out);
    Ok(())
}

pub(crate) fn free(walk: &mut Walk<'_>, args: &FreeStateidArgs) -> Outcome {
    let client = walk.turn()?.client;
    let stateid = walk.substituted(&args.stateid)?;
    walk.state(|state| state.free_stateid(client, &stateid))?;
    Results::FreeStateid(Ok(())).encode(walk.out);
    Ok(())
}
