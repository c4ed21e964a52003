//! The revision in force. Stores the newest revision seen, and checks expiry at each use. Does no
//! network I/O.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;
use vouch_log::evidence::{LogEvidence, Witnessing, is_evidence};
use vouch_log::policy::Policy;
use vouch_tree::fsinfo::CertCache;
use vouch_tree::protocol::FsinfoOffer;
use vouch_tree::statement::{Body, KeyStatement, effective_statement};
use vouch_tree::verify::{Refusal, verify_fsinfo_with};
use vouch_tree::{HostId, TreeName};
use vouch_xdr::Xdr as _;

use crate::clock::Clock;
use crate::fork::{Contradiction, Fork, ForkSide};
use crate::freshness::belief::{BeliefRules, Offered};
use crate::freshness::seen_store::{SeenRecord, SeenStore};
use crate::revision::Revision;
use crate::{Error, Result};

const TIME_STEP_S: u64 = 60;

#[derive(Debug)]
pub(crate) enum OfferVerdict {
    Newer,
    Current(u64),
    Stale(u64),
    /// `true`: provably a forgery.
    Refused(Refusal, bool),
    Nothing,
}

pub(crate) struct Freshness {
    hostid: HostId,
    clock: Arc<dyn Clock>,
    store: Arc<SeenStore>,
    belief: BeliefRules,
    record: Mutex<SeenRecord>,
    cert_cache: Mutex<CertCache>,
    current: RwLock<Option<Arc<Revision>>>,
    /// Of `current`.
    witnessing: RwLock<Option<Witnessing>>,
    expires: AtomicI64,
    floor: RwLock<TimeFloor>,
    blocked: RwLock<Option<Error>>,
    changed_iv: RwLock<Option<Error>>,
    changes: watch::Sender<()>,
    last_failure: Mutex<String>,
}

/// A wrong clock cannot lower it: the start of a signed fsinfo, plus the time since.
#[derive(Clone, Copy)]
struct TimeFloor {
    start: u64,
    set_at: Instant,
}

impl Freshness {
    pub(crate) fn load(
        hostid: HostId,
        clock: Arc<dyn Clock>,
        store: Arc<SeenStore>,
        policies: Vec<Policy>,
    ) -> Result<Self> {
        let record = store.load(&hostid)?;
        let floor = TimeFloor { start: record.time(), set_at: Instant::now() };
        Ok(Self {
            hostid,
            clock,
            store,
            belief: BeliefRules { hostid, policies },
            record: Mutex::new(record),
            cert_cache: Mutex::default(),
            current: RwLock::new(None),
            witnessing: RwLock::default(),
            expires: AtomicI64::new(i64::MIN),
            floor: RwLock::new(floor),
            blocked: RwLock::new(None),
            changed_iv: RwLock::new(None),
            changes: watch::Sender::new(()),
            last_failure: Mutex::default(),
        })
    }

    pub(crate) async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> std::result::Result<T, JoinError> {
        let freshness = Arc::clone(self);
        self.store.run_blocking(move || work(&freshness)).await
    }

    pub(crate) fn now(&self) -> u64 {
        let clock = u64::try_from(self.clock.now()).unwrap_or(0);
        let floor = *self.floor.read();
        clock.max(floor.start.saturating_add(floor.set_at.elapsed().as_secs()))
    }

    pub(crate) fn is_fresh(&self) -> bool {
        let now = i64::try_from(self.now()).unwrap_or(i64::MAX);
        now < self.expires.load(Ordering::Acquire)
    }

    pub(crate) fn newest(&self) -> Option<Arc<Revision>> {
        self.current.read().clone()
    }

    /// `None` if nobody demands witnesses.
    pub(crate) fn witnessing(&self) -> Option<Witnessing> {
        *self.witnessing.read()
    }

    pub(crate) fn revision(&self) -> Result<Arc<Revision>> {
        match self.newest() {
            Some(revision) if self.is_fresh() => Ok(revision),
            newest => Err(self.unusable_error(newest.as_deref())),
        }
    }

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
            None => Error::Unreachable { attempts: last },
        }
    }

    /// The publisher's statements or fsinfo forbid all use.
    pub(crate) fn blocked(&self) -> Option<Error> {
        self.blocked.read().clone().or_else(|| self.changed_iv.read().clone())
    }

    pub(crate) fn blocked_for_good(&self) -> Option<Error> {
        self.blocked.read().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn set_last_failure(&self, summary: String) {
        *self.last_failure.lock() = summary;
    }

    pub(crate) fn apply_statements(&self, statements: Vec<KeyStatement>) {
        let mut record = self.record.lock();
        let valid =
            statements.into_iter().filter(|s| s.hostid() == self.hostid && s.verified().is_some());
        let is_new = valid.map(|s| record.add_statement(s)).fold(false, |any, new| any | new);
        if is_new {
            self.store_record(&mut record);
            self.block_by_statements(&record.statements);
        }
    }

    fn store_record(&self, record: &mut SeenRecord) {
        match self.store.advance(&self.hostid, record.clone()) {
            Ok(merged) => *record = merged,
            Err(error) => tracing::warn!(tree = %self.hostid, "{error}"),
        }
        self.raise_time_floor(record.time());
    }

    /// Stores the time of a verification, at most `end`: a fast clock cannot expire later
    /// revisions. Blocks on the state file.
    fn record_time(&self, record: &mut SeenRecord, time: u64, end: u64) {
        let time = time.min(end);
        let step = if time == end { 1 } else { TIME_STEP_S };
        if time >= record.time_seen.saturating_add(step) {
            record.time_seen = time;
            self.store_record(record);
        }
    }

    pub(crate) fn record_expiry(&self) {
        let mut record = self.record.lock();
        if let Some(current) = self.newest() {
            self.record_time(
                &mut record,
                self.now(),
                u64::try_from(current.expires()).unwrap_or(u64::MAX),
            );
        }
    }

    fn raise_time_floor(&self, start: u64) {
        let mut floor = self.floor.write();
        let passed = floor.start.saturating_add(floor.set_at.elapsed().as_secs());
        if start > passed {
            *floor = TimeFloor { start, set_at: Instant::now() };
        }
    }

    pub(crate) fn apply_stored_statements(&self) {
        let record = self.record.lock();
        self.block_by_statements(&record.statements);
    }

    fn block_by_statements(&self, statements: &[KeyStatement]) {
        let error =
            match effective_statement(&self.hostid, statements).and_then(KeyStatement::verified) {
                Some(Body::Revocation { reason }) => {
                    Error::Revoked { hostid: self.hostid, reason: reason.clone() }
                }
                Some(Body::Forwarding { to }) => Error::Forwarded { to: to.clone() },
                None => return,
            };
        self.block(error);
    }

    pub(crate) fn block(&self, error: Error) {
        if self.newest().is_some() {
            tracing::error!(tree = %self.hostid, "{error}");
        } else {
            // The caller of `open` gets the error.
            tracing::debug!(tree = %self.hostid, "{error}");
        }
        *self.blocked.write() = Some(error);
        self.expires.store(i64::MIN, Ordering::Release);
    }

    pub(crate) fn statements(&self) -> Vec<KeyStatement> {
        self.record.lock().statements.clone()
    }

    /// The signed fsinfo and its evidence.
    pub(crate) fn stored_fsinfo(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let record = self.record.lock();
        (!record.signed.is_empty()).then(|| (record.signed.clone(), record.evidence.clone()))
    }

    /// Puts a newer valid fsinfo in force, and then blocks on the state file. `evidence`: that the
    /// revision is witnessed, if the replica has any.
    pub(crate) fn verify_offer(
        &self,
        signed: &[u8],
        evidence: Option<&[u8]>,
    ) -> Result<OfferVerdict> {
        if signed.is_empty() {
            return Ok(OfferVerdict::Nothing);
        }
        let mut record = self.record.lock();
        let current = self.newest();
        if let Some(current) = current.as_deref().filter(|c| c.signed == signed) {
            let end = u64::try_from(current.expires()).unwrap_or(u64::MAX);
            self.record_time(&mut record, self.now(), end);
            self.take_later_cosignatures(&mut record, signed, evidence);
            return Ok(OfferVerdict::Current(current.number()));
        }
        let now = self.now();
        let SeenRecord { seen, statements, .. } = &*record;
        let mut cache = self.cert_cache.lock();
        let verified = verify_fsinfo_with(&self.hostid, signed, now, seen, statements, &mut cache);
        drop(cache);
        let verified = match verified {
            Ok(verified) => verified,
            Err(Refusal::Rollback { offered, .. }) => return Ok(OfferVerdict::Stale(offered)),
            Err(Refusal::Forked { revision, .. }) => {
                let offered = Offered::read(signed, evidence);
                let kept = self.find_fork(&record, &offered).and_then(|(_, kept)| kept);
                return Ok(OfferVerdict::Refused(Refusal::Forked { revision, kept }, false));
            }
            Err(refusal) => {
                if let Refusal::Expired { expires, now } = refusal {
                    self.record_time(&mut record, now, expires);
                }
                let lie = refusal.is_forgery();
                return Ok(OfferVerdict::Refused(refusal, lie));
            }
        };
        // Before the record moves on: a thief's revision must not make honest ones look old.
        let demand = verified.cert.is_witnessed.then_some(verified.seen.cert_serial);
        let offered = Offered::with_cert(signed, Some(verified.cert), evidence);
        let believed = match self.belief.judge(&record, &offered, demand, now) {
            Ok(believed) => believed,
            Err(why) => {
                let revision = verified.fsinfo.revision;
                return Ok(OfferVerdict::Refused(Refusal::Unwitnessed { revision, why }, false));
            }
        };
        if let Some((Contradiction::Heads { size, .. }, kept)) = self.find_fork(&record, &offered) {
            let refusal = Refusal::ForkedLog { size, kept };
            // The root key decides between two publishers, as for numbers of revisions.
            if verified.seen.cert_serial == record.seen.cert_serial {
                return Ok(OfferVerdict::Refused(refusal, false));
            }
            tracing::warn!(tree = %self.hostid, "{refusal}");
        }
        let witnessing = believed.as_ref().and_then(|believed| believed.witnessing);
        let time_seen = if now >= record.time_seen.saturating_add(TIME_STEP_S) {
            now
        } else {
            record.time_seen
        };
        let newer = SeenRecord {
            seen: verified.seen,
            time_seen,
            signed: signed.to_vec(),
            statements: record.statements.clone(),
            log_serial: believed.as_ref().map_or(record.log_serial, |found| found.log_serial),
            evidence: believed.map_or_else(|| record.evidence.clone(), |found| found.evidence),
        };
        *record = self.store.advance(&self.hostid, newer)?;
        if record.seen.order() > verified.seen.order() {
            // Another process has seen a newer revision meanwhile.
            return Ok(OfferVerdict::Stale(verified.fsinfo.revision));
        }
        self.raise_time_floor(record.time());
        if current.as_deref().is_some_and(|c| c.fsinfo.iv != verified.fsinfo.iv) {
            // No older revision is accepted again. A later certificate may sign with the old iv.
            let what = "the tree was created again with another iv; reopen it (a mount: unmount and mount again)".to_owned();
            let error = Error::Damaged { what };
            if self.changed_iv.write().replace(error.clone()).is_none() {
                tracing::error!(tree = %self.hostid, revision = verified.fsinfo.revision, "{error}");
            }
            self.expires.store(i64::MIN, Ordering::Release);
            return Err(error);
        }
        let cert_serial = verified.seen.cert_serial;
        let revision = Arc::new(Revision::new(
            verified.fsinfo,
            Bytes::copy_from_slice(signed),
            cert_serial,
            verified.expires,
        ));
        *self.changed_iv.write() = None;
        self.expires.store(revision.expires(), Ordering::Release);
        if self.blocked().is_some() {
            self.expires.store(i64::MIN, Ordering::Release);
        }
        *self.current.write() = Some(revision);
        *self.witnessing.write() = witnessing.filter(|found| found.quorum_time.is_some());
        self.changes.send_replace(());
        Ok(OfferVerdict::Newer)
    }

    /// `signed`: the revision in force. Witnesses may cosign its head again.
    fn take_later_cosignatures(
        &self,
        record: &mut SeenRecord,
        signed: &[u8],
        evidence: Option<&[u8]>,
    ) {
        let known = self.witnessing();
        let is_kept = |bytes: &[u8]| {
            LogEvidence::from_statement(bytes, signed)
                .is_ok_and(|found| found.to_xdr() == record.evidence)
        };
        if known.is_none() || evidence.is_none_or(is_kept) {
            return;
        }
        let offered = Offered::read(signed, evidence);
        let judged = self.belief.judge(record, &offered, None, self.now());
        let Ok(Some(believed)) = judged else { return };
        let time = |found: Option<Witnessing>| found.and_then(|found| found.quorum_time);
        if time(believed.witnessing) > time(known) {
            record.log_serial = believed.log_serial;
            record.evidence = believed.evidence;
            self.store_record(record);
            *self.witnessing.write() = believed.witnessing;
        }
    }

    /// The contradiction to the record, and the directory where both are kept, for a third party.
    fn find_fork(
        &self,
        record: &SeenRecord,
        offered: &Offered<'_>,
    ) -> Option<(Contradiction, Option<PathBuf>)> {
        if record.signed.is_empty() && record.evidence.is_empty() {
            return None;
        }
        let side = |offered: &Offered<'_>| ForkSide {
            signed: offered.signed.to_vec(),
            evidence: offered
                .evidence
                .as_ref()
                .and_then(|evidence| evidence.as_ref().ok())
                .cloned(),
        };
        let ours = side(&Offered::read(&record.signed, Some(&record.evidence)));
        let theirs = side(offered);
        let fork = Fork { ours, theirs, consistency: Vec::new() };
        let found = fork.contradictions(&self.hostid).into_iter().next()?;
        let kept = self.store.fork_directory(&self.hostid);
        let kept = kept.filter(|dir| {
            let saved = fork.save(dir, &self.hostid);
            saved
                .inspect_err(|error| {
                    tracing::warn!(tree = %self.hostid, "keep evidence of a fork in {}: {error}", dir.display());
                })
                .is_ok()
        });
        Some((found, kept))
    }
}

pub(crate) fn statements_of(offer: &FsinfoOffer, hostid: &HostId) -> (Vec<KeyStatement>, bool) {
    let (mut good, mut forged) = (Vec::new(), false);
    for bytes in offer.statements.iter().filter(|bytes| !is_evidence(bytes)) {
        match KeyStatement::parse(bytes) {
            Ok(statement) if statement.verified().is_none() => forged = true,
            Ok(statement) if statement.hostid() == *hostid => good.push(statement),
            Ok(_) => {}
            // Later versions may define other statements.
            Err(error) => tracing::debug!("cannot decode a key statement: {error}"),
        }
    }
    (good, forged)
}

pub(crate) fn forwarding_target(error: &Error) -> Option<&TreeName> {
    match error {
        Error::Forwarded { to } => Some(to),
        _ => None,
    }
}
