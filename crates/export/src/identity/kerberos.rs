//! Maps an authenticated principal to an account. Blocks on the name service.

use std::net::SocketAddr;

use vouch_nfs4_server::{Squash, SquashWho};
use vouch_vfs::Caller;

use super::idmap::Idmap;
use super::principal_map::{Account, PrincipalMap};
use super::service::{LocalName, NameService, NameServiceDown};

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

pub(super) struct PrincipalRules<'a> {
    pub(super) map: &'a PrincipalMap,
    pub(super) idmap: &'a Idmap,
    pub(super) unknown: UnknownPrincipal,
}

impl PrincipalRules<'_> {
    /// Identity after squashing; `None` refuses the principal. Precedence: `--principal-map`,
    /// `[Static]` of idmapd.conf, machine principals (anonymous), rules of the Kerberos library,
    /// local realms of idmapd.conf. A refusal precedes squashing.
    pub(super) fn caller(
        &self,
        service: &impl NameService,
        request: AccountRequest<'_>,
        squash: &Squash,
    ) -> Result<Option<Caller>, NameServiceDown> {
        let AccountRequest { principal, client } = request;
        let anonymous = || Caller::new(squash.anonymous_uid, squash.anonymous_gid, []);
        let name: String = match self.map.account(principal) {
            Some(Account::Squash) => return Ok(Some(anonymous())),
            Some(Account::Refuse) => return Ok(log_refusal(request, NoAccount::Refused)),
            Some(Account::User(name)) => name.to_string(),
            mapped => match self.idmap.local(principal) {
                Some(name) => name.to_owned(),
                None if is_machine(principal) && mapped.is_none() => return Ok(Some(anonymous())),
                None => match self.local_name(service, principal) {
                    Some(name) => name,
                    None => return Ok(self.unknown(request, NoAccount::NoName, anonymous)),
                },
            },
        };
        let silent = |NameServiceDown| {
            tracing::warn!(principal, name, %client, "the name service fails: the principal keeps its rights, or waits; check getent passwd");
            NameServiceDown
        };
        let Some(user) = service.user_by_name(&name).map_err(silent)? else {
            return Ok(self.unknown(request, NoAccount::NoUser(&name), anonymous));
        };
        if squash.who == SquashWho::All || squash.who == SquashWho::Root && user.uid == 0 {
            return Ok(Some(anonymous()));
        }
        let groups = service.groups(&user.name, user.gid).map_err(silent)?;
        let squashed = |gid: u32| if squash.who == SquashWho::Root && gid == 0 { squash.anonymous_gid } else { gid };
        Ok(Some(Caller::new(user.uid, squashed(user.gid), groups.into_iter().map(squashed))))
    }

    fn local_name(&self, service: &impl NameService, principal: &str) -> Option<String> {
        let (primary, realm) = principal.rsplit_once('@')?;
        match service.local_name(principal) {
            LocalName::Name(name) => Some(name),
            // idmapd.conf may list realms that krb5.conf does not mention.
            LocalName::NoName => (!primary.contains('/') && self.idmap.names_realm(realm)).then(|| primary.to_owned()),
            LocalName::NoRules => (!primary.contains('/') && self.idmap.is_local_realm(realm)).then(|| primary.to_owned()),
        }
    }

    fn unknown(&self, request: AccountRequest<'_>, why: NoAccount<'_>, anonymous: impl Fn() -> Caller) -> Option<Caller> {
        match self.unknown {
            UnknownPrincipal::Squash => Some(anonymous()),
            UnknownPrincipal::Refuse => log_refusal(request, why),
        }
    }
}

fn log_refusal(AccountRequest { principal, client }: AccountRequest<'_>, why: NoAccount<'_>) -> Option<Caller> {
    match why {
        NoAccount::Refused => tracing::warn!(principal, %client, "refused by the principal map; remove its !refuse line to allow it"),
        NoAccount::NoName => tracing::warn!(
            principal,
            %client,
            "refused: no rule maps this principal to a local name; add auth_to_local to krb5.conf, Local-Realms to idmapd.conf, or a line to --principal-map"
        ),
        NoAccount::NoUser(name) => tracing::warn!(
            principal,
            name,
            %client,
            "refused: no such user; check getent passwd, or map the principal to another user in --principal-map"
        ),
    }
    None
}

/// `host/NAME`, `nfs/NAME`, `root/NAME`, or `NAME$` of Active Directory.
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
        for principal in ["host/n7.a.org@A.ORG", "nfs/n7@A.ORG", "root/n7.a.org@A.ORG", "N7$@A.ORG"] {
            assert!(is_machine(principal), "{principal}");
        }
        for principal in ["host@A.ORG", "alice/admin@A.ORG", "alice@A.ORG", "nfsd/x@A.ORG", "a$b@A.ORG"] {
            assert!(!is_machine(principal), "{principal}");
        }
    }
}
