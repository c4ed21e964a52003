//! The credential of a client's machine, in the client's own words of SP4_MACH_CRED (RFC 8881, section 2.10.8.3): what it may do for users whose tickets have run out.

use vouch_nfs4::Bitmap;
use vouch_nfs4::op::Op;

use crate::grant::Grant;
use crate::state::Credential;
use crate::walk::Walk;

/// What writes: granted only where an export says so.
pub(crate) const WRITES: Bitmap = Bitmap::of(&[Op::WRITE.0, Op::COMMIT.0]);

impl Walk<'_> {
    /// Operations that the caller may do as the client's machine; empty for everybody else.
    pub(crate) fn machine_operations(&mut self) -> Bitmap {
        let Ok(turn) = self.turn() else { return Bitmap::EMPTY };
        if !self.flavour.has_integrity() {
            return Bitmap::EMPTY;
        }
        let (principal, flavour) = (self.principal.clone(), self.flavour);
        self.state(|state| state.machine_operations(turn.client, Credential { principal: &principal, flavour }))
    }

    /// Whether the caller is the client's machine, which may do the operation at hand in this export on what its users hold.
    pub(crate) fn is_machine_for(&mut self, grant: &Grant) -> bool {
        let allowed = self.machine_operations();
        allowed.has(self.op) && (grant.access.machine_writes || !WRITES.has(self.op))
    }
}
