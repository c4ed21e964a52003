use std::collections::VecDeque;
use std::time::{Duration, Instant};

use vouch_nfs4_server::ConnectionId;

#[derive(Default)]
pub(super) struct HandshakeQueue {
    peers: VecDeque<(usize, ConnectionId)>,
    not_before: Option<Instant>,
}

impl HandshakeQueue {
    pub(super) fn push(&mut self, slot: usize, id: ConnectionId) {
        if !self.peers.contains(&(slot, id)) {
            self.peers.push_back((slot, id));
        }
    }

    pub(super) fn take(&mut self) -> Option<(usize, ConnectionId)> {
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        self.peers.pop_front()
    }

    /// Other clients with work then get as much time.
    pub(super) fn add_time(&mut self, time: Duration, is_busy: bool) {
        self.not_before = is_busy.then(|| Instant::now() + time);
    }

    pub(super) fn due(&self, otherwise: Instant) -> Instant {
        match self.peers.is_empty() {
            true => otherwise,
            false => otherwise.min(self.not_before.unwrap_or_else(Instant::now)),
        }
    }
}
