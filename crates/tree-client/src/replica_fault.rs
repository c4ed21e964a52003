//! The one point at which it is told that a replica was not believed, also where another one has
//! made up for it. Records of it hang there; nothing of them is known here.

use std::net::SocketAddr;
use std::sync::Arc;

use vouch_tree::TreeName;
use vouch_tree::verify::Refusal;

/// Something that a replica sent and that was not believed.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaFault<'a> {
    /// The tree, by the name that it was opened by.
    pub tree: &'a TreeName,
    /// The replica.
    pub replica: SocketAddr,
    /// By which name it was found.
    pub host: &'a str,
    /// What kind of thing it was.
    pub kind: FaultKind<'a>,
    /// What exactly, in words.
    pub detail: &'a str,
}

/// Why something was not believed.
#[derive(Clone, Copy, Debug)]
pub enum FaultKind<'a> {
    /// It can't be true: what hashes to something else, a forged signature, bytes that are no
    /// answer.
    Lie,
    /// A revision that is older than what is in force: a replica that lags, or one that would roll
    /// readers back. Told once for each such offer in a row.
    Stale {
        /// The revision that it offers.
        offered: u64,
    },
    /// A revision that may not be used, which is not by itself a proof of a lie. Told once for each
    /// kind in a row.
    Refused(&'a Refusal),
}

/// Who is told. Called where answers are weighed: must not wait.
pub trait FaultObserver: Send + Sync {
    /// Something was not believed.
    fn replica_fault(&self, fault: &ReplicaFault<'_>);
}

/// Whom replicas of one tree are told to.
#[derive(Clone)]
pub(crate) struct FaultReporter {
    pub(crate) observer: Arc<dyn FaultObserver>,
    pub(crate) tree: TreeName,
}

/// What was told of a replica last, so that it is not told at each refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastFault {
    Stale(u64),
    Refused(std::mem::Discriminant<Refusal>),
}

impl FaultKind<'_> {
    /// What is not told twice in a row; none of lies, of which each is told.
    pub(crate) fn repeat_key(&self) -> Option<LastFault> {
        match self {
            FaultKind::Lie => None,
            FaultKind::Stale { offered } => Some(LastFault::Stale(*offered)),
            FaultKind::Refused(refusal) => Some(LastFault::Refused(std::mem::discriminant(refusal))),
        }
    }
}
