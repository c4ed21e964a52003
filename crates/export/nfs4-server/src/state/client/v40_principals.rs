//! 4.0 has no sessions: a client's name must not admit others if Kerberos proves its creator.

use std::sync::Arc;

use vouch_nfs4::{Stateid, Status};

use crate::Principal;
use crate::state::ClientKey;
use crate::state::client::credential::Family;
use crate::state::client::record::{Client, PrincipalDigest, VersionState};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Renews the lease. ACCESS if a Kerberos principal opened the file, and the caller is neither
    /// that principal nor the client's creator.
    pub(crate) fn authorize_v40_stateid(
        &mut self,
        stateid: &Stateid,
        caller: Option<&Arc<str>>,
        now: u64,
    ) -> Result<(), Status> {
        let named = self.boot.key(stateid).filter(|_| !stateid.is_special());
        let Some(entry) = named.and_then(|key| self.states.get(key)) else { return Ok(()) };
        let Some(opener) = &entry.opener else { return Ok(()) };
        let client = &mut self.clients[entry.client];
        if !client.may_act_for(caller, opener) {
            return Err(Status::ACCESS);
        }
        // RFC 7530 §9.5.
        client.renew(now);
        Ok(())
    }

    pub(in crate::state) fn sent_owner_name(
        &self,
        client: ClientKey,
        internal_owner_name: &Arc<[u8]>,
    ) -> Arc<[u8]> {
        match self.clients[client].family() {
            Family::V40 => {
                let before =
                    if internal_owner_name.first() == Some(&PROVEN) { 1 + DIGEST_LEN } else { 1 };
                internal_owner_name.get(before..).unwrap_or_default().into()
            }
            Family::V41 => internal_owner_name.clone(),
        }
    }
}

pub(crate) fn internal_owner_name(name: &[u8], caller: Option<&Arc<str>>) -> Vec<u8> {
    with_principal(name, &principal_digest(caller))
}

fn with_principal(name: &[u8], who: &PrincipalDigest) -> Vec<u8> {
    match who {
        Some(digest) => [&[PROVEN], &digest[..], name].concat(),
        None => [&[CLAIMED], name].concat(),
    }
}

fn principal_digest(principal: Option<&Arc<str>>) -> PrincipalDigest {
    principal.map(|principal| *blake3::hash(principal.as_bytes()).as_bytes())
}

const PROVEN: u8 = 1;
const CLAIMED: u8 = 0;
const DIGEST_LEN: usize = blake3::OUT_LEN;

impl Client {
    pub(in crate::state) fn count_opens_of(
        &mut self,
        opener: Option<&Arc<str>>,
        change: impl FnOnce(usize) -> usize,
    ) {
        let VersionState::V40(v40) = &mut self.version else { return };
        let who = principal_digest(opener);
        match change(v40.opens_by.get(&who).copied().unwrap_or(0)) {
            0 => v40.opens_by.remove(&who),
            opens => v40.opens_by.insert(who, opens),
        };
    }

    pub(in crate::state) fn opens_of_stranger(&self, opener: Option<&Arc<str>>) -> Option<usize> {
        let who = principal_digest(opener);
        match &self.version {
            VersionState::V40(v40) if who != self.creator() => {
                Some(v40.opens_by.get(&who).copied().unwrap_or(0))
            }
            _ => None,
        }
    }

    fn creator(&self) -> PrincipalDigest {
        match &self.principal {
            Principal::Gss { name } | Principal::Certificate { name } => {
                principal_digest(Some(name))
            }
            Principal::Sys { .. } | Principal::None => None,
        }
    }

    fn may_act_for(&self, caller: Option<&Arc<str>>, opener: &Arc<str>) -> bool {
        match (&self.principal, caller) {
            (_, Some(caller)) if caller == opener => true,
            (Principal::Gss { name } | Principal::Certificate { name }, caller) => {
                caller == Some(name)
            }
            (Principal::Sys { .. } | Principal::None, caller) => caller.is_none(),
        }
    }

    pub(in crate::state) fn releasable_owner_names(
        &self,
        name: &[u8],
        caller: Option<&Arc<str>>,
    ) -> Vec<Vec<u8>> {
        let caller = principal_digest(caller);
        let mut names = vec![with_principal(name, &caller)];
        if let VersionState::V40(v40) = &self.version
            && caller == self.creator()
        {
            names.extend(
                v40.opens_by
                    .keys()
                    .filter(|who| **who != caller)
                    .map(|who| with_principal(name, who)),
            );
        }
        names
    }

    /// RFC 7530 §16.27.4: the client's creator or a principal with an open file.
    pub(in crate::state) fn is_renewed_by(&self, caller: Option<&Arc<str>>) -> bool {
        let (Principal::Gss { name } | Principal::Certificate { name }, VersionState::V40(v40)) =
            (&self.principal, &self.version)
        else {
            return true;
        };
        caller == Some(name) || v40.opens_by.contains_key(&principal_digest(caller))
    }
}
