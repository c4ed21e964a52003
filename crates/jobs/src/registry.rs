//! The jobs, and what each node may get. A state machine: it does no I/O, and the caller passes the
//! time.
//!
//! A job is live from its registration until its end or its deadline. Then it is kept until no node
//! holds tickets of it: until all have confirmed the removal, or until the tickets have ended.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::limits::{Limits, NODE_COUNT_MAX};
use crate::names::{JobId, NodeName, UserName};
use crate::wire::JobView;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) user: UserName,
    pub(crate) uid: u32,
    pub(crate) nodes: BTreeSet<NodeName>,
    pub(crate) begun_s: u64,
    pub(crate) deadline_s: u64,
    pub(crate) ended_s: Option<u64>,
    pub(crate) holders: BTreeMap<NodeName, Holder>,
}

/// A node that was given tickets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// Number that the agent has drawn at its first start.
    pub(crate) agent: String,
    pub(crate) principal: String,
    pub(crate) end_s: u64,
}

/// What a node may get for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) user: UserName,
    pub(crate) uid: u32,
    pub(crate) deadline_s: u64,
    /// Latest end of its tickets.
    pub(crate) end_s: u64,
}

/// Why a request is refused. The text is for the scheduler's or the node's administrator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no job {0} is registered")]
    UnknownJob(JobId),
    #[error("job {0} has ended")]
    Ended(JobId),
    #[error("job {0} is past its deadline")]
    PastDeadline(JobId),
    #[error("job {0} does not run on node {1}")]
    OtherNode(JobId, NodeName),
    #[error(
        "another agent that calls itself {1} has the tickets of job {0}; a copy of the node's keytab may be in use elsewhere"
    )]
    OtherAgent(JobId, NodeName),
    #[error("job {0} belongs to user {1}")]
    OtherUser(JobId, UserName),
    #[error("user {0} has uid {1}; users below {2} get no tickets")]
    SystemUser(UserName, u32, u32),
    #[error("user {0} has {1} jobs, the most that one user may have")]
    ManyJobs(UserName, usize),
    #[error("{0} jobs are registered, the most that this broker takes")]
    Full(usize),
    #[error("a job has 1 to {NODE_COUNT_MAX} nodes, and this one has {0}")]
    NodeCount(usize),
    #[error("the deadline of job {0} has passed already")]
    EarlyDeadline(JobId),
}

/// A change that must be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Put(JobId, Job),
    Forget(JobId),
}

/// Tickets that have ended on a node that did not confirm their removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnremovedTickets {
    pub(crate) job: JobId,
    pub(crate) node: NodeName,
    pub(crate) principal: String,
}

/// Numbers for the broker's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) live: usize,
    pub(crate) ended: usize,
    /// Of live jobs.
    pub(crate) users: usize,
    pub(crate) holders: usize,
}

pub(crate) struct Registry {
    jobs: BTreeMap<JobId, Job>,
    limits: Limits,
}

impl Registry {
    pub(crate) fn new(jobs: BTreeMap<JobId, Job>, limits: Limits) -> Self {
        Self { jobs, limits }
    }

    /// Registers a job, or changes nodes and deadline of a live one. A deadline beyond the limit is
    /// cut to it.
    ///
    /// # Errors
    /// If a limit or another user's job forbids it.
    pub(crate) fn begin(
        &mut self,
        id: &JobId,
        (user, uid): (&UserName, u32),
        nodes: Vec<NodeName>,
        deadline_s: u64,
        now_s: u64,
    ) -> Result<Change, Refusal> {
        if uid < self.limits.uid_min {
            return Err(Refusal::SystemUser(user.clone(), uid, self.limits.uid_min));
        }
        let nodes: BTreeSet<NodeName> = nodes.into_iter().collect();
        if nodes.is_empty() || nodes.len() > NODE_COUNT_MAX {
            return Err(Refusal::NodeCount(nodes.len()));
        }
        if deadline_s <= now_s {
            return Err(Refusal::EarlyDeadline(id.clone()));
        }
        let deadline_s = deadline_s.min(now_s.saturating_add(self.limits.job_s_max));
        let known = self.jobs.get(id);
        let is_live = known.is_some_and(|job| job.is_live(now_s));
        match known {
            Some(job) if is_live && job.user != *user => {
                return Err(Refusal::OtherUser(id.clone(), job.user.clone()));
            }
            None if self.jobs.len() >= self.limits.job_count_max => {
                return Err(Refusal::Full(self.jobs.len()));
            }
            _ => {}
        }
        let of_user =
            self.jobs.values().filter(|job| job.user == *user && job.is_live(now_s)).count();
        if !is_live && of_user >= self.limits.user_job_count_max {
            return Err(Refusal::ManyJobs(user.clone(), of_user));
        }
        // A job that is queued again may find a node installed anew, whose agent has a new number.
        let holders = known.map(|job| job.holders.clone()).unwrap_or_default();
        let forget = |(node, holder): (NodeName, Holder)| {
            (node, if is_live { holder } else { Holder { agent: String::new(), ..holder } })
        };
        let job = Job {
            user: user.clone(),
            uid,
            nodes,
            begun_s: known.filter(|_| is_live).map_or(now_s, |job| job.begun_s),
            deadline_s,
            ended_s: None,
            holders: holders.into_iter().map(forget).collect(),
        };
        self.jobs.insert(id.clone(), job.clone());
        Ok(Change::Put(id.clone(), job))
    }

    /// Ends a job. None if it is not registered or has ended already.
    pub(crate) fn end(&mut self, id: &JobId, now_s: u64) -> Option<Change> {
        let job = self.jobs.get_mut(id).filter(|job| job.ended_s.is_none())?;
        job.ended_s = Some(now_s);
        self.changed(id)
    }

    /// Live jobs but this one of the pod whose jobs begin with the prefix.
    pub(crate) fn others_of_pod(&self, prefix: &JobId, id: &JobId, now_s: u64) -> usize {
        let of_pod = self
            .jobs
            .range(prefix..)
            .take_while(|(other, _)| other.as_str().starts_with(prefix.as_str()));
        of_pod.filter(|(other, job)| *other != id && job.is_live(now_s)).count()
    }

    /// What a node may get for a job now.
    ///
    /// # Errors
    /// Why it may get nothing. `agent` is given for nodes that share a principal.
    pub(crate) fn grant(
        &self,
        id: &JobId,
        node: &NodeName,
        agent: Option<&str>,
        now_s: u64,
    ) -> Result<Grant, Refusal> {
        let job = self.jobs.get(id).ok_or_else(|| Refusal::UnknownJob(id.clone()))?;
        // Before its state, so that other nodes learn nothing of a job.
        if !job.nodes.contains(node) {
            return Err(Refusal::OtherNode(id.clone(), node.clone()));
        }
        if job.ended_s.is_some() {
            return Err(Refusal::Ended(id.clone()));
        }
        if now_s >= job.deadline_s {
            return Err(Refusal::PastDeadline(id.clone()));
        }
        if let (Some(agent), Some(holder)) = (agent, job.holders.get(node))
            && !holder.agent.is_empty()
            && holder.agent != agent
        {
            return Err(Refusal::OtherAgent(id.clone(), node.clone()));
        }
        let end_s = job.deadline_s.min(now_s.saturating_add(self.limits.ticket_s_max));
        Ok(Grant { user: job.user.clone(), uid: job.uid, deadline_s: job.deadline_s, end_s })
    }

    /// Notes that a node gets tickets. Call [`Registry::grant`] again before: the job may have ended
    /// while the KDC was asked.
    pub(crate) fn hold(&mut self, id: &JobId, node: &NodeName, holder: Holder) -> Option<Change> {
        let job = self.jobs.get_mut(id)?;
        job.holders.insert(node.clone(), holder);
        self.changed(id)
    }

    /// Notes that a node has removed its tickets. None if it had none, or if another agent has them:
    /// `agent` is given for nodes that share a principal.
    pub(crate) fn leave(
        &mut self,
        id: &JobId,
        node: &NodeName,
        agent: Option<&str>,
    ) -> Option<(Holder, Change)> {
        let holders = &mut self.jobs.get_mut(id)?.holders;
        let is_other = |holder: &Holder| agent.is_some_and(|agent| holder.agent != agent);
        if holders.get(node).is_none_or(is_other) {
            return None;
        }
        let holder = holders.remove(node)?;
        Some((holder, self.changed(id)?))
    }

    /// Those of the jobs that are not live on a node.
    pub(crate) fn gone(&self, node: &NodeName, jobs: Vec<JobId>, now_s: u64) -> Vec<JobId> {
        let is_live = |id: &JobId| {
            self.jobs.get(id).is_some_and(|job| job.is_live(now_s) && job.nodes.contains(node))
        };
        jobs.into_iter().filter(|id| !is_live(id)).collect()
    }

    /// Forgets tickets that have ended with their jobs, and jobs without holders. Call this at
    /// intervals.
    pub(crate) fn expire(&mut self, now_s: u64) -> (Vec<UnremovedTickets>, Vec<Change>) {
        let (mut lapsed, mut changes) = (Vec::new(), Vec::new());
        let over: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, job)| !job.is_live(now_s))
            .map(|(id, _)| id.clone())
            .collect();
        for id in over {
            let job = self.jobs.get_mut(&id).expect("listed above");
            let before = lapsed.len();
            job.holders.retain(|node, holder| {
                let is_over = holder.end_s <= now_s;
                if is_over {
                    lapsed.push(UnremovedTickets {
                        job: id.clone(),
                        node: node.clone(),
                        principal: holder.principal.clone(),
                    });
                }
                !is_over
            });
            if job.holders.is_empty() {
                self.jobs.remove(&id);
                changes.push(Change::Forget(id));
            } else if lapsed.len() > before {
                changes.extend(self.changed(&id));
            }
        }
        (lapsed, changes)
    }

    /// O(n) in jobs.
    pub(crate) fn counts(&self, now_s: u64) -> Counts {
        let live = || self.jobs.values().filter(|job| job.is_live(now_s));
        let count = live().count();
        Counts {
            live: count,
            ended: self.jobs.len() - count,
            users: live().map(|job| &job.user).collect::<BTreeSet<_>>().len(),
            holders: self.jobs.values().map(|job| job.holders.len()).sum(),
        }
    }

    #[cfg(test)]
    pub(crate) fn get(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id)
    }

    pub(crate) fn list(&self) -> Vec<JobView> {
        let view = |(id, job): (&JobId, &Job)| JobView {
            job: id.clone(),
            user: job.user.clone(),
            uid: job.uid,
            nodes: job.nodes.iter().cloned().collect(),
            begun_s: job.begun_s,
            deadline_s: job.deadline_s,
            ended_s: job.ended_s,
            holders: job
                .holders
                .iter()
                .map(|(node, holder)| (node.clone(), holder.end_s))
                .collect(),
        };
        self.jobs.iter().map(view).collect()
    }

    fn changed(&self, id: &JobId) -> Option<Change> {
        self.jobs.get(id).map(|job| Change::Put(id.clone(), job.clone()))
    }
}

impl Job {
    fn is_live(&self, now_s: u64) -> bool {
        self.ended_s.is_none() && now_s < self.deadline_s
    }
}

#[cfg(test)]
mod tests;
