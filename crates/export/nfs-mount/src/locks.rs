//! Byte-range locks of one file. Whole-file locks of flock(2) are byte-range locks of their own
//! owners, as in Linux's client.

use std::collections::HashMap;

use parking_lot::Mutex;
use vouch_nfs4::op::{
    Args, LockArgs, LockDenied, LockFailure, LockType, Locker, NewLockOwner, OldLockOwner, Op,
    Results,
};
use vouch_nfs4::{Bytes, ClientId, OwnerSeq, StateOwner, Stateid};
use vouch_nfs4_client::{Client, Error, Reply};

use crate::open_file::OpenFile;

/// By owner, as the kernel numbers them.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Requests of one file follow each other, because each changes the stateid.
    pub(crate) turn: tokio::sync::Mutex<()>,
    owners: Mutex<HashMap<u64, Owner>>,
}

#[derive(Debug)]
struct Owner {
    /// Number of the open through which it locked first.
    file: u64,
    stateid: Option<Stateid>,
    ranges: Vec<LockRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockRange {
    pub(crate) start: u64,
    /// Inclusive. [`END`] is the end of any file.
    pub(crate) end: u64,
    pub(crate) is_write: bool,
}

/// `OFFSET_MAX` of Linux.
pub(crate) const END: u64 = i64::MAX as u64;

impl LockRange {
    pub(crate) const fn length(&self) -> u64 {
        if self.end >= END { u64::MAX } else { self.end - self.start + 1 }
    }

    /// `wait`: the server may remember the waiter.
    pub(crate) const fn kind(&self, wait: bool) -> LockType {
        match (self.is_write, wait) {
            (true, true) => LockType::WriteWait,
            (true, false) => LockType::Write,
            (false, true) => LockType::ReadWait,
            (false, false) => LockType::Read,
        }
    }
}

/// The conflicting lock.
pub(crate) fn conflict(denied: &LockDenied<'_>) -> LockRange {
    let end = match denied.length {
        u64::MAX => END,
        length => denied.offset.saturating_add(length.saturating_sub(1)).min(END),
    };
    LockRange { start: denied.offset.min(END), end, is_write: denied.kind == LockType::Write }
}

impl Locks {
    /// The operation LOCK, as the first lock of this owner or a later one.
    pub(crate) fn request<'a>(
        &self,
        file: &OpenFile,
        owner: &'a [u8; 8],
        (range, wait, reclaim): (LockRange, bool, bool),
    ) -> Args<'a> {
        let stateid = self.stateid(u64::from_ne_bytes(*owner));
        let locker = match stateid {
            Some(lock) => Locker::Old(OldLockOwner { lock, seq: OwnerSeq(0) }),
            None => Locker::New(NewLockOwner {
                open_seq: OwnerSeq(0),
                open: file.stateid(),
                lock_seq: OwnerSeq(0),
                owner: lock_owner(owner),
            }),
        };
        let (offset, length) = (range.start, range.length());
        Args::Lock(LockArgs { kind: range.kind(wait), reclaim, offset, length, locker })
    }

    /// `Ok(None)` if granted.
    pub(crate) fn accept(
        &self,
        reply: &Reply,
        file: &OpenFile,
        owner: u64,
        range: LockRange,
    ) -> Result<Option<LockRange>, Error> {
        let mut results = reply.results();
        results.skip(&[Op::PUTFH])?;
        // A denial has a body, so the error of `next_ok` lacks it.
        let all = reply.to_vec()?;
        match all.get(1) {
            Some(Results::Lock(Ok(ok))) => {
                self.granted(file.number, owner, ok.stateid, range);
                Ok(None)
            }
            Some(Results::Lock(Err(LockFailure::Denied(denied)))) => Ok(Some(conflict(denied))),
            Some(Results::Lock(Err(LockFailure::Status(status)))) => {
                Err(Error::Refused { op: Op::LOCK, status: *status })
            }
            _ => Err(Error::Mismatch("expected the result of LOCK")),
        }
    }

    /// During recovery. False if another owner has a lock, or the server refuses.
    pub(crate) async fn lock_once(
        &self,
        client: &Client,
        file: &OpenFile,
        owner: u64,
        range: LockRange,
        reclaim: bool,
    ) -> Result<bool, Error> {
        let bytes = owner.to_ne_bytes();
        let args = self.request(file, &bytes, (range, false, reclaim));
        let compound = client.compound().cached().as_caller(file.caller.0.as_ref());
        let reply = compound.putfh(&file.inode.handle).op(&args).send().await?;
        match self.accept(&reply, file, owner, range) {
            Ok(granted) => Ok(granted.is_none()),
            Err(Error::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn granted(&self, file: u64, owner: u64, stateid: Stateid, range: LockRange) {
        let mut owners = self.owners.lock();
        let entry = owners.entry(owner).or_insert_with(|| Owner {
            file,
            stateid: None,
            ranges: Vec::new(),
        });
        entry.stateid = Some(stateid);
        subtract(&mut entry.ranges, range);
        entry.ranges.push(range);
    }

    /// Returns the stateid if the owner has no lock left: it can be freed.
    pub(crate) fn released(
        &self,
        owner: u64,
        stateid: Stateid,
        range: LockRange,
    ) -> Option<Stateid> {
        let mut owners = self.owners.lock();
        let entry = owners.get_mut(&owner)?;
        entry.stateid = Some(stateid);
        subtract(&mut entry.ranges, range);
        entry.ranges.is_empty().then(|| {
            owners.remove(&owner);
            stateid
        })
    }

    pub(crate) fn stateid(&self, owner: u64) -> Option<Stateid> {
        self.owners.lock().get(&owner).and_then(|owner| owner.stateid)
    }

    pub(crate) fn forget_stateid(&self, owner: u64) {
        if let Some(owner) = self.owners.lock().get_mut(&owner) {
            owner.stateid = None;
        }
    }

    /// Owners that locked through this open, with their ranges.
    pub(crate) fn of_file(&self, file: u64) -> Vec<(u64, Vec<LockRange>)> {
        let owners = self.owners.lock();
        owners
            .iter()
            .filter(|(_, owner)| owner.file == file)
            .map(|(number, owner)| (*number, owner.ranges.clone()))
            .collect()
    }
}

pub(crate) fn lock_owner(owner: &[u8; 8]) -> StateOwner<'_> {
    StateOwner { client: ClientId(0), owner: Bytes(owner) }
}

/// Removes `range`. A lock within which it lies becomes two.
fn subtract(ranges: &mut Vec<LockRange>, range: LockRange) {
    let parts: Vec<LockRange> = ranges
        .iter()
        .flat_map(|lock| {
            let before = (lock.start < range.start)
                .then(|| LockRange { end: lock.end.min(range.start.wrapping_sub(1)), ..*lock });
            let after = (lock.end > range.end)
                .then(|| LockRange { start: lock.start.max(range.end + 1), ..*lock });
            before.into_iter().chain(after)
        })
        .collect();
    *ranges = parts;
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(start: u64, end: u64) -> LockRange {
        LockRange { start, end, is_write: true }
    }

    #[test]
    fn unlock_in_the_middle_leaves_two_locks() {
        let locks = Locks::default();
        let stateid = Stateid::default();
        locks.granted(1, 9, stateid, range(0, 99));
        assert_eq!(locks.released(9, stateid, range(10, 19)), None);
        assert_eq!(locks.of_file(1), [(9, vec![range(0, 9), range(20, 99)])]);
        assert_eq!(locks.released(9, stateid, range(0, END)), Some(stateid));
        assert!(locks.of_file(1).is_empty());
    }

    #[test]
    fn new_lock_replaces_its_range() {
        let mut ranges = vec![range(0, 9), range(20, END)];
        subtract(&mut ranges, range(5, 29));
        assert_eq!(ranges, [range(0, 4), range(30, END)]);
        subtract(&mut ranges, range(0, END));
        assert!(ranges.is_empty());
    }

    #[test]
    fn last_byte_of_any_file_is_the_end() {
        assert_eq!((range(0, END).length(), range(5, 5).length()), (u64::MAX, 1));
    }
}
