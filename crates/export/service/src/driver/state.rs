//! Shared by all threads of the server.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use vouch_nfs4_server::{ConnectionId, Exports, Server};

use super::blocked_call::CommitQueue;
use super::remote_pools::RemotePools;
use crate::audit::Audit;
use crate::gss::Gss;
use crate::hosts::Hosts;
use crate::hosts::lookup_queue::LookupQueue;
use crate::lease::ServingRight;
use crate::limits::{HELD_LEN_MAX, Limits, NAMES_THREADS_MAX, WAITING_MAX};
use crate::memory_quota::Quotas;
use crate::monitoring::client_faults::ClientFaults;
use crate::monitoring::status::ExportStatus;
use crate::monitoring::traffic::Traffic;
use crate::qos::QosLimits;
use crate::recovery::RecoveryStore;
use crate::thread_pool::Pool;
use crate::tls::Tls;
use crate::transport::callback_dialer::CallbackDialers;
use crate::transport::connection::Connection;
use crate::transport::inbox::{Inbox, Message};

pub(crate) struct Driver {
    pub(crate) engine: Server,
    pub(crate) limits: Limits,
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    pub(crate) pool: Pool,
    pub(crate) names: Pool,
    pub(crate) remote: RemotePools,
    pub(crate) commit_queue: CommitQueue,
    pub(crate) quotas: Quotas,
    pub(crate) qos: QosLimits,
    pub(crate) host_lookups: LookupQueue<(TcpStream, SocketAddr)>,
    pub(crate) audit_lookups: LookupQueue<()>,
    pub(crate) callback_dialers: CallbackDialers,
    pub(crate) recovery: RecoveryStore,
    pub(crate) connections: Mutex<HashMap<ConnectionId, Arc<Connection>>>,
    pub(crate) open: Vec<AtomicUsize>,
    pub(crate) traffic: Traffic,
    pub(crate) client_faults: Arc<ClientFaults>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) gss: Option<Arc<Gss>>,
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) exports: Mutex<Vec<ExportStatus>>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) record_len_max: usize,
    pub(crate) stop: AtomicBool,
    pub(crate) is_draining: AtomicBool,
    /// None without a shared state directory.
    pub(crate) right: Option<Arc<ServingRight>>,
}
pub(crate) struct DriverParts {
    pub(crate) engine: Server,
    pub(crate) limits: Limits,
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    pub(crate) recovery: RecoveryStore,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) gss: Option<Arc<Gss>>,
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) exports: Vec<ExportStatus>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) record_len_max: usize,
    pub(crate) right: Option<Arc<ServingRight>>,
    pub(crate) client_faults: Arc<ClientFaults>,
}

impl Driver {
    pub(crate) fn new(
        parts: DriverParts,
        on_room: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Self {
        let DriverParts {
            engine,
            limits,
            inboxes,
            recovery,
            tls,
            gss,
            audit,
            exports,
            hosts,
            record_len_max,
            right,
            client_faults,
        } = parts;
        let pool = |name, threads_max| Pool::new(name, threads_max, WAITING_MAX, on_room.clone());
        Driver {
            engine,
            pool: pool("waiting", limits.waiting_threads_max),
            names: pool("names", NAMES_THREADS_MAX),
            remote: RemotePools::new(limits.waiting_threads_max),
            commit_queue: CommitQueue::default(),
            quotas: Quotas::new(&limits, HELD_LEN_MAX, on_room.clone()),
            qos: QosLimits::default(),
            host_lookups: LookupQueue::default(),
            audit_lookups: LookupQueue::default(),
            callback_dialers: CallbackDialers::new(),
            recovery,
            connections: Mutex::default(),
            open: inboxes.iter().map(|_| AtomicUsize::new(0)).collect(),
            inboxes,
            traffic: Traffic::default(),
            client_faults,
            tls,
            gss,
            audit,
            exports: Mutex::new(exports),
            hosts,
            record_len_max,
            stop: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            right,
            limits,
        }
    }

    /// False for a head whose lease has ended.
    pub(crate) fn may_serve(&self) -> bool {
        self.right.as_ref().is_none_or(|right| right.is_valid())
    }

    /// Operations that a pool carries out. They may hang in the kernel.
    pub(crate) fn running_operations(&self) -> usize {
        self.pool.running() + self.names.running() + self.remote.running()
    }

    /// Clients meet new limits at once.
    pub(crate) fn apply_qos(&self, exports: &Exports) {
        self.qos.set_exports(exports);
        self.connections.lock().values().for_each(|connection| connection.qos().release());
        self.inboxes.iter().for_each(|inbox| inbox.post(Message::RoomFreed));
    }

    pub(crate) fn connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connections.lock().get(&id).cloned()
    }
}
