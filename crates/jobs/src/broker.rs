//! The broker: answers the scheduler and the agents.
//!
//! It trusts the scheduler's word for which job of which user runs on which nodes, and the KDC for
//! whose tickets it may have. It holds the key of its own principal, and no key of a user.

mod mint;
mod nodes;
mod records;
mod serve;
mod store;

use std::net::IpAddr;
use std::path::PathBuf;

use parking_lot::Mutex;
use vouch_audit::record::Act;
use vouch_audit::trail::Trail;
use zeroize::Zeroizing;

use crate::limits::{AGENT_JOB_COUNT_MAX, Limits};
use crate::names::{JobId, NodeName, UserName};
use crate::registry::{Change, Holder, Refusal, Registry};
use crate::wire::{Reply, Request};
use crate::{Error, now_s};
use mint::Mint;
pub use nodes::NodePrincipals;
use records::{Event, Records};
pub use serve::Listeners;
use store::Store;

pub struct BrokerConfig {
    /// The broker's own principal, with its realm.
    pub principal: String,
    pub keytab: PathBuf,
    /// Principals of the services, with their realms.
    pub services: Vec<String>,
    /// Realm of the users.
    pub realm: String,
    pub nodes: NodePrincipals,
    /// Directory of the store.
    pub state: PathBuf,
    pub limits: Limits,
}

pub struct Broker {
    config: BrokerConfig,
    registry: Mutex<Registry>,
    store: Store,
    mint: Mint,
    records: Records,
}

/// An agent that has proved its principal.
#[derive(Clone, Copy)]
struct Agent<'a> {
    principal: &'a str,
    address: IpAddr,
}

type Answer = (Reply, Zeroizing<Vec<u8>>);

impl Broker {
    /// # Errors
    /// If the store cannot be read.
    pub fn open(config: BrokerConfig, trail: Option<Trail>) -> Result<Self, Error> {
        let (store, jobs) = Store::open(&config.state)?;
        let registry = Mutex::new(Registry::new(jobs, config.limits.clone()));
        let mint = Mint::new(config.principal.clone(), config.keytab.clone(), config.services.clone());
        Ok(Self { config, registry, store, mint, records: Records::new(trail) })
    }

    /// Answers the scheduler.
    fn answer_scheduler(&self, request: Request) -> Reply {
        match request {
            Request::Begin { job, user, nodes, deadline_s } => self.begin(&job, &user, nodes, deadline_s),
            Request::End { job } => self.end(&job),
            Request::List => Reply::Jobs { jobs: self.registry.lock().list() },
            _ => Reply::Refused { reason: "this socket is for the scheduler: begin, end and list".into() },
        }
    }

    fn begin(&self, job: &JobId, user: &UserName, nodes: Vec<NodeName>, deadline_s: u64) -> Reply {
        let refuse = |reason: String| {
            self.records.refuse(Event { job: job.as_str(), principal: &self.principal(user), detail: &reason, ..Event::default() });
            Reply::Refused { reason }
        };
        let uid = match nix::unistd::User::from_name(user.as_str()) {
            Ok(Some(found)) => found.uid.as_raw(),
            Ok(None) => return refuse(format!("user {user} is unknown on the broker's host")),
            Err(error) => return Reply::Unavailable { reason: format!("user {user}: {error}") },
        };
        let count = nodes.len();
        let begun = {
            let mut registry = self.registry.lock();
            registry.begin(job, (user, uid), nodes, deadline_s, now_s()).map(|change| self.store.apply(&[change]))
        };
        match begun {
            Err(refusal) => refuse(refusal.to_string()),
            Ok(Err(error)) => unavailable(&error),
            Ok(Ok(())) => {
                let detail = format!("on {count} nodes until {deadline_s}");
                let principal = self.principal(user);
                let event = Event { job: job.as_str(), principal: &principal, uid: Some(uid), detail: &detail, ..Event::default() };
                self.records.write(Act::JobBegun, event);
                Reply::Done
            }
        }
    }

    fn end(&self, job: &JobId) -> Reply {
        let ended = {
            let mut registry = self.registry.lock();
            registry.end(job, now_s()).map(|change| {
                let user = match &change {
                    Change::Put(_, job) => self.principal(&job.user),
                    Change::Forget(_) => String::new(),
                };
                self.store.apply(&[change]).map(|()| user)
            })
        };
        match ended {
            // An epilog may run twice, or after the deadline.
            None => Reply::Done,
            Some(Err(error)) => unavailable(&error),
            Some(Ok(principal)) => {
                self.records.write(Act::JobEnded, Event { job: job.as_str(), principal: &principal, ..Event::default() });
                Reply::Done
            }
        }
    }

    /// Answers an agent.
    fn answer_agent(&self, agent: Agent<'_>, request: Request) -> Answer {
        let (node, job) = match &request {
            Request::Fetch { node, job, .. } | Request::Left { node, job, .. } => (node, Some(job)),
            Request::Sync { node, .. } => (node, None),
            _ => return (Reply::Refused { reason: "only the scheduler may ask that".into() }, Zeroizing::default()),
        };
        let refuse = |user: &str, reason: String| {
            let job = job.map_or("", JobId::as_str);
            let detail = format!("{} {reason}", agent.principal);
            let address = Some(agent.address);
            self.records.refuse(Event { job, principal: user, node: node.as_str(), address, detail: &detail, ..Event::default() });
            (Reply::Refused { reason }, Zeroizing::default())
        };
        if let Err(reason) = self.config.nodes.check(agent.principal, node) {
            return refuse("", reason);
        }
        match &request {
            Request::Fetch { node, agent: number, job } => {
                self.fetch(agent, node, number, job).unwrap_or_else(|(user, refusal)| refuse(&user, refusal))
            }
            Request::Sync { jobs, .. } if jobs.len() > AGENT_JOB_COUNT_MAX => {
                refuse("", format!("{} jobs are more than a node runs at once", jobs.len()))
            }
            Request::Sync { node, jobs } => {
                (Reply::Gone { jobs: self.registry.lock().gone(node, jobs.clone(), now_s()) }, Zeroizing::default())
            }
            Request::Left { node, job, why } => (self.left(agent, node, job, why), Zeroizing::default()),
            _ => unreachable!("matched above"),
        }
    }

    /// Errors: the user, if known, and why the request is refused.
    fn fetch(&self, agent: Agent<'_>, node: &NodeName, number: &str, job: &JobId) -> Result<Answer, (String, String)> {
        let shared = self.config.nodes.is_shared(agent.principal).then_some(number);
        let refused = |refusal: Refusal| (String::new(), refusal.to_string());
        let grant = self.registry.lock().grant(job, node, shared, now_s()).map_err(refused)?;
        let principal = self.principal(&grant.user);
        let minted = match self.mint.tickets(&principal, grant.end_s) {
            Ok(minted) => minted,
            Err(fault) if fault.is_refusal() => return Err((principal, fault.to_string())),
            Err(fault) => {
                tracing::error!(%job, %node, "no tickets: {fault}");
                return Ok((Reply::Unavailable { reason: fault.to_string() }, Zeroizing::default()));
            }
        };
        {
            let mut registry = self.registry.lock();
            // The job may have ended while the KDC was asked.
            registry.grant(job, node, shared, now_s()).map_err(refused)?;
            let holder = Holder { agent: number.chars().take(64).collect(), principal: minted.client.clone(), end_s: minted.end_s };
            let change = registry.hold(job, node, holder);
            if let Err(error) = self.store.apply(change.as_slice()) {
                return Ok((unavailable(&error), Zeroizing::default()));
            }
        }
        let detail = format!("{} until {} for {}", agent.principal, minted.end_s, self.mint.services().join(", "));
        self.records.write(
            Act::TicketMinted,
            Event {
                job: job.as_str(),
                principal: &minted.client,
                uid: Some(grant.uid),
                node: node.as_str(),
                address: Some(agent.address),
                detail: &detail,
                life_ns: Some(minted.end_s.saturating_sub(now_s()).saturating_mul(1_000_000_000)),
            },
        );
        let reply = Reply::Tickets {
            user: grant.user,
            uid: grant.uid,
            principal: minted.client,
            end_s: minted.end_s,
            deadline_s: grant.deadline_s,
        };
        Ok((reply, minted.cache))
    }

    fn left(&self, agent: Agent<'_>, node: &NodeName, job: &JobId, why: &str) -> Reply {
        let left = {
            let mut registry = self.registry.lock();
            registry.leave(job, node).map(|(holder, change)| self.store.apply(&[change]).map(|()| holder))
        };
        match left {
            None => Reply::Done,
            Some(Err(error)) => unavailable(&error),
            Some(Ok(holder)) => {
                let detail: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
                let (address, principal) = (Some(agent.address), &holder.principal);
                let event = Event { job: job.as_str(), principal, node: node.as_str(), address, detail: &detail, ..Event::default() };
                self.records.write(Act::TicketWithdrawn, event);
                Reply::Done
            }
        }
    }

    /// Forgets what is over. Call this at intervals.
    fn expire(&self) {
        let lapsed = {
            let mut registry = self.registry.lock();
            let (lapsed, changes) = registry.expire(now_s());
            if let Err(error) = self.store.apply(&changes) {
                tracing::error!("{error}; the jobs are forgotten again after a new start");
            }
            lapsed
        };
        for lapsed in lapsed {
            let detail = "the tickets have ended; the node did not confirm their removal";
            let (job, node) = (lapsed.job.as_str(), lapsed.node.as_str());
            self.records.write(Act::TicketWithdrawn, Event { job, principal: &lapsed.principal, node, detail, ..Event::default() });
        }
        self.records.record_omitted();
    }

    fn principal(&self, user: &UserName) -> String {
        format!("{user}@{}", self.config.realm)
    }
}

fn unavailable(error: &Error) -> Reply {
    tracing::error!("{error}");
    Reply::Unavailable { reason: format!("the broker: {error}") }
}
