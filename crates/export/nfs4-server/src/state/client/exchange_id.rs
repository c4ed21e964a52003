//! EXCHANGE_ID (RFC 8881 §18.35).

use vouch_nfs4::op::{ExchangeIdArgs, ExchangeIdFlags};
use vouch_nfs4::{ClientId, CreateSeq, StateProtect, StateProtectOps, Status};

use crate::state::client::credential::{Credential, Family};
use crate::state::client::protection;
use crate::state::client::record::{NameRecords, Protection, V41, VersionState};
use crate::state::id::ClientKey;
use crate::state::limits::IMPLEMENTATION_LEN_MAX;
use crate::state::tables::State;
use vouch_nfs4::op::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExchangedId {
    pub client: ClientId,
    pub seq: CreateSeq,
    pub flags: ExchangeIdFlags,
    pub machine: Option<StateProtectOps>,
}

impl<F: Clone> State<F> {
    /// Case numbers are those of §18.35.4.
    pub(crate) fn exchange_id(
        &mut self,
        args: &ExchangeIdArgs<'_>,
        credential: Credential<'_>,
        now: u64,
    ) -> Result<ExchangedId, Status> {
        // §18.35.3: INVAL for flags that only servers set.
        if args.flags.0 & !ExchangeIdFlags::FROM_CLIENT.0 != 0 {
            return Err(Status::INVAL);
        }
        let wanted = match &args.state_protect {
            StateProtect::None => Protection::None,
            StateProtect::MachineCred(ops) => protection::negotiate(ops, credential)?,
            StateProtect::Ssv(_) => return Err(Status::ENCR_ALG_UNSUPP),
        };
        self.assign_name(Family::V41, &args.owner.id, credential)?;
        let named = self.named(Family::V41, &args.owner.id);
        let update = args.flags.contains(ExchangeIdFlags::UPD_CONFIRMED_REC_A);
        let Some(key) = named.confirmed else {
            // Case 7.
            return match update {
                true => Err(Status::NOENT),
                false => self.add_unconfirmed(args, credential, wanted, now),
            };
        };
        let client = &self.clients[key];
        let same_verifier = client.verifier == args.owner.verifier;
        let same_user = client.principal.same_user(credential.principal);
        // §2.10.8.3: machine credentials need integrity.
        let same_principal = same_user && (update || client.client_principal().admits(credential));
        match (update, same_verifier, same_principal) {
            // Case 6.
            (true, true, true) => {
                self.enforce(key, Op::EXCHANGE_ID, credential)?;
                self.name_implementation(key, args);
                Ok(self.exchanged(key))
            }
            (true, false, _) => Err(Status::NOT_SAME),
            (true, true, false) => Err(Status::PERM),
            (false, true, true) => {
                self.name_implementation(key, args);
                Ok(self.exchanged(key))
            }
            // Case 5: client restart. The old record stays until CREATE_SESSION confirms the new
            // one.
            (false, false, true) => {
                self.check_restart(key, credential)
                    .map_err(|_| self.note_name_conflict(key, credential.address))?;
                self.add_unconfirmed(args, credential, wanted, now)
            }
            // Case 3: name collision. Only an expired or stateless client yields its name.
            (false, _, false) => {
                if client.has_state_to_lose() {
                    return Err(self.note_name_conflict(key, credential.address));
                }
                self.check_name_is_free(Family::V41, &args.owner.id, credential)?;
                self.expire(key);
                self.add_unconfirmed(args, credential, wanted, now)
            }
        }
    }

    fn add_unconfirmed(
        &mut self,
        args: &ExchangeIdArgs<'_>,
        credential: Credential<'_>,
        protection: Protection,
        now: u64,
    ) -> Result<ExchangedId, Status> {
        self.check_name_is_free(Family::V41, &args.owner.id, credential)?;
        if let NameRecords { unconfirmed: Some(old), .. } = self.named(Family::V41, &args.owner.id)
        {
            self.expire(old);
        }
        // §18.36.4.
        let next = CreateSeq(1);
        let v41 = V41 {
            sessions: Vec::new(),
            next,
            last: None,
            protection,
            reclaim_complete: false,
            reclaims_again: false,
            implementation: None,
        };
        let key = self.add_client(
            &args.owner.id,
            args.owner.verifier,
            credential,
            VersionState::V41(Box::new(v41)),
            now,
        )?;
        self.name_implementation(key, args);
        Ok(self.exchanged(key))
    }

    fn name_implementation(&mut self, key: ClientKey, args: &ExchangeIdArgs<'_>) {
        if let (Some(v41), Some(named)) = (self.clients[key].v41_mut(), &args.impl_id) {
            let name = &named.name.0[..named.name.0.len().min(IMPLEMENTATION_LEN_MAX)];
            v41.implementation = Some(String::from_utf8_lossy(name).into());
        }
    }

    fn exchanged(&self, key: ClientKey) -> ExchangedId {
        let client = &self.clients[key];
        let v41 = client.v41().expect("a name of this family has a record of this family");
        let mut flags = ExchangeIdFlags::USE_NON_PNFS;
        if client.confirmed {
            flags |= ExchangeIdFlags::CONFIRMED_R;
        }
        let machine = match &v41.protection {
            Protection::None => None,
            Protection::Machine(ops) => Some(*ops),
        };
        ExchangedId { client: client.id, seq: v41.next, flags, machine }
    }
}
