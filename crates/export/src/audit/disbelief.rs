//! What replicas of exported trees sent and was not believed, as refusals. The file systems are
//! opened by who knows no trail, and so are told of it later.

use std::sync::{Arc, OnceLock, Weak};

use vouch_tree_client::{FaultObserver, ReplicaFault};

use super::Audit;
use super::refused::Refused;
use vouch_daemon::audit_trail::refusal_of;

/// Tells the trail, once there is one.
#[derive(Default)]
pub(crate) struct Disbelief(OnceLock<Weak<Audit>>);

impl Disbelief {
    /// From now on it is told.
    pub(crate) fn tell(&self, audit: &Arc<Audit>) {
        // A second one there is not: a server has one trail.
        let _ = self.0.set(Arc::downgrade(audit));
    }
}

impl FaultObserver for Disbelief {
    fn replica_fault(&self, fault: &ReplicaFault<'_>) {
        let Some(audit) = self.0.get().and_then(Weak::upgrade) else { return };
        let detail = format!("tree:{}: {}", fault.tree, fault.detail);
        audit.refuse(&Refused { detail: &detail, ..Refused::from(refusal_of(&fault.kind), fault.replica) });
    }
}
