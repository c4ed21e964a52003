//! Calls that are blocked: on a disk, on the name service, or on a commit.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_nfs4_server::{Compound, ExportId};
use vouch_rpcsec_gss::Envelope;

use crate::memory_quota::BlockedCharge;
use crate::transport::connection::Connection;

/// Where a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockedOn {
    /// For disks, and for clients that are asked something.
    Disk,
    /// For the name service.
    NameService,
}

impl BlockedOn {
    pub(super) fn of(names: bool) -> Self {
        if names { BlockedOn::NameService } else { BlockedOn::Disk }
    }
}
/// Calls that wait, of each export that is being worked on.
#[derive(Default)]
pub(crate) struct CommitQueue {
    pub(super) waiting: Mutex<HashMap<ExportId, Vec<BlockedCall>>>,
}

/// A call that waits.
pub(crate) struct BlockedCall {
    pub(crate) connection: Arc<Connection>,
    pub(crate) compound: Compound,
    /// Whether its reply depends on records that are on their way.
    pub(crate) records: bool,
    /// What is to be around its results.
    pub(crate) envelope: Option<Envelope>,
    /// How often it has gone from one kind of threads to the other.
    pub(crate) moves: u8,
    /// Its reply must wait for its audit records, whatever the policy.
    pub(crate) must_be_kept: bool,
    /// Of its address's share of memory, what it keeps. Nothing of those that wait for a commit
    /// alone.
    pub(crate) charge: BlockedCharge,
}
