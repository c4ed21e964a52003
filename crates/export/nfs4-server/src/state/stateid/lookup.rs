//! RFC 8881 §8.2 and 9.1; RFC 7530 §9.1.4.

use vouch_nfs4::{StateSeq, Stateid, Status};

use crate::state::client::credential::Family;
use crate::state::id::{ClientKey, FileKey, StateKey};
use crate::state::open::share::{READ, WRITE};
use crate::state::slab::Ended;
use crate::state::stateid::entry::{Entry, Kind};
use crate::state::tables::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoGrant<F> {
    Open(F),
    Delegated(F),
    Anonymous,
}

impl<F: Clone> State<F> {
    /// `client`: of the session; none in 4.0, where the stateid or [`State::authorize_v40_stateid`]
    /// renews the lease. O(1), no allocation.
    #[inline]
    pub(crate) fn io(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        io: Io,
        now: u64,
    ) -> Result<IoGrant<F>, Status> {
        if stateid.is_special() {
            return self.anonymous_io(client, stateid, file, io, now);
        }
        let key = self.resolve(client, stateid, file, now)?;
        let bit = match io {
            Io::Read => READ,
            Io::Write => WRITE,
        };
        let open = match &self.states[key].kind {
            Kind::Open(open) => open,
            Kind::Lock(lock) => match &self.states[lock.open].kind {
                Kind::Open(open) => open,
                _ => unreachable!("an open is removed after its locks"),
            },
            Kind::Delegation(delegation) if delegation.is_directory => {
                return Err(Status::BAD_STATEID);
            }
            Kind::Delegation(delegation) => {
                // A read delegation does not allow writing (§10.4).
                return match io == Io::Read || delegation.write {
                    true => Ok(IoGrant::Delegated(delegation.file.clone())),
                    false => Err(Status::OPENMODE),
                };
            }
            Kind::Copy(_) | Kind::Closed(_) | Kind::Revoked => return Err(Status::BAD_STATEID),
        };
        if !self.owner_confirmed(open) {
            return Err(Status::BAD_STATEID);
        }
        // §18.22.3 and 18.32.3.
        if open.access & bit == 0 {
            return Err(Status::OPENMODE);
        }
        let grant = open.file.clone();
        Ok(IoGrant::Open(grant))
    }

    pub(crate) fn open_file(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Option<F> {
        let key = self.resolve(client, stateid, file, now).ok()?;
        match &self.states[key].kind {
            Kind::Open(open) => Some(open.file.clone()),
            Kind::Delegation(delegation) => Some(delegation.file.clone()),
            _ => None,
        }
    }

    /// Special stateids (§8.2.3), excluded by denials (LOCKED) and grace (§9.1.2).
    fn anonymous_io(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        io: Io,
        now: u64,
    ) -> Result<IoGrant<F>, Status> {
        let bypass = *stateid == Stateid::READ_BYPASS;
        if !bypass && *stateid != Stateid::ANONYMOUS {
            return Err(Status::BAD_STATEID);
        }
        if self.grace.is_active() {
            return Err(Status::GRACE);
        }
        let access = match io {
            Io::Read => crate::state::AccessWithoutOpen::Read,
            Io::Write => crate::state::AccessWithoutOpen::Change,
        };
        self.recall_for_access(file, client, access, now)?;
        let bit = match io {
            Io::Read => READ,
            Io::Write => WRITE,
        };
        if !(bypass && io == Io::Read) {
            self.check_denials(file, bit)?;
        }
        Ok(IoGrant::Anonymous)
    }

    fn check_denials(&mut self, file: &FileKey, bit: u8) -> Result<(), Status> {
        match self.expire_conflicting_opens(
            file,
            None,
            |shares| shares.denies(bit),
            |share| share.deny & bit != 0,
        ) {
            true => Ok(()),
            false => Err(Status::LOCKED),
        }
    }

    /// In 4.0 renews the client's lease, except for a proven principal's opens: those need
    /// [`State::authorize_v40_stateid`].
    #[inline]
    pub(in crate::state) fn resolve(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<StateKey, Status> {
        let (key, entry) = self.look_up(client, stateid)?;
        let renewed = (client.is_none() && entry.opener.is_none()).then_some(entry.client);
        if entry.export != file.export || self.files[entry.file].key != *file {
            return Err(Status::BAD_STATEID);
        }
        if let Some(client) = renewed {
            // RFC 7530 §9.5.
            self.clients[client].renew(now);
        }
        Ok(key)
    }

    #[inline]
    fn look_up(
        &self,
        client: Option<ClientKey>,
        stateid: &Stateid,
    ) -> Result<(StateKey, &Entry<F>), Status> {
        let v41 = client.is_some();
        let Some(key) = self.boot.key(stateid).filter(|_| !stateid.is_special()) else {
            // STALE for an earlier instance (RFC 7530 §9.1.4.2). In 4.1 sessions report the
            // restart.
            return Err(if v41 || stateid.is_special() {
                Status::BAD_STATEID
            } else {
                Status::STALE_STATEID
            });
        };
        let Some(entry) = self.states.get(key) else { return Err(self.status_of_removed(key)) };
        match client {
            // §8.2.4.
            Some(client) if entry.client != client => return Err(Status::BAD_STATEID),
            None if self.clients[entry.client].family() != Family::V40 => {
                return Err(Status::BAD_STATEID);
            }
            _ => {}
        }
        match entry.kind {
            // §8.5.
            Kind::Revoked => return Err(Status::DELEG_REVOKED),
            Kind::Closed(_) => return Err(Status::BAD_STATEID),
            _ => {}
        }
        check_seq(stateid.seq, entry.seq, v41)?;
        Ok((key, entry))
    }

    pub(in crate::state) fn status_of_removed(&self, key: StateKey) -> Status {
        match self.states.how_ended(key) {
            Some(Ended::Expired) => Status::EXPIRED,
            Some(Ended::Revoked) => Status::ADMIN_REVOKED,
            Some(Ended::Freed) | None => Status::BAD_STATEID,
        }
    }

    pub(crate) fn test_stateid(&self, client: ClientKey, stateid: &Stateid) -> Status {
        match self.look_up(Some(client), stateid) {
            Ok(_) => Status::OK,
            Err(status) => status,
        }
    }

    /// LOCKS_HELD for state in use (RFC 8881 §18.38).
    pub(crate) fn free_stateid(
        &mut self,
        client: ClientKey,
        stateid: &Stateid,
    ) -> Result<(), Status> {
        let key = match self.look_up(Some(client), stateid) {
            Ok((key, _)) => key,
            Err(Status::DELEG_REVOKED) => {
                let key = self.boot.key(stateid).expect("the lookup found the entry");
                self.free_revoked(client, key);
                return Ok(());
            }
            Err(status) => return Err(status),
        };
        match &self.states[key].kind {
            Kind::Lock(lock) if lock.ranges.is_empty() => {
                let owner = lock.owner;
                self.drop_lock(key, Ended::Freed);
                self.remove_owner_if_idle(owner);
                Ok(())
            }
            Kind::Copy(copy) if copy.is_done() => {
                self.forget_copy(key);
                Ok(())
            }
            Kind::Open(_) | Kind::Lock(_) | Kind::Delegation(_) | Kind::Copy(_) => {
                Err(Status::LOCKS_HELD)
            }
            Kind::Closed(_) | Kind::Revoked => Err(Status::BAD_STATEID),
        }
    }
}

/// Zero means the newest in 4.1 (§8.2.2). Comparison is modulo 2^32.
#[inline]
fn check_seq(given: StateSeq, newest: StateSeq, v41: bool) -> Result<(), Status> {
    if given == newest || v41 && given.0 == 0 {
        return Ok(());
    }
    match (newest.0.wrapping_sub(given.0) as i32) > 0 {
        true => Err(Status::OLD_STATEID),
        false => Err(Status::BAD_STATEID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_stateid_differs_from_unissued_one() {
        assert_eq!(check_seq(StateSeq(0), StateSeq(7), true), Ok(()));
        assert_eq!(check_seq(StateSeq(0), StateSeq(7), false), Err(Status::OLD_STATEID));
        assert_eq!(check_seq(StateSeq(6), StateSeq(7), true), Err(Status::OLD_STATEID));
        assert_eq!(check_seq(StateSeq(8), StateSeq(7), true), Err(Status::BAD_STATEID));
        assert_eq!(check_seq(StateSeq(u32::MAX), StateSeq(1), true), Err(Status::OLD_STATEID));
    }
}
