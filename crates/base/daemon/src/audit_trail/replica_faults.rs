use vouch_audit::record::Refusal;
use vouch_tree::verify;
use vouch_tree_client::FaultKind;

pub const fn refusal_of(fault: &FaultKind<'_>) -> Refusal {
    match fault {
        FaultKind::Lie => Refusal::Altered,
        FaultKind::Stale { .. } => Refusal::Replay,
        FaultKind::Refused(why) => match why {
            verify::Refusal::Expired { .. } | verify::Refusal::NotYetValid { .. } => {
                Refusal::Expired
            }
            verify::Refusal::Rollback { .. } => Refusal::Replay,
            verify::Refusal::Malformed(_) | verify::Refusal::Forged(_) => Refusal::Altered,
            // The signer is revoked, replaced, or not valid yet.
            _ => Refusal::Authentication,
        },
    }
}
