//! DELEGRETURN, DELEGPURGE and GET_DIR_DELEGATION (RFC 8881 §18.6, 18.5 and 18.39).

use vouch_nfs4::op::{
    DelegpurgeArgs, DelegreturnArgs, GetDirDelegationOk, GetDirDelegationReply, Results,
};
use vouch_nfs4::{Bitmap, Stateid, Status, Verifier};

use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::directory::require_directory;
use crate::files::file_ref::{FileRef, Object};
use crate::files::open_file::held_by;
use crate::files::open_handle::Held;
use crate::state::DirectoryCall;

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

/// §18.39.3, and as nfsd: a refusal is no error, because the client's GETATTR follows in the same
/// COMPOUND. Notifications are never granted: Linux answers CB_NOTIFY with NOTSUPP.
pub(crate) fn get_dir_delegation(context: &mut CompoundContext<'_>) -> OpResult {
    let stateid = match context.current_object()? {
        Object::File(directory) => {
            require_directory(context, &directory)?;
            grant(context, &directory)?
        }
        Object::Pseudo(_) => None,
    };
    let reply = match stateid {
        Some(stateid) => GetDirDelegationReply::Granted(GetDirDelegationOk {
            cookie_verifier: Verifier([0; 8]),
            stateid,
            notifications: Bitmap::EMPTY,
            child_attrs: Bitmap::EMPTY,
            dir_attrs: Bitmap::EMPTY,
        }),
        None => GetDirDelegationReply::Unavailable(false),
    };
    Results::GetDirDelegation(Ok(reply)).encode(context.out);
    Ok(())
}

fn grant(
    context: &mut CompoundContext<'_>,
    directory: &FileRef,
) -> Result<Option<Stateid>, OpError> {
    let (key, now) = (directory.key(), context.now.mono_ms);
    let Some(client) = context.client_of_session() else { return Ok(None) };
    if !directory.grant.site.export.delegations
        || !context.state(|state| state.may_delegate_directory(client, &key, now))
    {
        return Ok(None);
    }
    // Before the grant, so that no change is missed.
    let listener = context.server.local_changes().listener(key);
    let Ok(watch) = directory.files().watch_directory(&directory.id, listener) else {
        return Ok(None);
    };
    let watch = held_by(Held::Directory(watch), context, directory);
    let (terms, opener) = (context.terms(), context.proven());
    let call = DirectoryCall { client, directory: key, terms, opener: opener.as_ref() };
    Ok(context.granting(directory, |state| Ok(state.delegate_directory(&call, watch, now)))?)
}
