//! What a replica sent and was not believed, in the words of refusals.

use vouch_audit::record::Refusal;
use vouch_tree::verify;
use vouch_tree_client::FaultKind;

/// Which refusal it is that a replica's word was not taken.
pub(crate) const fn refusal_of(doubt: &FaultKind<'_>) -> Refusal {
    match doubt {
        FaultKind::Lie => Refusal::Altered,
        FaultKind::Stale { .. } => Refusal::Replay,
        FaultKind::Refused(why) => match why {
            verify::Refusal::Expired { .. } | verify::Refusal::NotYetValid { .. } => Refusal::Expired,
            verify::Refusal::Rollback { .. } => Refusal::Replay,
            verify::Refusal::Malformed(_) | verify::Refusal::Forged(_) => Refusal::Altered,
            // Signed by whom nobody should believe any more, or not yet.
            _ => Refusal::Authentication,
        },
    }
}
