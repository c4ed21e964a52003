//! The state that all threads of the server share. Its behaviour is in the neighbouring files.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use vouch_daemon::rate_limit::Throttle;
use vouch_nfs4_server::{ConnectionId, Server};

use super::blocked_call::CommitQueue;
use crate::audit::Audit;
use crate::gss::Gss;
use crate::hosts::Hosts;
use crate::hosts::lookup_queue::LookupQueue;
use crate::limits::Limits;
use crate::memory_quota::Quotas;
use crate::monitoring::status::ExportStatus;
use crate::monitoring::traffic::Traffic;
use crate::recovery::RecoveryStore;
use crate::thread_pool::Pool;
use crate::transport::callback_dialer::CallbackDialers;
use crate::transport::connection::Connection;
use crate::transport::inbox::Inbox;

/// The engine and everything around it.
pub(crate) struct Driver {
    pub(crate) engine: Server,
    pub(crate) limits: Limits,
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    /// Where calls go on that have to wait.
    pub(crate) pool: Pool,
    /// Where they do for the name service: one that does not answer keeps nobody from the disks.
    pub(crate) names: Pool,
    /// Calls that wait for commits.
    pub(crate) commit_queue: CommitQueue,
    /// How many may wait, of all and of one address.
    pub(crate) quotas: Quotas,
    /// Connections that wait for the names of their hosts.
    pub(crate) host_lookups: LookupQueue<(TcpStream, SocketAddr)>,
    /// Hosts whose names are looked for while they are served, to be told in records.
    pub(crate) audit_lookups: LookupQueue<()>,
    pub(crate) callback_dialers: CallbackDialers,
    pub(crate) recovery: RecoveryStore,
    /// All connections, for effects that name one.
    pub(crate) connections: Mutex<HashMap<ConnectionId, Arc<Connection>>>,
    /// Connections of each worker, to deal new ones out evenly.
    pub(crate) open: Vec<AtomicUsize>,
    pub(crate) traffic: Traffic,
    /// How much is told of clients that come from elsewhere than before.
    pub(crate) address_change_limit: Mutex<Throttle>,
    /// Kerberos, if there is a keytab.
    pub(crate) gss: Option<Arc<Gss>>,
    /// The audit trail, if there is one.
    pub(crate) audit: Option<Arc<Audit>>,
    /// What is exported, for those who ask.
    pub(crate) exports: Mutex<Vec<ExportStatus>>,
    pub(crate) hosts: Arc<Hosts>,
    /// Longest call.
    pub(crate) record_len_max: usize,
    pub(crate) stop: AtomicBool,
}
impl Driver {
    pub(crate) fn connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connections.lock().get(&id).cloned()
    }
}
