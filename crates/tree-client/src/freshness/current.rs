//! Which revision is in force: judged, remembered, and held against the time at each use.
//!
//! Asks nobody: offers come in, from [`crate::freshness::refresh`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::Instant;
use vouch_tree::protocol::FsinfoOffer;
use vouch_tree::statement::{Body, KeyStatement, effective_statement};
use vouch_tree::verify::{Refusal, verify_fsinfo};
use vouch_tree::{HostId, TreeName};

use crate::clock::Clock;
use crate::freshness::seen_store::{SeenRecord, SeenStore};
use crate::revision::Revision;
use crate::{Error, Result};

/// The time witnessed is written down again when so much has passed, or at once when something has
/// expired: a write and its fsync are not worth a second.
const TIME_STEP_S: u64 = 60;

/// What became of an offer.
#[derive(Debug)]
pub(crate) enum OfferVerdict {
    /// Newer than what was in force.
    Newer,
    /// What is in force already.
    Current(u64),
    /// Valid or once valid, but older than what is in force.
    Stale(u64),
    /// Not to be believed; `true` if only a forger can have made it.
    Refused(Refusal, bool),
    /// Only statements came.
    Nothing,
}

/// The state of one tree's freshness.
pub(crate) struct Freshness {
    hostid: HostId,
    clock: Arc<dyn Clock>,
    store: Arc<SeenStore>,
    /// What is remembered; the lock is held while an offer is judged, so that two can't be adopted
    /// at once.
    memory: Mutex<SeenRecord>,
    current: RwLock<Option<Arc<Revision>>>,
    /// The end of the current revision, for the check on each read.
    expires: AtomicI64,
    floor: RwLock<TimeFloor>,
    blocked: RwLock<Option<Error>>,
    /// Set while the newest believed fsinfo has another iv, so that nothing of this client fits it.
    changed_iv: RwLock<Option<Error>>,
    changes: watch::Sender<Option<Arc<Revision>>>,
    last_failure: Mutex<String>,
}

/// Time can't be earlier than this, whatever the clock says: something was signed then, and time
/// has passed since.
#[derive(Clone, Copy)]
struct TimeFloor {
    start: u64,
    set_at: Instant,
}

impl Freshness {
    /// Blocks on the remembered file.
    pub(crate) fn load(hostid: HostId, clock: Arc<dyn Clock>, store: Arc<SeenStore>) -> Result<Self> {
        let memory = store.load(&hostid)?;
        let floor = TimeFloor { start: memory.time(), set_at: Instant::now() };
        Ok(Self {
            hostid,
            clock,
            store,
            memory: Mutex::new(memory),
            current: RwLock::new(None),
            expires: AtomicI64::new(i64::MIN),
            floor: RwLock::new(floor),
            blocked: RwLock::new(None),
            changed_iv: RwLock::new(None),
            changes: watch::Sender::new(None),
            last_failure: Mutex::default(),
        })
    }

    /// Seconds since 1970, not earlier than what was signed by the newest fsinfo and has passed
    /// since.
    pub(crate) fn now(&self) -> u64 {
        let clock = u64::try_from(self.clock.now()).unwrap_or(0);
        let floor = *self.floor.read();
        clock.max(floor.start.saturating_add(floor.set_at.elapsed().as_secs()))
    }

    /// Whether what is in force may be used now. A few atomic reads.
    pub(crate) fn is_fresh(&self) -> bool {
        let now = i64::try_from(self.now()).unwrap_or(i64::MAX);
        now < self.expires.load(Ordering::Acquire)
    }

    /// The newest believed revision, valid or not.
    pub(crate) fn newest(&self) -> Option<Arc<Revision>> {
        self.current.read().clone()
    }

    /// The newest believed revision, if it may be used now.
    pub(crate) fn revision(&self) -> Result<Arc<Revision>> {
        match self.newest() {
            Some(revision) if self.is_fresh() => Ok(revision),
            newest => Err(self.unusable_error(newest.as_deref())),
        }
    }

    /// Why nothing may be used now.
    pub(crate) fn unusable_error(&self, newest: Option<&Revision>) -> Error {
        if let Some(error) = self.blocked() {
            return error;
        }
        let last = self.last_failure.lock().clone();
        match newest {
            Some(revision) => {
                let since = u64::try_from(revision.expires()).unwrap_or(0);
                Error::Expired { revision: revision.number(), since, now: self.now(), last }
            }
            None => Error::Unreachable { tried: last },
        }
    }

    /// Why the tree can't be used, where its publisher's own word is the reason.
    pub(crate) fn blocked(&self) -> Option<Error> {
        self.blocked.read().clone().or_else(|| self.changed_iv.read().clone())
    }

    /// The same, where it is for good: made anew, a tree may be mended by the next certificate.
    pub(crate) fn blocked_for_good(&self) -> Option<Error> {
        self.blocked.read().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Revision>>> {
        self.changes.subscribe()
    }

    pub(crate) fn set_last_failure(&self, word: String) {
        *self.last_failure.lock() = word;
    }

    /// Takes note of verified statements about the key, wherever they were met. Blocks on the
    /// remembered file.
    pub(crate) fn apply_statements(&self, statements: Vec<KeyStatement>) {
        let mut memory = self.memory.lock();
        let news = statements.into_iter().filter(|s| s.hostid() == self.hostid && s.verified().is_some());
        let news = news.map(|s| memory.add_statement(s)).fold(false, |any, new| any | new);
        if news {
            self.store_record(&mut memory);
            self.block_by_statements(&memory.statements);
        }
    }

    /// Keeps `memory` beyond this process, and takes over what others have put there.
    fn store_record(&self, memory: &mut SeenRecord) {
        match self.store.advance(&self.hostid, memory.clone()) {
            Ok(merged) => *memory = merged,
            Err(error) => tracing::warn!(tree = %self.hostid, "{error}"),
        }
        self.raise_time_floor(memory.time());
    }

    /// Takes note that it was `time` while a revision was judged that ends at `end`. A clock that
    /// ran ahead goes no further than that end, so that it costs no more than what is signed
    /// today. Blocks on the remembered file where it is worth a write.
    fn witness(&self, memory: &mut SeenRecord, time: u64, end: u64) {
        let time = time.min(end);
        let step = if time == end { 1 } else { TIME_STEP_S };
        if time >= memory.time_seen.saturating_add(step) {
            memory.time_seen = time;
            self.store_record(memory);
        }
    }

    /// Takes note that what is in force has ended, where nobody offers anything to judge. Blocks on
    /// the remembered file.
    pub(crate) fn record_expiry(&self) {
        let mut memory = self.memory.lock();
        if let Some(current) = self.newest() {
            self.witness(&mut memory, self.now(), u64::try_from(current.expires()).unwrap_or(u64::MAX));
        }
    }

    /// Time is at least `start`, and no less than it was.
    fn raise_time_floor(&self, start: u64) {
        let mut floor = self.floor.write();
        let passed = floor.start.saturating_add(floor.set_at.elapsed().as_secs());
        if start > passed {
            *floor = TimeFloor { start, set_at: Instant::now() };
        }
    }

    /// Condemns the tree if a statement that was met says so.
    pub(crate) fn apply_stored_statements(&self) {
        let memory = self.memory.lock();
        self.block_by_statements(&memory.statements);
    }

    fn block_by_statements(&self, statements: &[KeyStatement]) {
        let error = match effective_statement(&self.hostid, statements).and_then(KeyStatement::verified) {
            Some(Body::Revocation { reason }) => Error::Revoked { hostid: self.hostid, reason: reason.clone() },
            Some(Body::Forwarding { to }) => Error::Forwarded { to: to.clone() },
            None => return,
        };
        self.block(error);
    }

    /// Ends belief in the tree.
    pub(crate) fn block(&self, error: Error) {
        if self.newest().is_some() {
            tracing::error!(tree = %self.hostid, "{error}");
        } else {
            // Whoever opens the tree is told.
            tracing::debug!(tree = %self.hostid, "{error}");
        }
        *self.blocked.write() = Some(error);
        self.expires.store(i64::MIN, Ordering::Release);
    }

    /// The verified statements about the key that were met.
    pub(crate) fn statements(&self) -> Vec<KeyStatement> {
        self.memory.lock().statements.clone()
    }

    /// The signed fsinfo remembered from before, if any.
    pub(crate) fn stored_fsinfo(&self) -> Option<Vec<u8>> {
        let memory = self.memory.lock();
        (!memory.signed.is_empty()).then(|| memory.signed.clone())
    }

    /// Judges a signed fsinfo, and puts it in force if it is newer. Blocks on the remembered file
    /// when it is.
    pub(crate) fn judge(&self, signed: &[u8]) -> Result<OfferVerdict> {
        if signed.is_empty() {
            return Ok(OfferVerdict::Nothing);
        }
        let mut memory = self.memory.lock();
        let current = self.newest();
        if let Some(current) = current.as_deref().filter(|c| c.signed == signed) {
            let end = u64::try_from(current.expires()).unwrap_or(u64::MAX);
            self.witness(&mut memory, self.now(), end);
            return Ok(OfferVerdict::Current(current.number()));
        }
        let now = self.now();
        let verified = match verify_fsinfo(&self.hostid, signed, now, &memory.seen, &memory.statements) {
            Ok(verified) => verified,
            Err(Refusal::Rollback { offered, .. }) => return Ok(OfferVerdict::Stale(offered)),
            Err(refusal) => {
                if let Refusal::Expired { expires, now } = refusal {
                    self.witness(&mut memory, now, expires);
                }
                let lie = refusal.is_forgery();
                return Ok(OfferVerdict::Refused(refusal, lie));
            }
        };
        let time_seen = if now >= memory.time_seen.saturating_add(TIME_STEP_S) { now } else { memory.time_seen };
        let newer = SeenRecord { seen: verified.seen, time_seen, signed: signed.to_vec(), statements: memory.statements.clone() };
        *memory = self.store.advance(&self.hostid, newer)?;
        if memory.seen.order() > verified.seen.order() {
            // Another process has seen a newer one in the meantime.
            return Ok(OfferVerdict::Stale(verified.fsinfo.revision));
        }
        self.raise_time_floor(memory.time());
        if current.as_deref().is_some_and(|c| c.fsinfo.iv != verified.fsinfo.iv) {
            // Remembered as seen, so that nothing older is believed again; what a later certificate signs with
            // our iv is.
            let what = "the tree was made anew, with another iv; open it again (a mount: unmount, and mount again)".to_owned();
            let error = Error::Damaged { what };
            if self.changed_iv.write().replace(error.clone()).is_none() {
                tracing::error!(tree = %self.hostid, revision = verified.fsinfo.revision, "{error}");
            }
            self.expires.store(i64::MIN, Ordering::Release);
            return Err(error);
        }
        let cert_serial = verified.seen.cert_serial;
        let revision = Arc::new(Revision::new(verified.fsinfo, Bytes::copy_from_slice(signed), cert_serial, verified.expires));
        *self.changed_iv.write() = None;
        self.expires.store(revision.expires(), Ordering::Release);
        // Another key's word may have come in the meantime: see `Tree::ask_origins`.
        if self.blocked().is_some() {
            self.expires.store(i64::MIN, Ordering::Release);
        }
        *self.current.write() = Some(Arc::clone(&revision));
        self.changes.send_replace(Some(revision));
        Ok(OfferVerdict::Newer)
    }
}

/// The well-formed, verified statements about `hostid` in an offer, and whether there were forged
/// ones among them.
pub(crate) fn statements_of(offer: &FsinfoOffer, hostid: &HostId) -> (Vec<KeyStatement>, bool) {
    let (mut good, mut forged) = (Vec::new(), false);
    for bytes in &offer.statements {
        match KeyStatement::parse(bytes) {
            Ok(statement) if statement.verified().is_none() => forged = true,
            Ok(statement) if statement.hostid() == *hostid => good.push(statement),
            Ok(_) => {}
            // A later version may know other statements.
            Err(error) => tracing::debug!("a key statement is not understood: {error}"),
        }
    }
    (good, forged)
}

/// Where a forwarding pointer leads, if that is why the tree is condemned.
pub(crate) fn forwarding_target(error: &Error) -> Option<&TreeName> {
    match error {
        Error::Forwarded { to } => Some(to),
        _ => None,
    }
}
