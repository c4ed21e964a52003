//! From a proven principal to an account: which rule decides, in which order. Asks the name
//! service, so it may sleep.

use std::net::SocketAddr;

use vouch_nfs4_server::{Squash, SquashWho};
use vouch_vfs::Caller;

use super::idmap::Idmap;
use super::principal_map::{Account, PrincipalMap};
use super::service::{LocalName, NameService, NameServiceDown};

/// Who asks, for the log.
#[derive(Clone, Copy)]
pub(super) struct AccountRequest<'a> {
    pub(super) principal: &'a str,
    pub(super) client: SocketAddr,
}

/// What is done with a proven principal that has no account here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownPrincipal {
    /// It is refused, and a line is logged.
    Refuse,
    /// It is the anonymous user.
    Squash,
}

/// Why a principal has no rights here, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoAccount<'a> {
    /// The map says so.
    Refused,
    /// No rule gives it a name.
    NoName,
    /// It has a name, but there is no such user.
    NoUser(&'a str),
}

/// The rules.
pub(super) struct PrincipalRules<'a> {
    pub(super) map: &'a PrincipalMap,
    pub(super) idmap: &'a Idmap,
    pub(super) unknown: UnknownPrincipal,
}

impl PrincipalRules<'_> {
    /// The local rights of a principal after squashing; none if it is refused, and nothing is known
    /// while the name service is silent. The first of these that says anything decides: the map of
    /// `--principal-map`, `[Static]` of idmapd.conf, machines (the anonymous user), the
    /// Kerberos library's rules, realms that are local by idmapd.conf. Who is refused is so where
    /// all are squashed, too.
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
            Some(Account::Refuse) => return Ok(told(request, NoAccount::Refused)),
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
            tracing::warn!(principal, name, %client, "the name service fails: this principal has the rights that it had, or waits; see getent passwd and its log");
            NameServiceDown
        };
        let Some(user) = service.user_by_name(&name).map_err(silent)? else {
            return Ok(self.unknown(request, NoAccount::NoUser(&name), anonymous));
        };
        if squash.who == SquashWho::All || squash.who == SquashWho::Root && user.uid == 0 {
            return Ok(Some(anonymous()));
        }
        let groups = service.groups(&user.name, user.gid).map_err(silent)?;
        // As the kernel's server does: group 0 is squashed with user 0.
        let squashed = |gid: u32| if squash.who == SquashWho::Root && gid == 0 { squash.anonymous_gid } else { gid };
        Ok(Some(Caller::new(user.uid, squashed(user.gid), groups.into_iter().map(squashed))))
    }

    fn local_name(&self, service: &impl NameService, principal: &str) -> Option<String> {
        let (primary, realm) = principal.rsplit_once('@')?;
        match service.local_name(principal) {
            LocalName::Name(name) => Some(name),
            // idmapd.conf may name realms that krb5.conf says nothing about.
            LocalName::NoName => (!primary.contains('/') && self.idmap.names_realm(realm)).then(|| primary.to_owned()),
            LocalName::NoRules => (!primary.contains('/') && self.idmap.is_local_realm(realm)).then(|| primary.to_owned()),
        }
    }

    fn unknown(&self, request: AccountRequest<'_>, why: NoAccount<'_>, anonymous: impl Fn() -> Caller) -> Option<Caller> {
        match self.unknown {
            UnknownPrincipal::Squash => Some(anonymous()),
            UnknownPrincipal::Refuse => told(request, why),
        }
    }
}

/// Logs why a principal is refused, and for whose call it was found out: once for as long as the
/// answer is remembered.
fn told(AccountRequest { principal, client }: AccountRequest<'_>, why: NoAccount<'_>) -> Option<Caller> {
    match why {
        NoAccount::Refused => tracing::warn!(principal, %client, "refused: the principal map says so; take its !refuse away to let it in"),
        NoAccount::NoName => tracing::warn!(
            principal,
            %client,
            "refused: no rule gives this principal a local name; add auth_to_local to krb5.conf, Local-Realms to idmapd.conf or a line to --principal-map"
        ),
        NoAccount::NoUser(name) => tracing::warn!(
            principal,
            name,
            %client,
            "refused: the name service does not know this user; see getent passwd, or map the principal to another by --principal-map"
        ),
    }
    None
}

/// Principals of machines, which mount for everybody and are nobody in particular: `host/NAME`,
/// `nfs/NAME`, `root/NAME`, and `NAME$` of Active Directory.
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
    fn machines_are_told_from_people() {
        for principal in ["host/n7.a.org@A.ORG", "nfs/n7@A.ORG", "root/n7.a.org@A.ORG", "N7$@A.ORG"] {
            assert!(is_machine(principal), "{principal}");
        }
        for principal in ["host@A.ORG", "alice/admin@A.ORG", "alice@A.ORG", "nfsd/x@A.ORG", "a$b@A.ORG"] {
            assert!(!is_machine(principal), "{principal}");
        }
    }
}
