//! SP4_MACH_CRED: operations reserved for, or allowed to, the machine credential (RFC 8881
//! §2.10.8.3 and 18.35.3).

use vouch_nfs4::{Bitmap, StateProtectOps, Status};

use crate::state::client::credential::Credential;
use crate::state::client::principal::ClientPrincipal;
use crate::state::client::record::{Client, Protection};
use crate::state::id::ClientKey;
use vouch_nfs4::op::Op;

use crate::state::tables::State;

/// Always reserved. The Linux client gives up state protection if the server adds others.
const ENFORCED: Bitmap = Bitmap::of(&[
    Op::BIND_CONN_TO_SESSION.0,
    Op::EXCHANGE_ID.0,
    Op::CREATE_SESSION.0,
    Op::DESTROY_SESSION.0,
    Op::DESTROY_CLIENTID.0,
]);

const ENFORCEABLE: Bitmap = ENFORCED.with(Op::BACKCHANNEL_CTL.0);

/// Users with expired tickets may return state and write dirty data.
const ALLOWED: Bitmap = Bitmap::of(&[
    Op::CLOSE.0,
    Op::COMMIT.0,
    Op::DELEGRETURN.0,
    Op::LOCKU.0,
    Op::OPEN_DOWNGRADE.0,
    Op::SECINFO.0,
    Op::WRITE.0,
    Op::SECINFO_NO_NAME.0,
    Op::TEST_STATEID.0,
    Op::FREE_STATEID.0,
]);

/// §18.35.3: SP4_MACH_CRED needs integrity or privacy.
pub(in crate::state) fn negotiate(
    wanted: &StateProtectOps,
    credential: Credential<'_>,
) -> Result<Protection, Status> {
    if !credential.flavour.has_integrity() {
        return Err(Status::INVAL);
    }
    let must_enforce = ENFORCED.or(wanted.must_enforce.and(ENFORCEABLE));
    Ok(Protection::Machine(StateProtectOps {
        must_enforce,
        must_allow: wanted.must_allow.and(ALLOWED),
    }))
}

impl<F: Clone> State<F> {
    /// WRONG_CRED if state protection forbids `op` with this credential (§2.10.8.3).
    pub(crate) fn enforce(
        &self,
        client: ClientKey,
        op: Op,
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        let client = self.clients.get(client).ok_or(Status::DEADSESSION)?;
        let enforced = client.v41().is_some_and(|v41| v41.protection.enforces(op.0));
        if enforced && !is_machine(client, credential) {
            return Err(Status::WRONG_CRED);
        }
        Ok(())
    }

    /// Errors: WRONG_CRED. RFC 8881 §2.10.8 leaves the choice to the server without state
    /// protection. A Kerberos principal's client accepts only that principal, and that of a machine
    /// with a certificate only that machine: a session id seen on the wire ends nothing.
    pub(in crate::state) fn check_may_manage(
        &self,
        client: ClientKey,
        op: Op,
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        self.enforce(client, op, credential)?;
        let client = self.clients.get(client).ok_or(Status::DEADSESSION)?;
        let unprotected = client.v41().is_some_and(|v41| v41.protection == Protection::None);
        let is_other_principal =
            matches!(client.client_principal(), ClientPrincipal::Proven { .. })
                && !client.client_principal().admits(credential);
        match unprotected && is_other_principal || !client.is_of_machine(credential) {
            true => Err(Status::WRONG_CRED),
            false => Ok(()),
        }
    }

    /// Allowed on state of other principals; empty unless this is the machine credential.
    pub(crate) fn machine_operations(
        &self,
        client: ClientKey,
        credential: Credential<'_>,
    ) -> Bitmap {
        match self.clients.get(client) {
            Some(client) if is_machine(client, credential) => {
                client.v41().map_or(Bitmap::EMPTY, |v41| v41.protection.allowed())
            }
            _ => Bitmap::EMPTY,
        }
    }
}

fn is_machine(client: &Client, credential: Credential<'_>) -> bool {
    credential.flavour.has_integrity() && client.principal.same_user(credential.principal)
}
