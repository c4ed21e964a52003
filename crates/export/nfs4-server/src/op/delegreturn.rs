//! DELEGRETURN, DELEGPURGE and GET_DIR_DELEGATION (RFC 8881 §18.6, 18.5 and 18.39).

use vouch_nfs4::Status;
use vouch_nfs4::op::{DelegpurgeArgs, DelegreturnArgs, GetDirDelegationReply, Results};

use crate::compound::context::CompoundContext;
use crate::error::OpResult;

pub(crate) fn delegreturn(context: &mut CompoundContext<'_>, args: &DelegreturnArgs) -> OpResult {
    let file = context.current_file(Status::BAD_STATEID)?;
    let stateid = context.substituted(&args.stateid)?;
    let (client, now) = (context.client_of_session(), context.now.mono_ms);
    if context.origin.minor == 0 {
        let caller = context.proven();
        context.state(|state| state.authorize_v40_stateid(&stateid, caller.as_ref(), now))?;
    }
    let held = if context.details.is_tracked {
        context.state(|state| state.open_file(client, &stateid, &file.key(), now))
    } else {
        None
    };
    context.state(|state| state.return_delegation(client, &stateid, &file.key(), now))?;
    context.details.totals = held.map(|held| held.usage().take(now));
    Results::Delegreturn(Ok(())).encode(context.out);
    Ok(())
}

/// §18.5.3: NOTSUPP without CLAIM_DELEGATE_PREV.
pub(crate) fn delegpurge(context: &mut CompoundContext<'_>, _: &DelegpurgeArgs) -> OpResult {
    Err(context.state(|state| state.purge_delegations()).into())
}

/// §18.39.3: no directory delegations.
pub(crate) fn get_dir_delegation(context: &mut CompoundContext<'_>) -> OpResult {
    context.current_object()?;
    Results::GetDirDelegation(Ok(GetDirDelegationReply::Unavailable(false))).encode(context.out);
    Ok(())
}
