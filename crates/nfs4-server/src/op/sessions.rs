//! CREATE_SESSION, DESTROY_SESSION, BIND_CONN_TO_SESSION, BACKCHANNEL_CTL, DESTROY_CLIENTID and
//! RECLAIM_COMPLETE (RFC 8881, sections 18.33, 18.34, 18.36, 18.37, 18.50 and 18.51): all of it is
//! state.

use vouch_nfs4::op::{
    BackchannelCtlArgs, BindConnArgs, CreateSessionArgs, DestroyClientidArgs, DestroySessionArgs, ReclaimCompleteArgs, Results,
};
use vouch_nfs4::{Bytes, CallbackSec, List, SEC_PARMS_MAX, Status};

use crate::state::Credential;
use crate::stop::Outcome;
use crate::walk::Walk;

/// Calls `$act` with the state, the connection, the credential and the time.
macro_rules! in_state {
    ($walk:ident, |$state:ident, $connection:ident, $credential:ident, $now:ident| $act:expr) => {{
        let ($now, $connection) = ($walk.now.mono_ms, $walk.connection.id());
        let (principal, flavour) = ($walk.principal.clone(), $walk.flavour);
        let $credential = Credential { principal: &principal, flavour, address: $walk.connection.peer().ip() };
        $walk.state(|$state| $act)
    }};
}

pub(crate) fn create_session(walk: &mut Walk<'_>, args: &CreateSessionArgs<'_>) -> Outcome {
    let minor = walk.minor;
    let args = CreateSessionArgs { sec_parms: struck_out(walk, &args.sec_parms), ..args.clone() };
    let ok = in_state!(walk, |state, connection, credential, now| {
        let made = state.create_session(&args, connection, credential, now)?;
        state.session_speaks(&made.session, minor);
        Ok::<_, Status>(made)
    })?;
    Results::CreateSession(Ok(ok)).encode(walk.out);
    Ok(())
}

/// The client's offers, where a context that it may not use has lost our name of it, without which
/// it can't be met.
fn struck_out<'a>(walk: &Walk<'_>, offers: &List<CallbackSec<'a>, SEC_PARMS_MAX>) -> List<CallbackSec<'a>, SEC_PARMS_MAX> {
    let mut offers = offers.clone();
    for offer in &mut offers.0 {
        if let CallbackSec::Gss(handles) = offer
            && !walk.server.calls_back_by(handles.from_server.0, &walk.principal)
        {
            handles.from_server = Bytes(b"");
        }
    }
    offers
}

pub(crate) fn destroy_session(walk: &mut Walk<'_>, args: &DestroySessionArgs) -> Outcome {
    // RFC 8881, section 18.37.3: a session that ends itself does so last.
    if walk.turn().is_ok_and(|turn| turn.ok.session == args.session) && walk.rest.next().is_some() {
        return Err(Status::NOT_ONLY_OP.into());
    }
    in_state!(walk, |state, connection, credential, _now| state.destroy_session(&args.session, connection, credential))?;
    Results::DestroySession(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn bind_conn(walk: &mut Walk<'_>, args: &BindConnArgs) -> Outcome {
    let ok = in_state!(walk, |state, connection, credential, _now| state.bind_connection(args, connection, credential))?;
    Results::BindConnToSession(Ok(ok)).encode(walk.out);
    Ok(())
}

pub(crate) fn backchannel_ctl(walk: &mut Walk<'_>, args: &BackchannelCtlArgs<'_>) -> Outcome {
    let turn = walk.turn()?;
    let args = BackchannelCtlArgs { sec_parms: struck_out(walk, &args.sec_parms), ..args.clone() };
    in_state!(walk, |state, _connection, credential, _now| state.backchannel_ctl(&turn, &args, credential))?;
    Results::BackchannelCtl(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn destroy_clientid(walk: &mut Walk<'_>, args: &DestroyClientidArgs) -> Outcome {
    in_state!(walk, |state, _connection, credential, _now| state.destroy_client(args.client, credential))?;
    Results::DestroyClientid(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn reclaim_complete(walk: &mut Walk<'_>, args: &ReclaimCompleteArgs) -> Outcome {
    let turn = walk.turn()?;
    if args.one_fs {
        walk.current_object()?;
    }
    in_state!(walk, |state, _connection, _credential, _now| state.reclaim_complete(turn.client, args.one_fs))?;
    Results::ReclaimComplete(Ok(())).encode(walk.out);
    Ok(())
}
