//! The jobs of this node, their users, and the caches that the agent has written for them.
//!
//! All jobs of a user on a node share one cache, because rpc.gssd knows users, not jobs. It is
//! renewed by the job with the latest deadline, and removed with the last job.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Agent;
use super::cache_file::WrittenCache;
use crate::Error;
use crate::limits::AGENT_JOB_COUNT_MAX;
use crate::names::{JobId, UserName};

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
    pub(super) caches: BTreeMap<u32, UserCache>,
    /// Jobs whose tickets were removed, for the broker.
    pub(super) left: Vec<(JobId, String)>,
    /// Prologs that wait for tickets. An epilog removes those of its job.
    #[serde(skip)]
    pub(super) prologs: BTreeMap<u64, JobId>,
    #[serde(skip)]
    prolog_count: u64,
    /// Users whose cache could not be removed. It is tried again at the next poll.
    #[serde(skip)]
    pub(super) unremoved: BTreeSet<u32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LocalJob {
    pub(super) uid: u32,
    pub(super) deadline_s: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct UserCache {
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

    /// For each user whose cache is due: the job with the latest deadline.
    pub(super) fn due(&self, now_s: u64) -> Vec<(u32, JobId)> {
        let due = self.caches.iter().filter(|(_, cache)| cache.renew_s <= now_s);
        due.filter_map(|(uid, _)| {
            let jobs =
                self.jobs.iter().filter(|(_, job)| job.uid == *uid && job.deadline_s > now_s);
            jobs.max_by_key(|(_, job)| job.deadline_s).map(|(id, _)| (*uid, id.clone()))
        })
        .collect()
    }

    /// A tenth of the remaining life, between one second and half a minute.
    pub(super) fn retry_later(&mut self, uid: u32, now_s: u64) {
        if let Some(cache) = self.caches.get_mut(&uid) {
            cache.renew_s = now_s + (cache.end_s.saturating_sub(now_s) / 10).clamp(1, 30);
        }
    }

    fn unused(&self) -> Vec<u32> {
        self.caches
            .keys()
            .copied()
            .filter(|uid| !self.jobs.values().any(|job| job.uid == *uid))
            .collect()
    }
}

impl Agent {
    /// Writes the tickets of a job's user. The state names the file before it is in its place.
    /// `prolog` is given for a job that begins here.
    pub(super) fn put(
        &self,
        job: &JobId,
        prolog: Option<u64>,
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
        if !is_known && prolog.is_none_or(|number| !accounts.prologs.contains_key(&number)) {
            return Err(Error::Refused(format!(
                "job {job} has ended on this node in the meantime"
            )));
        }
        if accounts.jobs.len() >= AGENT_JOB_COUNT_MAX && !is_known {
            return Err(Error::Refused(format!(
                "this node has {AGENT_JOB_COUNT_MAX} jobs already"
            )));
        }
        accounts
            .jobs
            .insert(job.clone(), LocalJob { uid: tickets.uid, deadline_s: tickets.deadline_s });
        let now_s = self.clock.now_s();
        let renew_s = now_s + (tickets.end_s.saturating_sub(now_s) / 2).max(1);
        let unwritten = UserCache {
            file: None,
            end_s: tickets.end_s,
            renew_s: now_s,
            previous: None,
            staged: None,
        };
        let current = accounts.caches.entry(tickets.uid).or_insert(unwritten);
        // Another job of the user may have brought tickets that live longer.
        if current.file.is_some() && current.end_s > tickets.end_s {
            if current.renew_s <= now_s {
                current.renew_s = renew_s;
            }
            return self.state.write(&accounts);
        }
        let previous = current.file.clone();
        // The state names the file before it is there, so that the next start looks for it.
        let staged = self.pattern.new_staged_path(tickets.uid)?;
        current.staged = Some(staged.clone());
        self.state.write(&accounts)?;
        let staged =
            self.pattern.stage((user.uid.as_raw(), user.gid.as_raw()), staged, &tickets.cache)?;
        if let Some(current) = accounts.caches.get_mut(&tickets.uid) {
            let file = Some(staged.written().clone());
            *current = UserCache {
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
        for (uid, cache) in &mut self.accounts.lock().caches {
            if cache.file.take_if(|file| file.is_missing()).is_some() {
                tracing::warn!(uid, "the cache was removed by its user; it is written again");
                cache.renew_s = now_s;
            }
        }
    }

    /// Removes caches of users without a job here. One that cannot be removed keeps no other.
    pub(super) fn remove_unused(&self, accounts: &mut Accounts) {
        for uid in accounts.unused() {
            if let Some(file) = accounts.caches.get(&uid).and_then(|cache| cache.file.clone())
                && let Err(error) = file.remove()
            {
                tracing::error!(uid, "{error}; the tickets are not removed");
                accounts.unremoved.insert(uid);
            } else {
                accounts.caches.remove(&uid);
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
            .map(|(uid, _)| *uid);
        let ended: Vec<u32> = ended.filter(|uid| !accounts.unremoved.contains(uid)).collect();
        if overdue.is_empty() && ended.is_empty() {
            return Ok(());
        }
        for job in overdue {
            tracing::warn!(%job, "the job is past its deadline; its tickets are removed");
            accounts.remove_job(&job, "past its deadline");
        }
        self.remove_unused(&mut accounts);
        for uid in ended {
            let Some(file) = accounts.caches.get(&uid).and_then(|cache| cache.file.clone()) else {
                continue;
            };
            tracing::error!(
                uid,
                "the tickets have ended and could not be renewed; they are removed"
            );
            if let Err(error) = file.remove() {
                tracing::error!(uid, "{error}; the tickets are not removed");
                accounts.unremoved.insert(uid);
            } else if let Some(cache) = accounts.caches.get_mut(&uid) {
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
        for (uid, cache) in &mut accounts.caches {
            if let Err(error) = self.pattern.finish(*uid, cache) {
                tracing::error!(uid, "{error}; the tickets are written again");
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
            accounts.jobs.insert(id(job), LocalJob { uid: 1000, deadline_s });
        }
        accounts.caches.insert(
            1000,
            UserCache { file: None, end_s: 60, renew_s: 30, previous: None, staged: None },
        );
        assert_eq!(accounts.due(29), []);
        assert_eq!(accounts.due(30), [(1000, id("2"))]);
        accounts.retry_later(1000, 30);
        assert_eq!((accounts.due(32), accounts.due(33)), (vec![], vec![(1000, id("2"))]));
        accounts.remove_job(&id("2"), "ended");
        assert_eq!(accounts.due(40), [(1000, id("3"))]);
        assert_eq!(accounts.due(250), []);
        for job in ["1", "3"] {
            assert!(accounts.unused().is_empty());
            accounts.remove_job(&id(job), "ended");
        }
        assert_eq!(accounts.unused(), [1000]);
        assert_eq!(accounts.left.len(), 3);
    }
}
