//! Reports of replicas that send wrong or old data, even if another replica delivers.

use std::net::SocketAddr;
use std::sync::Arc;

use vouch_tree::TreeName;
use vouch_tree::verify::Refusal;

/// A fault of one replica.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaFault<'a> {
    /// The tree that was asked for.
    pub tree: &'a TreeName,
    /// The address that answered.
    pub replica: SocketAddr,
    /// Name that led to the replica.
    pub host: &'a str,
    /// How bad it is.
    pub kind: FaultKind<'a>,
    /// Text for a log.
    pub detail: &'a str,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug)]
pub enum FaultKind<'a> {
    /// Provable: a wrong hash, a forged signature, or malformed replies.
    Lie,
    /// Older than the revision in force: the replica lags, or tries a rollback.
    Stale {
        /// Revision number.
        offered: u64,
    },
    /// Fails verification, without proof of forgery. Equal consecutive offers are reported once.
    Refused(&'a Refusal),
}

/// Receives faults of replicas.
pub trait FaultObserver: Send + Sync {
    /// Called while an operation waits: must not block.
    fn replica_fault(&self, fault: &ReplicaFault<'_>);
}

#[derive(Clone)]
pub(crate) struct FaultReporter {
    pub(crate) observer: Arc<dyn FaultObserver>,
    pub(crate) tree: TreeName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastFault {
    Stale(u64),
    Refused(std::mem::Discriminant<Refusal>),
}

impl FaultKind<'_> {
    pub(crate) fn repeat_key(&self) -> Option<LastFault> {
        match self {
            FaultKind::Lie => None,
            FaultKind::Stale { offered } => Some(LastFault::Stale(*offered)),
            FaultKind::Refused(refusal) => {
                Some(LastFault::Refused(std::mem::discriminant(refusal)))
            }
        }
    }
}
