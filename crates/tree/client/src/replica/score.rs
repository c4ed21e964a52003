//! Chooses the replica to ask: slow replicas are asked less and hedged, failing ones paused, lying
//! ones excluded. Does no I/O.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReplicaId(pub(crate) usize);

pub(crate) type Moment = Duration;

/// Assumed for untried replicas: makes them worth a try beside a distant one.
pub(crate) const LATENCY_ASSUMED: Duration = Duration::from_millis(20);

/// Shorter delays are scheduling noise.
pub(crate) const HEDGE_MIN: Duration = Duration::from_millis(10);

pub(crate) const HEDGE_MAX: Duration = Duration::from_secs(2);

pub(crate) const BACK_OFF_MIN: Duration = Duration::from_millis(250);

pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(30);

pub(crate) const LIAR_EXCLUDED_FOR: Duration = Duration::from_secs(3600);

/// If honest replicas are paused for longer, lying ones are asked.
const LIAR_ASKED_AFTER: Duration = Duration::from_secs(1);

/// Requests in flight that double a replica's cost.
const LOAD_UNIT: u32 = 8;

const STALE_AFTER: Duration = Duration::from_secs(10);

/// A hedge costs ten tokens, a request adds one: at most a tenth are hedges.
const HEDGE_TOKENS_MAX: u32 = 320;
const HEDGE_TOKEN_COST: u32 = 10;

#[derive(Debug, Clone, Default)]
struct Record {
    latency_us: Option<(f64, f64)>,
    last_answer: Moment,
    in_flight: u32,
    failures: u32,
    paused_until: Moment,
    lies: u32,
    excluded_until: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaHealth {
    pub(crate) latency: Option<Duration>,
    pub(crate) failing: bool,
    pub(crate) is_excluded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Ask(ReplicaId),
    Wait(Moment),
    Nobody,
}

#[derive(Debug, Clone)]
pub(crate) struct Scores {
    records: Vec<Record>,
    hedge_tokens: u32,
}

impl Scores {
    pub(crate) fn new(count: usize) -> Self {
        Self { records: vec![Record::default(); count], hedge_tokens: HEDGE_TOKENS_MAX }
    }

    pub(crate) fn grow(&mut self, count: usize) {
        self.records.resize(count.max(self.records.len()), Record::default());
    }

    /// The cheapest. Prefers answering replicas over paused over lying ones.
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

    pub(crate) fn started(&mut self, id: ReplicaId) {
        self.records[id.0].in_flight += 1;
        self.hedge_tokens = (self.hedge_tokens + 1).min(HEDGE_TOKENS_MAX);
    }

    pub(crate) fn ended(&mut self, id: ReplicaId) {
        let record = &mut self.records[id.0];
        record.in_flight = record.in_flight.saturating_sub(1);
    }

    pub(crate) fn answered(&mut self, id: ReplicaId, now: Moment, latency: Duration) {
        let record = &mut self.records[id.0];
        let sample = latency.as_secs_f64() * 1e6;
        record.latency_us = Some(match record.latency_us {
            None => (sample, sample / 2.0),
            // RFC 6298 §2.
            Some((mean, deviation)) => (
                mean + (sample - mean) / 8.0,
                deviation + ((sample - mean).abs() - deviation) / 4.0,
            ),
        });
        record.last_answer = now;
        record.failures = 0;
        record.paused_until = Moment::ZERO;
    }

    pub(crate) fn overtaken(&mut self, id: ReplicaId, elapsed: Duration) {
        let record = &mut self.records[id.0];
        let least = elapsed.as_secs_f64() * 1e6;
        record.latency_us = Some(match record.latency_us {
            None => (2.0 * least, least),
            Some((mean, deviation)) if mean < least => (mean + (least - mean) / 2.0, deviation),
            Some(known) => known,
        });
    }

    pub(crate) fn failed(&mut self, id: ReplicaId, now: Moment) {
        let record = &mut self.records[id.0];
        // Concurrent requests fail together and count once.
        if record.paused_until > now {
            return;
        }
        let pause = BACK_OFF_MIN.saturating_mul(1 << record.failures.min(16)).min(BACK_OFF_MAX);
        record.failures = record.failures.saturating_add(1);
        record.paused_until = now + pause;
    }

    pub(crate) fn lied(&mut self, id: ReplicaId, now: Moment) {
        self.failed(id, now);
        let record = &mut self.records[id.0];
        record.lies = record.lies.saturating_add(1);
        record.excluded_until = now + LIAR_EXCLUDED_FOR;
    }

    /// About the 95th percentile of latency, scaled by load.
    pub(crate) fn hedge_delay(&self, id: ReplicaId) -> Duration {
        let record = &self.records[id.0];
        match record.latency_us {
            Some((mean, deviation)) => {
                let load = 1.0 + f64::from(record.in_flight) / f64::from(LOAD_UNIT);
                Duration::from_secs_f64((mean + 4.0 * deviation).max(0.0) * load / 1e6)
                    .clamp(HEDGE_MIN, HEDGE_MAX)
            }
            None => HEDGE_MAX / 8,
        }
    }

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

    /// Of honest replicas, if no other answers.
    pub(crate) fn shorten_pauses(&mut self, until: Moment, now: Moment) {
        for record in self.records.iter_mut().filter(|record| record.excluded_until <= now) {
            record.paused_until = record.paused_until.min(until);
        }
    }

    pub(crate) fn is_excluded(&self, id: ReplicaId, now: Moment) -> bool {
        self.records[id.0].excluded_until > now
    }

    pub(crate) fn health(&self, id: ReplicaId, now: Moment) -> ReplicaHealth {
        let record = &self.records[id.0];
        ReplicaHealth {
            latency: record
                .latency_us
                .map(|(mean, _)| Duration::from_secs_f64(mean.max(0.0) / 1e6)),
            failing: record.failures > 0,
            is_excluded: record.excluded_until > now,
        }
    }

    /// Latency × load, in µs. Decays, so that a slow replica is tried again.
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
