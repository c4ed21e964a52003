//! Who acts for a client of 4.0, which has no sessions: where it was proven who introduced it or who opened what it holds, a name alone serves nobody else.

use std::sync::Arc;

use vouch_nfs4::{Stateid, Status};

use super::client::{Client, Dialect, Family, Holding};
use super::limits::OWNERS_PER_CLIENT_MAX;
use super::places::fits;
use super::{ClientKey, State};
use crate::Limits;
use crate::Principal;

impl<F: Clone> State<F> {
    /// A stateid of 4.0 is shown. ACCESS where it was proven who opened what it names, and neither he nor who introduced his client calls; else the client's lease is renewed.
    /// What a stateid comes to that names nothing is told elsewhere. `caller`: who calls, where that is proven.
    pub fn heard_by(&mut self, stateid: &Stateid, caller: Option<&Arc<str>>, now: u64) -> Result<(), Status> {
        let named = self.boot.key(stateid).filter(|_| !stateid.is_special());
        let Some(entry) = named.and_then(|key| self.states.get(key)) else { return Ok(()) };
        let Some(opener) = &entry.opener else { return Ok(()) };
        let client = &mut self.clients[entry.client];
        if !client.lets(caller, opener) {
            return Err(Status::ACCESS);
        }
        // RFC 7530, section 9.5.
        client.renew(now);
        Ok(())
    }

    /// An owner's name as its client knows it.
    pub(super) fn told_name(&self, client: ClientKey, known_as: &Arc<[u8]>) -> Arc<[u8]> {
        match self.clients[client].family() {
            Family::V40 => {
                let before = if known_as.first() == Some(&PROVEN) { 1 + DIGEST_LEN } else { 1 };
                known_as.get(before..).unwrap_or_default().into()
            }
            Family::V41 => known_as.clone(),
        }
    }
}

/// Under which name an owner of 4.0 is known here: that of its client, and who calls where that is proven. Whoever else names it names another, with numbers of its own.
pub fn known_as(name: &[u8], caller: Option<&Arc<str>>) -> Vec<u8> {
    match caller {
        Some(caller) => [&[PROVEN], &blake3::hash(caller.as_bytes()).as_bytes()[..], name].concat(),
        None => [&[SAID], name].concat(),
    }
}

const PROVEN: u8 = 1;
const SAID: u8 = 0;
const DIGEST_LEN: usize = blake3::OUT_LEN;

impl Client {
    /// This principal has more of it, or less, where that is proven.
    pub(super) fn holds(&mut self, opener: Option<&Arc<str>>, change: impl FnOnce(&mut Holding)) {
        let (Dialect::V40(v40), Some(opener)) = (&mut self.dialect, opener) else { return };
        // Not cloned where it is there.
        let holding = match v40.openers.get_mut(opener) {
            Some(holding) => holding,
            None => v40.openers.entry(opener.clone()).or_default(),
        };
        change(holding);
        if *holding == Holding::default() {
            v40.openers.remove(opener);
        }
    }

    /// Whether a principal may open one more. Who did not introduce the client leaves a part of it to others: anybody who knows its id opens files under it.
    pub(super) fn shares_opens(&self, opener: Option<&Arc<str>>, limits: &Limits) -> bool {
        self.share(opener).is_none_or(|of| fits(of.opens, 1, self.opens, limits.opens_per_client_max) && self.shares_owners(of))
    }

    /// Likewise, whether it may lock one more range, for an owner that may have none of the file.
    pub(super) fn shares_locks(&self, opener: Option<&Arc<str>>, limits: &Limits) -> bool {
        self.share(opener).is_none_or(|of| fits(of.ranges, 1, self.locks, limits.locks_per_client_max) && self.shares_owners(of))
    }

    /// Owners that hold something are no more than what is held.
    fn shares_owners(&self, of: Holding) -> bool {
        fits(of.opens + of.locked, 1, self.owner_count(), OWNERS_PER_CLIENT_MAX)
    }

    /// What a principal has who did not introduce it.
    fn share(&self, opener: Option<&Arc<str>>) -> Option<Holding> {
        let (Dialect::V40(v40), Some(opener)) = (&self.dialect, opener) else { return None };
        (self.introducer() != Some(opener)).then(|| v40.openers.get(opener).copied().unwrap_or_default())
    }

    /// Whether a caller may act on what `opener` has opened: who introduced the client may too, as clients give back and recover by their machine's credential. Where nobody has proven to
    /// have introduced it, the machine's credential is none.
    fn lets(&self, caller: Option<&Arc<str>>, opener: &Arc<str>) -> bool {
        match (&self.principal, caller) {
            (_, Some(caller)) if caller == opener => true,
            (Principal::Gss { name }, caller) => caller == Some(name),
            (Principal::Sys { .. } | Principal::None, caller) => caller.is_none(),
        }
    }

    /// Under which names owners are known here that a caller calls so and may give back: his own; and where he is who introduced the client, those of all who have files open, as
    /// clients release owners by their machine's credential.
    pub(super) fn names_given_back(&self, name: &[u8], caller: Option<&Arc<str>>) -> Vec<Vec<u8>> {
        let mut names = vec![known_as(name, caller)];
        if let Dialect::V40(v40) = &self.dialect {
            let others = v40.openers.keys().filter(|opener| Some(*opener) != caller && self.lets(caller, opener));
            names.extend(others.map(|opener| known_as(name, Some(opener))));
        }
        if caller.is_some() && caller == self.introducer() {
            // A mount of the same client under AUTH_SYS.
            names.push(known_as(name, None));
        }
        names
    }

    /// Who introduced it, where that is proven.
    fn introducer(&self) -> Option<&Arc<str>> {
        match &self.principal {
            Principal::Gss { name } => Some(name),
            Principal::Sys { .. } | Principal::None => None,
        }
    }

    /// Whether a RENEW is of who introduced the client or of one who has a file open (RFC 7530, section 16.27.4). What nobody has proven, nobody can be held to.
    /// O(n) in principals, and only where the client was proven and the caller was not.
    pub(super) fn is_renewed_by(&self, caller: Option<&Arc<str>>) -> bool {
        let (Principal::Gss { name }, Dialect::V40(v40)) = (&self.principal, &self.dialect) else { return true };
        match caller {
            Some(caller) => caller == name || v40.openers.get(caller).is_some_and(|of| of.opens > 0),
            None => self.opens > v40.openers.values().map(|of| of.opens).sum(),
        }
    }
}
