//! TEST_STATEID and FREE_STATEID (RFC 8881 §18.48 and 18.38).

use vouch_nfs4::List;
use vouch_nfs4::op::{FreeStateidArgs, Results, TestStateidArgs, TestStateidOk};

use crate::compound::context::CompoundContext;
use crate::error::OpResult;

const TESTS_AT_ONCE: usize = 512;

pub(crate) fn test(context: &mut CompoundContext<'_>, args: &TestStateidArgs) -> OpResult {
    let client = context.turn()?.client;
    let mut statuses = Vec::with_capacity(args.stateids.len());
    for part in args.stateids.chunks(TESTS_AT_ONCE) {
        context.state(|state| {
            statuses.extend(part.iter().map(|stateid| state.test_stateid(client, stateid)))
        });
    }
    Results::TestStateid(Ok(TestStateidOk { statuses: List(statuses) })).encode(context.out);
    Ok(())
}

pub(crate) fn free(context: &mut CompoundContext<'_>, args: &FreeStateidArgs) -> OpResult {
    let client = context.turn()?.client;
    let stateid = context.substituted(&args.stateid)?;
    context.state(|state| state.free_stateid(client, &stateid))?;
    Results::FreeStateid(Ok(())).encode(context.out);
    Ok(())
}
