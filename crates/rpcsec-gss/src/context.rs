//! A context as the server keeps it: shared by all threads and connections, gone when it is told so
//! or its time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_krb5_seal::ContextKeys;

use crate::{ClientContext, GssSeq, Service, Window};

/// The server's name of a context. Random: who has not been told it can't guess it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextHandle(pub [u8; HANDLE_LEN]);

/// Length of a handle.
pub const HANDLE_LEN: usize = 16;

/// What the mechanism says of a context when it is complete.
#[derive(Clone)]
pub struct EstablishedContext {
    /// What protects messages.
    pub keys: Arc<ContextKeys>,
    /// Who calls, with the realm: `alice@EXAMPLE.ORG`.
    pub principal: Arc<str>,
    /// The service that was called, with the realm: `nfs/host.example.org@EXAMPLE.ORG`.
    pub service: Arc<str>,
    /// How long it is good from now on, seconds: until the ticket's end.
    pub lifetime_s: u64,
    /// Number of the first token that we send.
    pub token_seq: u64,
}

/// A context that can be used.
pub struct ServerContext {
    handle: ContextHandle,
    established: EstablishedContext,
    ends_ms: u64,
    window: Mutex<Window>,
    next_token: AtomicU64,
    used_ms: AtomicU64,
    gone: AtomicBool,
    /// Number of the next call that we make under it.
    next_back: AtomicU32,
}

impl ServerContext {
    /// A context that begins now. `now_ms` is of a monotonic clock.
    pub(crate) fn new(handle: ContextHandle, established: EstablishedContext, now_ms: u64) -> Self {
        Self {
            handle,
            ends_ms: now_ms.saturating_add(established.lifetime_s.saturating_mul(1000)),
            next_token: AtomicU64::new(established.token_seq),
            established,
            window: Mutex::default(),
            used_ms: AtomicU64::new(now_ms),
            gone: AtomicBool::new(false),
            next_back: AtomicU32::new(1),
        }
    }

    /// Its name.
    pub const fn handle(&self) -> ContextHandle {
        self.handle
    }

    /// Its name, where it lies.
    pub const fn handle_ref(&self) -> &ContextHandle {
        &self.handle
    }

    /// Who calls.
    pub const fn principal(&self) -> &Arc<str> {
        &self.established.principal
    }

    /// The service that was called.
    pub const fn service(&self) -> &Arc<str> {
        &self.established.service
    }

    /// What protects messages.
    pub fn keys(&self) -> &ContextKeys {
        &self.established.keys
    }

    /// Notes that its owner uses it. To be called where he has proven that, and nowhere else: names
    /// travel in clear.
    pub fn touch(&self, now_ms: u64) {
        self.used_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Whether it was destroyed, set aside for others, or the ticket has ended.
    pub fn has_ended(&self, now_ms: u64) -> bool {
        now_ms >= self.ends_ms || self.gone.load(Ordering::Acquire)
    }

    /// Milliseconds until it ends; 0 if it has.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        if self.gone.load(Ordering::Acquire) { 0 } else { self.ends_ms.saturating_sub(now_ms) }
    }

    /// For one call in the other direction, to the client that made the context (RFC 8881, section
    /// 2.10.8.3): by the same keys, which tell by whom a token was sent, under the
    /// client's name of it. Its number is this context's next of that direction, whatever names are
    /// used.
    pub fn back_channel(&self, handle: &[u8], service: Service) -> ClientContext {
        // What was used up stays so: the context says that at its first call.
        let next = |seq: u32| Some(seq.saturating_add(1).min(GssSeq::MAX.0));
        let seq = self.next_back.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(GssSeq::MAX.0);
        ClientContext::of_server(self.established.keys.clone(), self.next_token(), handle.to_vec(), service, GssSeq(seq))
    }

    /// Takes in the number of a call that has been verified; false if the call must be dropped.
    pub(crate) fn take_seq(&self, seq: GssSeq) -> bool {
        self.window.lock().take(seq)
    }

    /// A number for a token that we send.
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
        self.gone.store(true, Ordering::Release);
    }
}
