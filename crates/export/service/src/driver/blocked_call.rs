use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_nfs4_server::{Compound, ExportId};
use vouch_rpcsec_gss::Envelope;

use crate::memory_quota::BlockedCharge;
use crate::transport::connection::Connection;

#[derive(Default)]
pub(crate) struct CommitQueue {
    pub(super) waiting: Mutex<HashMap<ExportId, Vec<BlockedCall>>>,
}

pub(crate) struct RunningCall {
    pub(crate) compound: Compound,
    /// Its reply depends on records of earlier runs.
    pub(crate) records: bool,
    pub(crate) envelope: Option<Envelope>,
}

pub(crate) struct BlockedCall {
    pub(crate) connection: Arc<Connection>,
    pub(crate) compound: Compound,
    pub(crate) records: bool,
    pub(crate) envelope: Option<Envelope>,
    pub(crate) moves: u8,
    pub(crate) charge: BlockedCharge,
}
