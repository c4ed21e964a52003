//! Calls that survive restarts of the server and lost connections.
//!
//! A call is repeated until the server has answered it, or until the time of a soft mount is over.
//! After a restart of the server, opens and locks are reclaimed before other calls go on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use vouch_nfs4::op::SequenceFlags;
use vouch_nfs4::{ClientId, Status};
use vouch_nfs4_client::{Client, Compound, Error, Reply};

use crate::caller::Caller;
use crate::error::{self, Result};
use crate::open_file::OpenFile;

mod recovery;

/// One NFS session, with the state that must be reclaimed.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// Of a soft mount.
    timeout: Option<Duration>,
    /// Counts recoveries. A call that fails under an older number is repeated.
    generation: AtomicU64,
    recovering: tokio::sync::Mutex<()>,
    /// The client id whose reclaims are complete.
    reclaimed: Mutex<ClientId>,
    pub(crate) files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    next_file: AtomicU64,
    last_call: Mutex<Instant>,
}

enum Verdict {
    Done,
    /// The server asks for a later repetition.
    Pause,
    /// The session, or the client's state, is gone.
    Recover,
}

impl Session {
    pub(crate) fn new(client: Client, timeout: Option<Duration>) -> Arc<Self> {
        let reclaimed = Mutex::new(client.id());
        Arc::new(Self {
            client,
            reclaimed,
            timeout,
            generation: AtomicU64::new(0),
            recovering: tokio::sync::Mutex::new(()),
            files: Mutex::default(),
            next_file: AtomicU64::new(1),
            last_call: Mutex::new(Instant::now()),
        })
    }

    /// Number of a new open file, and for its open owner.
    pub(crate) fn next_file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// `build` appends operations; it runs again for each repetition.
    pub(crate) async fn call<F>(self: &Arc<Self>, caller: &Caller, build: F) -> Result<Reply>
    where
        F: for<'c> Fn(Compound<'c>) -> Compound<'c>,
    {
        self.call_in_time(caller, verdict, build).await
    }

    /// For operations that end state: the server may have ended it already.
    pub(crate) async fn call_ending<F>(self: &Arc<Self>, caller: &Caller, build: F) -> Result<Reply>
    where
        F: for<'c> Fn(Compound<'c>) -> Compound<'c>,
    {
        let judge = |status| match is_state_error(status) {
            true => Verdict::Done,
            false => verdict(status),
        };
        self.call_in_time(caller, judge, build).await
    }

    async fn call_in_time<F>(
        self: &Arc<Self>,
        caller: &Caller,
        judge: fn(Status) -> Verdict,
        build: F,
    ) -> Result<Reply>
    where
        F: for<'c> Fn(Compound<'c>) -> Compound<'c>,
    {
        let call = self.call_hard(caller, judge, build);
        match self.timeout {
            None => call.await,
            Some(timeout) => {
                tokio::time::timeout(timeout, call).await.unwrap_or(Err(Errno::TIMEDOUT))
            }
        }
    }

    async fn call_hard<F>(
        self: &Arc<Self>,
        caller: &Caller,
        verdict: fn(Status) -> Verdict,
        build: F,
    ) -> Result<Reply>
    where
        F: for<'c> Fn(Compound<'c>) -> Compound<'c>,
    {
        let (mut pause, mut losses) = (PAUSE_MIN, 0);
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let compound = self.client.compound().as_caller(caller.0.as_ref());
            let verdict = match build(compound).send().await {
                Ok(reply) => {
                    self.note_sequence(&reply, generation);
                    match verdict(reply.status()) {
                        Verdict::Done => return Ok(reply),
                        verdict => verdict,
                    }
                }
                Err(Error::Refused { status, .. }) => match verdict(status) {
                    Verdict::Done => return Err(error::errno_of(status)),
                    verdict => verdict,
                },
                Err(Error::Lost | Error::Io(_)) => Verdict::Recover,
                Err(error) => {
                    tracing::warn!("a call to the server failed: {error}");
                    return Err(error::errno(&error));
                }
            };
            match verdict {
                Verdict::Pause => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                _ => {
                    losses += 1;
                    if losses > LOSSES_MAX {
                        return Err(Errno::IO);
                    }
                    self.recover(generation).await;
                }
            }
        }
    }

    fn note_sequence(self: &Arc<Self>, reply: &Reply, generation: u64) {
        *self.last_call.lock() = Instant::now();
        let Some(sequence) = reply.sequence() else { return };
        if sequence.flags.contains(SequenceFlags::RESTART_RECLAIM_NEEDED) {
            let session = self.clone();
            tokio::spawn(async move { session.recover(generation).await });
        }
    }

    pub(crate) fn recovery_count(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Since the server's last answer.
    pub(crate) fn silence(&self) -> Duration {
        self.last_call.lock().elapsed()
    }

    /// Renews the lease while nobody calls.
    pub(crate) async fn renew_lease(session: std::sync::Weak<Self>, lease: Duration) {
        let period = (lease / 3).max(PAUSE_MIN);
        loop {
            tokio::time::sleep(period).await;
            let Some(session) = session.upgrade() else { return };
            let idle = session.last_call.lock().elapsed();
            if idle >= period {
                let _ = session.call_hard(&Caller::default(), verdict, |compound| compound).await;
            }
        }
    }
}

fn verdict(status: Status) -> Verdict {
    match status {
        Status::DELAY | Status::GRACE | Status::LAYOUTTRYLATER => Verdict::Pause,
        Status::BADSESSION
        | Status::DEADSESSION
        | Status::STALE_CLIENTID
        | Status::CONN_NOT_BOUND_TO_SESSION
        | Status::BAD_HIGH_SLOT
        | Status::SEQ_MISORDERED => Verdict::Recover,
        status if is_state_error(status) => Verdict::Recover,
        _ => Verdict::Done,
    }
}

const fn is_state_error(status: Status) -> bool {
    matches!(
        status,
        Status::BAD_STATEID
            | Status::STALE_STATEID
            | Status::OLD_STATEID
            | Status::EXPIRED
            | Status::ADMIN_REVOKED
    )
}

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Recoveries for one call. More mean that its own state cannot be recovered.
const LOSSES_MAX: u32 = 8;
