//! Who acts for a client of 4.0, which has no sessions: where it was proven who introduced it or who opened what it holds, a name alone serves nobody else.

use std::sync::Arc;

use vouch_nfs4::{Stateid, Status};

use super::client::{Client, Dialect};
use super::{ClientKey, OwnerKind, State};
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

    /// ACCESS if a lock owner of 4.0 holds what others have opened than the caller. The name of one is told to whoever is in its way. O(1): of what it holds one is looked at.
    pub fn lock_owner_admits(&mut self, client: ClientKey, owner: &[u8], caller: Option<&Arc<str>>) -> Result<(), Status> {
        let Some(owner) = self.find_owner(client, OwnerKind::Lock, owner) else { return Ok(()) };
        let held = self.owners[owner].states.values().next().and_then(|&key| self.states[key].opener.as_ref());
        match held.is_none_or(|opener| self.clients[client].lets(caller, opener)) {
            true => Ok(()),
            false => Err(Status::ACCESS),
        }
    }
}

impl Client {
    /// It has one more open, of this principal where that is proven.
    pub(super) fn has_opened(&mut self, opener: Option<&Arc<str>>) {
        if let (Dialect::V40(v40), Some(opener)) = (&mut self.dialect, opener) {
            *v40.openers.entry(opener.clone()).or_default() += 1;
        }
    }

    /// It has one less.
    pub(super) fn has_closed(&mut self, opener: Option<&Arc<str>>) {
        let (Dialect::V40(v40), Some(opener)) = (&mut self.dialect, opener) else { return };
        if let Some(count) = v40.openers.get_mut(opener) {
            *count -= 1;
            if *count == 0 {
                v40.openers.remove(opener);
            }
        }
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

    /// Whether a RENEW is of who introduced the client or of one who has a file open (RFC 7530, section 16.27.4). What nobody has proven, nobody can be held to.
    /// O(n) in principals, and only where the client was proven and the caller was not.
    pub(super) fn is_renewed_by(&self, caller: Option<&Arc<str>>) -> bool {
        let (Principal::Gss { name }, Dialect::V40(v40)) = (&self.principal, &self.dialect) else { return true };
        match caller {
            Some(caller) => caller == name || v40.openers.contains_key(caller),
            None => self.opens > v40.openers.values().sum(),
        }
    }
}
