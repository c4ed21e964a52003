//! DESTROY_CLIENTID and RECLAIM_COMPLETE (RFC 8881 §18.50 and 18.51).

use vouch_nfs4::op::Op;
use vouch_nfs4::{ClientId, Status};

use crate::state::client::credential::{Credential, Family};
use crate::state::id::ClientKey;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// CLIENTID_BUSY with sessions or state (§18.50.3).
    pub(crate) fn destroy_client(
        &mut self,
        id: ClientId,
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        let key = self.client_by_id(id).ok_or(Status::STALE_CLIENTID)?;
        let client = &self.clients[key];
        let v41 = client.v41().ok_or(Status::STALE_CLIENTID)?;
        if client.has_state() || !v41.sessions.is_empty() {
            return Err(Status::CLIENTID_BUSY);
        }
        self.check_may_manage(key, Op::DESTROY_CLIENTID, credential)?;
        self.expire(key);
        Ok(())
    }

    /// `one_fs`: for one migrated file system, which never applies here.
    pub(crate) fn reclaim_complete(&mut self, key: ClientKey, one_fs: bool) -> Result<(), Status> {
        if one_fs {
            return Ok(());
        }
        let client = self.client(key)?;
        let (owner, has_other_address) = (client.owner.clone(), client.has_other_address);
        let v41 = client.v41_mut().ok_or(Status::NOTSUPP)?;
        // §18.51.3: the second call gets COMPLETE_ALREADY.
        if v41.reclaim_complete {
            return if std::mem::take(&mut v41.reclaims_again) {
                Ok(())
            } else {
                Err(Status::COMPLETE_ALREADY)
            };
        }
        v41.reclaim_complete = true;
        self.record(key, false);
        if !has_other_address && self.grace.completed(Family::V41, &owner) {
            self.end_grace();
        }
        Ok(())
    }
}
