//! TEST_STATEID and FREE_STATEID (RFC 8881, sections 18.48 and 18.38).

use vouch_nfs4::List;
use vouch_nfs4::op::{FreeStateidArgs, Results, TestStateidArgs, TestStateidOk};

use crate::stop::Outcome;
use crate::walk::Walk;

/// Stateids that are tested under one hold of the lock of all state.
const TESTS_AT_ONCE: usize = 512;

pub(crate) fn test(walk: &mut Walk<'_>, args: &TestStateidArgs) -> Outcome {
    let client = walk.turn()?.client;
    // As many as a call may carry are some milliseconds' work: others have their turn in between.
    let mut statuses = Vec::with_capacity(args.stateids.len());
    for part in args.stateids.chunks(TESTS_AT_ONCE) {
        walk.state(|state| statuses.extend(part.iter().map(|stateid| state.test_stateid(client, stateid))));
    }
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
