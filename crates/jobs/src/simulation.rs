//! Broker and agent on a virtual clock, with a KDC of the test: thirty days pass in seconds.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use vouch_gss_mit::{DelegatedTickets, KerberosError};
use vouch_testkit::kubernetes::Cluster;
use zeroize::Zeroizing;

use crate::Error;
use crate::agent::link::{Answer, BrokerLink};
use crate::agent::{Agent, AgentConfig};
use crate::broker::ticket_issuer::TicketSource;
use crate::broker::{self, Broker, BrokerConfig, NodePrincipals};
use crate::clock::Clock;
use crate::limits::Limits;
use crate::names::{JobId, NodeName, UserName};
use crate::pods::PodToken;
use crate::pods::tests::config as config_of;
use crate::wire::{Reply, Request};

const DAY_S: u64 = 86_400;
const MINUTE_S: u64 = 60;
/// Longest outage that tickets of one hour, renewed when half of their life is over, bridge.
const OUTAGE_MINUTES_MAX: u64 = 25;
const BEGIN_S: u64 = 1_800_000_000;

/// Its tickets live for one hour, whatever is asked for.
struct VirtualKdc {
    clock: Clock,
    is_away: Arc<AtomicBool>,
    minted: Arc<AtomicU64>,
    interruption: Interruption,
}

/// Runs while the KDC makes the next ticket.
type Interruption = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

impl TicketSource for VirtualKdc {
    fn tickets(
        &self,
        user: &str,
        _: &[String],
        end_s: u64,
    ) -> Result<DelegatedTickets, KerberosError> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(KerberosError {
                what: "cannot contact any KDC".into(),
                cure: None,
                major: 13 << 16,
                minor: 1,
            });
        }
        self.minted.fetch_add(1, Ordering::Relaxed);
        if let Some(interrupt) = self.interruption.lock().take() {
            interrupt();
        }
        let end_s = end_s.min(self.clock.now_s() + 3600);
        Ok(DelegatedTickets {
            client: user.to_owned(),
            cache: Zeroizing::new(end_s.to_string().into_bytes()),
            end_s,
        })
    }
}

/// None while the broker is away.
#[derive(Clone, Default)]
struct VirtualLink(Arc<Mutex<Option<Broker>>>);

impl BrokerLink for VirtualLink {
    fn ask(&self, request: &Request) -> Result<Answer, Error> {
        let broker = self.0.lock();
        let broker =
            broker.as_ref().ok_or_else(|| Error::Unavailable("connection refused".into()))?;
        let agent = broker::Agent { principal: "host/n1@R", address: IpAddr::from([127, 0, 0, 1]) };
        match broker.answer_agent(agent, request.clone()) {
            (Reply::Refused { reason }, _) => Err(Error::Refused(reason)),
            (Reply::Unavailable { reason }, _) => Err(Error::Unavailable(reason)),
            answer => Ok(answer),
        }
    }
}

struct Site {
    files: tempfile::TempDir,
    now_s: Arc<AtomicU64>,
    is_kdc_away: Arc<AtomicBool>,
    minted: Arc<AtomicU64>,
    interruption: Interruption,
    link: VirtualLink,
    user: nix::unistd::User,
    cluster: Option<Cluster>,
}

impl Site {
    fn new() -> Site {
        // In memory, because each renewal is synced.
        let files = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
        let now_s = Arc::new(AtomicU64::new(BEGIN_S));
        let (minted, interruption) = (Arc::default(), Interruption::default());
        Site {
            files,
            now_s,
            is_kdc_away: Arc::default(),
            minted,
            interruption,
            link: VirtualLink::default(),
            user,
            cluster: None,
        }
    }

    fn clock(&self) -> Clock {
        Clock::of(self.now_s.clone())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// With the jobs that an earlier broker has stored.
    fn start_broker(&self) {
        self.link.0.lock().take();
        std::fs::create_dir_all(self.path("broker")).unwrap();
        let config = BrokerConfig {
            principal: "vouch-jobs/head@R".into(),
            keytab: PathBuf::new(),
            services: vec!["nfs/filer@R".into()],
            realm: "R".into(),
            user_domains: vec!["AD".into()],
            scheduler_uids: Vec::new(),
            scheduler_group: None,
            nodes: NodePrincipals { realm: "R".into(), domain: String::new(), shared: Vec::new() },
            state: self.path("broker"),
            pods: self.cluster.as_ref().map(config_of),
            spool: self.path("spool"),
            limits: Limits { uid_min: 0, ..Limits::default() },
        };
        let (is_away, minted) = (self.is_kdc_away.clone(), self.minted.clone());
        let kdc = VirtualKdc {
            clock: self.clock(),
            is_away,
            minted,
            interruption: self.interruption.clone(),
        };
        *self.link.0.lock() =
            Some(Broker::with_parts(config, None, self.clock(), Box::new(kdc)).unwrap());
    }

    fn agent(&self) -> Agent {
        let config = AgentConfig {
            broker: (String::new(), 0),
            node: NodeName::parse("n1").unwrap(),
            principal: "host/n1@R".into(),
            keytab: PathBuf::new(),
            cache: format!("FILE:{}/cc_%{{uid}}", self.files.path().display()),
            state: self.path("agent"),
            poll: Duration::ZERO,
        };
        Agent::with_parts(config, self.clock(), Box::new(self.link.clone())).unwrap()
    }

    fn schedule(&self, request: Request) -> Reply {
        self.link.0.lock().as_ref().unwrap().answer_scheduler(request)
    }

    /// Registers a job of the user on the node.
    fn begin(&self, job: &JobId, life_s: u64) {
        let user = UserName::parse(&self.user.name).unwrap();
        let (nodes, deadline_s) =
            (vec![NodeName::parse("n1").unwrap()], self.now_s.load(Ordering::Relaxed) + life_s);
        assert_eq!(
            self.schedule(Request::Begin { job: job.clone(), user, nodes, deadline_s }),
            Reply::Begun { deadline_s }
        );
    }

    /// Nodes that have tickets in the broker's list.
    fn holder_count(&self) -> usize {
        let Reply::Jobs { jobs } = self.schedule(Request::List) else { panic!("no list") };
        jobs.iter().map(|job| job.holders.len()).sum()
    }

    fn pass(&self, seconds: u64) {
        self.now_s.fetch_add(seconds, Ordering::Relaxed);
    }

    /// End of the tickets in the user's cache. None without a cache.
    fn tickets_end_s(&self) -> Option<u64> {
        let bytes = std::fs::read(self.path(&format!("cc_{}", self.user.uid))).ok()?;
        Some(String::from_utf8(bytes).unwrap().parse().unwrap())
    }
}

/// xorshift64.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn site_with_job() -> (Site, Agent, JobId) {
    let site = Site::new();
    site.start_broker();
    let (agent, job) = (site.agent(), JobId::parse("1").unwrap());
    site.begin(&job, DAY_S);
    (site, agent, job)
}

#[test]
fn job_of_thirty_days_has_valid_tickets_in_each_minute() {
    let site = Site::new();
    site.start_broker();
    let mut agent = site.agent();
    let job = JobId::parse("1").unwrap();
    let end_s = BEGIN_S + 30 * DAY_S;
    site.begin(&job, 30 * DAY_S);
    agent.enter(&job, None).unwrap();
    let (mut seed, mut outage_minutes, mut quiet_minutes, mut outages) = (7, 0, 0, 0);
    let mut last_end_s = 0;
    let mut renewals = 0;
    for minute in 1..30 * DAY_S / MINUTE_S {
        let now_s = BEGIN_S + minute * MINUTE_S;
        site.now_s.store(now_s, Ordering::Relaxed);
        if outage_minutes > 0 {
            outage_minutes -= 1;
            if outage_minutes == 0 {
                site.is_kdc_away.store(false, Ordering::Relaxed);
                site.start_broker();
                quiet_minutes = 60;
            }
        } else if quiet_minutes > 0 {
            quiet_minutes -= 1;
        } else if next(&mut seed).is_multiple_of(200) {
            outage_minutes = 1 + next(&mut seed) % OUTAGE_MINUTES_MAX;
            outages += 1;
            match next(&mut seed) % 3 {
                0 => drop(site.link.0.lock().take()),
                1 => site.is_kdc_away.store(true, Ordering::Relaxed),
                _ => agent = site.agent(),
            }
        }
        agent.step(true, &mut None);
        let ticket_end_s =
            site.tickets_end_s().unwrap_or_else(|| panic!("no tickets in minute {minute}"));
        assert!(
            ticket_end_s > now_s + MINUTE_S || ticket_end_s == end_s,
            "minute {minute}: the tickets end at {ticket_end_s}"
        );
        renewals += u32::from(ticket_end_s != last_end_s);
        last_end_s = ticket_end_s;
    }
    assert!(renewals > 30 * 24 && outages > 100, "{renewals} renewals, {outages} outages");
    // The deadline.
    assert_eq!(last_end_s, end_s);
    site.now_s.store(end_s, Ordering::Relaxed);
    agent.step(true, &mut None);
    assert_eq!(site.tickets_end_s(), None);
    assert!(matches!(agent.enter(&job, None), Err(Error::Refused(_))));
    site.link.0.lock().as_ref().unwrap().expire();
    assert_eq!(site.schedule(Request::List), Reply::Jobs { jobs: Vec::new() });
}

#[test]
fn tickets_that_arrive_after_the_epilog_are_dropped() {
    let (site, agent, job) = site_with_job();
    let agent = Arc::new(agent);
    let end_meanwhile = || {
        let (agent, job) = (agent.clone(), job.clone());
        *site.interruption.lock() =
            Some(Box::new(move || agent.leave(&job, "ended on the node").unwrap()));
    };
    // During the prolog.
    end_meanwhile();
    assert!(matches!(agent.enter(&job, None), Err(Error::Refused(_))));
    agent.step(true, &mut None);
    assert_eq!((site.tickets_end_s(), site.holder_count()), (None, 0));
    // During a renewal.
    agent.enter(&job, None).unwrap();
    assert_eq!(site.holder_count(), 1);
    site.pass(31 * MINUTE_S);
    end_meanwhile();
    agent.step(false, &mut None);
    assert!(site.interruption.lock().is_none(), "it was renewed");
    agent.step(true, &mut None);
    assert_eq!((site.tickets_end_s(), site.holder_count()), (None, 0));
}

#[test]
fn report_of_the_first_run_does_not_end_a_job_that_is_queued_again() {
    let (site, agent, job) = site_with_job();
    agent.enter(&job, None).unwrap();
    agent.leave(&job, "ended on the node").unwrap();
    assert_eq!(site.schedule(Request::End { job: job.clone() }), Reply::Done);
    site.begin(&job, DAY_S);
    agent.enter(&job, None).unwrap();
    agent.step(true, &mut None);
    assert_eq!(site.holder_count(), 1);
}

#[test]
fn removed_cache_comes_back_and_shorter_tickets_are_fetched_once() {
    let site = Site::new();
    site.start_broker();
    let agent = site.agent();
    let (short, long) = (JobId::parse("1").unwrap(), JobId::parse("2").unwrap());
    site.begin(&short, 40 * MINUTE_S);
    site.begin(&long, DAY_S);
    for job in [&short, &long] {
        agent.enter(job, None).unwrap();
    }
    let cache = site.path(&format!("cc_{}", site.user.uid));
    std::fs::remove_file(&cache).unwrap();
    agent.step(true, &mut None);
    assert_eq!(site.tickets_end_s(), Some(BEGIN_S + 60 * MINUTE_S));
    // The remaining job cannot have tickets as long as those in the cache.
    agent.leave(&long, "ended on the node").unwrap();
    site.pass(30 * MINUTE_S);
    let before = site.minted.load(Ordering::Relaxed);
    for _ in 0..5 {
        agent.step(false, &mut None);
    }
    assert_eq!(site.minted.load(Ordering::Relaxed) - before, 1);
    assert!(cache.exists());
}

#[test]
fn names_that_other_users_have_taken_stop_no_tickets() {
    let (site, agent, job) = site_with_job();
    // The staging name of earlier releases, and the cache itself.
    for name in [format!(".cc_{}.vouch", site.user.uid), format!("cc_{}", site.user.uid)] {
        std::fs::create_dir_all(site.path(&name).join("full")).unwrap();
    }
    agent.enter(&job, None).unwrap();
    assert!(site.tickets_end_s().is_some());
    drop(agent);
    let agent = site.agent();
    agent.leave(&job, "ended on the node").unwrap();
    assert_eq!(site.tickets_end_s(), None);
}

#[test]
fn end_that_the_broker_missed_is_done_before_an_agent_asks() {
    let (site, agent, job) = site_with_job();
    agent.enter(&job, None).unwrap();
    site.link.0.lock().take();
    crate::spool::add(&site.path("spool"), &job).unwrap();
    site.start_broker();
    assert_eq!(std::fs::read_dir(site.path("spool")).unwrap().count(), 0);
    site.pass(31 * MINUTE_S);
    agent.step(true, &mut None);
    assert_eq!((site.tickets_end_s(), site.minted.load(Ordering::Relaxed)), (None, 1));
    // A new run of the job comes after the end of the one before.
    crate::spool::add(&site.path("spool"), &job).unwrap();
    site.begin(&job, DAY_S);
    site.link.0.lock().as_ref().unwrap().expire();
    agent.enter(&job, None).unwrap();
    assert!(site.tickets_end_s().is_some());
}

#[test]
fn users_of_a_domain_have_principals_of_its_realm_only() {
    let site = Site::new();
    site.start_broker();
    let begin = |user: &str| {
        let (user, nodes) = (UserName::parse(user).unwrap(), vec![NodeName::parse("n1").unwrap()]);
        match site.schedule(Request::Begin {
            job: JobId::parse("1").unwrap(),
            user,
            nodes,
            deadline_s: BEGIN_S + 1,
        }) {
            Reply::Refused { reason } => reason,
            other => panic!("{other:?}"),
        }
    };
    // The name service of the test has no such users.
    assert!(begin("AD\\alice").contains("unknown on the broker's host"));
    assert!(begin("OTHER\\alice").contains("--user-domain"));
}

#[test]
fn pod_has_tickets_while_its_token_is_shown() {
    let mut site = Site::new();
    site.cluster = Some(Cluster::new(&format!("physics/simulation {}\n", site.user.name)));
    site.start_broker();
    let agent = site.agent();
    let token = |end_s| PodToken::new(site.cluster.as_ref().unwrap().token(end_s));
    let (first, second) = (JobId::parse("pod-u1.v1").unwrap(), JobId::parse("pod-u1.v2").unwrap());
    let ended = agent.enter_pod(&first, token(BEGIN_S), false);
    assert!(matches!(&ended, Err(Error::Refused(why)) if why.contains("has ended")), "{ended:?}");
    assert_eq!(site.tickets_end_s(), None);
    for job in [&first, &second] {
        agent.enter_pod(job, token(BEGIN_S + 20 * MINUTE_S), false).unwrap();
    }
    assert_eq!(site.tickets_end_s(), Some(BEGIN_S + 20 * MINUTE_S));
    // A newer token moves the deadline, and the tickets follow at the middle of their life.
    site.pass(10 * MINUTE_S);
    let minted = site.minted.load(Ordering::Relaxed);
    agent.enter_pod(&first, token(BEGIN_S + 70 * MINUTE_S), false).unwrap();
    assert_eq!(site.minted.load(Ordering::Relaxed), minted);
    agent.step(false, &mut None);
    assert_eq!(site.tickets_end_s(), Some(BEGIN_S + 70 * MINUTE_S));
    // The pod ends: its second volume first.
    agent.leave(&second, "ended on the node").unwrap();
    assert!(site.tickets_end_s().is_some());
    agent.leave(&first, "ended on the node").unwrap();
    assert_eq!(site.tickets_end_s(), None);
    agent.step(true, &mut None);
    // A thief of the node's key, or of the job's name, comes too late.
    let again = agent.enter(&first, None);
    assert!(matches!(&again, Err(Error::Refused(_))), "{again:?}");
    // Tickets of a pod that mounts without rpc.gssd are out of reach of its user's processes.
    let own = JobId::parse("pod-u1.v3").unwrap();
    agent.enter_pod(&own, token(BEGIN_S + 70 * MINUTE_S), true).unwrap();
    let cache = site.path("agent").join("pods/pod-u1.v3");
    assert!(site.tickets_end_s().is_none() && cache.exists());
    agent.leave(&own, "ended on the node").unwrap();
    assert!(!cache.exists());
    // A pod whose token is shown no more.
    agent.enter_pod(&first, token(BEGIN_S + 70 * MINUTE_S), false).unwrap();
    site.pass(61 * MINUTE_S);
    agent.step(true, &mut None);
    assert_eq!((site.tickets_end_s(), site.holder_count()), (None, 0));
}
