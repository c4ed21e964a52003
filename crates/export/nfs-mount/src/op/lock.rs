//! Byte-range locks.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::Notify;
use vouch_nfs4::OwnerSeq;
use vouch_nfs4::op::{
    Args, FreeStateidArgs, LockFailure, LockType, LocktArgs, LockuArgs, Op, Results,
};

use crate::error::{self, Result};
use crate::fuse::{Record, Request};
use crate::locks::{END, LockRange, conflict, lock_owner};
use crate::mount::{Mount, skip};
use crate::open_file::OpenFile;

/// `fuse_lk_in`.
struct Wish {
    file: Arc<OpenFile>,
    owner: u64,
    range: LockRange,
    is_unlock: bool,
}

impl Mount {
    fn lock_wish(&self, request: &Request) -> Result<Wish> {
        let mut fields = request.fields();
        let mut next = || fields.u64().ok_or(Errno::INVAL);
        let (file, owner, start, end) = (self.file(next()?)?, next()?, next()?, next()?);
        let kind = fields.u32().ok_or(Errno::INVAL)?;
        let range = LockRange { start, end: end.min(END), is_write: kind == F_WRLCK };
        match start <= range.end {
            true => Ok(Wish { file, owner, range, is_unlock: kind == F_UNLCK }),
            false => Err(Errno::INVAL),
        }
    }

    /// A lock that would conflict.
    pub(crate) async fn getlk(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let Wish { file, owner, range, .. } = self.lock_wish(request)?;
        let bytes = owner.to_ne_bytes();
        let args = Args::Lockt(LocktArgs {
            kind: range.kind(false),
            offset: range.start,
            length: range.length(),
            owner: lock_owner(&bytes),
        });
        let reply = self.call(&file.caller, |c| c.putfh(&file.inode.handle).op(&args)).await?;
        skip(&mut reply.results(), &[Op::PUTFH])?;
        let results = reply.to_vec().map_err(|error| error::errno(&error))?;
        let (found, kind) = match results.get(1) {
            Some(Results::Lockt(Ok(()))) => (range, F_UNLCK),
            Some(Results::Lockt(Err(LockFailure::Denied(denied)))) => {
                let kind = if denied.kind == LockType::Write { F_WRLCK } else { F_RDLCK };
                (conflict(denied), kind)
            }
            Some(Results::Lockt(Err(LockFailure::Status(status)))) => {
                return Err(error::errno_of(*status));
            }
            _ => return Err(Errno::IO),
        };
        // The process that holds it may be on another machine.
        Ok(Record::default().u64(found.start).u64(found.end).u32(kind).u32(0))
    }

    /// `interrupt`: ends the wait for the lock.
    pub(crate) async fn setlk(
        self: &Arc<Self>,
        request: &Request,
        waits: bool,
        interrupt: &Notify,
    ) -> Result<Record> {
        let Wish { file, owner, range, is_unlock } = self.lock_wish(request)?;
        if is_unlock {
            // Others see the data as soon as they get the lock.
            self.flush(&file.inode, true).await?;
            self.unlock(&file, owner, range).await?;
            return Ok(Record::default());
        }
        file.check()?;
        let mut pause = POLL_MIN;
        while self.try_lock(&file, owner, range, waits).await?.is_some() {
            if !waits {
                return Err(Errno::AGAIN);
            }
            tokio::select! {
                () = interrupt.notified() => return Err(Errno::INTR),
                () = self.lock_freed.notified() => {}
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(POLL_MAX),
            }
        }
        self.refresh_under_lock(&file).await;
        Ok(Record::default())
    }

    /// `None` if the lock is granted, else the lock in its way.
    async fn try_lock(
        &self,
        file: &Arc<OpenFile>,
        owner: u64,
        range: LockRange,
        waits: bool,
    ) -> Result<Option<LockRange>> {
        let locks = &file.inode.locks;
        let _turn = locks.turn.lock().await;
        let bytes = owner.to_ne_bytes();
        let reply = self
            .call(&file.caller, |c| {
                let args = locks.request(file, &bytes, (range, waits, false));
                c.cached().putfh(&file.inode.handle).op(&args)
            })
            .await?;
        locks.accept(&reply, file, owner, range).map_err(|error| error::errno(&error))
    }

    /// Pages from before the lock may be old. With attributes of now, the next ones cause no further drop of
    /// pages, during which the kernel would ignore them and read up to the size from before.
    async fn refresh_under_lock(self: &Arc<Self>, file: &Arc<OpenFile>) {
        let changes = self.changes();
        let attributes = self.attributes(&file.inode, &file.caller).await;
        self.drop_pages(&file.inode).await;
        if let Ok((known, valid)) = attributes {
            file.inode.set_fresh(&known, valid, changes);
        }
    }

    async fn unlock(&self, file: &Arc<OpenFile>, owner: u64, range: LockRange) -> Result<()> {
        let locks = &file.inode.locks;
        let _turn = locks.turn.lock().await;
        if locks.stateid(owner).is_none() {
            return Ok(());
        }
        let reply = self
            .session
            .call_ending(&file.caller, |c| {
                let stateid = locks.stateid(owner).unwrap_or_default();
                let (offset, length) = (range.start, range.length());
                let kind = LockType::Write;
                let args = LockuArgs { kind, seq: OwnerSeq(0), stateid, offset, length };
                c.cached().putfh(&file.inode.handle).op(&Args::Locku(args))
            })
            .await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        let stateid = match results.next_ok() {
            Ok(Results::Locku(Ok(ok))) => ok.stateid,
            _ => locks.stateid(owner).unwrap_or_default(),
        };
        if let Some(stateid) = locks.released(owner, stateid, range) {
            // A server keeps an owner without locks until its file is closed.
            let args = Args::FreeStateid(FreeStateidArgs { stateid });
            let _ = self.session.client.compound().op(&args).send().await;
        }
        Ok(())
    }

    /// Ends all locks of an owner on the file.
    pub(crate) async fn unlock_all(&self, file: &Arc<OpenFile>, owner: u64) {
        if file.inode.locks.stateid(owner).is_some() {
            let all = LockRange { start: 0, end: END, is_write: true };
            if let Err(error) = self.unlock(file, owner, all).await {
                tracing::warn!("LOCKU: {error}");
            }
        }
    }
}

const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;

/// Without a notice from the server.
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(2);
