//! RFC 8881 §18.33, 18.34, 18.36, 18.37, 18.50 and 18.51.

use vouch_nfs4::op::{
    BackchannelCtlArgs, BindConnArgs, CreateSessionArgs, DestroyClientidArgs, DestroySessionArgs,
    ReclaimCompleteArgs, Results,
};
use vouch_nfs4::{Bytes, CallbackSec, List, SEC_PARMS_MAX, Status};

use crate::compound::context::CompoundContext;
use crate::error::OpResult;
use crate::state::Credential;

macro_rules! in_state {
    ($context:ident, |$state:ident, $connection:ident, $credential:ident, $now:ident| $act:expr) => {{
        let ($now, $connection) = ($context.now.mono_ms, $context.origin.connection.id());
        let (principal, connection) =
            ($context.origin.principal.clone(), $context.origin.connection.clone());
        let $credential = Credential::new(&principal, $context.origin.flavour, &connection);
        $context.state(|$state| $act)
    }};
}

pub(crate) fn create_session(
    context: &mut CompoundContext<'_>,
    args: &CreateSessionArgs<'_>,
) -> OpResult {
    let minor = context.origin.minor;
    let args = CreateSessionArgs {
        sec_parms: usable_callback_contexts(context, &args.sec_parms),
        ..args.clone()
    };
    let ok = in_state!(context, |state, connection, credential, now| {
        let made = state.create_session(&args, connection, credential, now)?;
        state.note_minor_version(&made.session, minor);
        Ok::<_, Status>(made)
    })?;
    Results::CreateSession(Ok(ok)).encode(context.out);
    Ok(())
}

fn usable_callback_contexts<'a>(
    context: &CompoundContext<'_>,
    offers: &List<CallbackSec<'a>, SEC_PARMS_MAX>,
) -> List<CallbackSec<'a>, SEC_PARMS_MAX> {
    let mut offers = offers.clone();
    for offer in &mut offers.0 {
        if let CallbackSec::Gss(handles) = offer
            && !context.server.may_call_back_with(handles.from_server.0, &context.origin.principal)
        {
            handles.from_server = Bytes(b"");
        }
    }
    offers
}

pub(crate) fn destroy_session(
    context: &mut CompoundContext<'_>,
    args: &DestroySessionArgs,
) -> OpResult {
    // A session that ends itself must do so last (§18.37.3).
    if context.turn().is_ok_and(|turn| turn.ok.session == args.session)
        && context.lookahead.next().is_some()
    {
        return Err(Status::NOT_ONLY_OP.into());
    }
    in_state!(context, |state, connection, credential, _now| state.destroy_session(
        &args.session,
        connection,
        credential
    ))?;
    Results::DestroySession(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn bind_conn(context: &mut CompoundContext<'_>, args: &BindConnArgs) -> OpResult {
    let ok = in_state!(context, |state, connection, credential, _now| state
        .bind_connection(args, connection, credential))?;
    Results::BindConnToSession(Ok(ok)).encode(context.out);
    Ok(())
}

pub(crate) fn backchannel_ctl(
    context: &mut CompoundContext<'_>,
    args: &BackchannelCtlArgs<'_>,
) -> OpResult {
    let turn = context.turn()?;
    let args = BackchannelCtlArgs {
        sec_parms: usable_callback_contexts(context, &args.sec_parms),
        ..args.clone()
    };
    in_state!(context, |state, _connection, credential, _now| state
        .backchannel_ctl(&turn, &args, credential))?;
    Results::BackchannelCtl(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn destroy_clientid(
    context: &mut CompoundContext<'_>,
    args: &DestroyClientidArgs,
) -> OpResult {
    in_state!(context, |state, _connection, credential, _now| state
        .destroy_client(args.client, credential))?;
    Results::DestroyClientid(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn reclaim_complete(
    context: &mut CompoundContext<'_>,
    args: &ReclaimCompleteArgs,
) -> OpResult {
    let turn = context.turn()?;
    if args.one_fs {
        context.current_object()?;
    }
    in_state!(context, |state, _connection, _credential, _now| state
        .reclaim_complete(turn.client, args.one_fs))?;
    Results::ReclaimComplete(Ok(())).encode(context.out);
    Ok(())
}
