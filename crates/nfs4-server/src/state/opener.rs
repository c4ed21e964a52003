//! Who acts for a client of 4.0, which has no sessions: where it was proven who introduced it or
//! who opened what it holds, a name alone serves nobody else.

use std::sync::Arc;

use vouch_nfs4::{Stateid, Status};

use super::client::{Client, Dialect, Family, Holding, Who};
use super::limits::ORIGIN_SHARE;
use super::places::left_to_client;
use super::{ClientKey, State};
use crate::Principal;

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
    pub(super) fn told_name(&self, client: ClientKey, known_as: &Arc<[u8]>) -> Arc<[u8]> {
        match self.clients[client].family() {
            Family::V40 => {
                let before = if known_as.first() == Some(&PROVEN) { 1 + DIGEST_LEN } else { 1 };
                known_as.get(before..).unwrap_or_default().into()
            }
            Family::V41 => known_as.clone(),
        }
    }

    /// The opens of a client, of which a principal wants one more.
    pub(super) fn opens_for(&self, client: ClientKey, opener: Option<&Arc<str>>) -> Own {
        let record = &self.clients[client];
        Own { of_client: record.opens, of: record.share(who(opener)).map(|of| of.opens) }
    }

    /// Likewise, its ranges.
    pub(super) fn ranges_for(&self, client: ClientKey, opener: Option<&Arc<str>>) -> Own {
        let record = &self.clients[client];
        Own { of_client: record.locks, of: record.share(who(opener)).map(|of| of.ranges) }
    }

    /// And the files with lock owners, each.
    pub(super) fn locked_for(&self, client: ClientKey, opener: Option<&Arc<str>>) -> Own {
        let record = &self.clients[client];
        Own { of_client: record.locked, of: record.share(who(opener)).map(|of| of.locked) }
    }

    /// And its owners. Those of a principal that hold something are no more than what they hold.
    pub(super) fn owners_for(&self, client: ClientKey, known_as: &[u8]) -> Own {
        let record = &self.clients[client];
        let of_client = record.owner_count();
        Own { of_client, of: record.share(whose(known_as)).map(|of| of_client.min(of.opens + of.locked)) }
    }
}

/// What a client has of something of which a principal wants one more, and what of that is the
/// principal's if he has to leave something to others: no more than so many times what the
/// client can still have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    of_client: usize,
    of: Option<usize>,
}

impl Own {
    /// Of two things that count alike.
    pub(super) fn and(self, other: Own) -> Own {
        Own { of_client: self.of_client + other.of_client, of: self.of.zip(other.of).map(|(one, other)| one + other) }
    }

    /// Whether there may be one more where one client may have `max`.
    pub(super) fn fits(self, max: usize) -> bool {
        self.of_client < max && self.leaves(max - self.of_client)
    }

    /// What is to be asked for where all together may have `max` ([`super::places::fits_client`]):
    /// more than anybody may have where the principal has his share.
    pub(super) fn among(self, of_origin: usize, all: usize, max: usize) -> usize {
        match self.leaves(left_to_client(self.of_client, of_origin, all, max)) {
            true => self.of_client,
            false => usize::MAX,
        }
    }

    fn leaves(self, left: usize) -> bool {
        self.of.is_none_or(|of| of / ORIGIN_SHARE < left)
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

/// Whose owner it is that is known by this name.
pub(super) fn whose(known_as: &[u8]) -> Who {
    known_as.strip_prefix(&[PROVEN]).and_then(|rest| rest.first_chunk().copied())
}

const PROVEN: u8 = 1;
const SAID: u8 = 0;
const DIGEST_LEN: usize = blake3::OUT_LEN;

impl Client {
    /// This principal has more of it, or less.
    pub(super) fn holds(&mut self, opener: Option<&Arc<str>>, change: impl FnOnce(&mut Holding)) {
        let Dialect::V40(v40) = &mut self.dialect else { return };
        let who = who(opener);
        let holding = v40.holders.entry(who).or_default();
        change(holding);
        if *holding == Holding::default() {
            v40.holders.remove(&who);
        }
    }

    /// What a principal has who did not introduce it, and so has to leave something to others:
    /// whoever knows the client's id opens files under it.
    fn share(&self, who: Who) -> Option<Holding> {
        match &self.dialect {
            Dialect::V40(v40) if who != self.introducer() => Some(v40.holders.get(&who).copied().unwrap_or_default()),
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
    pub(super) fn names_given_back(&self, name: &[u8], caller: Option<&Arc<str>>) -> Vec<Vec<u8>> {
        let caller = who(caller);
        let mut names = vec![known(name, &caller)];
        if let Dialect::V40(v40) = &self.dialect
            && caller == self.introducer()
        {
            names.extend(v40.holders.keys().filter(|who| **who != caller).map(|who| known(name, who)));
        }
        names
    }

    /// Whether a RENEW is of who introduced the client or of one who has a file open (RFC 7530,
    /// section 16.27.4). What nobody has proven, nobody can be held to.
    pub(super) fn is_renewed_by(&self, caller: Option<&Arc<str>>) -> bool {
        let (Principal::Gss { name }, Dialect::V40(v40)) = (&self.principal, &self.dialect) else { return true };
        caller == Some(name) || v40.holders.get(&who(caller)).is_some_and(|of| of.opens > 0)
    }
}
