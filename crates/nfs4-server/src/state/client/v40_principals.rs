//! Who acts for a client of 4.0, which has no sessions: where it was proven who introduced it or
//! who opened what it holds, a name alone serves nobody else.

use std::sync::Arc;

use vouch_nfs4::{Stateid, Status};

use crate::Principal;
use crate::state::ClientKey;
use crate::state::client::credential::Family;
use crate::state::client::record::{Client, Dialect, Who};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// A stateid of 4.0 is shown. ACCESS where it was proven who opened what it names, and neither
    /// he nor who introduced his client calls; else the client's lease is renewed.
    /// What a stateid comes to that names nothing is told elsewhere. `caller`: who calls, where
    /// that is proven.
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
    pub(in crate::state) fn told_name(&self, client: ClientKey, known_as: &Arc<[u8]>) -> Arc<[u8]> {
        match self.clients[client].family() {
            Family::V40 => {
                let before = if known_as.first() == Some(&PROVEN) { 1 + DIGEST_LEN } else { 1 };
                known_as.get(before..).unwrap_or_default().into()
            }
            Family::V41 => known_as.clone(),
        }
    }
}

/// Under which name an owner of 4.0 is known here: that of its client, and who calls where that is
/// proven. Whoever else names it names another, with numbers of its own.
pub fn known_as(name: &[u8], caller: Option<&Arc<str>>) -> Vec<u8> {
    known(name, &who(caller))
}

fn known(name: &[u8], who: &Who) -> Vec<u8> {
    match who {
        Some(digest) => [&[PROVEN], &digest[..], name].concat(),
        None => [&[SAID], name].concat(),
    }
}

fn who(principal: Option<&Arc<str>>) -> Who {
    principal.map(|principal| *blake3::hash(principal.as_bytes()).as_bytes())
}

const PROVEN: u8 = 1;
const SAID: u8 = 0;
const DIGEST_LEN: usize = blake3::OUT_LEN;

impl Client {
    /// Counts opens of a principal, in 4.0.
    pub(in crate::state) fn count_opens_of(&mut self, opener: Option<&Arc<str>>, change: impl FnOnce(usize) -> usize) {
        let Dialect::V40(v40) = &mut self.dialect else { return };
        let who = who(opener);
        match change(v40.opens_by.get(&who).copied().unwrap_or(0)) {
            0 => v40.opens_by.remove(&who),
            opens => v40.opens_by.insert(who, opens),
        };
    }

    /// Opens of a principal that did not introduce the client, in 4.0.
    pub(in crate::state) fn opens_of_stranger(&self, opener: Option<&Arc<str>>) -> Option<usize> {
        let who = who(opener);
        match &self.dialect {
            Dialect::V40(v40) if who != self.introducer() => Some(v40.opens_by.get(&who).copied().unwrap_or(0)),
            _ => None,
        }
    }

    /// Who introduced it.
    fn introducer(&self) -> Who {
        match &self.principal {
            Principal::Gss { name } => who(Some(name)),
            Principal::Sys { .. } | Principal::None => None,
        }
    }

    /// Whether a caller may act on what `opener` has opened: who introduced the client may too, as
    /// clients give back and recover by their machine's credential. Where nobody has proven to
    /// have introduced it, the machine's credential is none.
    fn lets(&self, caller: Option<&Arc<str>>, opener: &Arc<str>) -> bool {
        match (&self.principal, caller) {
            (_, Some(caller)) if caller == opener => true,
            (Principal::Gss { name }, caller) => caller == Some(name),
            (Principal::Sys { .. } | Principal::None, caller) => caller.is_none(),
        }
    }

    /// Under which names owners are known here that a caller calls so and may give back: his own;
    /// and where he is who introduced the client, those of all who have files open, as
    /// clients release owners by their machine's credential.
    pub(in crate::state) fn names_given_back(&self, name: &[u8], caller: Option<&Arc<str>>) -> Vec<Vec<u8>> {
        let caller = who(caller);
        let mut names = vec![known(name, &caller)];
        if let Dialect::V40(v40) = &self.dialect
            && caller == self.introducer()
        {
            names.extend(v40.opens_by.keys().filter(|who| **who != caller).map(|who| known(name, who)));
        }
        names
    }

    /// Whether a RENEW is of who introduced the client or of one who has a file open (RFC 7530,
    /// section 16.27.4). What nobody has proven, nobody can be held to.
    pub(in crate::state) fn is_renewed_by(&self, caller: Option<&Arc<str>>) -> bool {
        let (Principal::Gss { name }, Dialect::V40(v40)) = (&self.principal, &self.dialect) else { return true };
        caller == Some(name) || v40.opens_by.contains_key(&who(caller))
    }
}
