//! SETCLIENTID, SETCLIENTID_CONFIRM and RENEW (RFC 7530 §16.33, 16.34 and 16.29).

use std::net::{IpAddr, SocketAddr};

use vouch_nfs4::op::{
    RenewArgs, Results, SetclientidArgs, SetclientidConfirmArgs, SetclientidFailure, SetclientidOk,
};
use vouch_nfs4::{Bytes, NetAddr, Status};

use crate::Transport;
use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::state::{Callback40, Credential, SetClientError};

pub(crate) fn setclientid(
    context: &mut CompoundContext<'_>,
    args: &SetclientidArgs<'_>,
) -> OpResult {
    let location = &args.callback.location;
    let callback = Callback40 {
        // Such callbacks would need proof or TLS, which are not supported: these clients get no
        // delegations (§3.3.3).
        address: if context.origin.flavour.is_proven()
            || context.origin.connection.transport() > Transport::Clear
        {
            None
        } else {
            address(location, context.origin.connection.peer().ip())
        },
        netid: location.netid.0.into(),
        universal_address: location.address.0.into(),
        program: args.callback.program,
        ident: args.callback_ident,
    };
    let now = context.now.mono_ms;
    let (principal, connection) =
        (context.origin.principal.clone(), context.origin.connection.clone());
    let credential = Credential::new(&principal, context.origin.flavour, &connection);
    match context.state(|state| state.set_client_id(&args.client, callback, credential, now)) {
        Ok((client, confirm)) => {
            Results::Setclientid(Ok(SetclientidOk { client, confirm })).encode(context.out);
            Ok(())
        }
        Err(SetClientError::InUse(other)) => {
            let address =
                NetAddr { netid: Bytes(&other.netid), address: Bytes(&other.universal_address) };
            Results::Setclientid(Err(SetclientidFailure::InUse(address))).encode(context.out);
            Err(OpError::Encoded(Status::CLID_INUSE))
        }
        Err(SetClientError::Status(status)) => Err(status.into()),
    }
}

pub(crate) fn confirm(
    context: &mut CompoundContext<'_>,
    args: &SetclientidConfirmArgs,
) -> OpResult {
    let now = context.now.mono_ms;
    let (principal, connection) =
        (context.origin.principal.clone(), context.origin.connection.clone());
    let credential = Credential::new(&principal, context.origin.flavour, &connection);
    context.state(|state| {
        state.confirm_client(args.client, args.confirm, credential, now)?;
        state.note_connection(args.client, connection.id());
        Ok::<_, Status>(())
    })?;
    Results::SetclientidConfirm(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn renew(context: &mut CompoundContext<'_>, args: &RenewArgs) -> OpResult {
    let (connection, now, caller) =
        (context.origin.connection.id(), context.now.mono_ms, context.proven());
    context.state(|state| {
        let renewed = state.renew(args.client, caller.as_ref(), now);
        if renewed != Err(Status::ACCESS) {
            state.note_connection(args.client, connection);
        }
        renewed
    })?;
    Results::Renew(Ok(())).encode(context.out);
    Ok(())
}

/// A universal address (RFC 5665 §5.2.3.3 and 5.2.3.4). Must be the caller's own, so that the
/// server connects to no third party.
fn address(location: &NetAddr<'_>, peer: IpAddr) -> Option<SocketAddr> {
    let (netid, text) =
        (std::str::from_utf8(&location.netid).ok()?, std::str::from_utf8(&location.address).ok()?);
    if !matches!(netid, "tcp" | "tcp6") {
        return None;
    }
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    let host: IpAddr = host.parse().ok()?;
    (host.to_canonical() == peer.to_canonical() && port != 0).then_some(SocketAddr::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(netid: &str, text: &str) -> Option<SocketAddr> {
        address(
            &NetAddr { netid: Bytes(netid.as_bytes()), address: Bytes(text.as_bytes()) },
            "127.0.0.1".parse().unwrap(),
        )
    }

    #[test]
    fn callback_address_must_be_the_callers() {
        assert_eq!(parse("tcp", "127.0.0.1.8.1"), Some("127.0.0.1:2049".parse().unwrap()));
        for (netid, text) in [
            ("tcp", "192.0.2.1.8.1"),
            ("udp", "127.0.0.1.8.1"),
            ("tcp", "127.0.0.1.8"),
            ("tcp", "127.0.0.1.0.0"),
            ("tcp", "127.0.0.1.256.1"),
            ("tcp", "0.0.0.0.0.0"),
            ("", ""),
        ] {
            assert_eq!(parse(netid, text), None, "{text}");
        }
    }
}
