use vouch_nfs4::op::*;
use vouch_nfs4::{Bytes, ClientId, OwnerSeq, StateOwner, Stateid};

use crate::{Client, Error, OpenFile};

/// The locks of one owner on a file.
#[derive(Debug, Clone)]
pub struct Lock {
    /// For operations of your own.
    pub stateid: Stateid,
    seq: OwnerSeq,
}

/// A lock of another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockConflict {
    /// First byte.
    pub offset: u64,
    /// Bytes; all ones for the end of the file.
    pub length: u64,
    /// Read or write lock.
    pub kind: LockType,
}

impl Client {
    /// Locks a range for an owner without locks on the file. Returns the conflicting lock if
    /// another owner holds one.
    pub async fn lock(
        &self,
        file: &mut OpenFile,
        owner: &[u8],
        kind: LockType,
        offset: u64,
        length: u64,
    ) -> Result<Result<Lock, LockConflict>, Error> {
        self.lock_as(file, owner, kind, (offset, length), false).await
    }

    /// `reclaim`: the lock is from before a restart or move of the server.
    pub(crate) async fn lock_as(
        &self,
        file: &mut OpenFile,
        owner: &[u8],
        kind: LockType,
        (offset, length): (u64, u64),
        reclaim: bool,
    ) -> Result<Result<Lock, LockConflict>, Error> {
        let client = if self.minor() == 0 { self.id() } else { ClientId(0) };
        let new = NewLockOwner {
            open_seq: if self.minor() == 0 { file.seq } else { OwnerSeq(0) },
            open: file.stateid,
            lock_seq: OwnerSeq(0),
            owner: StateOwner { client, owner: Bytes(owner) },
        };
        let args = LockArgs { kind, reclaim, offset, length, locker: Locker::New(new) };
        let reply =
            self.compound().cached().putfh(&file.handle).op(&Args::Lock(args)).send().await?;
        file.seq = file.seq.next();
        let mut results = reply.results();
        results.skip(&[Op::PUTFH])?;
        match results.next_result()? {
            Results::Lock(Ok(ok)) => Ok(Ok(Lock { stateid: ok.stateid, seq: OwnerSeq(1) })),
            Results::Lock(Err(LockFailure::Denied(by))) => {
                Ok(Err(LockConflict { offset: by.offset, length: by.length, kind: by.kind }))
            }
            Results::Lock(Err(LockFailure::Status(status))) => {
                Err(Error::Refused { op: Op::LOCK, status })
            }
            _ => Err(Error::Mismatch("expected the result of LOCK")),
        }
    }

    /// Releases a range.
    pub async fn unlock(
        &self,
        file: &OpenFile,
        lock: &mut Lock,
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        let seq = if self.minor() == 0 { lock.seq } else { OwnerSeq(0) };
        let args = LockuArgs { kind: LockType::Write, seq, stateid: lock.stateid, offset, length };
        let reply =
            self.compound().cached().putfh(&file.handle).op(&Args::Locku(args)).send().await?;
        lock.seq = lock.seq.next();
        match reply.result_after(&[Op::PUTFH])? {
            Results::Locku(Ok(ok)) => {
                lock.stateid = ok.stateid;
                Ok(())
            }
            _ => Err(Error::Mismatch("expected the result of LOCKU")),
        }
    }
}
