//! SETCLIENTID, SETCLIENTID_CONFIRM and RENEW (RFC 7530 §16.33, 16.34 and 16.29).

use std::collections::BTreeMap;
use std::sync::Arc;

use vouch_nfs4::{ClientId, ClientOwner, Status, Verifier};

use crate::state::client::credential::{Credential, Family};
use crate::state::client::record::{
    Callback40, CallbackPath, Lease, NameRecords, V40, VersionState,
};
use crate::state::id::ClientKey;
use crate::state::tables::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetClientError {
    InUse(Callback40),
    Status(Status),
}

impl<F: Clone> State<F> {
    /// Letters of §16.33.5: v, x, c are verifier, name and callback.
    pub(crate) fn set_client_id(
        &mut self,
        owner: &ClientOwner<'_>,
        callback: Callback40,
        credential: Credential<'_>,
        now: u64,
    ) -> Result<(ClientId, Verifier), SetClientError> {
        let confirm = self.random.verifier();
        self.assign_name(Family::V40, &owner.id, credential).map_err(SetClientError::Status)?;
        let named = self.named(Family::V40, &owner.id);
        let admitted = self.grace.admits(Family::V40, &owner.id, credential);
        if let Some(key) = named.confirmed {
            let from_elsewhere = self.check_restart(key, credential).is_err();
            let client = &mut self.clients[key];
            let same_principal = client.principal.same_user(credential.principal);
            let active = client.lease == Lease::Active && client.has_state();
            let same_verifier = client.verifier == owner.verifier;
            let id = client.id;
            let v40 = client.v40().expect("a name of this family has a record of this family");
            if !same_principal {
                if active || !admitted {
                    let callback = v40.callback.clone();
                    self.note_name_conflict(key, credential.address);
                    return Err(SetClientError::InUse(callback));
                }
                self.expire(key);
            } else if same_verifier {
                // Confirmed {v, x, c, l, s}: a callback update under the same client id.
                v40.pending = Some((confirm, callback));
                if let Some(old) = named.unconfirmed {
                    self.expire(old);
                }
                return Ok((id, confirm));
            } else if from_elsewhere {
                let callback = v40.callback.clone();
                self.note_name_conflict(key, credential.address);
                return Err(SetClientError::InUse(callback));
            }
        }
        if !admitted {
            self.note_conflict_with(owner.id.0.into(), None, credential.address, false);
            return Err(SetClientError::InUse(Callback40::unknown()));
        }
        // Confirmed {u, x, c, l, s} with another verifier (client restart), or a new client.
        if let NameRecords { unconfirmed: Some(old), .. } = self.named(Family::V40, &owner.id) {
            self.expire(old);
        }
        let v40 = V40 {
            confirm,
            callback,
            pending: None,
            path: CallbackPath::Unknown,
            opens_by: BTreeMap::new(),
        };
        let key = self
            .add_client(&owner.id, owner.verifier, credential, VersionState::V40(v40), now)
            .map_err(SetClientError::Status)?;
        Ok((self.clients[key].id, confirm))
    }

    pub(crate) fn confirm_client(
        &mut self,
        id: ClientId,
        confirm: Verifier,
        credential: Credential<'_>,
        now: u64,
    ) -> Result<(), Status> {
        let key = self.client_by_id(id).ok_or(Status::STALE_CLIENTID)?;
        let client = &mut self.clients[key];
        let (confirmed, owner) = (client.confirmed, client.owner.clone());
        let same_principal = client.principal.same_user(credential.principal);
        let v40 = client.v40().ok_or(Status::STALE_CLIENTID)?;
        let pending = v40.pending.as_ref().is_some_and(|(verifier, _)| *verifier == confirm);
        if !pending && v40.confirm != confirm {
            return Err(Status::STALE_CLIENTID);
        }
        if !same_principal {
            return Err(self.note_name_conflict(key, credential.address));
        }
        self.check_name(key, credential)?;
        self.check_confirmation(key, credential)?;
        let v40 = self.clients[key].v40().ok_or(Status::STALE_CLIENTID)?;
        if pending && confirmed {
            let (verifier, callback) = v40.pending.take().expect("the entry was just seen");
            v40.confirm = verifier;
            let moved = v40.callback != callback;
            v40.callback = callback;
            if moved || v40.path != CallbackPath::Up {
                v40.path = CallbackPath::Unknown;
            }
            self.move_to(key, credential.address);
        } else if !confirmed {
            if let NameRecords { confirmed: Some(old), .. } = self.named(Family::V40, &owner) {
                self.replace(old);
            }
            self.confirm_record(key);
        }
        self.clients[key].renew(now);
        self.probe(key);
        Ok(())
    }

    /// CB_PATH_DOWN renews the lease (§16.29.4), ACCESS does not.
    pub(crate) fn renew(
        &mut self,
        id: ClientId,
        caller: Option<&Arc<str>>,
        now: u64,
    ) -> Result<(), Status> {
        let key = self.confirmed_of_40(id)?;
        if !self.clients[key].is_renewed_by(caller) {
            return Err(Status::ACCESS);
        }
        let client = &mut self.clients[key];
        client.renew(now);
        let holds = !client.delegations.is_empty();
        match client.v40().map(|v40| v40.path) {
            Some(CallbackPath::Down) if holds => Err(Status::CB_PATH_DOWN),
            _ => Ok(()),
        }
    }

    /// Renews the lease as RENEW would (§9.5). STALE_CLIENTID for unconfirmed ids and those of an
    /// earlier instance, EXPIRED.
    pub(crate) fn v40_client(
        &mut self,
        id: ClientId,
        caller: Option<&Arc<str>>,
        now: u64,
    ) -> Result<ClientKey, Status> {
        let key = self.confirmed_of_40(id)?;
        let client = &mut self.clients[key];
        if client.is_renewed_by(caller) {
            client.renew(now);
        }
        Ok(key)
    }

    fn confirmed_of_40(&self, id: ClientId) -> Result<ClientKey, Status> {
        let key = match self.client_by_id(id) {
            Some(key) => key,
            None if self.numbers.has_issued(id) => return Err(Status::EXPIRED),
            None => return Err(Status::STALE_CLIENTID),
        };
        let client = &self.clients[key];
        if !client.confirmed || client.family() != Family::V40 {
            return Err(Status::STALE_CLIENTID);
        }
        Ok(key)
    }
}
