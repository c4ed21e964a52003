//! Reports of replicas that send wrong or old data, for example for an audit trail. A fault is
//! reported even if another replica delivered the right data.

use std::net::SocketAddr;
use std::sync::Arc;

use vouch_tree::TreeName;
use vouch_tree::verify::Refusal;

#[derive(Clone, Copy, Debug)]
pub struct ReplicaFault<'a> {
    /// The tree, by the name it was opened with.
    pub tree: &'a TreeName,
    pub replica: SocketAddr,
    /// Host name that led to the replica.
    pub host: &'a str,
    pub kind: FaultKind<'a>,
    pub detail: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub enum FaultKind<'a> {
    /// Provably wrong data: a wrong hash, a forged signature, or malformed replies.
    Lie,
    /// A revision older than the one in force: the replica lags, or tries a rollback.
    Stale { offered: u64 },
    /// A revision that fails verification, without proof of forgery. Reported once for consecutive
    /// offers of the same kind.
    Refused(&'a Refusal),
}

/// Receives reports of faults. Called while answers are processed: must not block.
pub trait FaultObserver: Send + Sync {
    fn replica_fault(&self, fault: &ReplicaFault<'_>);
}

#[derive(Clone)]
pub(crate) struct FaultReporter {
    pub(crate) observer: Arc<dyn FaultObserver>,
    pub(crate) tree: TreeName,
}

/// The last reported fault of a replica, so that a refresh does not repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastFault {
    Stale(u64),
    Refused(std::mem::Discriminant<Refusal>),
}

impl FaultKind<'_> {
    /// The key by which repetitions are detected; `None` for lies, which are always reported.
    pub(crate) fn repeat_key(&self) -> Option<LastFault> {
        match self {
            FaultKind::Lie => None,
            FaultKind::Stale { offered } => Some(LastFault::Stale(*offered)),
            FaultKind::Refused(refusal) => Some(LastFault::Refused(std::mem::discriminant(refusal))),
        }
    }
}
