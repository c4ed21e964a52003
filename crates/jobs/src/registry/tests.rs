use proptest::prelude::*;

use super::*;

fn id(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

fn node(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

fn user(text: &str) -> UserName {
    UserName::parse(text).unwrap()
}

fn registry() -> Registry {
    let limits = Limits {
        job_s_max: 1000,
        ticket_s_max: 100,
        user_job_count_max: 2,
        job_count_max: 3,
        ..Limits::default()
    };
    let mut registry = Registry::new(BTreeMap::new(), limits);
    registry.begin(&id("1"), (&user("alice"), 1000), vec![node("n1"), node("n2")], 500, 0).unwrap();
    registry
}

fn holder(end_s: u64) -> Holder {
    Holder { agent: "a".into(), principal: "alice@R".into(), end_s }
}

#[test]
fn node_of_live_job_gets_tickets_until_the_deadline() {
    let registry = registry();
    let grant = |now_s| registry.grant(&id("1"), &node("n1"), None, now_s);
    assert_eq!(grant(0).unwrap().end_s, 100);
    assert_eq!(
        grant(450).unwrap(),
        Grant { user: user("alice"), uid: 1000, deadline_s: 500, end_s: 500 }
    );
    assert_eq!(grant(500), Err(Refusal::PastDeadline(id("1"))));
}

#[test]
fn others_get_nothing() {
    let mut registry = registry();
    assert_eq!(
        registry.grant(&id("1"), &node("n3"), None, 1),
        Err(Refusal::OtherNode(id("1"), node("n3")))
    );
    assert_eq!(registry.grant(&id("2"), &node("n1"), None, 1), Err(Refusal::UnknownJob(id("2"))));
    registry.end(&id("1"), 2).unwrap();
    assert_eq!(registry.grant(&id("1"), &node("n1"), None, 3), Err(Refusal::Ended(id("1"))));
    assert_eq!(
        registry.grant(&id("1"), &node("n3"), None, 3),
        Err(Refusal::OtherNode(id("1"), node("n3")))
    );
}

#[test]
fn second_agent_under_a_shared_principal_is_refused() {
    let mut registry = registry();
    registry.hold(&id("1"), &node("n1"), holder(100)).unwrap();
    assert!(registry.grant(&id("1"), &node("n1"), Some("a"), 1).is_ok());
    assert_eq!(
        registry.grant(&id("1"), &node("n1"), Some("b"), 1),
        Err(Refusal::OtherAgent(id("1"), node("n1")))
    );
    assert!(registry.grant(&id("1"), &node("n1"), None, 1).is_ok());
    // It cannot make room for itself either.
    assert!(registry.leave(&id("1"), &node("n1"), Some("b")).is_none());
    assert_eq!(
        registry.grant(&id("1"), &node("n1"), Some("b"), 1),
        Err(Refusal::OtherAgent(id("1"), node("n1")))
    );
    assert_eq!(registry.counts(1), Counts { live: 1, ended: 0, users: 1, holders: 1 });
    // Queued again after an end, the job takes a new agent.
    registry.end(&id("1"), 2).unwrap();
    registry.begin(&id("1"), (&user("alice"), 1000), vec![node("n1")], 500, 3).unwrap();
    assert!(registry.grant(&id("1"), &node("n1"), Some("b"), 4).is_ok());
}

#[test]
fn limits_and_owners_are_kept() {
    let mut registry = registry();
    let mut begin = |job: &str, (name, uid): (&str, u32), deadline_s| {
        registry.begin(&id(job), (&user(name), uid), vec![node("n1")], deadline_s, 1)
    };
    assert_eq!(begin("1", ("bob", 1001), 9), Err(Refusal::OtherUser(id("1"), user("alice"))));
    assert!(matches!(begin("2", ("root", 0), 9), Err(Refusal::SystemUser(..))));
    assert_eq!(begin("2", ("bob", 1001), 1), Err(Refusal::EarlyDeadline(id("2"))));
    assert!(begin("2", ("alice", 1000), 9).is_ok());
    assert!(matches!(begin("3", ("alice", 1000), 9), Err(Refusal::ManyJobs(_, 2))));
    assert!(begin("2", ("alice", 1000), 10).is_ok());
    assert!(begin("3", ("bob", 1001), 9).is_ok());
    assert!(matches!(begin("4", ("bob", 1001), 9), Err(Refusal::Full(3))));
    assert!(matches!(
        registry.begin(&id("3"), (&user("bob"), 1001), vec![], 9, 1),
        Err(Refusal::NodeCount(0))
    ));
    // Longer than the limit: cut.
    registry.begin(&id("3"), (&user("bob"), 1001), vec![node("n1")], u64::MAX, 1).unwrap();
    assert_eq!(registry.get(&id("3")).unwrap().deadline_s, 1001);
}

#[test]
fn job_is_forgotten_when_no_node_holds_tickets() {
    let mut registry = registry();
    registry.hold(&id("1"), &node("n1"), holder(100)).unwrap();
    registry.hold(&id("1"), &node("n2"), holder(120)).unwrap();
    registry.end(&id("1"), 50).unwrap();
    assert!(registry.end(&id("1"), 51).is_none());
    assert_eq!(registry.gone(&node("n1"), vec![id("1"), id("9")], 51), [id("1"), id("9")]);
    assert_eq!(registry.expire(60), (vec![], vec![]));
    assert_eq!(registry.leave(&id("1"), &node("n1"), None).unwrap().0, holder(100));
    assert!(registry.leave(&id("1"), &node("n1"), None).is_none());
    assert_eq!(registry.counts(60), Counts { live: 0, ended: 1, users: 0, holders: 1 });
    // The other node never answers: its tickets have ended.
    let (lapsed, changes) = registry.expire(120);
    assert_eq!(
        lapsed,
        [UnremovedTickets { job: id("1"), node: node("n2"), principal: "alice@R".into() }]
    );
    assert_eq!(changes, [Change::Forget(id("1"))]);
}

proptest! {
    /// Whatever happens before: a grant is for a live job on its node, and ends by its deadline.
    #[test]
    fn grants_are_for_live_jobs_only(steps in proptest::collection::vec((0u8..6, 0u8..4, 0u8..3, 0u64..40), 1..80)) {
        let limits = Limits { ticket_s_max: 10, job_s_max: 60, ..Limits::default() };
        let mut registry = Registry::new(BTreeMap::new(), limits);
        // A simple model: node, deadline and end of each job.
        let mut model: BTreeMap<u8, (u8, u64, bool)> = BTreeMap::new();
        let mut now_s = 1;
        for (step, job, at, length) in steps {
            let (name, place) = (id(&job.to_string()), node(&format!("n{at}")));
            match step {
                0 | 1 => {
                    if registry.begin(&name, (&user("alice"), 1000), vec![place], now_s + length, now_s).is_ok() {
                        model.insert(job, (at, now_s + length, false));
                    }
                }
                2 => {
                    registry.end(&name, now_s);
                    if let Some(entry) = model.get_mut(&job) {
                        entry.2 = true;
                    }
                }
                3 => now_s += length,
                4 => drop(registry.expire(now_s)),
                _ => {
                    let is_live = model.get(&job).is_some_and(|(on, deadline_s, ended)| *on == at && now_s < *deadline_s && !ended);
                    let grant = registry.grant(&name, &place, None, now_s);
                    prop_assert_eq!(grant.is_ok(), is_live);
                    if let Ok(grant) = grant {
                        prop_assert!(grant.end_s <= model[&job].1 && grant.end_s <= now_s + 10);
                        registry.hold(&name, &place, holder(grant.end_s));
                    }
                }
            }
        }
    }
}
