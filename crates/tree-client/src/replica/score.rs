//! Whom to ask next: what is known of each replica's speed, health and honesty. Pure: time comes
//! in, decisions come out.
//!
//! Owns the distinction between slow (asked less, hedged) and down (left alone for a while), and
//! what becomes of liars. Never reads a clock and opens no connection.

use std::time::Duration;

/// A replica by its place in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReplicaId(pub(crate) usize);

/// Time since the set was made.
pub(crate) type Moment = Duration;

/// What is assumed of a replica that was never asked: good enough to be tried beside a distant one.
pub(crate) const LATENCY_ASSUMED: Duration = Duration::from_millis(20);

/// A hedge is never sent earlier: less would be the scheduler's noise.
pub(crate) const HEDGE_MIN: Duration = Duration::from_millis(10);

/// A hedge is never sent later: nobody wants to wait longer for a replica, however slow it always
/// was.
pub(crate) const HEDGE_MAX: Duration = Duration::from_secs(2);

/// The first pause after a failure; doubles with each further one.
pub(crate) const BACK_OFF_MIN: Duration = Duration::from_millis(250);

/// The longest pause.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// How long a liar is not asked as long as anybody else can be.
pub(crate) const LIAR_EXCLUDED_FOR: Duration = Duration::from_secs(3600);

/// Rather than wait longer than this for an honest replica, a liar is asked.
const LIAR_ASKED_AFTER: Duration = Duration::from_secs(1);

/// Requests in flight that double a replica's cost.
const LOAD_UNIT: u32 = 8;

/// What is known of a replica loses half its weight against it in so long.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// Who broke off so often, and answered nothing in between, does so for good: a restart breaks off
/// once.
const CLOSES_MAX: u32 = 4;

/// A hedge costs one token; each request earns a part of one, so that hedges stay a small share of
/// all requests.
const HEDGE_TOKENS_MAX: u32 = 320;
const HEDGE_TOKEN_COST: u32 = 10;

#[derive(Debug, Clone, Default)]
struct Record {
    /// Mean and mean deviation of answer times, in microseconds, exponentially weighted; `None`
    /// before the first.
    latency_us: Option<(f64, f64)>,
    last_answer: Moment,
    in_flight: u32,
    /// Failures since the last answer.
    failures: u32,
    /// Of the failures, the last in a row that were connections which it closed when it was asked.
    closes: u32,
    /// Not before this moment, unless nobody else is left.
    paused_until: Moment,
    lies: u32,
    excluded_until: Moment,
}

/// What is known of one replica, for those who look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaHealth {
    pub(crate) latency: Option<Duration>,
    pub(crate) failing: bool,
    pub(crate) is_excluded: bool,
}

/// How a replica failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It let itself be connected to, and closed when it was asked.
    ClosedByPeer,
    /// Anything else.
    Other,
}

/// Whom to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This one, now.
    Ask(ReplicaId),
    /// All that are left are paused; the first may be asked again at this moment.
    Wait(Moment),
    /// Nobody is left.
    Nobody,
}

/// The records of a set of replicas.
#[derive(Debug, Clone)]
pub(crate) struct Scores {
    records: Vec<Record>,
    hedge_tokens: u32,
}

impl Scores {
    pub(crate) fn new(count: usize) -> Self {
        Self { records: vec![Record::default(); count], hedge_tokens: HEDGE_TOKENS_MAX }
    }

    /// Adds replicas that were never asked.
    pub(crate) fn grow(&mut self, count: usize) {
        self.records.resize(count.max(self.records.len()), Record::default());
    }

    /// The cheapest replica for which `excluded` is false: answering ones before paused ones before
    /// liars. A liar is asked only where nobody else may be: what it sends is checked like
    /// everything else.
    pub(crate) fn choose(&self, now: Moment, excluded: impl Fn(ReplicaId) -> bool) -> Choice {
        let left = || (0..self.records.len()).map(ReplicaId).filter(|&id| !excluded(id));
        let honest = left().filter(|&id| !self.is_excluded(id, now));
        let ready = honest.clone().filter(|id| self.records[id.0].paused_until <= now);
        let cheapest = ready.min_by(|a, b| self.cost(*a, now).total_cmp(&self.cost(*b, now)));
        if let Some(id) = cheapest {
            return Choice::Ask(id);
        }
        let soonest = honest.map(|id| self.records[id.0].paused_until).min();
        if let Some(at) = soonest.filter(|&at| at <= now + LIAR_ASKED_AFTER) {
            return Choice::Wait(at);
        }
        match left().min_by_key(|id| (self.records[id.0].paused_until, *id)) {
            Some(id) if self.records[id.0].paused_until <= now => Choice::Ask(id),
            Some(id) => Choice::Wait(self.records[id.0].paused_until),
            None => Choice::Nobody,
        }
    }

    /// A request goes to `id`.
    pub(crate) fn started(&mut self, id: ReplicaId) {
        self.records[id.0].in_flight += 1;
        self.hedge_tokens = (self.hedge_tokens + 1).min(HEDGE_TOKENS_MAX);
    }

    /// A request to `id` is over, however it ended; followed by the call that says how, if it was
    /// not just given up.
    pub(crate) fn ended(&mut self, id: ReplicaId) {
        let record = &mut self.records[id.0];
        record.in_flight = record.in_flight.saturating_sub(1);
    }

    /// It answered what was asked after `latency`, be it "no such handle".
    pub(crate) fn answered(&mut self, id: ReplicaId, now: Moment, latency: Duration) {
        let record = &mut self.records[id.0];
        let sample = latency.as_secs_f64() * 1e6;
        record.latency_us = Some(match record.latency_us {
            None => (sample, sample / 2.0),
            // The weights of TCP's round-trip estimate (RFC 6298, section 2).
            Some((mean, deviation)) => (mean + (sample - mean) / 8.0, deviation + ((sample - mean).abs() - deviation) / 4.0),
        });
        record.last_answer = now;
        (record.failures, record.closes) = (0, 0);
        record.paused_until = Moment::ZERO;
    }

    /// Another one answered first, `elapsed` after this one was asked: it takes at least so long.
    pub(crate) fn overtaken(&mut self, id: ReplicaId, elapsed: Duration) {
        let record = &mut self.records[id.0];
        let least = elapsed.as_secs_f64() * 1e6;
        record.latency_us = Some(match record.latency_us {
            None => (2.0 * least, least),
            Some((mean, deviation)) if mean < least => (mean + (least - mean) / 2.0, deviation),
            Some(known) => known,
        });
    }

    /// It could not be reached, broke off, or did not answer in time.
    pub(crate) fn failed(&mut self, id: ReplicaId, now: Moment, how: Failure) {
        let record = &mut self.records[id.0];
        // Failures of requests that were in flight together count once.
        if record.paused_until > now {
            return;
        }
        let pause = BACK_OFF_MIN.saturating_mul(1 << record.failures.min(16)).min(BACK_OFF_MAX);
        record.failures = record.failures.saturating_add(1);
        record.closes = if how == Failure::ClosedByPeer { record.closes.saturating_add(1) } else { 0 };
        record.paused_until = now + pause;
    }

    /// It sent what can't be true.
    pub(crate) fn lied(&mut self, id: ReplicaId, now: Moment) {
        self.failed(id, now, Failure::Other);
        let record = &mut self.records[id.0];
        record.lies = record.lies.saturating_add(1);
        record.excluded_until = now + LIAR_EXCLUDED_FOR;
    }

    /// How long to wait for `id` before another is asked as well: roughly its 95th percentile,
    /// longer under load, for what is in flight comes first.
    pub(crate) fn hedge_delay(&self, id: ReplicaId) -> Duration {
        let record = &self.records[id.0];
        match record.latency_us {
            Some((mean, deviation)) => {
                let load = 1.0 + f64::from(record.in_flight) / f64::from(LOAD_UNIT);
                Duration::from_secs_f64((mean + 4.0 * deviation).max(0.0) * load / 1e6).clamp(HEDGE_MIN, HEDGE_MAX)
            }
            None => HEDGE_MAX / 8,
        }
    }

    /// Takes leave to hedge; `false` when hedges have been too many of late.
    pub(crate) fn take_hedge(&mut self) -> bool {
        let enough = self.hedge_tokens >= HEDGE_TOKEN_COST;
        if enough {
            self.hedge_tokens -= HEDGE_TOKEN_COST;
        }
        enough
    }

    pub(crate) fn is_paused(&self, id: ReplicaId, now: Moment) -> bool {
        self.records[id.0].paused_until > now
    }

    /// Whether it closes whenever it is asked.
    pub(crate) fn keeps_closing(&self, id: ReplicaId) -> bool {
        self.records[id.0].closes >= CLOSES_MAX
    }

    pub(crate) fn is_excluded(&self, id: ReplicaId, now: Moment) -> bool {
        self.records[id.0].excluded_until > now
    }

    pub(crate) fn health(&self, id: ReplicaId, now: Moment) -> ReplicaHealth {
        let record = &self.records[id.0];
        ReplicaHealth {
            latency: record.latency_us.map(|(mean, _)| Duration::from_secs_f64(mean.max(0.0) / 1e6)),
            failing: record.failures > 0,
            is_excluded: record.excluded_until > now,
        }
    }

    /// Expected time to an answer, in microseconds: latency, times load, forgiven with age so that
    /// a replica that was slow once is tried again.
    fn cost(&self, id: ReplicaId, now: Moment) -> f64 {
        let record = &self.records[id.0];
        let load = 1.0 + f64::from(record.in_flight) / f64::from(LOAD_UNIT);
        let Some((mean, _)) = record.latency_us else {
            return LATENCY_ASSUMED.as_secs_f64() * 1e6 * load;
        };
        let age = now.saturating_sub(record.last_answer).as_secs_f64() / STALE_AFTER.as_secs_f64();
        mean.max(1.0) * load / (1.0 + age)
    }
}

#[cfg(test)]
mod tests;
