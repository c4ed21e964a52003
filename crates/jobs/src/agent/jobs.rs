//! The jobs of this node, their users, and the caches that the agent has written for them.
//!
//! All jobs of a user on a node share one cache, because rpc.gssd knows users, not jobs. It is
//! renewed by the job with the latest deadline, and removed with the last job. A pod that mounts
//! without rpc.gssd has a cache of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Agent;
use super::cache_file::WrittenCache;
use crate::Error;
use crate::limits::AGENT_JOB_COUNT_MAX;
use crate::names::{JobId, NameError, UserName};

/// Tickets as the broker sends them.
pub(super) struct Tickets {
    pub(super) user: UserName,
    pub(super) uid: u32,
    pub(super) end_s: u64,
    pub(super) deadline_s: u64,
    pub(super) cache: Zeroizing<Vec<u8>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Accounts {
    /// Number that tells agents with the same principal apart.
    pub(super) agent: String,
    pub(super) jobs: BTreeMap<JobId, LocalJob>,
    pub(super) caches: BTreeMap<CacheOwner, Cache>,
    /// Jobs whose tickets were removed, for the broker.
    pub(super) left: Vec<(JobId, String)>,
    /// Prologs that wait for tickets. An epilog removes those of its job.
    #[serde(skip)]
    pub(super) prologs: BTreeMap<u64, JobId>,
    #[serde(skip)]
    prolog_count: u64,
    /// Caches that could not be removed. It is tried again at the next poll.
    #[serde(skip)]
    pub(super) unremoved: BTreeSet<CacheOwner>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LocalJob {
    pub(super) uid: u32,
    pub(super) deadline_s: u64,
    #[serde(default)]
    pub(super) owns_cache: bool,
}

impl LocalJob {
    pub(super) fn owner(&self, job: &JobId) -> CacheOwner {
        if self.owns_cache { CacheOwner::Job(job.clone()) } else { CacheOwner::User(self.uid) }
    }
}

/// Stored as a number, or as the name of a job, which is no number: only jobs of pods have caches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) enum CacheOwner {
    /// For rpc.gssd.
    User(u32),
    /// Root reads it, on behalf of the pod.
    Job(JobId),
}

impl TryFrom<String> for CacheOwner {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse().map(Self::User).or_else(|_| JobId::parse(&text).map(Self::Job))
    }
}

impl From<CacheOwner> for String {
    fn from(owner: CacheOwner) -> Self {
        owner.to_string()
    }
}

impl fmt::Display for CacheOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => uid.fmt(f),
            Self::Job(job) => job.fmt(f),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cache {
    /// None: removed, because it could not be renewed in time.
    pub(super) file: Option<WrittenCache>,
    pub(super) end_s: u64,
    pub(super) renew_s: u64,
    /// The cache that `file` replaces, for an agent that is killed before it does so.
    #[serde(default)]
    pub(super) previous: Option<WrittenCache>,
    /// Where the next cache is written before it is put into its place, for the same case.
    #[serde(default)]
    pub(super) staged: Option<PathBuf>,
}

impl Accounts {
    pub(super) fn begin_prolog(&mut self, job: &JobId) -> u64 {
        self.prolog_count += 1;
        self.prologs.insert(self.prolog_count, job.clone());
        self.prolog_count
    }

    pub(super) fn remove_job(&mut self, job: &JobId, why: &str) {
        self.prologs.retain(|_, waiting| waiting != job);
        if self.jobs.remove(job).is_some() {
            self.report_left(job, why);
        }
    }

    fn report_left(&mut self, job: &JobId, why: &str) {
        self.left.push((job.clone(), why.to_owned()));
        // A broker that is away for long learns of the latest.
        let excess = self.left.len().saturating_sub(AGENT_JOB_COUNT_MAX);
        self.left.drain(..excess);
    }

    /// For each cache that is due: the job with the latest deadline.
    pub(super) fn due(&self, now_s: u64) -> Vec<(CacheOwner, JobId)> {
        let due = self.caches.iter().filter(|(_, cache)| cache.renew_s <= now_s);
        due.filter_map(|(owner, _)| {
            let jobs = self
                .jobs
                .iter()
                .filter(|(id, job)| job.owner(id) == *owner && job.deadline_s > now_s);
            jobs.max_by_key(|(_, job)| job.deadline_s).map(|(id, _)| (owner.clone(), id.clone()))
        })
        .collect()
    }

    /// A tenth of the remaining life, between one second and half a minute.
    pub(super) fn retry_later(&mut self, owner: &CacheOwner, now_s: u64) {
        if let Some(cache) = self.caches.get_mut(owner) {
            cache.renew_s = now_s + (cache.end_s.saturating_sub(now_s) / 10).clamp(1, 30);
        }
    }

    fn unused(&self) -> Vec<CacheOwner> {
        let used: BTreeSet<CacheOwner> = self.jobs.iter().map(|(id, job)| job.owner(id)).collect();
        self.caches.keys().filter(|owner| !used.contains(owner)).cloned().collect()
    }
}

impl Agent {
    /// Writes the tickets of a job's user. The state names the file before it is in its place.
    /// `prolog` is given for a job that begins here, with whether it has a cache of its own.
    pub(super) fn put(
        &self,
        job: &JobId,
        prolog: Option<(u64, bool)>,
        tickets: Tickets,
    ) -> Result<(), Error> {
        let user = nix::unistd::User::from_name(tickets.user.as_str()).ok().flatten();
        let user = user.ok_or_else(|| {
            Error::NoAccount(format!("user {} is unknown on this node", tickets.user))
        })?;
        if user.uid.as_raw() != tickets.uid {
            let (here, there) = (user.uid, tickets.uid);
            return Err(Error::Refused(format!(
                "user {} has uid {here} on this node, but {there} at the broker",
                tickets.user
            )));
        }
        let mut accounts = self.accounts.lock();
        let is_known = accounts.jobs.contains_key(job);
        // An epilog may have come while the broker was asked.
        if !is_known && prolog.is_none_or(|(number, _)| !accounts.prologs.contains_key(&number)) {
            return Err(Error::Refused(format!(
                "job {job} has ended on this node in the meantime"
            )));
        }
        if accounts.jobs.len() >= AGENT_JOB_COUNT_MAX && !is_known {
            return Err(Error::Refused(format!(
                "this node has {AGENT_JOB_COUNT_MAX} jobs already"
            )));
        }
        let owns_cache = prolog.map_or_else(
            || accounts.jobs.get(job).is_some_and(|known| known.owns_cache),
            |(_, owns_cache)| owns_cache,
        );
        let local = LocalJob { uid: tickets.uid, deadline_s: tickets.deadline_s, owns_cache };
        let owner = local.owner(job);
        accounts.jobs.insert(job.clone(), local);
        let now_s = self.clock.now_s();
        let renew_s = now_s + (tickets.end_s.saturating_sub(now_s) / 2).max(1);
        let unwritten = Cache {
            file: None,
            end_s: tickets.end_s,
            renew_s: now_s,
            previous: None,
            staged: None,
        };
        let current = accounts.caches.entry(owner.clone()).or_insert(unwritten);
        // Another job of the user may have brought tickets that live longer.
        if current.file.is_some() && current.end_s > tickets.end_s {
            if current.renew_s <= now_s {
                current.renew_s = renew_s;
            }
            return self.state.write(&accounts);
        }
        let previous = current.file.clone();
        // The state names the file before it is there, so that the next start looks for it.
        let staged = self.places.new_staged_path(&owner)?;
        current.staged = Some(staged.clone());
        self.state.write(&accounts)?;
        let staged = self.places.stage(&owner, user.gid.as_raw(), staged, &tickets.cache)?;
        if let Some(current) = accounts.caches.get_mut(&owner) {
            let file = Some(staged.written().clone());
            *current = Cache {
                file,
                end_s: tickets.end_s,
                renew_s,
                previous: previous.clone(),
                staged: current.staged.take(),
            };
        }
        self.state.write(&accounts)?;
        staged.install(previous.as_ref())?;
        self.counters.written();
        Ok(())
    }

    /// Drops tickets that could not be written. The broker takes them for this node's unless it is
    /// told otherwise.
    pub(super) fn give_up(&self, job: &JobId, prolog: Option<u64>, error: &Error) {
        let mut accounts = self.accounts.lock();
        if let Some(number) = prolog {
            accounts.prologs.remove(&number);
        }
        if !accounts.jobs.contains_key(job)
            && !accounts.prologs.values().any(|waiting| waiting == job)
        {
            accounts.report_left(job, &error.to_string());
            if let Err(error) = self.state.write(&accounts) {
                tracing::error!("{error}");
            }
        }
    }

    /// Makes caches that a user has removed due for renewal.
    pub(super) fn notice_removed(&self) {
        let now_s = self.clock.now_s();
        for (owner, cache) in &mut self.accounts.lock().caches {
            if cache.file.take_if(|file| file.is_missing()).is_some() {
                tracing::warn!(%owner, "the cache was removed by its user; it is written again");
                cache.renew_s = now_s;
            }
        }
    }

    /// Removes caches without a job here. One that cannot be removed keeps no other.
    pub(super) fn remove_unused(&self, accounts: &mut Accounts) {
        for owner in accounts.unused() {
            if let Some(file) = accounts.caches.get(&owner).and_then(|cache| cache.file.clone())
                && let Err(error) = file.remove()
            {
                tracing::error!(%owner, "{error}; the tickets are not removed");
                accounts.unremoved.insert(owner);
            } else {
                accounts.caches.remove(&owner);
            }
        }
    }

    /// Tries again what could not be removed.
    pub(super) fn retry_removals(&self) -> Result<(), Error> {
        let mut accounts = self.accounts.lock();
        if std::mem::take(&mut accounts.unremoved).is_empty() {
            return Ok(());
        }
        self.remove_unused(&mut accounts);
        self.state.write(&accounts)
    }

    /// Ends jobs that are past their deadline, and removes tickets that have ended.
    pub(super) fn end_overdue(&self) -> Result<(), Error> {
        let now_s = self.clock.now_s();
        let mut accounts = self.accounts.lock();
        let overdue: Vec<JobId> = accounts
            .jobs
            .iter()
            .filter(|(_, job)| job.deadline_s <= now_s)
            .map(|(id, _)| id.clone())
            .collect();
        let ended = accounts
            .caches
            .iter()
            .filter(|(_, cache)| cache.end_s <= now_s && cache.file.is_some())
            .map(|(owner, _)| owner);
        let ended: Vec<CacheOwner> =
            ended.filter(|owner| !accounts.unremoved.contains(owner)).cloned().collect();
        if overdue.is_empty() && ended.is_empty() {
            return Ok(());
        }
        for job in overdue {
            tracing::warn!(%job, "the job is past its deadline; its tickets are removed");
            accounts.remove_job(&job, "past its deadline");
        }
        self.remove_unused(&mut accounts);
        for owner in ended {
            let Some(file) = accounts.caches.get(&owner).and_then(|cache| cache.file.clone())
            else {
                continue;
            };
            tracing::error!(
                %owner,
                "the tickets have ended and could not be renewed; they are removed"
            );
            if let Err(error) = file.remove() {
                tracing::error!(%owner, "{error}; the tickets are not removed");
                accounts.unremoved.insert(owner);
            } else if let Some(cache) = accounts.caches.get_mut(&owner) {
                self.counters.lapsed();
                cache.file = None;
            }
        }
        self.state.write(&accounts)
    }

    /// After a start: files that an earlier agent has not put into place. What a user has done to one
    /// of them must not keep the agent from its work for all others.
    pub(super) fn remove_leftovers(&self) -> Result<(), Error> {
        let mut accounts = self.accounts.lock();
        for (owner, cache) in &mut accounts.caches {
            if let Err(error) = self.places.finish(owner, cache) {
                tracing::error!(%owner, "{error}; the tickets are written again");
                cache.renew_s = 0;
            }
        }
        self.remove_unused(&mut accounts);
        self.state.write(&accounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> JobId {
        JobId::parse(text).unwrap()
    }

    #[test]
    fn cache_is_renewed_by_the_job_with_the_latest_deadline() {
        let mut accounts = Accounts::default();
        for (job, deadline_s) in [("1", 100), ("2", 300), ("3", 200)] {
            let local = LocalJob { uid: 1000, deadline_s, owns_cache: false };
            accounts.jobs.insert(id(job), local);
        }
        let user = CacheOwner::User(1000);
        let cache = Cache { file: None, end_s: 60, renew_s: 30, previous: None, staged: None };
        accounts.caches.insert(user.clone(), cache);
        assert_eq!(accounts.due(29), []);
        assert_eq!(accounts.due(30), [(user.clone(), id("2"))]);
        accounts.retry_later(&user, 30);
        assert_eq!((accounts.due(32), accounts.due(33)), (vec![], vec![(user.clone(), id("2"))]));
        accounts.remove_job(&id("2"), "ended");
        assert_eq!(accounts.due(40), [(user.clone(), id("3"))]);
        assert_eq!(accounts.due(250), []);
        for job in ["1", "3"] {
            assert!(accounts.unused().is_empty());
            accounts.remove_job(&id(job), "ended");
        }
        assert_eq!(accounts.unused(), [user]);
        assert_eq!(accounts.left.len(), 3);
    }

    #[test]
    fn cache_of_a_job_is_apart_from_its_users_and_is_stored() {
        let mut accounts = Accounts::default();
        for (job, owns_cache) in [("pod-a.1", true), ("pod-b.1", false)] {
            let local = LocalJob { uid: 1000, deadline_s: 100, owns_cache };
            let cache = Cache { file: None, end_s: 60, renew_s: 30, previous: None, staged: None };
            accounts.caches.insert(local.owner(&id(job)), cache);
            accounts.jobs.insert(id(job), local);
        }
        let text = serde_json::to_string(&accounts).unwrap();
        let mut again: Accounts = serde_json::from_str(&text).unwrap();
        let own = CacheOwner::Job(id("pod-a.1"));
        let due = vec![(CacheOwner::User(1000), id("pod-b.1")), (own.clone(), id("pod-a.1"))];
        assert_eq!(again.due(30), due);
        again.remove_job(&id("pod-a.1"), "ended");
        assert_eq!(again.unused(), [own]);
    }
}
