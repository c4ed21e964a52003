//! The agent of a node: has tickets for the jobs that run here, and no others.
//!
//! The prolog of a job asks it for tickets, the epilog to remove them. In between it renews them. It
//! asks the broker at intervals which jobs have ended elsewhere, and removes tickets that it cannot
//! renew in time.

mod cache_file;
mod jobs;
pub(crate) mod link;
mod report;
mod serve;
mod state;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use vouch_gss_mit::{KerberosError, TICKET_REFUSED};

use crate::Error;
use crate::clock::Clock;
use crate::faults::{NO_ACCOUNT, Outage, RecentRefusals, RefusalStatus, TICKETS_REFUSED};
use crate::names::{JobId, NodeName};
use crate::pods::PodToken;
use crate::wire::{Reply, Request};
use cache_file::CachePlaces;
use jobs::{Accounts, CacheOwner, Tickets};
use link::{Answer, BrokerLink, NetworkLink};
use report::Counters;
pub use report::{AgentReport, AgentStatus};
use state::StateFile;

pub struct AgentConfig {
    /// Host and port of the broker.
    pub broker: (String, u16),
    /// This node as the scheduler names it.
    pub node: NodeName,
    pub principal: String,
    pub keytab: PathBuf,
    /// Where rpc.gssd looks: `FILE:/tmp/krb5cc_%{uid}`.
    pub cache: String,
    pub state: PathBuf,
    /// Interval at which the broker is asked which jobs have ended.
    pub poll: Duration,
}

pub struct Agent {
    config: AgentConfig,
    places: CachePlaces,
    accounts: Mutex<Accounts>,
    state: StateFile,
    /// Wakes the renewal: a job has begun or ended.
    changed: Condvar,
    change_lock: Mutex<bool>,
    /// Held while the broker is told of removed tickets.
    reports: Mutex<()>,
    clock: Clock,
    link: Box<dyn BrokerLink>,
    /// Of the broker.
    outage: Outage,
    refusals: RecentRefusals,
    counters: Counters,
}

impl Agent {
    /// Removes what an earlier agent has left of jobs that it does not know.
    ///
    /// # Errors
    /// If the state cannot be read, or the pattern of caches is none.
    pub fn open(config: AgentConfig) -> Result<Self, Error> {
        let AgentConfig { broker, principal, keytab, .. } = &config;
        let link = NetworkLink {
            broker: broker.clone(),
            principal: principal.clone(),
            keytab: keytab.clone(),
        };
        Self::with_parts(config, Clock::system(), Box::new(link))
    }

    pub(crate) fn with_parts(
        config: AgentConfig,
        clock: Clock,
        link: Box<dyn BrokerLink>,
    ) -> Result<Self, Error> {
        let (state, accounts) = StateFile::open(&config.state)?;
        let places = CachePlaces::open(&config.cache, &config.state)?;
        let agent = Self {
            config,
            places,
            accounts: Mutex::new(accounts),
            state,
            changed: Condvar::new(),
            change_lock: Mutex::new(false),
            reports: Mutex::new(()),
            clock,
            link,
            outage: Outage::default(),
            refusals: RecentRefusals::default(),
            counters: Counters::default(),
        };
        agent.remove_leftovers()?;
        Ok(agent)
    }

    /// Gets tickets for a job that begins here, and writes them.
    pub(crate) fn enter(&self, job: &JobId, expected_uid: Option<u32>) -> Result<(), Error> {
        let entered = self.try_enter(job, expected_uid, None, false);
        if let Err(error) = &entered {
            self.note_refusal(job, error);
        }
        entered
    }

    /// As `enter`, by the token of a pod. A pod that has tickets keeps them, and its deadline moves to the
    /// token's end.
    pub(crate) fn enter_pod(
        &self,
        job: &JobId,
        token: PodToken,
        owns_cache: bool,
    ) -> Result<(), Error> {
        let entered = self.try_enter(job, None, Some(token), owns_cache);
        if let Err(error) = &entered {
            self.note_refusal(job, error);
        }
        entered
    }

    fn try_enter(
        &self,
        job: &JobId,
        expected_uid: Option<u32>,
        token: Option<PodToken>,
        owns_cache: bool,
    ) -> Result<(), Error> {
        let (prolog, has_left) = {
            let mut accounts = self.accounts.lock();
            (accounts.begin_prolog(job), accounts.left.iter().any(|(left, _)| left == job))
        };
        // A job may begin here again. A report about its first run must not end the second one.
        let reported = if has_left { self.report_left() } else { Ok(()) };
        let has_tickets =
            reported.and_then(|()| token.map_or(Ok(false), |token| self.show(job, token)));
        let entered = has_tickets.and_then(|has_tickets| {
            if has_tickets {
                return Ok(());
            }
            let tickets = self.fetch(job)?;
            let put = match expected_uid.filter(|expected| *expected != tickets.uid) {
                Some(expected) => Err(Error::Refused(format!(
                    "job {job} runs as uid {expected} here, but user {} has uid {} at the broker",
                    tickets.user, tickets.uid
                ))),
                None => self.put(job, Some((prolog, owns_cache)), tickets),
            };
            put.inspect_err(|error| self.give_up(job, Some(prolog), error))
        });
        self.accounts.lock().prologs.remove(&prolog);
        self.wake();
        entered
    }

    /// Registers the job of a pod. True if it has tickets here already.
    fn show(&self, job: &JobId, token: PodToken) -> Result<bool, Error> {
        let request = Request::Pod { node: self.config.node.clone(), job: job.clone(), token };
        let (Reply::Begun { deadline_s }, _) = self.ask(&request)? else {
            return Err(Error::Unavailable("the broker registered no job".into()));
        };
        let mut accounts = self.accounts.lock();
        let Some(known) = accounts.jobs.get_mut(job) else { return Ok(false) };
        known.deadline_s = deadline_s;
        self.state.write(&accounts)?;
        Ok(true)
    }

    /// For `vouch check`.
    fn note_refusal(&self, job: &JobId, error: &Error) {
        let (fault, reason) = match error {
            Error::NoAccount(reason) => (NO_ACCOUNT, reason),
            Error::Refused(reason) => (TICKETS_REFUSED, reason),
            _ => return,
        };
        self.counters.refused();
        self.refusals.add(RefusalStatus {
            fault: fault.to_owned(),
            job: job.to_string(),
            user: String::new(),
            node: self.config.node.to_string(),
            reason: reason.clone(),
            at_s: self.clock.now_s(),
        });
    }

    /// Removes the tickets of a job that has ended here.
    pub(crate) fn leave(&self, job: &JobId, why: &str) -> Result<(), Error> {
        let mut accounts = self.accounts.lock();
        let owner = accounts.jobs.get(job).map(|local| local.owner(job));
        accounts.remove_job(job, why);
        self.remove_unused(&mut accounts);
        self.state.write(&accounts)?;
        let is_removed = owner.is_none_or(|owner| !accounts.unremoved.contains(&owner));
        drop(accounts);
        self.wake();
        if is_removed {
            Ok(())
        } else {
            Err(Error::Unavailable(
                "the tickets cannot be removed now; the agent's log says why".into(),
            ))
        }
    }

    fn fetch(&self, job: &JobId) -> Result<Tickets, Error> {
        let agent = self.accounts.lock().agent.clone();
        let request = Request::Fetch { node: self.config.node.clone(), agent, job: job.clone() };
        match self.ask(&request)? {
            (Reply::Tickets { user, uid, end_s, deadline_s, .. }, cache) => {
                Ok(Tickets { user, uid, end_s, deadline_s, cache })
            }
            _ => Err(Error::Unavailable("the broker sent no tickets".into())),
        }
    }

    /// One request to the broker. Notes whether the broker does its part.
    fn ask(&self, request: &Request) -> Result<Answer, Error> {
        let answer = self.link.ask(request);
        match &answer {
            Ok(_) | Err(Error::Refused(_)) => self.outage.ended(),
            Err(error) => {
                let fault = error
                    .kerberos()
                    .map(KerberosError::fault)
                    .filter(|fault| *fault != TICKET_REFUSED);
                self.outage.failed(
                    fault.unwrap_or(BROKER_UNAVAILABLE),
                    error.to_string(),
                    self.clock.now_s(),
                );
            }
        }
        answer
    }

    /// Renews and removes until `is_stopped`.
    fn maintain(&self, is_stopped: impl Fn() -> bool) {
        let mut polled: Option<Instant> = None;
        let mut is_changed = false;
        while !is_stopped() {
            let is_poll_due = polled.is_none_or(|polled| polled.elapsed() >= self.config.poll);
            // At once, so that the broker's trail has the time of the removal.
            if is_changed
                && !is_poll_due
                && let Err(error) = self.report_left()
            {
                tracing::warn!("{error}; the broker learns of removed tickets later");
            }
            self.step(is_poll_due, &mut polled);
            let mut has_changed = self.change_lock.lock();
            if !*has_changed {
                self.changed.wait_for(&mut has_changed, TICK);
            }
            is_changed = std::mem::take(&mut *has_changed);
        }
    }

    pub(crate) fn step(&self, is_poll_due: bool, polled: &mut Option<Instant>) {
        let logged = |what: Result<(), Error>| {
            if let Err(error) = what {
                tracing::error!("{error}");
            }
        };
        logged(self.end_overdue());
        if is_poll_due {
            *polled = Some(Instant::now());
            self.notice_removed();
            logged(self.retry_removals());
            match self.sync() {
                Err(error @ (Error::Unavailable(_) | Error::Refused(_))) => {
                    tracing::warn!("{error}; it is asked again in {:?}", self.config.poll)
                }
                other => logged(other),
            }
        }
        // The loop must not hold the lock.
        let due = self.accounts.lock().due(self.clock.now_s());
        for (owner, job) in due {
            logged(self.renew(&owner, &job));
        }
    }

    /// Renews a cache by one of its jobs.
    fn renew(&self, owner: &CacheOwner, job: &JobId) -> Result<(), Error> {
        match self.fetch(job) {
            // A full disk must not make this a busy loop.
            Ok(tickets) => self.put(job, None, tickets).inspect_err(|error| {
                self.accounts.lock().retry_later(owner, self.clock.now_s());
                self.give_up(job, None, error);
            }),
            Err(error @ Error::Refused(_)) => {
                self.note_refusal(job, &error);
                let Error::Refused(reason) = error else { unreachable!("matched above") };
                tracing::warn!(%job, "the tickets are not renewed: {reason}");
                self.leave(job, &format!("refused: {reason}"))
            }
            Err(error) => {
                tracing::warn!(%job, "the tickets cannot be renewed now: {error}");
                self.counters.renewal_failed();
                self.accounts.lock().retry_later(owner, self.clock.now_s());
                Ok(())
            }
        }
    }

    /// Asks the broker which jobs have ended, and tells it which tickets were removed.
    fn sync(&self) -> Result<(), Error> {
        self.report_left()?;
        let jobs: Vec<JobId> = self.accounts.lock().jobs.keys().cloned().collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let (reply, _) = self.ask(&Request::Sync { node: self.config.node.clone(), jobs })?;
        if let Reply::Gone { jobs } = reply {
            for job in jobs {
                tracing::info!(%job, "the broker says that the job has ended; its tickets are removed");
                if let Err(error) = self.leave(&job, "the broker says that the job has ended") {
                    tracing::error!(%job, "{error}");
                }
            }
        }
        Ok(())
    }

    /// Tells the broker which tickets were removed.
    fn report_left(&self) -> Result<(), Error> {
        let _reporting = self.reports.lock();
        loop {
            let (agent, first) = {
                let accounts = self.accounts.lock();
                (accounts.agent.clone(), accounts.left.first().cloned())
            };
            let Some((job, why)) = first else { return Ok(()) };
            match self.ask(&Request::Left {
                node: self.config.node.clone(),
                agent,
                job: job.clone(),
                why: why.clone(),
            }) {
                Ok(_) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
            let mut accounts = self.accounts.lock();
            accounts.left.retain(|entry| (&entry.0, &entry.1) != (&job, &why));
            self.state.write(&accounts)?;
        }
    }

    fn wake(&self) {
        *self.change_lock.lock() = true;
        self.changed.notify_all();
    }
}

/// Interval of the checks for tickets to renew or to remove.
const TICK: Duration = Duration::from_millis(500);
const BROKER_UNAVAILABLE: &str = "broker-unavailable";
