//! Reclaim of opens and locks after a server restart (RFC 8881, section 8.4.2.1).

use vouch_nfs4::op::*;
use vouch_nfs4::{Bytes, ClientId, OwnerSeq, StateOwner, Status};

use crate::{Client, Error, Lock, OpenFile};

impl Client {
    /// Reopens a file during the grace period of a restarted server.
    pub async fn reclaim_open(&self, file: &mut OpenFile) -> Result<(), Error> {
        let client = if self.minor() == 0 { self.id() } else { ClientId(0) };
        let args = OpenArgs {
            seq: OwnerSeq(0),
            access: file.access & ShareAccess::BOTH,
            deny: file.deny,
            owner: StateOwner { client, owner: Bytes(&file.owner) },
            how: OpenHow::NoCreate,
            claim: OpenClaim::Previous(DelegationType::None),
        };
        let reply =
            self.compound().cached().putfh(&file.handle).op(&Args::Open(args)).send().await?;
        match reply.result_after(&[Op::PUTFH])? {
            Results::Open(Ok(ok)) => {
                (file.stateid, file.seq, file.delegation) = (ok.stateid, OwnerSeq(1), None);
                Ok(())
            }
            _ => Err(Error::Mismatch("expected the result of OPEN")),
        }
    }

    /// Locks a range again, after [`Self::reclaim_open`] of the file.
    pub async fn reclaim_lock(
        &self,
        file: &mut OpenFile,
        owner: &[u8],
        kind: LockType,
        offset: u64,
        length: u64,
    ) -> Result<Lock, Error> {
        let lock = self.lock_as(file, owner, kind, (offset, length), true).await?;
        lock.map_err(|_| Error::Refused { op: Op::LOCK, status: Status::DENIED })
    }

    /// Ends reclaims (4.1).
    pub async fn reclaim_complete(&self) -> Result<(), Error> {
        let args = Args::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        let reply = self.compound().cached().op(&args).send().await?;
        reply.results().skip(&[Op::RECLAIM_COMPLETE])
    }
}
