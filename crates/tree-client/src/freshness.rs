//! Which revision is in force: judged, remembered, and held against the time at each use.
//!
//! Asks nobody: offers come in, from [`crate::refresh`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::Instant;
use vouch_tree::protocol::FsinfoOffer;
use vouch_tree::statement::{Body, KeyStatement, in_force};
use vouch_tree::verify::{Refusal, judge};
use vouch_tree::{HostId, TreeName};

use crate::clock::Clock;
use crate::revision::Revision;
use crate::seen::{Memory, SeenStore};
use crate::{Error, Result};

/// The time witnessed is written down again when so much has passed, or at once when something has
/// expired: a write and its fsync are not worth a second.
const WITNESS_STEP_S: u64 = 60;

/// What became of an offer.
#[derive(Debug)]
pub(crate) enum Judgement {
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
    memory: Mutex<Memory>,
    current: RwLock<Option<Arc<Revision>>>,
    /// The end of the current revision, for the check on each read.
    expires: AtomicI64,
    floor: RwLock<TimeFloor>,
    condemned: RwLock<Option<Error>>,
    /// Set while the newest believed fsinfo has another iv, so that nothing of this client fits it.
    made_anew: RwLock<Option<Error>>,
    changes: watch::Sender<Option<Arc<Revision>>>,
    last_word: Mutex<String>,
}

/// Time can't be earlier than this, whatever the clock says: something was signed then, and time
/// has passed since.
#[derive(Clone, Copy)]
struct TimeFloor {
    start: u64,
    learnt: Instant,
}

impl Freshness {
    /// Blocks on the remembered file.
    pub(crate) fn load(hostid: HostId, clock: Arc<dyn Clock>, store: Arc<SeenStore>) -> Result<Self> {
        let memory = store.load(&hostid)?;
        let floor = TimeFloor { start: memory.time(), learnt: Instant::now() };
        Ok(Self {
            hostid,
            clock,
            store,
            memory: Mutex::new(memory),
            current: RwLock::new(None),
            expires: AtomicI64::new(i64::MIN),
            floor: RwLock::new(floor),
            condemned: RwLock::new(None),
            made_anew: RwLock::new(None),
            changes: watch::Sender::new(None),
            last_word: Mutex::default(),
        })
    }

    /// Seconds since 1970, not earlier than what was signed by the newest fsinfo and has passed
    /// since.
    pub(crate) fn now(&self) -> u64 {
        let clock = u64::try_from(self.clock.now()).unwrap_or(0);
        let floor = *self.floor.read();
        clock.max(floor.start.saturating_add(floor.learnt.elapsed().as_secs()))
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
            newest => Err(self.why_not(newest.as_deref())),
        }
    }

    /// Why nothing may be used now.
    pub(crate) fn why_not(&self, newest: Option<&Revision>) -> Error {
        if let Some(error) = self.condemned() {
            return error;
        }
        let last = self.last_word.lock().clone();
        match newest {
            Some(revision) => {
                let since = u64::try_from(revision.expires()).unwrap_or(0);
                Error::Expired { revision: revision.number(), since, now: self.now(), last }
            }
            None => Error::Unreachable { tried: last },
        }
    }

    /// Why the tree can't be used, where its publisher's own word is the reason.
    pub(crate) fn condemned(&self) -> Option<Error> {
        self.condemned.read().clone().or_else(|| self.made_anew.read().clone())
    }

    /// The same, where it is for good: made anew, a tree may be mended by the next certificate.
    pub(crate) fn condemned_for_good(&self) -> Option<Error> {
        self.condemned.read().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Revision>>> {
        self.changes.subscribe()
    }

    pub(crate) fn set_last_word(&self, word: String) {
        *self.last_word.lock() = word;
    }

    /// Takes note of verified statements about the key, wherever they were met. Blocks on the
    /// remembered file.
    pub(crate) fn heed(&self, statements: Vec<KeyStatement>) {
        let mut memory = self.memory.lock();
        let news = statements.into_iter().filter(|s| s.hostid() == self.hostid && s.verified().is_some());
        let news = news.map(|s| memory.add_statement(s)).fold(false, |any, new| any | new);
        if news {
            self.remember(&mut memory);
            self.condemn_by(&memory.statements);
        }
    }

    /// Keeps `memory` beyond this process, and takes over what others have put there.
    fn remember(&self, memory: &mut Memory) {
        match self.store.advance(&self.hostid, memory.clone()) {
            Ok(merged) => *memory = merged,
            Err(error) => tracing::warn!(tree = %self.hostid, "{error}"),
        }
        self.raise_floor(memory.time());
    }

    /// Takes note that it was `time` while a revision was judged that ends at `end`. A clock that
    /// ran ahead goes no further than that end, so that it costs no more than what is signed
    /// today. Blocks on the remembered file where it is worth a write.
    fn witness(&self, memory: &mut Memory, time: u64, end: u64) {
        let time = time.min(end);
        let step = if time == end { 1 } else { WITNESS_STEP_S };
        if time >= memory.witnessed.saturating_add(step) {
            memory.witnessed = time;
            self.remember(memory);
        }
    }

    /// Takes note that what is in force has ended, where nobody offers anything to judge. Blocks on
    /// the remembered file.
    pub(crate) fn witness_end(&self) {
        let mut memory = self.memory.lock();
        if let Some(current) = self.newest() {
            self.witness(&mut memory, self.now(), u64::try_from(current.expires()).unwrap_or(u64::MAX));
        }
    }

    /// Time is at least `start`, and no less than it was.
    fn raise_floor(&self, start: u64) {
        let mut floor = self.floor.write();
        let passed = floor.start.saturating_add(floor.learnt.elapsed().as_secs());
        if start > passed {
            *floor = TimeFloor { start, learnt: Instant::now() };
        }
    }

    /// Condemns the tree if a statement that was met says so.
    pub(crate) fn heed_remembered(&self) {
        let memory = self.memory.lock();
        self.condemn_by(&memory.statements);
    }

    fn condemn_by(&self, statements: &[KeyStatement]) {
        let error = match in_force(&self.hostid, statements).and_then(KeyStatement::verified) {
            Some(Body::Revocation { reason }) => Error::Revoked { hostid: self.hostid, reason: reason.clone() },
            Some(Body::Forwarding { to }) => Error::Forwarded { to: to.clone() },
            None => return,
        };
        self.condemn(error);
    }

    /// Ends belief in the tree.
    pub(crate) fn condemn(&self, error: Error) {
        if self.newest().is_some() {
            tracing::error!(tree = %self.hostid, "{error}");
        } else {
            // Whoever opens the tree is told.
            tracing::debug!(tree = %self.hostid, "{error}");
        }
        *self.condemned.write() = Some(error);
        self.expires.store(i64::MIN, Ordering::Release);
    }

    /// The verified statements about the key that were met.
    pub(crate) fn statements(&self) -> Vec<KeyStatement> {
        self.memory.lock().statements.clone()
    }

    /// The signed fsinfo remembered from before, if any.
    pub(crate) fn remembered(&self) -> Option<Vec<u8>> {
        let memory = self.memory.lock();
        (!memory.signed.is_empty()).then(|| memory.signed.clone())
    }

    /// Judges a signed fsinfo, and puts it in force if it is newer. Blocks on the remembered file
    /// when it is.
    pub(crate) fn judge(&self, signed: &[u8]) -> Result<Judgement> {
        if signed.is_empty() {
            return Ok(Judgement::Nothing);
        }
        let mut memory = self.memory.lock();
        let current = self.newest();
        if let Some(current) = current.as_deref().filter(|c| c.signed == signed) {
            let end = u64::try_from(current.expires()).unwrap_or(u64::MAX);
            self.witness(&mut memory, self.now(), end);
            return Ok(Judgement::Current(current.number()));
        }
        let now = self.now();
        let verified = match judge(&self.hostid, signed, now, &memory.seen, &memory.statements) {
            Ok(verified) => verified,
            Err(Refusal::Rollback { offered, .. }) => return Ok(Judgement::Stale(offered)),
            Err(refusal) => {
                if let Refusal::Expired { expires, now } = refusal {
                    self.witness(&mut memory, now, expires);
                }
                let lie = refusal.proves_a_lie();
                return Ok(Judgement::Refused(refusal, lie));
            }
        };
        let witnessed = if now >= memory.witnessed.saturating_add(WITNESS_STEP_S) { now } else { memory.witnessed };
        let newer = Memory { seen: verified.seen, witnessed, signed: signed.to_vec(), statements: memory.statements.clone() };
        *memory = self.store.advance(&self.hostid, newer)?;
        if memory.seen.order() > verified.seen.order() {
            // Another process has seen a newer one in the meantime.
            return Ok(Judgement::Stale(verified.fsinfo.revision));
        }
        self.raise_floor(memory.time());
        if current.as_deref().is_some_and(|c| c.fsinfo.iv != verified.fsinfo.iv) {
            // Remembered as seen, so that nothing older is believed again; what a later certificate signs with
            // our iv is.
            let what = "the tree was made anew, with another iv; open it again (a mount: unmount, and mount again)".to_owned();
            let error = Error::Damaged { what };
            if self.made_anew.write().replace(error.clone()).is_none() {
                tracing::error!(tree = %self.hostid, revision = verified.fsinfo.revision, "{error}");
            }
            self.expires.store(i64::MIN, Ordering::Release);
            return Err(error);
        }
        let cert_serial = verified.seen.cert_serial;
        let revision = Arc::new(Revision::new(verified.fsinfo, Bytes::copy_from_slice(signed), cert_serial, verified.expires));
        *self.made_anew.write() = None;
        self.expires.store(revision.expires(), Ordering::Release);
        // Another key's word may have come in the meantime: see `Tree::ask_origins`.
        if self.condemned().is_some() {
            self.expires.store(i64::MIN, Ordering::Release);
        }
        *self.current.write() = Some(Arc::clone(&revision));
        self.changes.send_replace(Some(revision));
        Ok(Judgement::Newer)
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
pub(crate) fn forwarded(error: &Error) -> Option<&TreeName> {
    match error {
        Error::Forwarded { to } => Some(to),
        _ => None,
    }
}
