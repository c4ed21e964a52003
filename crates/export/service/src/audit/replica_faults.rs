//! Trees open before the trail, which is attached later.

use std::sync::{Arc, OnceLock, Weak};

use vouch_tree_client::{FaultObserver, ReplicaFault};

use super::Audit;
use super::refusals::Refused;
use vouch_daemon::audit_trail::refusal_of;

#[derive(Default)]
pub(crate) struct ReplicaFaultReporter(OnceLock<Weak<Audit>>);

impl ReplicaFaultReporter {
    pub(crate) fn attach(&self, audit: &Arc<Audit>) {
        let _ = self.0.set(Arc::downgrade(audit));
    }
}

impl FaultObserver for ReplicaFaultReporter {
    fn replica_fault(&self, fault: &ReplicaFault<'_>) {
        let Some(audit) = self.0.get().and_then(Weak::upgrade) else { return };
        let detail = format!("tree:{}: {}", fault.tree, fault.detail);
        audit.refuse(&Refused {
            detail: &detail,
            ..Refused::from(refusal_of(&fault.kind), fault.replica)
        });
    }
}
