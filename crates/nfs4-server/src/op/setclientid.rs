//! SETCLIENTID, SETCLIENTID_CONFIRM and RENEW, of 4.0 alone (RFC 7530, sections 16.33, 16.34 and
//! 16.29).

use std::net::{IpAddr, SocketAddr};

use vouch_nfs4::op::{RenewArgs, Results, SetclientidArgs, SetclientidConfirmArgs, SetclientidFailure, SetclientidOk};
use vouch_nfs4::{Bytes, NetAddr, Status};

use crate::state::{Callback40, Credential, SetClientError};
use crate::stop::{Outcome, Stop};
use crate::walk::Walk;

pub(crate) fn setclientid(walk: &mut Walk<'_>, args: &SetclientidArgs<'_>) -> Outcome {
    let location = &args.callback.location;
    let callback = Callback40 {
        // RFC 7530, section 3.3.3: callbacks would have to prove this server to the client's own service, which is not done: such a client
        // gets no delegations.
        address: if walk.flavour.is_proven() { None } else { address(location, walk.connection.peer().ip()) },
        netid: location.netid.0.into(),
        universal_address: location.address.0.into(),
        program: args.callback.program,
        ident: args.callback_ident,
    };
    let now = walk.now.mono_ms;
    let (principal, flavour) = (walk.principal.clone(), walk.flavour);
    let credential = Credential { principal: &principal, flavour, address: walk.connection.peer().ip() };
    match walk.state(|state| state.set_client(&args.client, callback, credential, now)) {
        Ok((client, confirm)) => {
            Results::Setclientid(Ok(SetclientidOk { client, confirm })).encode(walk.out);
            Ok(())
        }
        Err(SetClientError::InUse(other)) => {
            let address = NetAddr { netid: Bytes(&other.netid), address: Bytes(&other.universal_address) };
            Results::Setclientid(Err(SetclientidFailure::InUse(address))).encode(walk.out);
            Err(Stop::Written(Status::CLID_INUSE))
        }
        Err(SetClientError::Status(status)) => Err(status.into()),
    }
}

pub(crate) fn confirm(walk: &mut Walk<'_>, args: &SetclientidConfirmArgs) -> Outcome {
    let now = walk.now.mono_ms;
    let (principal, flavour) = (walk.principal.clone(), walk.flavour);
    let credential = Credential { principal: &principal, flavour, address: walk.connection.peer().ip() };
    let connection = walk.connection.id();
    walk.state(|state| {
        state.confirm_client(args.client, args.confirm, credential, now)?;
        state.called_over(args.client, connection);
        Ok::<_, Status>(())
    })?;
    Results::SetclientidConfirm(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn renew(walk: &mut Walk<'_>, args: &RenewArgs) -> Outcome {
    let (connection, now, caller) = (walk.connection.id(), walk.now.mono_ms, walk.proven());
    walk.state(|state| {
        let renewed = state.renew(args.client, caller.as_ref(), now);
        if renewed != Err(Status::ACCESS) {
            state.called_over(args.client, connection);
        }
        renewed
    })?;
    Results::Renew(Ok(())).encode(walk.out);
    Ok(())
}

/// A universal address (RFC 5665, sections 5.2.3.3 and 5.2.3.4): an address, then the two bytes of
/// the port. Only the address that the client calls from is believed: nobody shall make this server
/// connect to third parties.
fn address(location: &NetAddr<'_>, peer: IpAddr) -> Option<SocketAddr> {
    let (netid, text) = (std::str::from_utf8(&location.netid).ok()?, std::str::from_utf8(&location.address).ok()?);
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
        address(&NetAddr { netid: Bytes(netid.as_bytes()), address: Bytes(text.as_bytes()) }, "127.0.0.1".parse().unwrap())
    }

    #[test]
    fn callbacks_go_to_the_caller_and_to_nobody_else() {
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
