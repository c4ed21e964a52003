//! Who may introduce itself, open and reclaim during grace (RFC 8881, section 8.4.2; RFC 7530, section
//! 9.6.2).

use vouch_nfs4::Status;

use crate::access::network::Network;
use crate::state::client::credential::{Credential, Family};
use crate::state::client::record::Client;
use crate::state::effect::StateEffect;
use crate::state::hash::Map;
use crate::state::id::ClientKey;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Whether the server is in grace.
    pub fn in_grace(&self) -> bool {
        self.grace.is_active()
    }

    /// A client introduces itself. CLID_INUSE by a name under which another may still reclaim.
    pub(in crate::state) fn admit_introduction(&self, family: Family, owner: &[u8], credential: Credential<'_>) -> Result<(), Status> {
        if self.grace.admits(family, owner, credential) { Ok(()) } else { Err(Status::CLID_INUSE) }
    }

    /// A client introduces itself, or goes on to, by a name under which an unproven one may still
    /// reclaim. Under AUTH_SYS anybody says that he is anybody, so that only where he
    /// calls from tells him from others. Who calls from there has the name, whoever had it
    /// meanwhile: he could get nothing by it that would be lost. From elsewhere a client is let
    /// in, with nothing to reclaim (section 8.4.2.1 leaves it to the server whom it believes),
    /// since it may be the same one whose address has changed: it shall go on as soon as
    /// grace is over. DELAY where the other has come back.
    pub(in crate::state) fn give_name(&mut self, family: Family, owner: &[u8], credential: Credential<'_>) -> Result<(), Status> {
        let Some(from) = self.grace.awaits_from(family, owner) else { return Ok(()) };
        let here = from == Network::of(credential.address);
        if here && !self.grace.admits(family, owner, credential) {
            return Ok(());
        }
        let named = self.named(family, owner);
        for key in [named.confirmed, named.unconfirmed].into_iter().flatten() {
            match (here, self.clients[key].elsewhere) {
                (true, true) => self.expire(key),
                (false, false) => return Err(Status::DELAY),
                _ => {}
            }
        }
        Ok(())
    }

    /// The same for what is done by the number of a client.
    pub(in crate::state) fn check_name(&self, key: ClientKey, credential: Credential<'_>) -> Result<(), Status> {
        let client = &self.clients[key];
        let from = if client.elsewhere { None } else { self.grace.awaits_from(client.family(), &client.owner) };
        if from.is_none_or(|from| from == Network::of(credential.address)) { Ok(()) } else { Err(Status::DELAY) }
    }

    /// Something new is asked for. Section 8.4.2.1: GRACE while others may still reclaim what it
    /// conflicts with; section 18.51.3: also for a client of 4.1 that has not said that it has
    /// nothing to reclaim.
    pub(in crate::state) fn admit_new(&mut self, key: ClientKey) -> Result<(), Status> {
        if self.grace.is_active() {
            return Err(Status::GRACE);
        }
        match self.client(key)?.v41() {
            Some(v41) if !v41.reclaim_complete => Err(Status::GRACE),
            _ => Ok(()),
        }
    }

    /// Something is reclaimed. NO_GRACE when grace is over, or the client has said that it is done;
    /// RECLAIM_BAD if it had nothing.
    pub(in crate::state) fn admit_reclaim(&mut self, key: ClientKey) -> Result<(), Status> {
        let active = self.grace.is_active();
        let client = self.client(key)?;
        if !active || client.v41().is_some_and(|v41| v41.reclaim_complete) {
            return Err(Status::NO_GRACE);
        }
        match client.may_reclaim {
            true => Ok(()),
            false => Err(Status::RECLAIM_BAD),
        }
    }

    /// Grace ends. Section 8.4.3: from here on, who has not reclaimed has lost what it held, also
    /// if the server restarts again.
    pub(in crate::state) fn end_grace(&mut self) {
        if self.grace.until_ms.take().is_some() {
            self.grace.waiting = Map::with_hasher(self.hasher);
            self.record_those_from_elsewhere();
            self.effects.push_back(StateEffect::GraceEnded);
        }
    }

    /// Who came by another's name, from elsewhere, has it for his own: until now the other's record
    /// was kept. O(n) in clients, once.
    fn record_those_from_elsewhere(&mut self) {
        let done = |client: &Client| client.elsewhere && client.v41().is_some_and(|v41| v41.reclaim_complete);
        let keys: Vec<ClientKey> = self.clients.iter().filter(|(_, client)| done(client)).map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.record(key, false));
    }
}
