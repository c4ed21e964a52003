//! A transport connection. The driver owns the socket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::ConnectionId;
use crate::access::admission;
use crate::access::grant::GrantCache;
use crate::pseudo_fs::VisibilityCache;

pub struct Connection {
    id: ConnectionId,
    peer: SocketAddr,
    grants: Mutex<GrantCache>,
    admission: Mutex<Option<admission::CachedAdmission>>,
    visibility: Mutex<VisibilityCache>,
    closed: AtomicBool,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, peer: SocketAddr) -> Self {
        Connection {
            id,
            peer,
            grants: Mutex::default(),
            admission: Mutex::default(),
            visibility: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    pub fn id(&self) -> ConnectionId {
        self.id
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
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
