use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep, sleep_until};
use vouch_log::evidence::is_evidence;
use vouch_tree::protocol::FsinfoOffer;
use vouch_tree::verify::Refusal;

use super::current::{Freshness, OfferVerdict, forwarding_target, statements_of};
use super::statement_files;
use crate::replica::{CallFailure, Replica};
use crate::replica_fault::FaultKind;
use crate::tree::Tree;
use crate::{Error, Result};

/// After the first good answer, other replicas get as much time again, within these limits: one may
/// be newer.
const GRACE_MIN: Duration = Duration::from_millis(20);
const GRACE_MAX: Duration = Duration::from_secs(1);

const REFRESH_MAX: Duration = Duration::from_secs(10);

pub(crate) const DEMAND_INTERVAL: Duration = Duration::from_secs(5);

/// Limits of the periodic interval, a quarter of the fsinfo's duration.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_secs(60);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

const STATEMENTS_ASK_MAX: Duration = Duration::from_secs(3);

/// Then a stored revision serves, if it is valid. Without one, an outage is waited out until the
/// deadline, and replicas that answer something else are given up.
const OPEN_ROUNDS_MAX: u32 = 4;

const OPEN_PAUSE_MIN: Duration = Duration::from_millis(300);
const OPEN_PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
struct RoundResult {
    newer: bool,
    good: usize,
    blocked_by_key: usize,
    no_tree: usize,
    asked: usize,
    lies: usize,
    declined: usize,
    refused: usize,
    stale: usize,
    refusal: Option<Refusal>,
    reasons: Vec<String>,
    refusals: Vec<String>,
    fault: Option<Error>,
}

impl Tree {
    pub(crate) async fn first_revision(&self, deadline: Instant) -> Result<()> {
        let blocked_by_key = self.apply_statement_files().await;
        self.freshness().apply_stored_statements();
        if let (Err(error), None) = (blocked_by_key, self.freshness().blocked()) {
            return Err(error);
        }
        // A revocation is final; after a forwarding pointer the key may say more.
        if matches!(self.freshness().blocked(), Some(Error::Forwarded { .. })) {
            self.ask_all(deadline.min(Instant::now() + STATEMENTS_ASK_MAX), true).await;
        }
        let mut pause = OPEN_PAUSE_MIN;
        let mut attempt = 0;
        loop {
            if let Some(error) = self.freshness().blocked() {
                return Err(error);
            }
            let round = self.ask_all(deadline, true).await;
            self.replicas_set().note_offers_refused(round.all_refused());
            if let Some(error) = self.freshness().blocked() {
                return Err(error);
            }
            if self.freshness().is_fresh() {
                round
                    .refusals
                    .iter()
                    .for_each(|reason| tracing::warn!(tree = %self.name(), "{reason}"));
                return Ok(());
            }
            let more = round.may_improve() || (round.lies > 0 && attempt == 0);
            attempt += 1;
            let is_last = !more
                || Instant::now() + pause >= deadline
                || (attempt == OPEN_ROUNDS_MAX && !round.has_outage());
            if (is_last || attempt == OPEN_ROUNDS_MAX) && self.use_stored_fsinfo().await? {
                tracing::warn!(tree = %self.name(), "no replica offers a valid revision ({}); using the stored revision", round.summary());
                return Ok(());
            }
            if is_last {
                return Err(round.into_error(self));
            }
            sleep(pause).await;
            pause = (pause * 2).min(OPEN_PAUSE_MAX);
            self.replicas_set().end_pauses();
        }
    }

    async fn use_stored_fsinfo(&self) -> Result<bool> {
        match self.freshness().stored_fsinfo() {
            Some((signed, evidence)) => {
                let verdict = self.verify_offer_blocking(signed, Some(evidence)).await?;
                Ok(matches!(verdict, OfferVerdict::Newer))
            }
            None => Ok(false),
        }
    }

    /// Asks the replicas now. `true`: a newer revision is in force. Concurrent callers share one
    /// round.
    pub async fn refresh(&self) -> Result<bool> {
        let deadline = Instant::now() + self.client().options.deadline.min(REFRESH_MAX);
        let before = self.freshness().newest().map(|r| r.order());
        let rounds_before = self.refresh_rounds();
        let _turn = self.refresh_turn().lock().await;
        if self.refresh_rounds() == rounds_before {
            self.apply_statement_files()
                .await
                .unwrap_or_else(|error| tracing::warn!(tree = %self.name(), "{error}"));
            let (round, ()) = join(self.ask_all(deadline, false), self.ask_origins(deadline)).await;
            self.note_refresh_round();
            self.replicas_set().note_offers_refused(round.all_refused());
            self.freshness().set_last_failure(round.summary());
            if !self.freshness().is_fresh() {
                let _ = self.freshness().run_blocking(Freshness::record_expiry).await;
            }
            if let Some(error) = self.freshness().blocked() {
                return Err(error);
            }
            if round.good == 0 && !round.newer {
                return Err(round.into_error(self));
            }
        }
        Ok(self.freshness().newest().map(|r| r.order()) > before)
    }

    /// Asks the keys of earlier names. A revocation or another target blocks this tree.
    async fn ask_origins(&self, deadline: Instant) {
        let deadline = deadline.min(Instant::now() + STATEMENTS_ASK_MAX);
        let fetches = self.origins().iter().map(|origin| async move {
            origin
                .tree
                .apply_statement_files()
                .await
                .unwrap_or_else(|error| tracing::warn!(tree = %origin.tree.name(), "{error}"));
            origin.tree.ask_all(deadline, true).await;
            origin
                .tree
                .freshness()
                .blocked_for_good()
                .filter(|error| forwarding_target(error) != Some(&origin.to))
        });
        for error in join_all(fetches).await.into_iter().flatten() {
            self.freshness().block(error);
        }
    }

    pub(crate) async fn ensure_fresh(&self) -> Result<()> {
        if self.freshness().is_fresh() {
            return Ok(());
        }
        if self.freshness().blocked_for_good().is_none() && self.may_refresh_on_demand() {
            let _ = self.refresh().await;
        }
        self.freshness().revision().map(drop)
    }

    /// An opening also asks for companion frames, and stops soon after the first good answer.
    async fn ask_all(&self, deadline: Instant, is_opening: bool) -> RoundResult {
        let begun = Instant::now();
        let deadline = deadline.min(begun + REFRESH_MAX);
        self.replicas_set().resolve_by(deadline).await;
        let replicas = self.replicas_set().all();
        let mut round = RoundResult { asked: replicas.len(), ..RoundResult::default() };
        if replicas.is_empty() {
            round.reasons.push(self.replicas_set().resolve_error());
        }
        let mut unanswered = replicas.clone();
        let mut answers: FuturesUnordered<_> = replicas
            .into_iter()
            .map(|replica| async move { (replica.offer(is_opening).await, replica) })
            .collect();
        let mut until = deadline;
        loop {
            tokio::select! {
                biased;
                answer = answers.next() => match answer {
                    Some((offer, replica)) => {
                        unanswered.retain(|other| other.id() != replica.id());
                        self.count_answer(&mut round, &replica, offer).await;
                    }
                    None => return round,
                },
                () = sleep_until(until) => {
                    if round.good == 0 {
                        let reason = |replica: &Arc<Replica>| format!("{replica}: {}", no_answer(begun.elapsed(), replica.last_error()));
                        round.reasons.extend(unanswered.iter().map(reason));
                    }
                    return round;
                }
            }
            if is_opening && round.blocked_by_key > 0 {
                until = until.min(Instant::now() + GRACE_MAX);
            } else if is_opening && round.good > 0 {
                until = until.min(Instant::now() + begun.elapsed().clamp(GRACE_MIN, GRACE_MAX));
            }
        }
    }

    async fn count_answer(
        &self,
        round: &mut RoundResult,
        replica: &Replica,
        offer: std::result::Result<Option<FsinfoOffer>, CallFailure>,
    ) {
        let reason = match offer {
            Err(failure) => {
                round.lies += usize::from(matches!(failure, CallFailure::Garbage(_)));
                round.declined += usize::from(matches!(failure, CallFailure::Declined(_)));
                failure.to_string()
            }
            Ok(None) => {
                round.no_tree += 1;
                "does not serve this tree".to_owned()
            }
            Ok(Some(offer)) => match self.judge_offer(replica, offer).await {
                Ok(OfferVerdict::Newer) => {
                    replica.report_good_offer();
                    (round.newer, round.good) = (true, round.good + 1);
                    return;
                }
                Ok(OfferVerdict::Current(_)) => {
                    replica.report_good_offer();
                    round.good += 1;
                    return;
                }
                Ok(OfferVerdict::Stale(revision)) => {
                    round.stale += 1;
                    let reason = format!("offers the old revision {revision}");
                    replica.report_bad_offer(FaultKind::Stale { offered: revision }, &reason);
                    reason
                }
                Ok(OfferVerdict::Refused(refusal, is_lie)) => {
                    let reason = refusal.to_string();
                    // Reported as a lie already.
                    if !is_lie {
                        replica.report_bad_offer(FaultKind::Refused(&refusal), &reason);
                    }
                    round.refused += 1;
                    round.refusals.push(format!("{replica}: {reason}"));
                    round.refusal.get_or_insert(refusal);
                    reason
                }
                Ok(OfferVerdict::Nothing) => "offers no revision".to_owned(),
                Err(error) => {
                    let reason = error.to_string();
                    round.blocked_by_key +=
                        usize::from(self.freshness().blocked_for_good().is_some());
                    round.fault.get_or_insert(error);
                    reason
                }
            },
        };
        round.reasons.push(format!("{replica}: {reason}"));
    }

    async fn judge_offer(&self, replica: &Replica, offer: FsinfoOffer) -> Result<OfferVerdict> {
        let (statements, forged) = statements_of(&offer, self.hostid());
        if forged {
            replica.lied("key statement with a forged signature");
        }
        if !statements.is_empty() {
            self.apply_statements_blocking(statements).await;
        }
        if let Some(error) = self.freshness().blocked_for_good() {
            return Err(error);
        }
        let evidence = offer.statements.into_iter().find(|statement| is_evidence(statement));
        let judgement = self.verify_offer_blocking(offer.signed_fsinfo, evidence).await?;
        match &judgement {
            OfferVerdict::Newer => {
                let (_, newest) = self.newest_order();
                replica.set_revision(self.newest_order());
                tracing::debug!(tree = %self.name(), revision = newest, %replica, "a new revision is in force");
            }
            OfferVerdict::Current(revision) | OfferVerdict::Stale(revision) => {
                replica.set_revision((self.newest_order().0, *revision))
            }
            OfferVerdict::Refused(refusal, true) => {
                replica.lied(&format!("forged fsinfo: {refusal}"))
            }
            OfferVerdict::Refused(refusal, false) if self.freshness().newest().is_some() => {
                tracing::warn!(tree = %self.name(), %replica, "{refusal}");
            }
            OfferVerdict::Refused(_, false) => {}
            OfferVerdict::Nothing => {}
        }
        if matches!(judgement, OfferVerdict::Newer | OfferVerdict::Current(_)) {
            self.cache_companions(&offer.companions);
        }
        Ok(judgement)
    }

    fn newest_order(&self) -> (u64, u64) {
        self.freshness().newest().map_or((0, 0), |r| (r.cert_serial(), r.number()))
    }

    /// Reads local directories and published trees. Returns an error after it has applied all
    /// readable statements.
    async fn apply_statement_files(&self) -> Result<()> {
        let (client, hostid) = (self.client(), *self.hostid());
        let (mut found, mut fault) = (Vec::new(), None);
        if !client.options.certificate_dirs.is_empty() {
            let dirs = client.options.certificate_dirs.clone();
            let read =
                client.run_blocking(move || statement_files::from_directories(&dirs, &hostid));
            (found, fault) = read.await.unwrap_or_default();
        }
        for source in client.certificate_trees() {
            found.extend(statement_files::from_tree(&source, &hostid).await);
        }
        if !found.is_empty() {
            self.apply_statements_blocking(found).await;
        }
        fault.map_or(Ok(()), Err)
    }
}

impl RoundResult {
    fn summary(&self) -> String {
        if self.reasons.is_empty() {
            "all offer the same revision".into()
        } else {
            self.reasons.join("; ")
        }
    }

    fn all_refused(&self) -> Option<String> {
        (self.asked > 0 && self.stale + self.refused == self.asked).then(|| self.summary())
    }

    fn may_improve(&self) -> bool {
        self.fault.is_none() && (self.declined > 0 || self.has_outage())
    }

    fn has_outage(&self) -> bool {
        self.reasons.len() > self.no_tree + self.refused + self.lies + self.declined
            || self.asked == 0
    }

    fn into_error(self, tree: &Tree) -> Error {
        let summary = self.summary();
        match (self.fault, self.refusal) {
            (Some(fault), _) => fault,
            (None, Some(refusal)) => Error::Refused { reason: summary, source: refusal },
            (None, None) if self.asked > 0 && self.no_tree == self.asked => {
                Error::NoSuchTree { hostid: *tree.hostid(), asked: self.asked }
            }
            (None, None) if self.lies > 0 && self.lies + self.no_tree == self.asked => {
                Error::Lied { reasons: summary }
            }
            (None, None) => Error::Unreachable { attempts: summary },
        }
    }
}

/// A later round has little time: the error of an earlier one says more.
fn no_answer(waited: Duration, last_error: Option<String>) -> String {
    let waited = format!("no answer within {:.1} s", waited.as_secs_f32());
    last_error.map_or_else(|| waited.clone(), |error| format!("{error}; then {waited}"))
}

/// `random`: jitter from 0 to 1.
pub(crate) async fn refresh_periodically(tree: Weak<Tree>, mut random: impl FnMut() -> f64 + Send) {
    let (mut failures, mut is_first) = (0u32, true);
    loop {
        let interval = match tree.upgrade() {
            Some(tree) => {
                tree.learn_mirrors(is_first).await;
                tree.refresh_interval()
            }
            None => return,
        };
        // Exponential back-off after failures, from a shorter interval.
        let interval = if failures == 0 {
            interval
        } else {
            interval.min(DEMAND_INTERVAL * (1 << failures.min(5)))
        };
        is_first = false;
        sleep(interval.mul_f64(0.9 + 0.2 * random())).await;
        let Some(tree) = tree.upgrade() else { return };
        match tree.refresh().await {
            Ok(_) => failures = 0,
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(tree = %tree.name(), "refresh: {error}");
            }
        }
    }
}

impl Tree {
    fn refresh_interval(&self) -> Duration {
        if let Some(interval) = self.client().options.refresh_interval {
            return interval;
        }
        let duration = self.freshness().newest().map_or(0, |r| r.fsinfo.duration_s);
        Duration::from_secs(u64::from(duration) / 4).clamp(INTERVAL_MIN, INTERVAL_MAX)
    }

    /// True for the fsinfo of the newest valid revision. Puts a newer one in force. Fails if the
    /// record of the newest revision seen cannot be stored. `statements`: those of its database,
    /// with the evidence that the revision is witnessed.
    pub async fn admits(&self, signed: &[u8], statements: &[Vec<u8>]) -> Result<bool> {
        let evidence = statements.iter().find(|statement| is_evidence(statement)).cloned();
        let verdict = self.verify_offer_blocking(signed.to_vec(), evidence).await?;
        Ok(matches!(verdict, OfferVerdict::Newer | OfferVerdict::Current(_)))
    }

    async fn verify_offer_blocking(
        &self,
        signed: Vec<u8>,
        evidence: Option<Vec<u8>>,
    ) -> Result<OfferVerdict> {
        let verify =
            move |freshness: &Freshness| freshness.verify_offer(&signed, evidence.as_deref());
        let judged = self.freshness().run_blocking(verify).await;
        judged.unwrap_or_else(|e| Err(Error::Damaged { what: format!("verifying an fsinfo: {e}") }))
    }

    async fn apply_statements_blocking(
        &self,
        statements: Vec<vouch_tree::statement::KeyStatement>,
    ) {
        let _ = self
            .freshness()
            .run_blocking(move |freshness| freshness.apply_statements(statements))
            .await;
    }
}
