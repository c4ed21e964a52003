//! The broker: answers the scheduler and the agents.
//!
//! It trusts the scheduler's word for which job of which user runs on which nodes, and the KDC for
//! whose tickets it may have. It holds the key of its own principal, and no key of a user.

mod connections;
mod nodes;
mod records;
mod report;
mod serve;
mod store;
pub(crate) mod ticket_issuer;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_audit::record::Act;
use vouch_audit::trail::Trail;
use vouch_gss_mit::{DelegatedTickets, KerberosError, TICKET_REFUSED};
use zeroize::Zeroizing;

use crate::Error;
use crate::clock::Clock;
use crate::faults::{NO_ACCOUNT, Outage};
use crate::limits::{AGENT_JOB_COUNT_MAX, Limits, POD_JOB_COUNT_MAX};
use crate::names::{JobId, NodeName, UserName};
use crate::pods::{POD_PREFIX, PodCluster, PodError, PodToken};
use crate::registry::{Change, Holder, Refusal, Registry};
use crate::spool;
use crate::wire::{Reply, Request};
use connections::Connections;
pub use nodes::NodePrincipals;
use records::{Event, Records};
pub use report::{BrokerReport, BrokerStatus};
pub use serve::Listeners;
use store::Store;
use ticket_issuer::{TicketIssuer, TicketSource};

pub struct BrokerConfig {
    /// The broker's own principal, with its realm.
    pub principal: String,
    pub keytab: PathBuf,
    /// Principals of the services, with their realms.
    pub services: Vec<String>,
    /// Realm of the users.
    pub realm: String,
    /// Domains of these users in names such as `AD\\alice` and `alice@ad.example.org`.
    pub user_domains: Vec<String>,
    /// Users, beside root and the broker's own, that may register jobs.
    pub scheduler_uids: Vec<u32>,
    /// Their group, which may write to the spool.
    pub scheduler_group: Option<u32>,
    pub nodes: NodePrincipals,
    /// The cluster whose pods get tickets by their tokens.
    pub pods: Option<PodCluster>,
    /// Directory of the store.
    pub state: PathBuf,
    /// Directory of ends that the scheduler has noted while the broker was away.
    pub spool: PathBuf,
    pub limits: Limits,
}

pub struct Broker {
    config: BrokerConfig,
    registry: Mutex<Registry>,
    store: Store,
    tickets: Box<dyn TicketSource>,
    records: Records,
    clock: Clock,
    /// Connections of agents.
    agents: Arc<Connections>,
    /// Of the KDC.
    outage: Outage,
    kdc_failures: AtomicU64,
    /// Only the scheduler and root can have written what is in the spool.
    is_spool_trusted: bool,
}

/// An agent that has proved its principal.
#[derive(Clone, Copy)]
pub(crate) struct Agent<'a> {
    pub(crate) principal: &'a str,
    pub(crate) address: IpAddr,
}

/// Where a pod runs, and as which service account.
#[derive(Clone, Copy, Default)]
struct PodOrigin<'a> {
    account: &'a str,
    node: &'a str,
    address: Option<IpAddr>,
}

pub(crate) type Answer = (Reply, Zeroizing<Vec<u8>>);

/// Why an agent gets nothing.
struct RefusedFetch {
    /// The user's principal, if it is known.
    user: String,
    fault: Option<&'static str>,
    reason: String,
}

impl RefusedFetch {
    fn by_rule(reason: String) -> Self {
        Self { user: String::new(), fault: None, reason }
    }
}

impl Broker {
    /// # Errors
    /// If the store cannot be read.
    pub fn open(config: BrokerConfig, trail: Option<Trail>) -> Result<Self, Error> {
        let issuer = TicketIssuer::new(config.principal.clone(), config.keytab.clone());
        Self::with_parts(config, trail, Clock::system(), Box::new(issuer))
    }

    pub(crate) fn with_parts(
        config: BrokerConfig,
        trail: Option<Trail>,
        clock: Clock,
        tickets: Box<dyn TicketSource>,
    ) -> Result<Self, Error> {
        let (store, jobs) = Store::open(&config.state)?;
        let spool = spool::create(&config.spool, config.scheduler_group);
        if let Err(error) = &spool {
            tracing::warn!("{error}; ends of jobs are lost while the broker is away");
        }
        let broker = Self {
            registry: Mutex::new(Registry::new(jobs, config.limits.clone())),
            store,
            tickets,
            records: Records::new(trail, clock.clone()),
            clock,
            agents: Arc::new(Connections::new(config.limits.connection_count_max)),
            outage: Outage::default(),
            kdc_failures: AtomicU64::default(),
            is_spool_trusted: spool.is_ok(),
            config,
        };
        // Before an agent asks.
        broker.end_spooled();
        Ok(broker)
    }

    /// Answers the scheduler.
    pub(crate) fn answer_scheduler(&self, request: Request) -> Reply {
        match request {
            Request::Begin { job, .. } if job.as_str().starts_with(POD_PREFIX) => {
                Reply::Refused { reason: format!("jobs that begin with {POD_PREFIX} are pods'") }
            }
            Request::Begin { job, user, nodes, deadline_s } => {
                self.begin(&job, &user, nodes, deadline_s, PodOrigin::default())
            }
            Request::End { job } => self.end(&job),
            Request::List => Reply::Jobs { jobs: self.registry.lock().list() },
            _ => Reply::Refused {
                reason: "this socket is for the scheduler: begin, end and list".into(),
            },
        }
    }

    pub(crate) fn is_scheduler(&self, uid: u32) -> bool {
        uid == 0
            || uid == rustix::process::geteuid().as_raw()
            || self.config.scheduler_uids.contains(&uid)
    }

    fn end_spooled(&self) {
        if self.is_spool_trusted {
            spool::drain(
                &self.config.spool,
                |uid| self.is_scheduler(uid),
                |job| self.end(job) == Reply::Done,
            );
        }
    }

    /// `pod` is empty for a job of the scheduler.
    fn begin(
        &self,
        job: &JobId,
        user: &UserName,
        nodes: Vec<NodeName>,
        deadline_s: u64,
        pod: PodOrigin<'_>,
    ) -> Reply {
        // A job that is queued again: its first end comes first.
        self.end_spooled();
        let principal = self.principal(user);
        let refuse = |fault: Option<&str>, reason: String| {
            let principal = principal.as_deref().unwrap_or(user.as_str());
            self.records.refuse(Event {
                job: job.as_str(),
                principal,
                node: pod.node,
                address: pod.address,
                detail: &reason,
                fault,
                ..Event::default()
            });
            Reply::Refused { reason }
        };
        let Some(principal) = &principal else { return refuse(None, self.other_domain(user)) };
        let uid = match nix::unistd::User::from_name(user.as_str()) {
            Ok(Some(found)) => found.uid.as_raw(),
            Ok(None) => {
                return refuse(
                    Some(NO_ACCOUNT),
                    format!("user {user} is unknown on the broker's host"),
                );
            }
            Err(error) => return Reply::Unavailable { reason: format!("user {user}: {error}") },
        };
        let count = nodes.len();
        let begun = {
            let mut registry = self.registry.lock();
            registry.begin(job, (user, uid), nodes, deadline_s, self.clock.now_s()).map(|change| {
                let granted_s =
                    if let Change::Put(_, job) = &change { job.deadline_s } else { deadline_s };
                self.store.apply(&[change]).map(|()| granted_s)
            })
        };
        match begun {
            Err(refusal) => refuse(None, refusal.to_string()),
            Ok(Err(error)) => unavailable(&error),
            Ok(Ok(deadline_s)) => {
                let mut detail = format!("on {count} nodes until {deadline_s}");
                if !pod.account.is_empty() {
                    detail += &format!(", for service account {}", pod.account);
                }
                let event = Event {
                    job: job.as_str(),
                    principal,
                    uid: Some(uid),
                    node: pod.node,
                    address: pod.address,
                    detail: &detail,
                    ..Event::default()
                };
                self.records.write(Act::JobBegun, event);
                Reply::Begun { deadline_s }
            }
        }
    }

    fn end(&self, job: &JobId) -> Reply {
        let ended = {
            let mut registry = self.registry.lock();
            registry.end(job, self.clock.now_s()).map(|change| {
                let user = match &change {
                    Change::Put(_, job) => self.principal(&job.user).unwrap_or_default(),
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
                self.records.write(
                    Act::JobEnded,
                    Event { job: job.as_str(), principal: &principal, ..Event::default() },
                );
                Reply::Done
            }
        }
    }

    /// Answers an agent.
    pub(crate) fn answer_agent(&self, agent: Agent<'_>, request: Request) -> Answer {
        let (node, job) = match &request {
            Request::Fetch { node, job, .. }
            | Request::Pod { node, job, .. }
            | Request::Left { node, job, .. } => (node, Some(job)),
            Request::Sync { node, .. } => (node, None),
            _ => {
                return (
                    Reply::Refused { reason: "only the scheduler may ask that".into() },
                    Zeroizing::default(),
                );
            }
        };
        let refuse = |RefusedFetch { user, fault, reason }: RefusedFetch| {
            let job = job.map_or("", JobId::as_str);
            let detail = format!("{} {reason}", agent.principal);
            let address = Some(agent.address);
            let event = Event {
                job,
                principal: &user,
                node: node.as_str(),
                address,
                detail: &detail,
                fault,
                ..Event::default()
            };
            self.records.refuse(event);
            (Reply::Refused { reason }, Zeroizing::default())
        };
        if let Err(reason) = self.config.nodes.check(agent.principal, node) {
            return refuse(RefusedFetch::by_rule(reason));
        }
        match &request {
            Request::Fetch { node, agent: number, job } => {
                self.fetch(agent, node, number, job).unwrap_or_else(refuse)
            }
            Request::Pod { node, job, token } => {
                self.begin_pod(agent, node, job, token).unwrap_or_else(refuse)
            }
            Request::Sync { jobs, .. } if jobs.len() > AGENT_JOB_COUNT_MAX => {
                refuse(RefusedFetch::by_rule(format!(
                    "{} jobs are more than a node runs at once",
                    jobs.len()
                )))
            }
            Request::Sync { node, jobs } => (
                Reply::Gone {
                    jobs: self.registry.lock().gone(node, jobs.clone(), self.clock.now_s()),
                },
                Zeroizing::default(),
            ),
            Request::Left { node, agent: number, job, why } => {
                (self.left(agent, (node, number), job, why), Zeroizing::default())
            }
            _ => unreachable!("matched above"),
        }
    }

    /// Registers the job of a pod by the pod's token.
    fn begin_pod(
        &self,
        agent: Agent<'_>,
        node: &NodeName,
        job: &JobId,
        token: &PodToken,
    ) -> Result<Answer, RefusedFetch> {
        let Some(cluster) = &self.config.pods else {
            let reason = "this broker knows no cluster (--pod-issuer)";
            return Err(RefusedFetch::by_rule(reason.into()));
        };
        let now_s = self.clock.now_s();
        let identity = cluster.identify(token, (job, node), now_s);
        if let (Ok(_), Some((pod, _))) = (&identity, job.as_str().split_once('.'))
            && let Ok(pod) = JobId::parse(pod)
            && self.registry.lock().others_of_pod(&pod, job, now_s) >= POD_JOB_COUNT_MAX
        {
            let reason = format!("the pod has {POD_JOB_COUNT_MAX} volumes already");
            return Err(RefusedFetch::by_rule(reason));
        }
        let reply = match identity {
            Ok(pod) => {
                let origin = PodOrigin {
                    account: &pod.account,
                    node: node.as_str(),
                    address: Some(agent.address),
                };
                self.begin(job, &pod.user, vec![node.clone()], pod.expires_s, origin)
            }
            Err(error @ PodError::File { .. }) => unavailable(&Error::Pods(error)),
            Err(error) => return Err(RefusedFetch::by_rule(error.to_string())),
        };
        Ok((reply, Zeroizing::default()))
    }

    fn fetch(
        &self,
        agent: Agent<'_>,
        node: &NodeName,
        number: &str,
        job: &JobId,
    ) -> Result<Answer, RefusedFetch> {
        let shared = self.shared_number(agent, number);
        let refused = |refusal: Refusal| RefusedFetch::by_rule(refusal.to_string());
        let grant =
            self.registry.lock().grant(job, node, shared, self.clock.now_s()).map_err(refused)?;
        let principal = self
            .principal(&grant.user)
            .ok_or_else(|| RefusedFetch::by_rule(self.other_domain(&grant.user)))?;
        let minted = match self.mint(&principal, grant.end_s) {
            Ok(minted) => minted,
            Err(fault) if fault.is_refusal() => {
                let reason = fault.to_string();
                return Err(RefusedFetch { user: principal, fault: None, reason });
            }
            Err(fault) => {
                let reason = fault.to_string();
                tracing::error!(%job, %node, "no tickets: {reason}");
                return Ok((Reply::Unavailable { reason }, Zeroizing::default()));
            }
        };
        {
            let mut registry = self.registry.lock();
            // The job may have ended while the KDC was asked.
            registry.grant(job, node, shared, self.clock.now_s()).map_err(refused)?;
            let holder = Holder {
                agent: number.chars().take(64).collect(),
                principal: minted.client.clone(),
                end_s: minted.end_s,
            };
            let change = registry.hold(job, node, holder);
            if let Err(error) = self.store.apply(change.as_slice()) {
                return Ok((unavailable(&error), Zeroizing::default()));
            }
        }
        let detail = format!(
            "{} until {} for {}",
            agent.principal,
            minted.end_s,
            self.config.services.join(", ")
        );
        self.records.write(
            Act::TicketMinted,
            Event {
                job: job.as_str(),
                principal: &minted.client,
                uid: Some(grant.uid),
                node: node.as_str(),
                address: Some(agent.address),
                detail: &detail,
                life_ns: Some(
                    minted.end_s.saturating_sub(self.clock.now_s()).saturating_mul(1_000_000_000),
                ),
                ..Event::default()
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

    /// Asks the KDC.
    fn mint(&self, principal: &str, end_s: u64) -> Result<DelegatedTickets, KerberosError> {
        let minted = self.tickets.tickets(principal, &self.config.services, end_s);
        match &minted {
            Err(fault) if !fault.is_refusal() => {
                self.kdc_failures.fetch_add(1, Ordering::Relaxed);
                self.outage.failed(kdc_fault(fault), fault.to_string(), self.clock.now_s());
            }
            _ => self.outage.ended(),
        }
        minted
    }

    /// The number that tells agents with a shared principal apart.
    fn shared_number<'a>(&self, agent: Agent<'_>, number: &'a str) -> Option<&'a str> {
        self.config.nodes.is_shared(agent.principal).then_some(number)
    }

    fn left(
        &self,
        agent: Agent<'_>,
        (node, number): (&NodeName, &str),
        job: &JobId,
        why: &str,
    ) -> Reply {
        let left = {
            let mut registry = self.registry.lock();
            registry
                .leave(job, node, self.shared_number(agent, number))
                .map(|(holder, change)| self.store.apply(&[change]).map(|()| holder))
        };
        match left {
            None => Reply::Done,
            Some(Err(error)) => unavailable(&error),
            Some(Ok(holder)) => {
                let detail: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
                let (address, principal) = (Some(agent.address), &holder.principal);
                let event = Event {
                    job: job.as_str(),
                    principal,
                    node: node.as_str(),
                    address,
                    detail: &detail,
                    ..Event::default()
                };
                self.records.write(Act::TicketWithdrawn, event);
                // A pod runs on one node, which has said that it is gone.
                if job.as_str().starts_with(POD_PREFIX) { self.end(job) } else { Reply::Done }
            }
        }
    }

    /// Forgets what is over. Call this at intervals.
    pub(crate) fn expire(&self) {
        self.end_spooled();
        let lapsed = {
            let mut registry = self.registry.lock();
            let (lapsed, changes) = registry.expire(self.clock.now_s());
            if let Err(error) = self.store.apply(&changes) {
                tracing::error!("{error}; the jobs are forgotten again after a new start");
            }
            lapsed
        };
        for lapsed in lapsed {
            let detail = "the tickets have ended; the node did not confirm their removal";
            let (job, node) = (lapsed.job.as_str(), lapsed.node.as_str());
            self.records.write(
                Act::TicketWithdrawn,
                Event { job, principal: &lapsed.principal, node, detail, ..Event::default() },
            );
        }
        self.records.record_omitted();
    }

    /// None for a user of a domain that is not the realm's.
    fn principal(&self, user: &UserName) -> Option<String> {
        let (domain, name) = user.parts()?;
        let is_of_realm = |domain: &str| {
            self.config.user_domains.iter().any(|known| known.eq_ignore_ascii_case(domain))
        };
        domain.is_none_or(is_of_realm).then(|| format!("{name}@{}", self.config.realm))
    }

    fn other_domain(&self, user: &UserName) -> String {
        format!(
            "user {user} is of a domain whose users are not known to be of realm {} (--user-domain)",
            self.config.realm
        )
    }
}

fn unavailable(error: &Error) -> Reply {
    tracing::error!("{error}");
    Reply::Unavailable { reason: format!("the broker: {error}") }
}

/// Name of the fault in docs/troubleshooting.md.
fn kdc_fault(error: &KerberosError) -> &'static str {
    match error.fault() {
        TICKET_REFUSED => KDC_UNAVAILABLE,
        fault => fault,
    }
}

const KDC_UNAVAILABLE: &str = "kdc-unavailable";
