use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_nfs4_server::{Compound, ExportId};
use vouch_rpcsec_gss::Envelope;
use vouch_vfs::SystemId;

use crate::memory_quota::BlockedCharge;
use crate::transport::connection::Connection;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockedOn {
    Disk,
    NameService,
    Remote(SystemId),
}

impl BlockedOn {
    pub(super) fn of(names: bool, compound: &Compound) -> Self {
        match (names, compound.remote_system()) {
            (true, _) => BlockedOn::NameService,
            (false, Some(system)) => BlockedOn::Remote(system),
            (false, None) => BlockedOn::Disk,
        }
    }

    pub(super) fn remote(self) -> Option<SystemId> {
        if let BlockedOn::Remote(system) = self { Some(system) } else { None }
    }
}

#[derive(Default)]
pub(crate) struct CommitQueue {
    pub(super) waiting: Mutex<HashMap<ExportId, Vec<BlockedCall>>>,
}

pub(crate) struct BlockedCall {
    pub(crate) connection: Arc<Connection>,
    pub(crate) compound: Compound,
    pub(crate) records: bool,
    pub(crate) envelope: Option<Envelope>,
    pub(crate) moves: u8,
    pub(crate) must_be_durable: bool,
    pub(crate) charge: BlockedCharge,
}
