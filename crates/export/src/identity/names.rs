//! Implements `Identity` by the system's name service, with bounded caches. Without a cached
//! answer, a worker learns that the call would block.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use vouch_nfs4_server::{Identity, Principal, Squash, SquashWho, Unanswered};
use vouch_vfs::{Blocking, Caller};

use super::cache::{Cache, RecentEntries};
use super::idmap::Idmap;
use super::kerberos::{AccountRequest, PrincipalRules, UnknownPrincipal};
use super::principal_map::PrincipalMap;
use super::service::{NameService, NameServiceDown};
use super::would_wait::would_wait;
use crate::tls::CERTIFICATE_USER;

/// Source of supplementary groups of AUTH_SYS callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSource {
    /// The client; the name service too if the client sent 16, the maximum.
    Auto,
    Client,
    /// Only the name service, like `--manage-gids` of the kernel's server.
    Server,
}

pub(crate) struct Accounts<S> {
    service: S,
    idmap: Idmap,
    groups: GroupSource,
    unknown: UnknownPrincipal,
    map: RwLock<Arc<PrincipalMap>>,
    callers: Cache<CallerKey, Arc<Caller>>,
    user_names: Cache<u32, Arc<str>>,
    group_names: Cache<u32, Arc<str>>,
    uids: Cache<Box<str>, u32>,
    gids: Cache<Box<str>, u32>,
}

type Rule = (u8, u32, u32);
type CallerKey = (Principal, Rule);

impl<S: NameService> Accounts<S> {
    pub(crate) fn new(service: S, idmap: Idmap, groups: GroupSource, map: PrincipalMap, unknown: UnknownPrincipal) -> Self {
        Accounts {
            service,
            idmap,
            groups,
            unknown,
            map: RwLock::new(Arc::new(map)),
            callers: Cache::new(CALLERS_MAX),
            user_names: Cache::new(NAMES_MAX),
            group_names: Cache::new(NAMES_MAX),
            uids: Cache::new(NAMES_MAX),
            gids: Cache::new(NAMES_MAX),
        }
    }

    pub(crate) fn replace_map(&self, map: PrincipalMap) {
        *self.map.write() = Arc::new(map);
        self.forget();
    }

    pub(crate) fn forget(&self) {
        self.callers.clear();
        self.user_names.clear();
        self.group_names.clear();
        self.uids.clear();
        self.gids.clear();
    }

    fn sys(
        &self,
        uid: u32,
        gid: u32,
        gids: &[u32],
        squash: &Squash,
        blocking: Blocking,
    ) -> Result<Result<Caller, NameServiceDown>, Unanswered> {
        let anonymous = Caller::new(squash.anonymous_uid, squash.anonymous_gid, []);
        if squash.who == SquashWho::All || (squash.who == SquashWho::Root && uid == 0) {
            return Ok(Ok(anonymous));
        }
        // At most 16 groups fit (RFC 5531, appendix A).
        let ask = self.groups == GroupSource::Server || (self.groups == GroupSource::Auto && gids.len() >= 16);
        let mut groups = if self.groups == GroupSource::Server { Vec::new() } else { gids.to_vec() };
        if ask {
            if blocking == Blocking::Forbidden {
                return Err(would_wait());
            }
            // Groups may also remove rights (ACLs), so a failure refuses the caller.
            match self.service.user(uid).and_then(|user| user.map(|user| self.service.groups(&user.name, user.gid)).transpose()) {
                Ok(found) => groups.extend(found.unwrap_or_default()),
                Err(silent) => return Ok(Err(silent)),
            }
        }
        // As in the kernel's server, group 0 is squashed with user 0.
        let squashed = |gid: u32| if squash.who == SquashWho::Root && gid == 0 { squash.anonymous_gid } else { gid };
        Ok(Ok(Caller::new(uid, squashed(gid), groups.into_iter().map(squashed))))
    }

    fn certificate(&self, principal: &str, client: SocketAddr, squash: &Squash) -> Result<Option<Caller>, NameServiceDown> {
        let name = principal.strip_prefix(CERTIFICATE_USER).unwrap_or(principal);
        let Some(user) = self.service.user_by_name(name)? else {
            tracing::warn!(user = name, %client, "refused: the user of the client's certificate has no account; check getent passwd");
            return Ok(None);
        };
        if squash.who == SquashWho::All || squash.who == SquashWho::Root && user.uid == 0 {
            return Ok(Some(Caller::new(squash.anonymous_uid, squash.anonymous_gid, [])));
        }
        let groups = self.service.groups(&user.name, user.gid)?;
        let squashed = |gid: u32| if squash.who == SquashWho::Root && gid == 0 { squash.anonymous_gid } else { gid };
        Ok(Some(Caller::new(user.uid, squashed(user.gid), groups.into_iter().map(squashed))))
    }

    fn gss(&self, request: AccountRequest<'_>, squash: &Squash) -> Result<Option<Caller>, NameServiceDown> {
        let map = self.map.read().clone();
        PrincipalRules { map: &map, idmap: &self.idmap, unknown: self.unknown }.caller(&self.service, request, squash)
    }
}

impl<S: NameService> Identity for Accounts<S> {
    fn caller(
        &self,
        principal: &Principal,
        client: SocketAddr,
        squash: &Squash,
        blocking: Blocking,
    ) -> Result<Option<Arc<Caller>>, Unanswered> {
        let rule = (squash.who as u8, squash.anonymous_uid, squash.anonymous_gid);
        let key = (principal.clone(), rule);
        if let Some(known) = self.callers.get(&CALLERS, &key) {
            return Ok(known?);
        }
        let generation = self.callers.generation();
        let caller = match principal {
            Principal::None => Ok(Some(Caller::new(squash.anonymous_uid, squash.anonymous_gid, []))),
            Principal::Sys { uid, gid, gids } => self.sys(*uid, *gid, gids, squash, blocking)?.map(Some),
            Principal::Gss { .. } if blocking == Blocking::Forbidden => return Err(would_wait()),
            Principal::Certificate { .. } if blocking == Blocking::Forbidden => return Err(would_wait()),
            Principal::Certificate { name } => self.certificate(name, client, squash),
            Principal::Gss { name } => self.gss(AccountRequest { principal: name, client }, squash),
        };
        Ok(self.callers.put(key, caller.map(|caller| caller.map(Arc::new)), generation)?)
    }

    fn user_name(&self, uid: u32, blocking: Blocking) -> Result<Option<Arc<str>>, Unanswered> {
        shown(self.user_names.get_or(&USER_NAMES, &uid, blocking, || Ok(self.service.user(uid)?.map(|user| user.name.into()))))
    }

    fn group_name(&self, gid: u32, blocking: Blocking) -> Result<Option<Arc<str>>, Unanswered> {
        shown(self.group_names.get_or(&GROUP_NAMES, &gid, blocking, || Ok(self.service.group(gid)?.map(Arc::from))))
    }

    fn uid(&self, name: &str, blocking: Blocking) -> Result<Option<u32>, Unanswered> {
        self.uids.get_or(&UIDS, &Box::from(name), blocking, || Ok(self.service.user_by_name(name)?.map(|user| user.uid)))
    }

    fn gid(&self, name: &str, blocking: Blocking) -> Result<Option<u32>, Unanswered> {
        self.gids.get_or(&GIDS, &Box::from(name), blocking, || self.service.group_by_name(name))
    }
}

fn shown(name: Result<Option<Arc<str>>, Unanswered>) -> Result<Option<Arc<str>>, Unanswered> {
    if name == Err(Unanswered::Silent) { Ok(None) } else { name }
}

thread_local! {
    static CALLERS: RefCell<RecentEntries<CallerKey, Arc<Caller>>> = const { RefCell::new(RecentEntries::new()) };
    static USER_NAMES: RefCell<RecentEntries<u32, Arc<str>>> = const { RefCell::new(RecentEntries::new()) };
    static GROUP_NAMES: RefCell<RecentEntries<u32, Arc<str>>> = const { RefCell::new(RecentEntries::new()) };
    static UIDS: RefCell<RecentEntries<Box<str>, u32>> = const { RefCell::new(RecentEntries::new()) };
    static GIDS: RefCell<RecentEntries<Box<str>, u32>> = const { RefCell::new(RecentEntries::new()) };
}

/// Each caller has at most 400 bytes.
const CALLERS_MAX: usize = 16_384;

const NAMES_MAX: usize = 16_384;

#[cfg(test)]
mod tests;
