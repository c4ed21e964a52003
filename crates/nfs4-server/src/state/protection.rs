//! State protection: which operations only a client's machine may do, and which it may do for others (RFC 8881, sections 2.10.8.3 and 18.35.3).

use vouch_nfs4::{Bitmap, StateProtectOps, Status};

use super::client::{Credential, Protection};
use super::id::ClientKey;
use vouch_nfs4::op::Op;

use super::State;
use crate::Flavour;

/// What only the machine may do, when it wants to be the only one.
const ENFORCED: Bitmap = Bitmap::of(&[
    Op::BACKCHANNEL_CTL.0,
    Op::BIND_CONN_TO_SESSION.0,
    Op::EXCHANGE_ID.0,
    Op::CREATE_SESSION.0,
    Op::DESTROY_SESSION.0,
    Op::DESTROY_CLIENTID.0,
]);

/// What it may do for its users, whose tickets may have run out: give back what they hold, and write what they have written.
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

/// Which part of the wish is granted. Section 18.35.3: SP4_MACH_CRED needs a call with integrity or privacy, otherwise INVAL.
pub(super) fn negotiate(wanted: &StateProtectOps, credential: Credential<'_>) -> Result<Protection, Status> {
    if !protected(credential.flavour) {
        return Err(Status::INVAL);
    }
    Ok(Protection::Machine(StateProtectOps { must_enforce: ENFORCED, must_allow: wanted.must_allow.and(ALLOWED) }))
}

fn protected(flavour: Flavour) -> bool {
    matches!(flavour, Flavour::Krb5i | Flavour::Krb5p)
}

impl<F: Clone> State<F> {
    /// Whether a client's state protection lets this credential do operation `op`; WRONG_CRED if not (RFC 8881, section 2.10.8.3).
    pub fn enforce(&self, client: ClientKey, op: Op, credential: Credential<'_>) -> Result<(), Status> {
        let client = self.clients.get(client).ok_or(Status::DEADSESSION)?;
        let enforced = client.v41().is_some_and(|v41| v41.protection.enforces(op.0));
        if enforced && !(protected(credential.flavour) && client.principal.same_user(credential.principal)) {
            return Err(Status::WRONG_CRED);
        }
        Ok(())
    }

    /// Whether this is the machine's credential, and it may do operation `op` on state that others made.
    pub fn machine_may(&self, client: ClientKey, op: Op, credential: Credential<'_>) -> bool {
        self.clients.get(client).is_some_and(|client| {
            let allowed = client.v41().is_some_and(|v41| v41.protection.allowed().has(op.0));
            allowed && protected(credential.flavour) && client.principal.same_user(credential.principal)
        })
    }
}
