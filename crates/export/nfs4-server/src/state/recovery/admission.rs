//! RFC 8881 §8.4.2; RFC 7530 §9.6.2.

use vouch_nfs4::Status;

use crate::access::network::Network;
use crate::state::client::credential::{Credential, Family};
use crate::state::effect::{Loss, StateEffect};
use crate::state::hash::Map;
use crate::state::id::{ClientKey, SessionKey};
use crate::state::slab::Ended;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    #[cfg(test)]
    pub(crate) fn in_grace(&self) -> bool {
        self.grace.is_active()
    }

    pub(in crate::state) fn check_name_is_free(
        &mut self,
        family: Family,
        owner: &[u8],
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        match self.grace.admits(family, owner, credential) {
            true => Ok(()),
            false => Err(self.note_conflict_with(owner.into(), None, credential.address, false)),
        }
    }

    /// Only the address tells unproven clients apart. A caller from the recorded address takes the
    /// name; another one, whose address may have changed, continues after grace without reclaims
    /// (§8.4.2.1). DELAY if the recorded client has returned.
    pub(in crate::state) fn assign_name(
        &mut self,
        family: Family,
        owner: &[u8],
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        let Some(from) = self.grace.awaits_from(family, owner) else { return Ok(()) };
        let here = from == Network::of(credential.address);
        if here && !self.grace.admits(family, owner, credential) {
            return Ok(());
        }
        let named = self.named(family, owner);
        for key in [named.confirmed, named.unconfirmed].into_iter().flatten() {
            match (here, self.clients[key].has_other_address) {
                (true, true) => self.expire(key),
                (false, false) => return Err(Status::DELAY),
                _ => {}
            }
        }
        Ok(())
    }

    pub(in crate::state) fn check_name(
        &self,
        key: ClientKey,
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        let client = &self.clients[key];
        let from = if client.has_other_address {
            None
        } else {
            self.grace.awaits_from(client.family(), &client.owner)
        };
        if from.is_none_or(|from| from == Network::of(credential.address)) {
            Ok(())
        } else {
            Err(Status::DELAY)
        }
    }

    /// GRACE during grace (§8.4.2.1), or before the RECLAIM_COMPLETE of a 4.1 client (§18.51.3).
    pub(in crate::state) fn admit_new(&mut self, key: ClientKey) -> Result<(), Status> {
        if self.grace.is_active() && !vouch_vfs::mutant("grace-admits-new-state") {
            return Err(Status::GRACE);
        }
        match self.client(key)?.v41() {
            Some(v41) if !v41.reclaim_complete => Err(Status::GRACE),
            _ => Ok(()),
        }
    }

    /// NO_GRACE after grace or RECLAIM_COMPLETE, RECLAIM_BAD without a recovery record.
    ///
    /// A claim that cannot conflict is always granted (section 8.4.2.1): another server of the same
    /// published tree may have granted the state, and the client may have been here before.
    pub(in crate::state) fn admit_reclaim(
        &mut self,
        key: ClientKey,
        may_conflict: bool,
    ) -> Result<(), Status> {
        let active = self.grace.is_active();
        let client = self.client(key)?;
        if !may_conflict {
            return Ok(());
        }
        if !active || client.v41().is_some_and(|v41| v41.reclaim_complete) {
            return Err(Status::NO_GRACE);
        }
        match client.may_reclaim {
            true => Ok(()),
            false => Err(Status::RECLAIM_BAD),
        }
    }

    /// A 4.1 client that reclaims after RECLAIM_COMPLETE was at another server of the same published
    /// tree in between, and knows nothing of its state and sessions here. Linux waits 5 s at each open
    /// whose stateid does not begin with number 1.
    pub(in crate::state) fn start_over(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let Some(v41) = client.v41_mut().filter(|v41| v41.reclaim_complete && !v41.reclaims_again)
        else {
            return;
        };
        v41.reclaims_again = true;
        let unused = |&session: &SessionKey| self.sessions[session].connections.is_empty();
        let sessions: Vec<_> = v41.sessions.iter().copied().filter(unused).collect();
        let delegations: Vec<_> = client.delegations.drain().collect();
        let owners: Vec<_> = client.open_owners.values().copied().collect();
        sessions.into_iter().for_each(|session| self.remove_session(session));
        delegations
            .into_iter()
            .for_each(|state| self.drop_delegation(state, Ended::Freed, Some(Loss::Restarted)));
        for owner in owners {
            let opens: Vec<_> = self.owners[owner].states.values().copied().collect();
            opens
                .into_iter()
                .for_each(|open| self.drop_open(open, Ended::Freed, Some(Loss::Restarted)));
            self.remove_owner_if_idle(owner);
        }
    }

    /// Clients that have not reclaimed lose their state, even after another restart (§8.4.3).
    pub(in crate::state) fn end_grace(&mut self) {
        if self.grace.until_ms.take().is_some() {
            self.grace.waiting = Map::with_hasher(self.hasher);
            self.effects.push_back(StateEffect::GraceEnded);
        }
    }
}
