//! The credential of a client's machine, in the client's own words of SP4_MACH_CRED (RFC 8881,
//! section 2.10.8.3): what it may do for users whose tickets have run out.

use vouch_nfs4::op::{Args, Op};
use vouch_nfs4::{Bitmap, Status};

use crate::access::grant::Grant;
use crate::compound::context::CompoundContext;
use crate::error::OpError;
use crate::files::file_ref::{FileRef, Object};
use crate::state::Credential;

/// What writes: granted only where an export says so.
pub(crate) const WRITES: Bitmap = Bitmap::of(&[Op::WRITE.0, Op::COMMIT.0]);

impl CompoundContext<'_> {
    /// Operations that the caller may do as the client's machine; empty for everybody else.
    pub(crate) fn machine_operations(&mut self) -> Bitmap {
        let Ok(turn) = self.turn() else { return Bitmap::EMPTY };
        if !self.flavour.has_integrity() {
            return Bitmap::EMPTY;
        }
        let (principal, flavour, address) = (self.principal.clone(), self.flavour, self.connection.peer().ip());
        self.state(|state| state.machine_operations(turn.client, Credential { principal: &principal, flavour, address }))
    }

    /// Whether the caller is the client's machine, which may do the operation at hand in this
    /// export on what its users hold.
    pub(crate) fn is_machine_for(&mut self, grant: &Grant) -> bool {
        let op = self.op;
        self.machine_may(op, grant)
    }

    fn machine_may(&mut self, op: u32, grant: &Grant) -> bool {
        (grant.access.machine_writes(self.flavour) || !WRITES.has(op)) && self.machine_operations().has(op)
    }

    /// A filehandle is put under a flavour that its export doesn't take. That is let through where
    /// one of the operations on it is the machine's to do on what a user of this client holds
    /// of this file: what has no stateid to show it opens no export. WRONGSEC otherwise, and ACCESS
    /// if this server doesn't let the principal in at all.
    pub(crate) fn admit_machine(&mut self, file: &FileRef) -> Result<(), OpError> {
        let lookahead = self.lookahead;
        if !lookahead.ops_on_same_filehandle().any(|args| self.machine_acts(file, &args)) {
            return Err(Status::WRONGSEC.into());
        }
        let squash = file.grant.access.flavours.first().ok_or(Status::STALE)?.squash;
        self.server.identity().caller(&self.principal, self.connection.peer(), &squash, self.names)?.ok_or(Status::ACCESS)?;
        Ok(())
    }

    /// Whether the operation may be done to the current filehandle, which was put as
    /// [`CompoundContext::admit_machine`] allows. Linux asks for attributes along with what it gives back.
    pub(crate) fn is_admitted(&mut self, args: &Args<'_>) -> bool {
        match &self.current {
            Some(Object::File(file)) if !file.grant.flavour_fits => {
                let file = file.clone();
                args.op() == Op::GETATTR || self.machine_acts(&file, args)
            }
            _ => false,
        }
    }

    /// Whether the operation is one that the machine may do in this export, on what this client
    /// holds of this file: shown by a stateid of it that is none of the special ones,
    /// whether it still serves or not; for COMMIT, which has none, by being open for writing.
    fn machine_acts(&mut self, file: &FileRef, args: &Args<'_>) -> bool {
        let Ok(turn) = self.turn() else { return false };
        if !self.machine_may(args.op().0, &file.grant) {
            return false;
        }
        let key = file.key();
        let stateid = match args {
            Args::Close(args) => args.stateid,
            Args::OpenDowngrade(args) => args.stateid,
            Args::Locku(args) => args.stateid,
            Args::Delegreturn(args) => args.stateid,
            Args::Write(args) => args.stateid,
            Args::Commit(_) => return self.state(|state| state.writes_to(turn.client, &key)),
            _ => return false,
        };
        self.state(|state| state.holds(turn.client, &stateid, &key))
    }
}
