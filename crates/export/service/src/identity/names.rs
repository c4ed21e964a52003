//! Bounded caches of the system's name service.

use std::cell::RefCell;
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use vouch_nfs4_server::{Identity, Principal, Squash, Unanswered};
use vouch_vfs::{Blocking, Caller};

use super::cache::{Cache, HeapLen, Lifetimes, RecentEntries, StillApplies};
use super::idmap::Idmap;
use super::kerberos::UnknownPrincipal;
use super::lookup::Lookups;
use super::mapper::{GroupSource, Mapper};
use super::principal_map::PrincipalMap;
use super::service::NameService;
use crate::monitoring::refusals::RecentRefusals;
use crate::monitoring::status::{NameServiceStatus, RefusalStatus};

/// Lives of answers of the name service.
#[derive(Clone, Copy, Debug)]
pub struct IdentityLives {
    /// An answer is asked for again after this time.
    pub known: Duration,
    pub outage: Duration,
    /// Longest wait of a call for the name service.
    pub wait: Duration,
}

impl Default for IdentityLives {
    fn default() -> Self {
        // Ten minutes like idmapd; an outage overnight.
        IdentityLives {
            known: Duration::from_secs(600),
            outage: Duration::from_secs(24 * 3600),
            wait: Duration::from_secs(5),
        }
    }
}

impl From<IdentityLives> for Lifetimes {
    fn from(lives: IdentityLives) -> Self {
        let ms = |life: Duration| {
            u64::try_from(life.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
        };
        let yes_ms = ms(lives.known);
        Lifetimes {
            yes_ms,
            no_ms: yes_ms.min(MISSING_MS_MAX),
            silence_ms: SILENCE_MS,
            last_ms: ms(lives.outage).max(yes_ms),
        }
    }
}

pub(crate) struct AccountRules {
    pub(crate) idmap: Idmap,
    pub(crate) groups: GroupSource,
    pub(crate) map: PrincipalMap,
    pub(crate) unknown: UnknownPrincipal,
}

pub(crate) struct Accounts<S> {
    mapper: Arc<Mapper<S>>,
    lookups: Arc<Lookups>,
    callers: Arc<Cache<CallerKey, KnownCaller>>,
    user_names: Arc<Cache<u32, Arc<str>>>,
    group_names: Arc<Cache<u32, Arc<str>>>,
    uids: Arc<Cache<Box<str>, u32>>,
    gids: Arc<Cache<Box<str>, u32>>,
}

type Rule = (u8, u32, u32);
type CallerKey = (Principal, Rule);

#[derive(Clone)]
struct KnownCaller {
    caller: Arc<Caller>,
    /// The user that the rules named for a Kerberos principal.
    user: Option<Box<str>>,
}

impl HeapLen for KnownCaller {
    fn heap_len(&self) -> usize {
        self.caller.heap_len() + self.user.as_ref().map_or(0, |user| user.len())
    }
}

impl<S: NameService + 'static> Accounts<S> {
    pub(crate) fn new(service: S, rules: AccountRules, lives: IdentityLives) -> Self {
        Self::with(service, rules, lives.into(), lives.wait)
    }

    fn with(service: S, rules: AccountRules, lifetimes: Lifetimes, wait: Duration) -> Self {
        let AccountRules { idmap, groups, map, unknown } = rules;
        let map = RwLock::new(Arc::new(map));
        let lookups = Arc::new(Lookups::new(wait));
        let mapper = Arc::new(Mapper {
            service,
            idmap,
            groups,
            unknown,
            map,
            refused: RecentRefusals::default(),
        });
        Accounts {
            callers: Arc::new(Cache::new(
                CALLERS_MAX,
                lookups.clone(),
                lifetimes,
                still_maps(&mapper),
            )),
            user_names: names_cache(&lookups, lifetimes),
            group_names: names_cache(&lookups, lifetimes),
            uids: names_cache(&lookups, lifetimes),
            gids: names_cache(&lookups, lifetimes),
            mapper,
            lookups,
        }
    }

    pub(crate) fn replace_map(&self, map: PrincipalMap) {
        *self.mapper.map.write() = Arc::new(map);
        self.expire();
    }

    /// Each answer is asked for again. In an outage the old answers keep their lives, except those of
    /// principals that now have another user.
    pub(crate) fn expire(&self) {
        self.callers.expire();
        self.user_names.expire();
        self.group_names.expire();
        self.uids.expire();
        self.gids.expire();
    }

    pub(crate) fn status(&self) -> (NameServiceStatus, Vec<RefusalStatus>) {
        (self.lookups.status(), self.mapper.refused.status())
    }

    pub(crate) fn stop(&self) {
        self.lookups.stop();
    }

    fn resolve(
        &self,
        key: &CallerKey,
        client: SocketAddr,
        squash: &Squash,
        blocking: Blocking,
    ) -> Result<Option<Arc<Caller>>, Unanswered> {
        let caller = |known: Option<KnownCaller>| known.map(|known| known.caller);
        if let Some(known) = self.callers.get(&CALLERS, key) {
            return Ok(caller(known?));
        }
        let generation = self.callers.generation();
        if let Some(found) = self.mapper.caller_without_lookup(&key.0, squash) {
            let found = KnownCaller { caller: Arc::new(found), user: None };
            return Ok(caller(self.callers.put(key.clone(), Ok(Some(found)), generation)?));
        }
        let known = self.callers.get_or(&CALLERS, key, blocking, || {
            let (mapper, principal, squash) = (self.mapper.clone(), key.0.clone(), *squash);
            move || {
                let user = mapper.user_of(&principal).map(String::into_boxed_str);
                Ok(mapper
                    .caller(&principal, client, &squash)?
                    .map(|caller| KnownCaller { caller: Arc::new(caller), user }))
            }
        });
        known.map(caller)
    }
}

/// A principal must not keep the rights of a user that the rules name no more.
fn still_maps<S: NameService + 'static>(
    mapper: &Arc<Mapper<S>>,
) -> StillApplies<CallerKey, KnownCaller> {
    let mapper = mapper.clone();
    Box::new(move |(principal, _), known| {
        !matches!(principal, Principal::Gss { .. })
            || known.user.is_some() && mapper.user_of(principal).as_deref() == known.user.as_deref()
    })
}

fn names_cache<K: Hash + Eq + Clone, T: Clone + HeapLen>(
    lookups: &Arc<Lookups>,
    lifetimes: Lifetimes,
) -> Arc<Cache<K, T>> {
    Arc::new(Cache::new(NAMES_MAX, lookups.clone(), lifetimes, Box::new(|_, _| true)))
}

impl<S: NameService + 'static> Identity for Accounts<S> {
    fn caller(
        &self,
        principal: &Principal,
        client: SocketAddr,
        squash: &Squash,
        blocking: Blocking,
    ) -> Result<Option<Arc<Caller>>, Unanswered> {
        let rule = (squash.who as u8, squash.anonymous_uid, squash.anonymous_gid);
        let found = self.resolve(&(principal.clone(), rule), client, squash, blocking);
        if found == Err(Unanswered::Silent) {
            self.lookups.refuse(&name_of(principal), client);
        }
        found
    }

    fn user_name(&self, uid: u32, blocking: Blocking) -> Result<Option<Arc<str>>, Unanswered> {
        shown(self.user_names.get_or(&USER_NAMES, &uid, blocking, || {
            let mapper = self.mapper.clone();
            move || Ok(mapper.service.user(uid)?.map(|user| user.name.into()))
        }))
    }

    fn group_name(&self, gid: u32, blocking: Blocking) -> Result<Option<Arc<str>>, Unanswered> {
        shown(self.group_names.get_or(&GROUP_NAMES, &gid, blocking, || {
            let mapper = self.mapper.clone();
            move || Ok(mapper.service.group(gid)?.map(Arc::from))
        }))
    }

    fn uid(&self, name: &str, blocking: Blocking) -> Result<Option<u32>, Unanswered> {
        self.uids.get_or(&UIDS, &Box::from(name), blocking, || {
            let (mapper, name) = (self.mapper.clone(), name.to_owned());
            move || Ok(mapper.service.user_by_name(&name)?.map(|user| user.uid))
        })
    }

    fn gid(&self, name: &str, blocking: Blocking) -> Result<Option<u32>, Unanswered> {
        self.gids.get_or(&GIDS, &Box::from(name), blocking, || {
            let (mapper, name) = (self.mapper.clone(), name.to_owned());
            move || mapper.service.group_by_name(&name)
        })
    }
}

fn name_of(principal: &Principal) -> String {
    match principal {
        Principal::None => "nobody".to_owned(),
        Principal::Sys { uid, .. } => format!("user {uid}"),
        Principal::Gss { name } | Principal::Certificate { name } => name.to_string(),
    }
}

fn shown(name: Result<Option<Arc<str>>, Unanswered>) -> Result<Option<Arc<str>>, Unanswered> {
    if name == Err(Unanswered::Silent) { Ok(None) } else { name }
}

thread_local! {
    static CALLERS: RefCell<RecentEntries<CallerKey, KnownCaller>> = const { RefCell::new(RecentEntries::new()) };
    static USER_NAMES: RefCell<RecentEntries<u32, Arc<str>>> = const { RefCell::new(RecentEntries::new()) };
    static GROUP_NAMES: RefCell<RecentEntries<u32, Arc<str>>> = const { RefCell::new(RecentEntries::new()) };
    static UIDS: RefCell<RecentEntries<Box<str>, u32>> = const { RefCell::new(RecentEntries::new()) };
    static GIDS: RefCell<RecentEntries<Box<str>, u32>> = const { RefCell::new(RecentEntries::new()) };
}

/// 32 MiB: 10,000 users with 700 groups each.
const CALLERS_MAX: usize = 32_768;
const NAMES_MAX: usize = 16_384;

const MISSING_MS_MAX: u64 = 30_000;
const SILENCE_MS: u64 = 1_000;

#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod tests;
