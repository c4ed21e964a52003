//! Maps a caller to a local identity, by the name service and the rules of the configuration.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use vouch_nfs4_server::{Principal, Squash, SquashWho};
use vouch_vfs::Caller;

use super::idmap::Idmap;
use super::kerberos::{AccountRequest, PrincipalRules, UnknownPrincipal};
use super::principal_map::PrincipalMap;
use super::service::{NameService, NameServiceDown};
use crate::monitoring::refusals::{NO_ACCOUNT, RecentRefusals};
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

pub(super) struct Mapper<S> {
    pub(super) service: S,
    pub(super) idmap: Idmap,
    pub(super) groups: GroupSource,
    pub(super) unknown: UnknownPrincipal,
    pub(super) map: RwLock<Arc<PrincipalMap>>,
    pub(super) refused: RecentRefusals,
}

impl<S: NameService> Mapper<S> {
    /// Identities for which the name service is not needed.
    pub(super) fn caller_without_lookup(
        &self,
        principal: &Principal,
        squash: &Squash,
    ) -> Option<Caller> {
        match principal {
            Principal::None => Some(anonymous(squash)),
            Principal::Sys { uid, .. }
                if squash.who == SquashWho::All || squash.who == SquashWho::Root && *uid == 0 =>
            {
                Some(anonymous(squash))
            }
            Principal::Sys { uid, gid, gids } if !self.needs_groups(gids) => {
                Some(member(*uid, *gid, gids.to_vec(), squash))
            }
            _ => None,
        }
    }

    /// `None` refuses the caller.
    pub(super) fn caller(
        &self,
        principal: &Principal,
        client: SocketAddr,
        squash: &Squash,
    ) -> Result<Option<Caller>, NameServiceDown> {
        if let Some(caller) = self.caller_without_lookup(principal, squash) {
            return Ok(Some(caller));
        }
        match principal {
            Principal::None => Ok(Some(anonymous(squash))),
            Principal::Sys { uid, gid, gids } => self.sys(*uid, *gid, gids, squash).map(Some),
            Principal::Certificate { name } => self.certificate(name, client, squash),
            Principal::Gss { name } => self.with_rules(|rules| {
                rules.caller(&self.service, AccountRequest { principal: name, client }, squash)
            }),
        }
    }

    /// The user that the rules name for a Kerberos principal now.
    pub(super) fn user_of(&self, principal: &Principal) -> Option<String> {
        let Principal::Gss { name } = principal else { return None };
        self.with_rules(|rules| rules.user(&self.service, name))
    }

    fn with_rules<T>(&self, use_rules: impl FnOnce(PrincipalRules<'_>) -> T) -> T {
        let map = self.map.read().clone();
        use_rules(PrincipalRules {
            map: &map,
            idmap: &self.idmap,
            unknown: self.unknown,
            refused: &self.refused,
        })
    }

    /// At most 16 groups fit into AUTH_SYS (RFC 5531, appendix A).
    fn needs_groups(&self, gids: &[u32]) -> bool {
        self.groups == GroupSource::Server || (self.groups == GroupSource::Auto && gids.len() >= 16)
    }

    /// Groups may also remove rights (ACLs), so a failure refuses the caller.
    fn sys(
        &self,
        uid: u32,
        gid: u32,
        gids: &[u32],
        squash: &Squash,
    ) -> Result<Caller, NameServiceDown> {
        let mut groups =
            if self.groups == GroupSource::Server { Vec::new() } else { gids.to_vec() };
        if let Some(user) = self.service.user(uid)? {
            groups.extend(self.service.groups(&user.name, user.gid)?);
        }
        Ok(member(uid, gid, groups, squash))
    }

    fn certificate(
        &self,
        principal: &str,
        client: SocketAddr,
        squash: &Squash,
    ) -> Result<Option<Caller>, NameServiceDown> {
        let name = principal.strip_prefix(CERTIFICATE_USER).unwrap_or(principal);
        let Some(user) = self.service.user_by_name(name)? else {
            tracing::warn!(user = name, %client, "refused: the user of the client's certificate has no account; check getent passwd");
            self.refused.add(
                NO_ACCOUNT,
                principal,
                client.ip(),
                "the user of its certificate has no account",
            );
            return Ok(None);
        };
        if squash.who == SquashWho::All || squash.who == SquashWho::Root && user.uid == 0 {
            return Ok(Some(anonymous(squash)));
        }
        let groups = self.service.groups(&user.name, user.gid)?;
        Ok(Some(member(user.uid, user.gid, groups, squash)))
    }
}

pub(super) fn anonymous(squash: &Squash) -> Caller {
    Caller::new(squash.anonymous_uid, squash.anonymous_gid, [])
}

/// As in the kernel's server, group 0 is squashed with user 0.
pub(super) fn member(uid: u32, gid: u32, groups: Vec<u32>, squash: &Squash) -> Caller {
    let squashed = |gid: u32| {
        if squash.who == SquashWho::Root && gid == 0 { squash.anonymous_gid } else { gid }
    };
    Caller::new(uid, squashed(gid), groups.into_iter().map(squashed))
}
