use vouch_nfs4_server::SquashWho;

use super::super::service::{LocalName, NameServiceDown, UserRecord};
use super::*;

struct Small;

const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 700);

impl NameService for Small {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, NameServiceDown> {
        Ok((uid == 1000).then(|| UserRecord { name: "alice".into(), uid, gid: 100 }))
    }
    fn user_by_name(&self, name: &str) -> Result<Option<UserRecord>, NameServiceDown> {
        Ok((name == "alice").then(|| UserRecord { name: name.into(), uid: 1000, gid: 100 }))
    }
    fn group(&self, gid: u32) -> Result<Option<String>, NameServiceDown> {
        Ok((gid == 100).then(|| "users".into()))
    }
    fn group_by_name(&self, name: &str) -> Result<Option<u32>, NameServiceDown> {
        Ok((name == "users").then_some(100))
    }
    fn groups(&self, _: &str, gid: u32) -> Result<Vec<u32>, NameServiceDown> {
        Ok((0..40).map(|i| 500 + i).chain([gid, 0]).collect())
    }
    fn local_name(&self, principal: &str) -> LocalName {
        match principal {
            "al@PARTNER.ORG" => LocalName::Name("alice".into()),
            "ghost@PARTNER.ORG" => LocalName::Name("ghost".into()),
            _ if principal.ends_with("@PARTNER.ORG") => LocalName::NoName,
            _ => LocalName::NoRules,
        }
    }
}

fn names(groups: GroupSource) -> Accounts<Small> {
    names_with(groups, "", UnknownPrincipal::Refuse)
}

fn names_with(groups: GroupSource, map: &str, unknown: UnknownPrincipal) -> Accounts<Small> {
    let idmap = "[General]\nDomain = example.org\n[Static]\nnfs/h@EXAMPLE.ORG = alice\n";
    accounts(
        Small,
        AccountRules {
            idmap: Idmap::parse(idmap),
            groups,
            map: PrincipalMap::parse(map.as_bytes()).unwrap(),
            unknown,
        },
    )
}

fn accounts<S: NameService + 'static>(service: S, rules: AccountRules) -> Accounts<S> {
    Accounts::new(
        service,
        rules,
        IdentityLives { wait: Duration::from_secs(600), ..IdentityLives::default() },
    )
}

fn squash(who: SquashWho) -> Squash {
    Squash { who, anonymous_uid: 7, anonymous_gid: 8 }
}

fn sys(uid: u32, gid: u32, gids: &[u32]) -> Principal {
    Principal::Sys { uid, gid, gids: gids.into() }
}

fn map(names: &Accounts<Small>, principal: &Principal, who: SquashWho) -> Option<Caller> {
    names
        .caller(principal, CLIENT, &squash(who), Blocking::Allowed)
        .unwrap()
        .map(|caller| (*caller).clone())
}

#[test]
fn squashing_matches_kernel_server() {
    let names = names(GroupSource::Auto);
    let anonymous = Some(Caller::new(7, 8, []));
    assert_eq!(map(&names, &sys(0, 0, &[0, 5]), SquashWho::Root), anonymous);
    assert_eq!(
        map(&names, &sys(1000, 0, &[0, 5]), SquashWho::Root),
        Some(Caller::new(1000, 8, [8, 5]))
    );
    assert_eq!(
        map(&names, &sys(0, 0, &[0, 5]), SquashWho::Nobody),
        Some(Caller::new(0, 0, [0, 5]))
    );
    assert_eq!(map(&names, &sys(1000, 100, &[]), SquashWho::All), anonymous);
    assert_eq!(map(&names, &Principal::None, SquashWho::Nobody), anonymous);
    assert_eq!(
        (names.uid("alice", Blocking::Allowed), names.uid("bob", Blocking::Allowed)),
        (Ok(Some(1000)), Ok(None))
    );
    let group = names.group_name(100, Blocking::Allowed).unwrap();
    assert_eq!(
        (names.gid("users", Blocking::Allowed), group.as_deref()),
        (Ok(Some(100)), Some("users"))
    );
}

#[test]
fn more_than_sixteen_groups_come_from_name_service() {
    let sixteen: Vec<u32> = (0..16).collect();
    let caller =
        map(&names(GroupSource::Auto), &sys(1000, 100, &sixteen), SquashWho::Nobody).unwrap();
    assert!(caller.is_in(539) && caller.is_in(3));
    let caller =
        map(&names(GroupSource::Client), &sys(1000, 100, &sixteen), SquashWho::Nobody).unwrap();
    assert!(!caller.is_in(539) && caller.is_in(3));
    let caller = map(&names(GroupSource::Server), &sys(1000, 100, &[3]), SquashWho::Root).unwrap();
    assert!(caller.is_in(539) && !caller.is_in(3) && !caller.is_in(0));
}

#[test]
fn lookup_without_patience_uses_cache_only() {
    let names = names(GroupSource::Server);
    let who = sys(1000, 100, &[]);
    assert_eq!(
        names.caller(&who, CLIENT, &squash(SquashWho::Nobody), Blocking::Forbidden),
        Err(Unanswered::WouldWait)
    );
    let caller = names.caller(&who, CLIENT, &squash(SquashWho::Nobody), Blocking::Allowed).unwrap();
    assert_eq!(
        names.caller(&who, CLIENT, &squash(SquashWho::Nobody), Blocking::Forbidden),
        Ok(caller)
    );
    assert_eq!(names.user_name(1000, Blocking::Forbidden), Err(Unanswered::WouldWait));
    assert_eq!(names.user_name(1000, Blocking::Allowed).unwrap().as_deref(), Some("alice"));
    assert_eq!(names.user_name(1000, Blocking::Forbidden).unwrap().as_deref(), Some("alice"));
    names.expire();
    assert_eq!(names.user_name(1000, Blocking::Forbidden), Err(Unanswered::WouldWait));
}

fn uid(names: &Accounts<Small>, principal: &str, who: SquashWho) -> Option<u32> {
    map(names, &Principal::Gss { name: principal.into() }, who).map(|caller| caller.uid)
}

#[test]
fn principals_are_mapped_by_realm_or_static_map_and_machines_are_anonymous() {
    let names = names(GroupSource::Auto);
    for (principal, mapped) in [
        ("alice@EXAMPLE.ORG", Some(1000)),
        ("nfs/h@EXAMPLE.ORG", Some(1000)),
        ("alice@ELSEWHERE.ORG", None),
        ("bob@EXAMPLE.ORG", None),
        ("alice", None),
        ("", None),
        ("al@PARTNER.ORG", Some(1000)),
        ("ghost@PARTNER.ORG", None),
        ("alice@PARTNER.ORG", None),
        ("alice/admin@EXAMPLE.ORG", None),
    ] {
        assert_eq!(uid(&names, principal, SquashWho::Root), mapped, "{principal}");
    }
    for machine in [
        "host/n7.example.org@EXAMPLE.ORG",
        "nfs/other@EXAMPLE.ORG",
        "root/n7@ELSEWHERE.ORG",
        "N7$@EXAMPLE.ORG",
    ] {
        for who in [SquashWho::Root, SquashWho::Nobody, SquashWho::All] {
            assert_eq!(uid(&names, machine, who), Some(7), "{machine}");
        }
    }
}

#[test]
fn principal_map_has_highest_precedence() {
    let text = "host/backup@EXAMPLE.ORG alice\nalice@EXAMPLE.ORG !refuse\nnfs/h@EXAMPLE.ORG !squash\nnfs/*@EXAMPLE.ORG !local\n*@PARTNER.ORG alice\n";
    let names = names_with(GroupSource::Auto, text, UnknownPrincipal::Refuse);
    let gss = |name: &str| uid(&names, name, SquashWho::Root);
    assert_eq!(
        (gss("host/backup@EXAMPLE.ORG"), gss("alice@EXAMPLE.ORG"), gss("nfs/h@EXAMPLE.ORG")),
        (Some(1000), None, Some(7))
    );
    assert_eq!(
        (gss("nfs/x@EXAMPLE.ORG"), gss("host/x@EXAMPLE.ORG"), gss("ghost@PARTNER.ORG")),
        (None, Some(7), Some(1000))
    );
    let all = |name: &str| uid(&names, name, SquashWho::All);
    assert_eq!(
        (all("alice@EXAMPLE.ORG"), all("host/backup@EXAMPLE.ORG"), all("nfs/h@EXAMPLE.ORG")),
        (None, Some(7), Some(7))
    );
    assert_eq!(
        (all("nfs/x@EXAMPLE.ORG"), all("host/x@EXAMPLE.ORG"), all("ghost@PARTNER.ORG")),
        (None, Some(7), Some(7))
    );
    names.replace_map(PrincipalMap::default());
    assert_eq!(
        (gss("alice@EXAMPLE.ORG"), gss("ghost@PARTNER.ORG")),
        (Some(1000), None),
        "nothing of the map before is remembered"
    );
}

#[test]
fn principals_without_account_are_refused_or_squashed() {
    let text = "mallory@EXAMPLE.ORG !refuse\n";
    for (unknown, internal_owner_name) in
        [(UnknownPrincipal::Squash, Some(7)), (UnknownPrincipal::Refuse, None)]
    {
        let names = names_with(GroupSource::Auto, text, unknown);
        for who in [SquashWho::Root, SquashWho::Nobody, SquashWho::All] {
            for stranger in
                ["bob@EXAMPLE.ORG", "ghost@PARTNER.ORG", "alice@PARTNER.ORG", "al@ELSEWHERE.ORG"]
            {
                assert_eq!(uid(&names, stranger, who), internal_owner_name, "{stranger}");
            }
            assert_eq!(uid(&names, "mallory@EXAMPLE.ORG", who), None);
        }
        assert_eq!(uid(&names, "alice@EXAMPLE.ORG", SquashWho::All), Some(7));
    }
}

#[test]
fn kerberos_users_have_all_their_groups() {
    let names = names(GroupSource::Client);
    let alice = Principal::Gss { name: "alice@EXAMPLE.ORG".into() };
    let caller = map(&names, &alice, SquashWho::Nobody).unwrap();
    assert_eq!((caller.uid, caller.gid), (1000, 100));
    assert!((500..540).all(|gid| caller.is_in(gid)) && caller.is_in(0));
    let caller = map(&names, &alice, SquashWho::Root).unwrap();
    assert!(caller.is_in(539) && !caller.is_in(0) && caller.is_in(8));
}

#[test]
fn lookup_from_before_reload_is_not_cached() {
    struct Slow(std::sync::OnceLock<std::sync::Weak<Accounts<Slow>>>);
    impl Slow {
        fn reload(&self) {
            if let Some(names) = self.0.get().and_then(std::sync::Weak::upgrade) {
                names.replace_map(PrincipalMap::parse(b"").unwrap());
            }
        }
    }
    impl NameService for Slow {
        fn user(&self, uid: u32) -> Result<Option<UserRecord>, NameServiceDown> {
            self.reload();
            Small.user(uid)
        }
        fn user_by_name(&self, name: &str) -> Result<Option<UserRecord>, NameServiceDown> {
            self.reload();
            Small.user_by_name(name)
        }
        fn group(&self, gid: u32) -> Result<Option<String>, NameServiceDown> {
            Small.group(gid)
        }
        fn group_by_name(&self, name: &str) -> Result<Option<u32>, NameServiceDown> {
            Small.group_by_name(name)
        }
        fn groups(&self, user: &str, gid: u32) -> Result<Vec<u32>, NameServiceDown> {
            Small.groups(user, gid)
        }
        fn local_name(&self, principal: &str) -> LocalName {
            Small.local_name(principal)
        }
    }
    let idmap =
        Idmap::parse("[General]\nDomain = example.org\n[Static]\nnfs/h@EXAMPLE.ORG = alice\n");
    let map = PrincipalMap::parse(b"").unwrap();
    let rules =
        AccountRules { idmap, groups: GroupSource::Auto, map, unknown: UnknownPrincipal::Refuse };
    let names = Arc::new(accounts(Slow(std::sync::OnceLock::new()), rules));
    assert!(names.mapper.service.0.set(Arc::downgrade(&names)).is_ok());
    let principal = Principal::Gss { name: "nfs/h@EXAMPLE.ORG".into() };
    let squash = squash(SquashWho::Nobody);
    assert!(names.caller(&principal, CLIENT, &squash, Blocking::Allowed).unwrap().is_some());
    let unanswered = names
        .caller(&principal, CLIENT, &squash, Blocking::Forbidden)
        .map(|caller| caller.is_some());
    assert_eq!(unanswered, Err(vouch_nfs4_server::Unanswered::WouldWait));
    assert!(names.user_name(1000, Blocking::Allowed).unwrap().is_some());
    assert!(names.user_name(1000, Blocking::Forbidden).is_err());
    assert!(names.uid("nobody-knows", Blocking::Allowed).unwrap().is_none());
    names.gid("users", Blocking::Allowed).unwrap().unwrap();
    assert!(names.gid("users", Blocking::Forbidden).unwrap().is_some());
}

struct Sick(std::sync::atomic::AtomicBool);

impl Sick {
    fn well(&self) -> Result<(), NameServiceDown> {
        if self.0.load(std::sync::atomic::Ordering::SeqCst) { Ok(()) } else { Err(NameServiceDown) }
    }

    fn be(&self, well: bool) {
        self.0.store(well, std::sync::atomic::Ordering::SeqCst);
    }
}

impl NameService for Sick {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, NameServiceDown> {
        self.well().and_then(|()| Small.user(uid))
    }
    fn user_by_name(&self, name: &str) -> Result<Option<UserRecord>, NameServiceDown> {
        Small.user_by_name(name)
    }
    fn group(&self, gid: u32) -> Result<Option<String>, NameServiceDown> {
        self.well().and_then(|()| Small.group(gid))
    }
    fn group_by_name(&self, name: &str) -> Result<Option<u32>, NameServiceDown> {
        self.well().and_then(|()| Small.group_by_name(name))
    }
    fn groups(&self, user: &str, gid: u32) -> Result<Vec<u32>, NameServiceDown> {
        self.well().and_then(|()| Small.groups(user, gid))
    }
    fn local_name(&self, principal: &str) -> LocalName {
        Small.local_name(principal)
    }
}

fn sick(well: bool, lifetimes: Option<Lifetimes>) -> Accounts<Sick> {
    let idmap = Idmap::parse("[General]\nDomain = example.org\n");
    let map = PrincipalMap::parse(b"").unwrap();
    let rules =
        AccountRules { idmap, groups: GroupSource::Server, map, unknown: UnknownPrincipal::Squash };
    let lifetimes = lifetimes.unwrap_or_else(|| IdentityLives::default().into());
    Accounts::with(Sick(well.into()), rules, lifetimes, Duration::from_secs(600))
}

#[test]
fn failed_lookup_is_neither_used_nor_cached() {
    let names = sick(false, None);
    let alice = Principal::Gss { name: "alice@EXAMPLE.ORG".into() };
    let squash = squash(SquashWho::Nobody);
    let ask = |who: &Principal| names.caller(who, CLIENT, &squash, Blocking::Allowed);
    for _ in 0..2 {
        assert_eq!(
            (ask(&alice), ask(&sys(1000, 100, &[3]))),
            (Err(Unanswered::Silent), Err(Unanswered::Silent))
        );
        assert_eq!(
            (names.user_name(1000, Blocking::Allowed), names.gid("users", Blocking::Allowed)),
            (Ok(None), Err(Unanswered::Silent))
        );
    }
    names.mapper.service.be(true);
    let blocking = std::time::Instant::now();
    while ask(&alice).is_err()
        || ask(&sys(1000, 100, &[3])).is_err()
        || names.user_name(1000, Blocking::Allowed) == Ok(None)
    {
        assert!(
            blocking.elapsed() < std::time::Duration::from_secs(25),
            "the failure is still remembered"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let is_in = |who: &Principal| ask(who).unwrap().unwrap().is_in(539);
    assert!(is_in(&alice) && is_in(&sys(1000, 100, &[3])));
    assert_eq!(names.gid("users", Blocking::Allowed), Ok(Some(100)));
}

#[test]
fn last_answer_holds_for_limited_time_during_outage() {
    const LIFETIMES: Lifetimes =
        Lifetimes { yes_ms: 0, no_ms: 0, silence_ms: 0, last_ms: 3_600_000 };
    let alice = Principal::Gss { name: "alice@EXAMPLE.ORG".into() };
    let squash = squash(SquashWho::Nobody);
    let ask = |names: &Accounts<Sick>| {
        let groups = names
            .caller(&alice, CLIENT, &squash, Blocking::Allowed)
            .map(|caller| caller.unwrap().is_in(539));
        (
            groups,
            names.user_name(1000, Blocking::Allowed).map(|name| name.is_some()),
            names.gid("users", Blocking::Allowed),
        )
    };
    let known = (Ok(true), Ok(true), Ok(Some(100)));
    let silent = (Err(Unanswered::Silent), Ok(false), Err(Unanswered::Silent));
    let names = sick(true, Some(LIFETIMES));
    assert_eq!((ask(&names), names.gid("nobody-knows", Blocking::Allowed)), (known, Ok(None)));
    names.mapper.service.be(false);
    for _ in 0..3 {
        assert_eq!(
            (ask(&names), names.gid("nobody-knows", Blocking::Allowed)),
            (known, Err(Unanswered::Silent))
        );
    }
    names.expire();
    assert_eq!(ask(&names), known, "a reload ends no answer");
    names.mapper.service.be(true);
    assert_eq!(ask(&names), known);
    let names = sick(true, Some(Lifetimes { last_ms: 0, ..LIFETIMES }));
    assert_eq!(ask(&names), known);
    names.mapper.service.be(false);
    assert_eq!(ask(&names), silent);
}

#[test]
fn reload_in_outage_keeps_users_whose_mapping_is_the_same() {
    let [alice, al] =
        ["alice@EXAMPLE.ORG", "al@PARTNER.ORG"].map(|name| Principal::Gss { name: name.into() });
    let ask = |names: &Accounts<Sick>, who: &Principal| {
        names
            .caller(who, CLIENT, &squash(SquashWho::Nobody), Blocking::Allowed)
            .map(|caller| caller.map(|caller| caller.uid))
    };
    let names = sick(true, None);
    assert_eq!((ask(&names, &alice), ask(&names, &al)), (Ok(Some(1000)), Ok(Some(1000))));
    names.mapper.service.be(false);
    let map = |text: &str| names.replace_map(PrincipalMap::parse(text.as_bytes()).unwrap());
    map("al@PARTNER.ORG guest\n");
    assert_eq!(ask(&names, &alice), Ok(Some(1000)));
    assert_eq!(ask(&names, &al), Ok(Some(7)), "there is no user guest");
    map("alice@EXAMPLE.ORG !refuse\n");
    assert_eq!((ask(&names, &alice), ask(&names, &al)), (Ok(None), Err(Unanswered::Silent)));
    map("");
    assert_eq!(ask(&names, &alice), Err(Unanswered::Silent), "a refused user is not known again");
    names.mapper.service.be(true);
    map("");
    assert_eq!((ask(&names, &alice), ask(&names, &al)), (Ok(Some(1000)), Ok(Some(1000))));
}

#[test]
fn reload_extends_no_life() {
    const LIFE_MS: u64 = 300;
    let names =
        sick(true, Some(Lifetimes { yes_ms: 0, no_ms: 0, silence_ms: 0, last_ms: LIFE_MS }));
    let ask = || {
        names
            .caller(&sys(1000, 100, &[]), CLIENT, &squash(SquashWho::Nobody), Blocking::Allowed)
            .is_ok()
    };
    assert!(ask());
    names.mapper.service.be(false);
    let end = std::time::Instant::now() + Duration::from_secs(120);
    while ask() {
        assert!(std::time::Instant::now() < end, "the answer outlives its life by reloads");
        names.expire();
    }
}
