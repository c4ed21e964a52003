use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use vouch_nfs4_server::SquashWho;

use super::super::cache::Answer;
use super::super::service::{LocalName, NameServiceDown, UserRecord};
use super::*;
use crate::tests::blocking::{Gate, until};

#[derive(Clone, Default)]
struct Directory {
    gate: Gate,
    has_new_user: Arc<std::sync::atomic::AtomicBool>,
    groups: Arc<Mutex<Vec<u32>>>,
}

impl NameService for Directory {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, NameServiceDown> {
        if uid > 1000 {
            self.gate.pass();
        }
        let is_known = uid != 9999 || self.has_new_user.load(std::sync::atomic::Ordering::Relaxed);
        Ok(is_known.then(|| UserRecord { name: format!("user{uid}"), uid, gid: 100 }))
    }
    fn user_by_name(&self, name: &str) -> Result<Option<UserRecord>, NameServiceDown> {
        name.strip_prefix("user")
            .and_then(|uid| uid.parse().ok())
            .map_or(Ok(None), |uid| self.user(uid))
    }
    fn group(&self, _: u32) -> Result<Option<String>, NameServiceDown> {
        Ok(None)
    }
    fn group_by_name(&self, _: &str) -> Result<Option<u32>, NameServiceDown> {
        Ok(None)
    }
    fn groups(&self, _: &str, _: u32) -> Result<Vec<u32>, NameServiceDown> {
        Ok(self.groups.lock().clone())
    }
    fn local_name(&self, _: &str) -> LocalName {
        LocalName::NoRules
    }
}

const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 700);
const SQUASH: Squash = Squash { who: SquashWho::Root, anonymous_uid: 7, anonymous_gid: 8 };

/// Each answer is asked for again at once.
fn forgetful(last: Duration, wait: Duration) -> (Accounts<Directory>, Directory) {
    accounts(
        Lifetimes { yes_ms: 0, no_ms: 0, silence_ms: 0, last_ms: last.as_millis() as u64 },
        wait,
    )
}

fn accounts(lifetimes: Lifetimes, wait: Duration) -> (Accounts<Directory>, Directory) {
    let directory = Directory::default();
    *directory.groups.lock() = vec![500];
    let rules = AccountRules {
        idmap: Idmap::default(),
        groups: GroupSource::Server,
        map: PrincipalMap::default(),
        unknown: UnknownPrincipal::Refuse,
    };
    (Accounts::with(directory.clone(), rules, lifetimes, wait), directory)
}

fn is_member(
    accounts: &Accounts<Directory>,
    uid: u32,
    blocking: Blocking,
) -> Result<bool, Unanswered> {
    let principal = Principal::Sys { uid, gid: 100, gids: [].into() };
    accounts
        .caller(&principal, CLIENT, &SQUASH, blocking)
        .map(|caller| caller.expect("AUTH_SYS is believed").is_in(500))
}

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(30);

#[test]
fn known_user_is_served_without_a_wait_while_the_directory_hangs() {
    let (accounts, directory) = forgetful(LONG, SHORT);
    assert_eq!(is_member(&accounts, 2000, Blocking::Allowed), Ok(true));
    directory.gate.set_closed(true);
    directory.groups.lock().clear();
    assert_eq!(is_member(&accounts, 2000, Blocking::Forbidden), Err(Unanswered::WouldWait));
    assert_eq!(is_member(&accounts, 2000, Blocking::Allowed), Ok(true));
    for _ in 0..1000 {
        assert_eq!(is_member(&accounts, 2000, Blocking::Forbidden), Ok(true));
    }
    until("no look-up hangs", || directory.gate.waiting().0 > 0);
    assert_eq!(directory.gate.waiting(), (1, 1), "one look-up is repeated");
    assert!(accounts.status().0.silent_ms.is_some());
    directory.gate.set_closed(false);
    until("the membership does not end", || {
        is_member(&accounts, 2000, Blocking::Allowed) == Ok(false)
    });
    assert_eq!(accounts.status().0.silent_ms, None);
    directory.groups.lock().push(500);
    assert_eq!(
        is_member(&accounts, 2000, Blocking::Allowed),
        Ok(true),
        "a change counts from the next look-up"
    );
}

#[test]
fn last_answer_ends_with_its_life_while_the_directory_hangs() {
    let life = Duration::from_millis(300);
    let (accounts, directory) = forgetful(life, SHORT);
    let asked = Instant::now();
    assert_eq!(is_member(&accounts, 2000, Blocking::Allowed), Ok(true));
    directory.gate.set_closed(true);
    until("the answer stays", || {
        is_member(&accounts, 2000, Blocking::Allowed) == Err(Unanswered::Silent)
    });
    assert!(
        asked.elapsed() >= life - Duration::from_millis(20),
        "the coarse clock is a few milliseconds late"
    );
    directory.gate.set_closed(false);
    until("the user stays unknown", || is_member(&accounts, 2000, Blocking::Allowed) == Ok(true));
}

#[test]
fn unknown_user_gets_delay_until_the_directory_answers() {
    let (accounts, directory) = forgetful(LONG, SHORT);
    directory.gate.set_closed(true);
    for _ in 0..3 {
        assert_eq!(is_member(&accounts, 2000, Blocking::Allowed), Err(Unanswered::Silent));
    }
    let status = accounts.status().0;
    assert!(status.refused == 3 && status.late >= 1 && status.silent_ms.is_some(), "{status:?}");
    until("the look-up does not hang", || directory.gate.waiting().0 == 1);
    directory.gate.set_closed(false);
    until("the user stays unknown", || is_member(&accounts, 2000, Blocking::Allowed) == Ok(true));
}

#[test]
fn local_user_is_found_while_the_directory_hangs() {
    let (accounts, directory) = forgetful(LONG, SHORT);
    directory.gate.set_closed(true);
    for uid in 2000..2020 {
        assert_eq!(is_member(&accounts, uid, Blocking::Allowed), Err(Unanswered::Silent));
    }
    until("not all look-ups hang", || directory.gate.waiting().0 == 20);
    until("the local user is not found", || {
        is_member(&accounts, 10, Blocking::Allowed) == Ok(true)
    });
    directory.gate.set_closed(false);
}

#[test]
fn calls_with_the_same_question_share_a_lookup() {
    let (accounts, directory) = forgetful(LONG, LONG);
    directory.gate.set_closed(true);
    let begun = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        let asks: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    is_member(&accounts, 2000, Blocking::Allowed)
                })
            })
            .collect();
        until("not all calls begin", || {
            begun.load(std::sync::atomic::Ordering::SeqCst) == 8 && directory.gate.waiting().0 == 1
        });
        thread::sleep(Duration::from_millis(100));
        assert_eq!(accounts.status().0.lookups, 1);
        directory.gate.set_closed(false);
        asks.into_iter().for_each(|ask| assert_eq!(ask.join().unwrap(), Ok(true)));
    });
}

#[test]
fn lookup_that_panics_is_a_failed_one() {
    let (accounts, _) = forgetful(LONG, LONG);
    let asked = accounts.user_names.get_or(&USER_NAMES, &5, Blocking::Allowed, || {
        || -> Answer<Arc<str>> { panic!("a panic on purpose") }
    });
    assert_eq!(asked, Err(Unanswered::Silent));
    assert_eq!(accounts.user_name(5, Blocking::Allowed).unwrap().as_deref(), Some("user5"));
}

#[test]
fn answers_of_many_groups_share_the_memory_of_the_cache() {
    let (accounts, directory) = forgetful(LONG, LONG);
    *directory.groups.lock() = (0..65_536).collect();
    for uid in 1..400 {
        assert_eq!(is_member(&accounts, uid, Blocking::Allowed), Ok(true));
    }
    assert!(accounts.callers.len_in_bytes() <= 32 << 20, "{}", accounts.callers.len_in_bytes());
}

#[test]
fn reload_forgets_that_a_user_was_unknown() {
    let (accounts, directory) = accounts(IdentityLives::default().into(), Duration::from_secs(5));
    let caller = |uid| {
        accounts.caller(
            &Principal::Sys { uid, gid: 100, gids: [].into() },
            CLIENT,
            &SQUASH,
            Blocking::Allowed,
        )
    };
    let groups = |uid| caller(uid).unwrap().map(|caller| caller.groups.to_vec());
    let before = groups(9999);
    assert_eq!(accounts.uid("user9999", Blocking::Allowed), Ok(None));
    directory.has_new_user.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        (groups(9999), accounts.uid("user9999", Blocking::Allowed)),
        (before.clone(), Ok(None)),
        "remembered for a while"
    );
    accounts.replace_map(PrincipalMap::default());
    assert_eq!(accounts.uid("user9999", Blocking::Allowed), Ok(Some(9999)));
    assert_ne!(groups(9999), before);
}
