//! Shared by all threads and connections until it is destroyed or expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_krb5_seal::ContextKeys;

use crate::{ClientContext, GssSeq, Service, Window};

/// Random, so it can't be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextHandle(pub [u8; HANDLE_LEN]);

/// Bytes of a handle.
pub const HANDLE_LEN: usize = 16;

/// What a server's mechanism has agreed with a client.
#[derive(Clone)]
pub struct EstablishedContext {
    /// Shared with the context that is made of it.
    pub keys: Arc<ContextKeys>,
    /// With realm: `alice@EXAMPLE.ORG`.
    pub principal: Arc<str>,
    /// With realm: `nfs/host.example.org@EXAMPLE.ORG`.
    pub service: Arc<str>,
    /// Seconds from now until the ticket's end.
    pub lifetime_s: u64,
    /// Sequence number of our first token.
    pub token_seq: u64,
}

/// A context on a server.
pub struct ServerContext {
    handle: ContextHandle,
    established: EstablishedContext,
    ends_ms: u64,
    window: Mutex<Window>,
    next_token: AtomicU64,
    used_ms: AtomicU64,
    is_removed: AtomicBool,
    next_back: AtomicU32,
}

impl ServerContext {
    pub(crate) fn new(handle: ContextHandle, established: EstablishedContext, now_ms: u64) -> Self {
        Self {
            handle,
            ends_ms: now_ms.saturating_add(established.lifetime_s.saturating_mul(1000)),
            next_token: AtomicU64::new(established.token_seq),
            established,
            window: Mutex::default(),
            used_ms: AtomicU64::new(now_ms),
            is_removed: AtomicBool::new(false),
            next_back: AtomicU32::new(1),
        }
    }

    /// The handle that the client sends with each call.
    pub const fn handle(&self) -> ContextHandle {
        self.handle
    }

    /// The same, borrowed.
    pub const fn handle_ref(&self) -> &ContextHandle {
        &self.handle
    }

    /// The client, with its realm.
    pub const fn principal(&self) -> &Arc<str> {
        &self.established.principal
    }

    /// The principal of the server that the client has named.
    pub const fn service(&self) -> &Arc<str> {
        &self.established.service
    }

    /// Keys of the context's messages.
    pub fn keys(&self) -> &ContextKeys {
        &self.established.keys
    }

    /// Notes use. Handles travel in clear, so an unverified call is no use.
    pub fn touch(&self, now_ms: u64) {
        self.used_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// It was destroyed or evicted, or its ticket has ended.
    pub fn has_ended(&self, now_ms: u64) -> bool {
        now_ms >= self.ends_ms || self.is_removed.load(Ordering::Acquire)
    }

    /// 0 after its end.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        if self.is_removed.load(Ordering::Acquire) {
            0
        } else {
            self.ends_ms.saturating_sub(now_ms)
        }
    }

    /// For one callback to the client (RFC 8881 §2.10.8.3).
    pub fn back_channel(&self, handle: &[u8], service: Service) -> ClientContext {
        // Exhaustion is permanent and reported at the first call.
        let next = |seq: u32| Some(seq.saturating_add(1).min(GssSeq::MAX.0));
        let seq = self
            .next_back
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .unwrap_or(GssSeq::MAX.0);
        ClientContext::of_server(
            self.established.keys.clone(),
            self.next_token(),
            handle.to_vec(),
            service,
            GssSeq(seq),
        )
    }

    /// Takes the sequence number of a verified call; false if the call must be dropped.
    pub(crate) fn take_seq(&self, seq: GssSeq) -> bool {
        self.window.lock().take(seq)
    }

    pub(crate) fn next_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) const fn ends_ms(&self) -> u64 {
        self.ends_ms
    }

    pub(crate) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.is_removed.store(true, Ordering::Release);
    }
}
