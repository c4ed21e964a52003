//! The broker's audit records: each ticket minted, refused and withdrawn, with job, user and node.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use vouch_audit::Record;
use vouch_audit::record::{Act, Class};
use vouch_audit::trail::Trail;
use vouch_daemon::audit_trail::{self, RefusalLimit, now_ns};
use vouch_daemon::exposition::Exposition;

use crate::clock::Clock;
use crate::faults::{RecentRefusals, RefusalStatus, TICKETS_REFUSED};

/// What a record says.
#[derive(Clone, Copy, Default)]
pub(super) struct Event<'a> {
    pub(super) job: &'a str,
    pub(super) principal: &'a str,
    pub(super) uid: Option<u32>,
    pub(super) node: &'a str,
    pub(super) address: Option<IpAddr>,
    pub(super) detail: &'a str,
    /// Of a refusal: its name in docs/troubleshooting.md, if it has one of its own.
    pub(super) fault: Option<&'a str>,
    /// Life of tickets, nanoseconds.
    pub(super) life_ns: Option<u64>,
}

pub(super) struct Records {
    trail: Option<Trail>,
    limit: RefusalLimit,
    started: std::time::Instant,
    clock: Clock,
    /// Of the acts in [`ACTS`].
    counts: [AtomicU64; ACTS.len()],
    recent: RecentRefusals,
}

/// Acts that are counted.
const ACTS: [Act; 3] = [Act::TicketMinted, Act::TicketRefused, Act::TicketWithdrawn];

fn position(act: Act) -> Option<usize> {
    ACTS.iter().position(|counted| *counted == act)
}

/// NFS4ERR_ACCESS (RFC 8881, section 15.1), the result of refused operations in all records.
const DENIED: u32 = 13;

impl Records {
    pub(super) fn new(trail: Option<Trail>, clock: Clock) -> Self {
        Self {
            trail,
            limit: RefusalLimit::default(),
            started: std::time::Instant::now(),
            clock,
            counts: Default::default(),
            recent: RecentRefusals::default(),
        }
    }

    pub(super) fn count(&self, act: Act) -> u64 {
        position(act).map_or(0, |at| self.counts[at].load(Ordering::Relaxed))
    }

    pub(super) fn recent_refusals(&self) -> Vec<RefusalStatus> {
        self.recent.status()
    }

    pub(super) fn is_trail_healthy(&self) -> bool {
        self.trail.as_ref().is_none_or(|trail| trail.counts().is_healthy)
    }

    /// In Prometheus' text format. Nothing without a trail.
    pub(super) fn write_metrics(&self, page: &mut Exposition) {
        if let Some(trail) = &self.trail {
            audit_trail::metrics::write("vouch_jobs_audit", trail, &self.limit, page);
        }
    }

    /// Under the policies that demand it, returns when the record is stored.
    pub(super) fn write(&self, act: Act, event: Event<'_>) {
        self.add(act);
        self.put(act, 0, event);
        if let Some(trail) = self.trail.as_ref().filter(|trail| trail.delays_replies()) {
            let (sender, stored) = mpsc::channel();
            trail.call_when_stored(Box::new(move || {
                let _ = sender.send(());
            }));
            // The trail ends only with the process.
            let _ = stored.recv();
        }
    }

    /// Refusals are recorded at a limited rate for each address.
    pub(super) fn refuse(&self, event: Event<'_>) {
        self.add(Act::TicketRefused);
        self.recent.add(RefusalStatus {
            fault: event.fault.unwrap_or(TICKETS_REFUSED).to_owned(),
            job: event.job.to_owned(),
            user: event.principal.to_owned(),
            node: event.node.to_owned(),
            reason: event.detail.to_owned(),
            at_s: self.clock.now_s(),
        });
        let address = event.address.unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let Some(omitted) = self.limit.admit(address, self.mono_ms()) else { return };
        let more = omitted.map(|count| {
            format!("{}; {count} more refusals of this address are not recorded", event.detail)
        });
        self.put(
            Act::TicketRefused,
            DENIED,
            Event { detail: more.as_deref().unwrap_or(event.detail), ..event },
        );
    }

    /// Call this at intervals.
    pub(super) fn record_omitted(&self) {
        if let Some(trail) = &self.trail {
            self.limit.record_omitted(trail, self.mono_ms());
        }
    }

    pub(super) fn stop(&self) {
        if let Some(trail) = &self.trail {
            trail.stop();
        }
    }

    fn add(&self, act: Act) {
        if let Some(at) = position(act) {
            self.counts[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn put(&self, act: Act, result: u32, event: Event<'_>) {
        let job = format!("job:{}", event.job);
        tracing::info!(
            act = act.name(),
            job = event.job,
            principal = event.principal,
            node = event.node,
            "{}",
            event.detail
        );
        let Some(trail) = &self.trail else { return };
        trail.record(&Record {
            time_ns: now_ns(),
            class: Class::Administrative,
            operation: act as u16,
            result,
            principal: event.principal.as_bytes(),
            uid: event.uid,
            address: event.address,
            client: event.node.as_bytes(),
            key: if event.job.is_empty() { b"" } else { job.as_bytes() },
            detail: event.detail.as_bytes(),
            open_ns: event.life_ns,
            ..Record::default()
        });
    }

    fn mono_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
