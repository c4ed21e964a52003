//! EXCHANGE_ID (RFC 8881 §18.35).

use vouch_nfs4::op::{ExchangeIdArgs, ExchangeIdFlags, ExchangeIdOk, ImplId, Results};
use vouch_nfs4::{Bytes, ServerOwner, StateProtect, StateProtectReply, Status, Time};

use crate::access::machine_credential::WRITES;
use crate::compound::context::CompoundContext;
use crate::error::OpResult;

pub(crate) fn exchange_id(
    context: &mut CompoundContext<'_>,
    args: &ExchangeIdArgs<'_>,
) -> OpResult {
    // RFC 7862 §14.1: a flag of 4.2.
    if context.origin.minor < 2 && args.flags.contains(ExchangeIdFlags::SUPP_FENCE_OPS) {
        return Err(Status::INVAL.into());
    }
    let mut args = args.clone();
    if let StateProtect::MachineCred(ops) = &mut args.state_protect
        && !machine_writes(context)
    {
        ops.must_allow = ops.must_allow.minus(WRITES);
    }
    let now = context.now.mono_ms;
    let (principal, connection) =
        (context.origin.principal.clone(), context.origin.connection.clone());
    let credential = crate::state::Credential::new(&principal, context.origin.flavour, &connection);
    let exchanged = context.state(|state| {
        let exchanged = state.exchange_id(&args, credential, now)?;
        state.note_connection(exchanged.client, connection.id());
        Ok::<_, Status>(exchanged)
    })?;
    let config = context.server.config();
    let impl_id = config.implementation.as_ref().map(|(domain, name)| ImplId {
        domain: Bytes(domain.as_bytes()),
        name: Bytes(name.as_bytes()),
        date: Time::default(),
    });
    let ok = ExchangeIdOk {
        client: exchanged.client,
        seq: exchanged.seq,
        flags: ExchangeIdFlags(exchanged.flags.0 & !ExchangeIdFlags::MASK_PNFS.0)
            | server_roles(context),
        state_protect: exchanged
            .machine
            .map_or(StateProtectReply::None, StateProtectReply::MachineCred),
        server_owner: ServerOwner { minor: 0, major: Bytes(&config.server_owner) },
        server_scope: Bytes(&config.server_scope),
        impl_id,
    };
    Results::ExchangeId(Ok(ok)).encode(context.out);
    Ok(())
}

/// Section 18.35.3: a server with layouts is also a data server of other heads.
fn server_roles(context: &CompoundContext<'_>) -> ExchangeIdFlags {
    match context.tree.has_layouts() {
        true => ExchangeIdFlags::USE_PNFS_MDS | ExchangeIdFlags::USE_PNFS_DS,
        false => ExchangeIdFlags::USE_NON_PNFS,
    }
}

fn machine_writes(context: &CompoundContext<'_>) -> bool {
    let peer = context.origin.connection.peer();
    context.tree.sites().any(|site| {
        site.export
            .clients
            .access_for(peer)
            .is_some_and(|access| access.flavours.iter().any(|under| under.machine_writes))
    })
}
