//! Mapping of principals, with a small name service.

use super::service::UserRecord;
use super::*;

struct Small;

impl NameService for Small {
    fn user(&self, uid: u32) -> Option<UserRecord> {
        (uid == 1000).then(|| UserRecord { name: "alice".into(), uid, gid: 100 })
    }
    fn user_by_name(&self, name: &str) -> Option<UserRecord> {
        (name == "alice").then(|| UserRecord { name: name.into(), uid: 1000, gid: 100 })
    }
    fn group(&self, gid: u32) -> Option<String> {
        (gid == 100).then(|| "users".into())
    }
    fn group_by_name(&self, name: &str) -> Option<u32> {
        (name == "users").then_some(100)
    }
    fn groups(&self, _: &str, gid: u32) -> Vec<u32> {
        (0..40).map(|i| 500 + i).chain([gid, 0]).collect()
    }
}

fn names(groups: Groups) -> Names<Small> {
    Names::new(Small, Idmap::parse("[General]\nDomain = example.org\n[Static]\nnfs/h@EXAMPLE.ORG = alice\n"), groups)
}

fn squash(who: SquashWho) -> Squash {
    Squash { who, anonymous_uid: 7, anonymous_gid: 8 }
}

fn sys(uid: u32, gid: u32, gids: &[u32]) -> Principal {
    Principal::Sys { uid, gid, gids: gids.into() }
}

fn map(names: &Names<Small>, principal: &Principal, who: SquashWho) -> Option<Caller> {
    names.caller(principal, &squash(who), Patience::Any).unwrap().map(|caller| (*caller).clone())
}

#[test]
fn squashing_is_that_of_the_kernels_server() {
    let names = names(Groups::Auto);
    let anonymous = Some(Caller::new(7, 8, []));
    assert_eq!(map(&names, &sys(0, 0, &[0, 5]), SquashWho::Root), anonymous);
    assert_eq!(map(&names, &sys(1000, 0, &[0, 5]), SquashWho::Root), Some(Caller::new(1000, 8, [8, 5])));
    assert_eq!(map(&names, &sys(0, 0, &[0, 5]), SquashWho::Nobody), Some(Caller::new(0, 0, [0, 5])));
    assert_eq!(map(&names, &sys(1000, 100, &[]), SquashWho::All), anonymous);
    assert_eq!(map(&names, &Principal::None, SquashWho::Nobody), anonymous);
}

#[test]
fn more_than_sixteen_groups_come_from_the_name_service() {
    let sixteen: Vec<u32> = (0..16).collect();
    let caller = map(&names(Groups::Auto), &sys(1000, 100, &sixteen), SquashWho::Nobody).unwrap();
    assert!(caller.is_in(539) && caller.is_in(3));
    let caller = map(&names(Groups::Client), &sys(1000, 100, &sixteen), SquashWho::Nobody).unwrap();
    assert!(!caller.is_in(539) && caller.is_in(3));
    let caller = map(&names(Groups::Server), &sys(1000, 100, &[3]), SquashWho::Root).unwrap();
    assert!(caller.is_in(539) && !caller.is_in(3) && !caller.is_in(0));
}

#[test]
fn impatience_is_answered_from_memory_only() {
    let names = names(Groups::Server);
    let who = sys(1000, 100, &[]);
    assert_eq!(names.caller(&who, &squash(SquashWho::Nobody), Patience::None), Err(WouldWait));
    let caller = names.caller(&who, &squash(SquashWho::Nobody), Patience::Any).unwrap();
    assert_eq!(names.caller(&who, &squash(SquashWho::Nobody), Patience::None), Ok(caller));
    assert_eq!(names.user_name(1000, Patience::None), Err(WouldWait));
    assert_eq!(names.user_name(1000, Patience::Any).unwrap().as_deref(), Some("alice"));
    assert_eq!(names.user_name(1000, Patience::None).unwrap().as_deref(), Some("alice"));
    names.forget();
    assert_eq!(names.user_name(1000, Patience::None), Err(WouldWait));
}

#[test]
fn principals_are_mapped_by_realm_or_by_the_static_map() {
    let names = names(Groups::Auto);
    let gss = |name: &str| map(&names, &Principal::Gss { name: name.into() }, SquashWho::Root).map(|caller| caller.uid);
    assert_eq!(gss("alice@EXAMPLE.ORG"), Some(1000));
    assert_eq!(gss("nfs/h@EXAMPLE.ORG"), Some(1000));
    assert_eq!((gss("alice@ELSEWHERE.ORG"), gss("nfs/other@EXAMPLE.ORG"), gss("bob@EXAMPLE.ORG"), gss("alice")), (None, None, None, None));
}

#[test]
fn names_and_numbers() {
    let names = names(Groups::Auto);
    assert_eq!((names.uid("alice", Patience::Any), names.uid("bob", Patience::Any)), (Ok(Some(1000)), Ok(None)));
    assert_eq!(
        (names.gid("users", Patience::Any), names.group_name(100, Patience::Any).unwrap().as_deref()),
        (Ok(Some(100)), Some("users"))
    );
}
