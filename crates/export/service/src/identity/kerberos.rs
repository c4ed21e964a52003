//! Maps an authenticated principal to an account. Blocks on the name service.

use std::net::SocketAddr;

use vouch_nfs4_server::{Squash, SquashWho};
use vouch_vfs::Caller;

use super::idmap::Idmap;
use super::mapper::{anonymous, member};
use super::principal_map::{Account, PrincipalMap};
use super::service::{LocalName, NameService, NameServiceDown};
use crate::monitoring::refusals::{NO_ACCOUNT, RecentRefusals};

#[derive(Clone, Copy)]
pub(super) struct AccountRequest<'a> {
    pub(super) principal: &'a str,
    pub(super) client: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownPrincipal {
    Refuse,
    Squash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoAccount<'a> {
    Refused,
    NoName,
    NoUser(&'a str),
}

/// What the rules make of a principal.
enum Target {
    Anonymous,
    Refused,
    Unknown,
    User(String),
}

pub(super) struct PrincipalRules<'a> {
    pub(super) map: &'a PrincipalMap,
    pub(super) idmap: &'a Idmap,
    pub(super) unknown: UnknownPrincipal,
    pub(super) refused: &'a RecentRefusals,
}

impl PrincipalRules<'_> {
    /// `None` refuses the principal, before squashing. Precedence: `--principal-map`, `[Static]` of
    /// idmapd.conf, machine principals (anonymous), rules of the Kerberos library, local realms of
    /// idmapd.conf.
    pub(super) fn caller(
        &self,
        service: &impl NameService,
        request: AccountRequest<'_>,
        squash: &Squash,
    ) -> Result<Option<Caller>, NameServiceDown> {
        let anonymous = || anonymous(squash);
        let name = match self.target(service, request.principal) {
            Target::Anonymous => return Ok(Some(anonymous())),
            Target::Refused => return Ok(self.refuse(request, NoAccount::Refused)),
            Target::Unknown => return Ok(self.unknown(request, NoAccount::NoName, anonymous)),
            Target::User(name) => name,
        };
        let Some(user) = service.user_by_name(&name)? else {
            return Ok(self.unknown(request, NoAccount::NoUser(&name), anonymous));
        };
        if squash.who == SquashWho::All || squash.who == SquashWho::Root && user.uid == 0 {
            return Ok(Some(anonymous()));
        }
        let groups = service.groups(&user.name, user.gid)?;
        Ok(Some(member(user.uid, user.gid, groups, squash)))
    }

    /// The user that the rules name now. Needs no directory.
    pub(super) fn user(&self, service: &impl NameService, principal: &str) -> Option<String> {
        match self.target(service, principal) {
            Target::User(name) => Some(name),
            Target::Anonymous | Target::Refused | Target::Unknown => None,
        }
    }

    fn target(&self, service: &impl NameService, principal: &str) -> Target {
        let mapped = self.map.account(principal);
        match mapped {
            Some(Account::Squash) => return Target::Anonymous,
            Some(Account::Refuse) => return Target::Refused,
            Some(Account::User(name)) => return Target::User(name.to_string()),
            _ => {}
        }
        if let Some(name) = self.idmap.local(principal) {
            return Target::User(name.to_owned());
        }
        if is_machine(principal) && mapped.is_none() {
            return Target::Anonymous;
        }
        self.local_name(service, principal).map_or(Target::Unknown, Target::User)
    }

    fn local_name(&self, service: &impl NameService, principal: &str) -> Option<String> {
        let (primary, realm) = principal.rsplit_once('@')?;
        match service.local_name(principal) {
            LocalName::Name(name) => Some(name),
            // idmapd.conf may list realms that krb5.conf does not mention.
            LocalName::NoName => (!primary.contains('/') && self.idmap.names_realm(realm))
                .then(|| primary.to_owned()),
            LocalName::NoRules => (!primary.contains('/') && self.idmap.is_local_realm(realm))
                .then(|| primary.to_owned()),
        }
    }

    fn unknown(
        &self,
        request: AccountRequest<'_>,
        why: NoAccount<'_>,
        anonymous: impl Fn() -> Caller,
    ) -> Option<Caller> {
        match self.unknown {
            UnknownPrincipal::Squash => Some(anonymous()),
            UnknownPrincipal::Refuse => self.refuse(request, why),
        }
    }

    fn refuse(
        &self,
        AccountRequest { principal, client }: AccountRequest<'_>,
        why: NoAccount<'_>,
    ) -> Option<Caller> {
        match why {
            NoAccount::Refused => {
                tracing::warn!(principal, %client, "refused by the principal map; remove its !refuse line to allow it");
            }
            NoAccount::NoName => {
                self.refused.add(
                    NO_ACCOUNT,
                    principal,
                    client.ip(),
                    "no rule maps it to a local name",
                );
                tracing::warn!(
                    principal,
                    %client,
                    "refused: no rule maps this principal to a local name; add auth_to_local to krb5.conf, Local-Realms to idmapd.conf, or a line to --principal-map"
                );
            }
            NoAccount::NoUser(name) => {
                self.refused.add(
                    NO_ACCOUNT,
                    principal,
                    client.ip(),
                    &format!("there is no user {name}"),
                );
                tracing::warn!(
                    principal,
                    name,
                    %client,
                    "refused: no such user; check getent passwd, or map the principal to another user in --principal-map"
                );
            }
        }
        None
    }
}

fn is_machine(principal: &str) -> bool {
    let primary = principal.rsplit_once('@').map_or(principal, |(primary, _)| primary);
    match primary.split_once('/') {
        Some((service, _)) => matches!(service, "host" | "nfs" | "root"),
        None => primary.ends_with('$'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_machines_from_users() {
        for principal in ["host/n7.a.org@A.ORG", "nfs/n7@A.ORG", "root/n7.a.org@A.ORG", "N7$@A.ORG"]
        {
            assert!(is_machine(principal), "{principal}");
        }
        for principal in
            ["host@A.ORG", "alice/admin@A.ORG", "alice@A.ORG", "nfsd/x@A.ORG", "a$b@A.ORG"]
        {
            assert!(!is_machine(principal), "{principal}");
        }
    }
}
