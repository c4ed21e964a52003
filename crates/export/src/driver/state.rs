//! State that all threads of the server share. Its methods are in the neighbouring files.

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
    /// Threads for calls that wait for disks.
    pub(crate) pool: Pool,
    /// Threads for calls that wait for the name service.
    pub(crate) names: Pool,
    /// Calls that wait for a group commit.
    pub(crate) commit_queue: CommitQueue,
    /// Calls that may wait and their memory, by source address.
    pub(crate) quotas: Quotas,
    /// Connections that wait for the host name of their client.
    pub(crate) host_lookups: LookupQueue<(TcpStream, SocketAddr)>,
    /// Clients whose host name is looked up only for audit records.
    pub(crate) audit_lookups: LookupQueue<()>,
    pub(crate) callback_dialers: CallbackDialers,
    pub(crate) recovery: RecoveryStore,
    /// All connections, for effects that name one.
    pub(crate) connections: Mutex<HashMap<ConnectionId, Arc<Connection>>>,
    /// Number of connections of each worker.
    pub(crate) open: Vec<AtomicUsize>,
    pub(crate) traffic: Traffic,
    /// Rate limit for log lines about clients that changed their address.
    pub(crate) address_change_limit: Mutex<Throttle>,
    /// Kerberos, if there is a keytab.
    pub(crate) gss: Option<Arc<Gss>>,
    /// The audit trail, if there is one.
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) exports: Mutex<Vec<ExportStatus>>,
    pub(crate) hosts: Arc<Hosts>,
    /// Longest call in bytes.
    pub(crate) record_len_max: usize,
    pub(crate) stop: AtomicBool,
}
impl Driver {
    pub(crate) fn connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connections.lock().get(&id).cloned()
    }
}
