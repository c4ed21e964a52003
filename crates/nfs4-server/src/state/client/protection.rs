//! State protection: which operations only a client's machine may do, and which it may do for
//! others (RFC 8881, sections 2.10.8.3 and 18.35.3).

use vouch_nfs4::{Bitmap, StateProtectOps, Status};

use crate::state::client::credential::Credential;
use crate::state::client::principal::ClientPrincipal;
use crate::state::client::record::{Client, Protection};
use crate::state::id::ClientKey;
use vouch_nfs4::op::Op;

use crate::state::tables::State;

/// What only the machine may do from then on, whether the client asks for it or not. Linux takes no
/// operation beyond these: it gives state protection up where one is named.
const ENFORCED: Bitmap =
    Bitmap::of(&[Op::BIND_CONN_TO_SESSION.0, Op::EXCHANGE_ID.0, Op::CREATE_SESSION.0, Op::DESTROY_SESSION.0, Op::DESTROY_CLIENTID.0]);

/// What else only the machine may do if the client asks for it.
const ENFORCEABLE: Bitmap = ENFORCED.with(Op::BACKCHANNEL_CTL.0);

/// What it may do for its users, whose tickets may have run out: give back what they hold, and
/// write what they have written.
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

/// Which part of the wish is granted. Section 18.35.3: SP4_MACH_CRED needs a call with integrity or
/// privacy, otherwise INVAL.
pub(in crate::state) fn negotiate(wanted: &StateProtectOps, credential: Credential<'_>) -> Result<Protection, Status> {
    if !credential.flavour.has_integrity() {
        return Err(Status::INVAL);
    }
    let must_enforce = ENFORCED.or(wanted.must_enforce.and(ENFORCEABLE));
    Ok(Protection::Machine(StateProtectOps { must_enforce, must_allow: wanted.must_allow.and(ALLOWED) }))
}

impl<F: Clone> State<F> {
    /// Whether a client's state protection lets this credential do operation `op`; WRONG_CRED if
    /// not (RFC 8881, section 2.10.8.3).
    pub fn enforce(&self, client: ClientKey, op: Op, credential: Credential<'_>) -> Result<(), Status> {
        let client = self.clients.get(client).ok_or(Status::DEADSESSION)?;
        let enforced = client.v41().is_some_and(|v41| v41.protection.enforces(op.0));
        if enforced && !is_machine(client, credential) {
            return Err(Status::WRONG_CRED);
        }
        Ok(())
    }

    /// Whether this credential may manage a client's record, its sessions and their connections by
    /// operation `op`; WRONG_CRED if not. Under state protection as that says. Without it RFC
    /// 8881 leaves to the server whom it believes (section 2.10.8): where a client was introduced
    /// by a proven principal, that one, so that a session's id that was read on the wire ends
    /// nothing; else whoever knows the names.
    pub(in crate::state) fn manage(&self, client: ClientKey, op: Op, credential: Credential<'_>) -> Result<(), Status> {
        self.enforce(client, op, credential)?;
        let client = self.clients.get(client).ok_or(Status::DEADSESSION)?;
        let unprotected = client.v41().is_some_and(|v41| v41.protection == Protection::None);
        match unprotected
            && matches!(client.client_principal(), ClientPrincipal::Proven { .. })
            && !client.client_principal().admits(credential)
        {
            true => Err(Status::WRONG_CRED),
            false => Ok(()),
        }
    }

    /// Operations that this credential may do on state that others made, being the machine's; empty
    /// for everybody else.
    pub fn machine_operations(&self, client: ClientKey, credential: Credential<'_>) -> Bitmap {
        match self.clients.get(client) {
            Some(client) if is_machine(client, credential) => client.v41().map_or(Bitmap::EMPTY, |v41| v41.protection.allowed()),
            _ => Bitmap::EMPTY,
        }
    }
}

/// Whether this is the credential that made the record, well enough protected to count.
fn is_machine(client: &Client, credential: Credential<'_>) -> bool {
    credential.flavour.has_integrity() && client.principal.same_user(credential.principal)
}
