use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use super::replica::Replica;
use super::request::{FetchFailure, FetchedFrame, FrameRequest, Priority, QueuedRequest};
use super::score::{Choice, HEDGE_MAX, ReplicaId};
use super::set::ReplicaSet;
use super::status::CounterCells;
use crate::{Error, Result};

/// Wait for one replica if others may be asked.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

const ATTEMPT_PROGRESS_MIN: u64 = 64 * 1024;

/// Longest pause between attempts while no replica answers.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

const ATTEMPTS_MAX: usize = 4;

/// Wrong answers for one frame that exclude a replica. The first may be a transmission error.
const LIES_MAX: u32 = 2;

#[derive(Default)]
struct Search {
    done: BTreeMap<ReplicaId, Verdict>,
    lies: BTreeMap<ReplicaId, u32>,
    running: Vec<(ReplicaId, Instant)>,
    reasons: BTreeMap<ReplicaId, String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Lacks,
    Lied,
    Failed,
}

impl ReplicaSet {
    pub(crate) async fn fetch(
        &self,
        request: FrameRequest,
        deadline: Instant,
        limit: Duration,
    ) -> Result<FetchedFrame> {
        if self.len() == 0 {
            self.resolve_by(deadline).await;
        }
        let mut search = Search::default();
        let mut attempts = Vec::with_capacity(1);
        // The next look for another replica, and whether the running attempt is late.
        let (mut next_check, mut overdue) = (Instant::now(), false);
        loop {
            if attempts.is_empty() {
                let id = self.next_replica(&mut search, &request, deadline, limit).await?;
                (next_check, overdue) = (self.launch(&mut search, id), false);
                attempts.push(Box::pin(self.attempt(id, request)));
            }
            let ended = async {
                let (ended, index, _) = select_all(&mut attempts).await;
                (ended, index)
            };
            tokio::select! {
                biased;
                ((id, outcome), index) = ended => {
                    drop(attempts.swap_remove(index));
                    let since = search.ended(id);
                    match outcome {
                        Ok(frame) => {
                            self.note_overtaken(&search, since);
                            return Ok(frame);
                        }
                        Err(failure) => {
                            search.record_failure(id, failure);
                            (next_check, overdue) = (Instant::now(), true);
                        }
                    }
                }
                () = sleep_until(deadline) => return Err(self.timed_out(&search, limit)),
                () = sleep_until(next_check) => match self.hedge(&search, overdue) {
                    Some(id) => {
                        (next_check, overdue) = (self.launch(&mut search, id), false);
                        attempts.push(Box::pin(self.attempt(id, request)));
                    }
                    None => (next_check, overdue) = (Instant::now() + HEDGE_MAX, true),
                },
            }
        }
    }

    async fn next_replica(
        &self,
        search: &mut Search,
        request: &FrameRequest,
        deadline: Instant,
        limit: Duration,
    ) -> Result<ReplicaId> {
        loop {
            let now = self.now();
            let choice = self.scores().lock().choose(now, |id| search.done.contains_key(&id));
            match choice {
                Choice::Ask(id) => return Ok(id),
                Choice::Wait(at) if at.saturating_sub(now) > RETRY_PAUSE_MAX => {
                    if self.only_liars_are_left(search) {
                        return Err(self.all_lied(search));
                    }
                    search.forget_failures();
                    self.scores().lock().shorten_pauses(now + RETRY_PAUSE_MAX, now);
                }
                Choice::Wait(at) => {
                    self.pause(at.saturating_sub(now), search, deadline, limit).await?
                }
                Choice::Nobody if search.done.is_empty() => {
                    self.pause(RETRY_PAUSE_MAX, search, deadline, limit).await?
                }
                Choice::Nobody => {
                    if search.done.values().all(|verdict| *verdict == Verdict::Lacks) {
                        return Err(Error::Missing {
                            handle: request.handle,
                            asked: search.done.len(),
                            refused: self.offers_refused(),
                        });
                    }
                    if search.done.keys().all(|id| search.is_final(*id)) {
                        return Err(self.all_lied(search));
                    }
                    search.forget_failures();
                }
            }
        }
    }

    /// Then looks up names again: a name may have failed before, or may have another address now.
    async fn pause(
        &self,
        pause: Duration,
        search: &Search,
        deadline: Instant,
        limit: Duration,
    ) -> Result<()> {
        let until = Instant::now() + pause + Duration::from_millis(1);
        sleep_until(until.min(deadline)).await;
        if until >= deadline {
            return Err(self.timed_out(search, limit));
        }
        self.resolve_by(deadline.min(until + RETRY_PAUSE_MAX)).await;
        Ok(())
    }

    fn launch(&self, search: &mut Search, id: ReplicaId) -> Instant {
        let now = Instant::now();
        search.running.push((id, now));
        now + self.scores().lock().hedge_delay(id)
    }

    /// Unless the first request is `overdue`, the hedge budget must allow it.
    fn hedge(&self, search: &Search, overdue: bool) -> Option<ReplicaId> {
        if search.running.len() >= ATTEMPTS_MAX {
            return None;
        }
        let now = self.now();
        let mut scores = self.scores().lock();
        let busy = |id: ReplicaId| {
            search.done.contains_key(&id) || search.running.iter().any(|r| r.0 == id)
        };
        match scores.choose(now, busy) {
            Choice::Ask(id) if !scores.is_excluded(id, now) && (scores.take_hedge() || overdue) => {
                CounterCells::add(&self.counters().hedges, 1);
                Some(id)
            }
            _ => None,
        }
    }

    /// Reports replicas that were asked earlier than the winner and have not answered.
    fn note_overtaken(&self, search: &Search, winner_since: Instant) {
        let mut scores = self.scores().lock();
        for (id, since) in search.running.iter().filter(|r| r.1 <= winner_since) {
            scores.overtaken(*id, since.elapsed());
        }
    }

    async fn attempt(
        &self,
        id: ReplicaId,
        request: FrameRequest,
    ) -> (ReplicaId, std::result::Result<FetchedFrame, FetchFailure>) {
        let Some(replica) = self.replica(id) else {
            return (id, Err(FetchFailure::Failed("gone".into())));
        };
        self.scores().lock().started(id);
        let _ended = AttemptGuard { set: self, id };
        let received = |_: &()| replica.open_connection().map_or(0, |c| c.received());
        let mut before = received(&());
        let (answer, mut answered) = oneshot::channel();
        let queue = if request.priority == Priority::Foreground {
            &replica.queues().foreground
        } else {
            &replica.queues().background
        };
        match timeout(ATTEMPT_MAX, queue.send(QueuedRequest { frame: request, answer })).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return (id, Err(task_ended(&replica))),
            Err(_) => {
                return (
                    id,
                    Err(FetchFailure::Failed("the request queue of this replica is full".into())),
                );
            }
        }
        loop {
            match timeout(ATTEMPT_MAX, &mut answered).await {
                Ok(Ok(outcome)) => return (id, outcome),
                Ok(Err(_)) => return (id, Err(task_ended(&replica))),
                Err(_) => {}
            }
            let after = received(&());
            if after.saturating_sub(before) < ATTEMPT_PROGRESS_MIN {
                let what = format!("no answer within {} s", ATTEMPT_MAX.as_secs());
                if let Some(connection) = replica.open_connection() {
                    connection.close(&what);
                }
                replica.failed(&what);
                return (id, Err(FetchFailure::Failed(what)));
            }
            before = after;
        }
    }

    pub(crate) async fn resolve_by(&self, deadline: Instant) {
        let _ = tokio::time::timeout_at(deadline, self.resolve()).await;
    }

    fn only_liars_are_left(&self, search: &Search) -> bool {
        let now = self.now();
        self.all().iter().all(|replica| {
            search.is_final(replica.id()) || self.scores().lock().is_excluded(replica.id(), now)
        })
    }

    fn all_lied(&self, search: &Search) -> Error {
        let reasons = self.reasons(search);
        tracing::debug!(tree = %self.hostid(), "no replica sent right data: {reasons}");
        Error::Lied { reasons }
    }

    fn timed_out(&self, search: &Search, after: Duration) -> Error {
        let last = self.reasons(search);
        tracing::debug!(tree = %self.hostid(), "no answer within {} s: {last}", after.as_secs_f32());
        Error::TimedOut { after, last }
    }

    fn reasons(&self, search: &Search) -> String {
        let lines: Vec<String> = self
            .all()
            .iter()
            .map(|replica| {
                let waiting = search
                    .running
                    .iter()
                    .any(|r| r.0 == replica.id())
                    .then(|| "no answer yet".to_owned());
                let reason = waiting
                    .or_else(|| search.reasons.get(&replica.id()).cloned())
                    .or_else(|| replica.last_error());
                format!("{replica}: {}", reason.unwrap_or_else(|| "not asked".into()))
            })
            .collect();
        if lines.is_empty() { self.resolve_error() } else { lines.join("; ") }
    }
}

fn task_ended(replica: &Replica) -> FetchFailure {
    let what = "the client's runtime has ended".to_owned();
    replica.failed(&what);
    FetchFailure::Failed(what)
}

impl Search {
    fn ended(&mut self, id: ReplicaId) -> Instant {
        match self.running.iter().position(|r| r.0 == id) {
            Some(at) => self.running.swap_remove(at).1,
            None => Instant::now(),
        }
    }

    fn record_failure(&mut self, id: ReplicaId, failure: FetchFailure) {
        let reason = match &failure {
            FetchFailure::Missing => "says that it lacks the frame".to_owned(),
            FetchFailure::Lied(what) => format!("sent wrong data: {what}"),
            FetchFailure::Failed(what) => what.clone(),
        };
        let verdict = match failure {
            FetchFailure::Missing => Verdict::Lacks,
            FetchFailure::Lied(_) => Verdict::Lied,
            FetchFailure::Failed(_) => Verdict::Failed,
        };
        *self.lies.entry(id).or_default() += u32::from(verdict == Verdict::Lied);
        self.reasons.insert(id, reason);
        self.done.insert(id, verdict);
    }

    fn forget_failures(&mut self) {
        let Search { done, lies, .. } = self;
        done.retain(|id, verdict| is_final(*verdict, lies.get(id)));
    }

    fn is_final(&self, id: ReplicaId) -> bool {
        self.done.get(&id).is_some_and(|verdict| is_final(*verdict, self.lies.get(&id)))
    }
}

fn is_final(verdict: Verdict, lies: Option<&u32>) -> bool {
    match verdict {
        Verdict::Lacks => true,
        Verdict::Lied => lies.is_some_and(|lies| *lies >= LIES_MAX),
        Verdict::Failed => false,
    }
}

struct AttemptGuard<'a> {
    set: &'a ReplicaSet,
    id: ReplicaId,
}

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        self.set.scores().lock().ended(self.id);
    }
}
