//! SP4_MACH_CRED (RFC 8881 §2.10.8.3): the machine acts for users with expired tickets.

use vouch_nfs4::op::{Args, Op};
use vouch_nfs4::{Bitmap, Status};

use crate::access::grant::Grant;
use crate::compound::context::CompoundContext;
use crate::error::OpError;
use crate::files::file_ref::{FileRef, Object};
use crate::state::Credential;

/// Allowed only with the export option `machine_writes`.
pub(crate) const WRITES: Bitmap = Bitmap::of(&[Op::WRITE.0, Op::COMMIT.0]);

impl CompoundContext<'_> {
    pub(crate) fn machine_operations(&mut self) -> Bitmap {
        let Ok(turn) = self.turn() else { return Bitmap::EMPTY };
        if !self.origin.flavour.has_integrity() {
            return Bitmap::EMPTY;
        }
        let (principal, flavour, connection) =
            (self.origin.principal.clone(), self.origin.flavour, self.origin.connection.clone());
        self.state(|state| {
            state.machine_operations(turn.client, Credential::new(&principal, flavour, &connection))
        })
    }

    pub(crate) fn is_machine_for(&mut self, grant: &Grant) -> bool {
        let op = self.result.op.0;
        self.machine_may_run(op, grant)
    }

    fn machine_may_run(&mut self, op: u32, grant: &Grant) -> bool {
        grant.transport_fits
            && (grant.access.machine_writes(self.origin.flavour) || !WRITES.has(op))
            && self.machine_operations().has(op)
    }

    /// Errors: WRONGSEC; ACCESS if the server does not know the principal.
    pub(crate) fn admit_machine(&mut self, file: &FileRef) -> Result<(), OpError> {
        let lookahead = self.lookahead;
        if !lookahead.ops_on_same_filehandle().any(|args| self.proves_open_state(file, &args)) {
            return Err(Status::WRONGSEC.into());
        }
        let squash = file.grant.access.flavours.first().ok_or(Status::STALE)?.squash;
        self.server
            .identity()
            .caller(&self.origin.principal, self.origin.connection.peer(), &squash, self.names)?
            .ok_or(Status::ACCESS)?;
        Ok(())
    }

    pub(crate) fn is_admitted(&mut self, args: &Args<'_>) -> bool {
        match &self.current.object {
            Some(Object::File(file)) if !file.grant.security_fits => {
                let file = file.clone();
                args.op() == Op::GETATTR || self.proves_open_state(&file, args)
            }
            _ => false,
        }
    }

    /// The proof is a stateid of the file, or, for COMMIT, an open for writing.
    fn proves_open_state(&mut self, file: &FileRef, args: &Args<'_>) -> bool {
        let Ok(turn) = self.turn() else { return false };
        if !self.machine_may_run(args.op().0, &file.grant) {
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
