use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::access::admission;
use crate::access::grant::GrantCache;
use crate::pseudo_fs::VisibilityCache;
use crate::{ConnectionId, TlsPeer, Transport};

/// Every export of the client demands a stronger transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportVerdict {
    pub(crate) is_too_weak: bool,
    pub(crate) generation: u64,
    pub(crate) made_ms: u64,
}

pub struct Connection {
    id: ConnectionId,
    peer: SocketAddr,
    grants: Mutex<GrantCache>,
    tls: OnceLock<TlsPeer>,
    transport_verdict: Mutex<Option<TransportVerdict>>,
    admission: Mutex<Option<admission::CachedAdmission>>,
    visibility: Mutex<VisibilityCache>,
    client_name: OnceLock<Arc<[u8]>>,
    closed: AtomicBool,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, peer: SocketAddr) -> Self {
        Connection {
            id,
            peer,
            grants: Mutex::default(),
            tls: OnceLock::new(),
            transport_verdict: Mutex::default(),
            admission: Mutex::default(),
            visibility: Mutex::default(),
            client_name: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    pub fn id(&self) -> ConnectionId {
        self.id
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Call it once, before the first call.
    pub fn set_tls(&self, peer: TlsPeer) {
        let set = self.tls.set(peer);
        debug_assert!(set.is_ok(), "a connection has one handshake");
    }

    pub fn tls(&self) -> Option<&TlsPeer> {
        self.tls.get()
    }

    pub fn transport(&self) -> Transport {
        match self.tls.get() {
            None => Transport::Clear,
            Some(TlsPeer { certificate: None, .. }) => Transport::Tls,
            Some(TlsPeer { certificate: Some(_), .. }) => Transport::MutualTls,
        }
    }

    /// Name of the certificate, if it is a machine's.
    pub(crate) fn machine(&self) -> Option<&str> {
        self.tls
            .get()?
            .certificate
            .as_ref()
            .filter(|certificate| certificate.user.is_none())
            .map(|certificate| &*certificate.name)
    }

    pub(crate) fn transport_verdict(&self) -> &Mutex<Option<TransportVerdict>> {
        &self.transport_verdict
    }

    /// The name of the first client that used the connection.
    pub fn client_name(&self) -> Option<&[u8]> {
        self.client_name.get().map(|name| &**name)
    }

    pub(crate) fn set_client_name(&self, name: impl FnOnce() -> Arc<[u8]>) {
        self.client_name.get_or_init(name);
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn grants(&self) -> &Mutex<GrantCache> {
        &self.grants
    }

    pub(crate) fn admission(&self) -> &Mutex<Option<admission::CachedAdmission>> {
        &self.admission
    }

    pub(crate) fn visibility(&self) -> &Mutex<VisibilityCache> {
        &self.visibility
    }
}
