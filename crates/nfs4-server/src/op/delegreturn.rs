//! DELEGRETURN, DELEGPURGE and GET_DIR_DELEGATION (RFC 8881, sections 18.6, 18.5 and 18.39).

use vouch_nfs4::Status;
use vouch_nfs4::op::{DelegpurgeArgs, DelegreturnArgs, GetDirDelegationReply, Results};

use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn delegreturn(walk: &mut Walk<'_>, args: &DelegreturnArgs) -> Outcome {
    let file = walk.current_file(Status::BAD_STATEID)?;
    let stateid = walk.substituted(&args.stateid)?;
    let (client, now) = (walk.client_of_session(), walk.now.mono_ms);
    if walk.minor == 0 {
        let caller = walk.proven();
        walk.state(|state| state.heard_by(&stateid, caller.as_ref(), now))?;
    }
    let held = if walk.tracks { walk.state(|state| state.open_file(client, &stateid, &file.key(), now)) } else { None };
    walk.state(|state| state.return_delegation(client, &stateid, &file.key(), now))?;
    walk.totals = held.map(|held| held.tally().take(now));
    Results::Delegreturn(Ok(())).encode(walk.out);
    Ok(())
}

/// Delegations end with their client's life here, so there is nothing to purge (RFC 8881, section
/// 18.5.3: NOTSUPP where CLAIM_DELEGATE_PREV is not supported).
pub(crate) fn delegpurge(walk: &mut Walk<'_>, _: &DelegpurgeArgs) -> Outcome {
    Err(walk.state(|state| state.purge_delegations()).into())
}

/// RFC 8881, section 18.39.3: a server that has no delegations of directories says that there is
/// none now and that it won't tell.
pub(crate) fn get_dir_delegation(walk: &mut Walk<'_>) -> Outcome {
    walk.current_object()?;
    Results::GetDirDelegation(Ok(GetDirDelegationReply::Unavailable(false))).encode(walk.out);
    Ok(())
}
