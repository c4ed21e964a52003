//! EXCHANGE_ID (RFC 8881, section 18.35).

use vouch_nfs4::op::{ExchangeIdArgs, ExchangeIdFlags, ExchangeIdOk, ImplId, Results};
use vouch_nfs4::{Bytes, ServerOwner, StateProtectReply, Status, Time};

use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn exchange_id(walk: &mut Walk<'_>, args: &ExchangeIdArgs<'_>) -> Outcome {
    // RFC 7862, section 14.1: the flag came with 4.2; before, a bit that is not defined is INVAL (RFC 8881, section 18.35.3).
    if walk.minor < 2 && args.flags.contains(ExchangeIdFlags::SUPP_FENCE_OPS) {
        return Err(Status::INVAL.into());
    }
    let now = walk.now.mono_ms;
    let (principal, flavour) = (walk.principal.clone(), walk.flavour);
    let credential = crate::state::Credential { principal: &principal, flavour };
    let introduced = walk.state(|state| state.exchange_id(args, credential, now))?;
    let config = walk.server.config();
    let impl_id = config.implementation.as_ref().map(|(domain, name)| ImplId {
        domain: Bytes(domain.as_bytes()),
        name: Bytes(name.as_bytes()),
        date: Time::default(),
    });
    let ok = ExchangeIdOk {
        client: introduced.client,
        seq: introduced.seq,
        // RFC 8881, section 18.35.3: exactly one of the three kinds of server.
        flags: ExchangeIdFlags(introduced.flags.0 & !ExchangeIdFlags::MASK_PNFS.0) | ExchangeIdFlags::USE_NON_PNFS,
        state_protect: introduced.machine.map_or(StateProtectReply::None, StateProtectReply::MachineCred),
        server_owner: ServerOwner { minor: 0, major: Bytes(&config.server_owner) },
        server_scope: Bytes(&config.server_owner),
        impl_id,
    };
    Results::ExchangeId(Ok(ok)).encode(walk.out);
    Ok(())
}
