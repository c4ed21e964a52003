//! OPEN and CLOSE.
//!
//! The server compares a name and its rights at each open(2). The kernel keeps its pages if the
//! change id is that of the last close (close-to-open consistency).

use std::sync::Arc;

use rustix::io::Errno;
use vouch_nfs4::op::{
    Access, AccessArgs, Args, CloseArgs, CreateHow, Op, OpenArgs, OpenClaim, OpenHow, OpenOk,
    Results, ShareAccess, ShareDeny,
};
use vouch_nfs4::{
    Attributes, Bytes, ClientId, Filehandle, Name, OwnerSeq, StateOwner, Stateid, Status,
};
use vouch_nfs4_client::Reply;
use vouch_xdr::Writer;

use super::attributes::access_bits;
use super::names::pack;
use crate::attributes::{Known, WANTED};
use crate::caller::Caller;
use crate::error::{self, Result};
use crate::fuse::{FOPEN_KEEP_CACHE, RELEASE_FLOCK_UNLOCK, Record, Request};
use crate::inode::Inode;
use crate::mount::{Mount, skip};
use crate::open_file::{OpenFile, owner_of};

/// How a file is opened.
struct Opening<'a> {
    number: u64,
    base: Filehandle,
    access: ShareAccess,
    how: OpenHow<'a>,
    claim: OpenClaim<'a>,
    /// Rights that the caller must have, although servers let owners and executors read more.
    rights: Access,
}

impl Mount {
    /// Returns the reply's body, and the number of the open file.
    pub(crate) async fn open(self: &Arc<Self>, request: &Request) -> Result<(Record, u64)> {
        let flags = request.fields().u32().ok_or(Errno::INVAL)?;
        let inode = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let place = inode.place();
        let directory = place.as_ref().and_then(|(node, _)| self.inodes.get(*node).ok());
        let (base, claim) = match (&directory, &place) {
            (Some(directory), Some((_, name))) => (directory.handle, OpenClaim::Null(Name(name))),
            _ => (inode.handle, OpenClaim::Fh),
        };
        // Data of this client that the server lacks would look like a change of another.
        self.flush(&inode, false).await?;
        let opening = Opening {
            number: self.session.next_file(),
            base,
            access: share_access(flags),
            how: OpenHow::NoCreate,
            claim,
            rights: rights(flags),
        };
        let is_own = inode.writes.take_written();
        let opened = match self.send_open(&caller, &opening).await {
            // The kernel looks the name up again: another file may have it now.
            Err(Errno::NOENT) => return Err(Errno::STALE),
            opened => opened?,
        };
        let file = self.register(&opening, inode.clone(), caller, flags, opened.stateid);
        if opened.handle != inode.handle || !opened.is_allowed {
            self.close(&file).await;
            return Err(if opened.is_allowed { Errno::STALE } else { Errno::ACCESS });
        }
        self.note(&inode, &opened.known, is_own);
        let keeps = inode.keep_cache(opened.known.change);
        if !keeps {
            self.device.invalidate_attributes(inode.node);
        }
        let keep = if keeps { FOPEN_KEEP_CACHE } else { 0 };
        Ok((Record::default().u64(file.number).u32(keep).u32(0), file.number))
    }

    pub(crate) async fn create(self: &Arc<Self>, request: &Request) -> Result<(Record, u64)> {
        let mut fields = request.fields();
        let (flags, mode) = (fields.u32().ok_or(Errno::INVAL)?, fields.u32().ok_or(Errno::INVAL)?);
        fields.u64().ok_or(Errno::INVAL)?;
        let name = fields.name().ok_or(Errno::INVAL)?;
        let directory = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let attributes = Attributes {
            mode: Some(mode & 0o7777),
            size: (flags & O_TRUNC != 0).then_some(0),
            ..Attributes::default()
        };
        let mut packed = Writer::new();
        let attrs = pack(&attributes, &mut packed);
        let how = match flags & O_EXCL != 0 {
            true => CreateHow::Guarded(attrs),
            false => CreateHow::Unchecked(attrs),
        };
        let opening = Opening {
            number: self.session.next_file(),
            base: directory.handle,
            access: share_access(flags),
            how: OpenHow::Create(how),
            claim: OpenClaim::Null(Name(name)),
            rights: Access(0),
        };
        let Opened { stateid, handle, known, .. } = self.send_open(&caller, &opening).await?;
        let inode = self.inodes.insert(&handle, &known, Some((directory.node, name)));
        let file = self.register(&opening, inode.clone(), caller, flags, stateid);
        let entry = self.entry(&inode, &known, &directory, false);
        let keep = if inode.keep_cache(known.change) { FOPEN_KEEP_CACHE } else { 0 };
        let record = entry.reply().u64(file.number).u32(keep).u32(0);
        Ok((record, file.number))
    }

    /// mknod(2) of a regular file.
    pub(crate) async fn create_closed(
        self: &Arc<Self>,
        request: &Request,
        name: &[u8],
        mode: u32,
    ) -> Result<Record> {
        let directory = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let attributes = Attributes { mode: Some(mode & 0o7777), ..Attributes::default() };
        let mut packed = Writer::new();
        let opening = Opening {
            number: self.session.next_file(),
            base: directory.handle,
            access: ShareAccess::WRITE,
            how: OpenHow::Create(CreateHow::Guarded(pack(&attributes, &mut packed))),
            claim: OpenClaim::Null(Name(name)),
            rights: Access(0),
        };
        let Opened { stateid, handle, known, .. } = self.send_open(&caller, &opening).await?;
        let inode = self.inodes.insert(&handle, &known, Some((directory.node, name)));
        let file = self.register(&opening, inode.clone(), caller, 0, stateid);
        self.close(&file).await;
        Ok(self.entry(&inode, &known, &directory, false).reply())
    }

    async fn send_open(&self, caller: &Caller, opening: &Opening<'_>) -> Result<Opened> {
        let owner = owner_of(opening.number);
        let open = Args::Open(OpenArgs {
            seq: OwnerSeq(0),
            access: opening.access,
            deny: ShareDeny(0),
            owner: StateOwner { client: ClientId(0), owner: Bytes(&owner) },
            how: opening.how,
            claim: opening.claim,
        });
        let access = Args::Access(AccessArgs { access: opening.rights });
        let reply = self
            .call(caller, |c| {
                let c = c.cached().putfh(&opening.base).op(&open).getfh().getattr(WANTED);
                if opening.rights.is_empty() { c } else { c.op(&access) }
            })
            .await?;
        self.opened(&reply, opening.rights)
    }

    fn opened(&self, reply: &Reply, rights: Access) -> Result<Opened> {
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        let Results::Open(Ok(OpenOk { stateid, .. })) =
            results.next_ok().map_err(|error| match error.status() {
                // open(2) of a symbolic link that another client has put there.
                Some(Status::SYMLINK | Status::WRONG_TYPE | Status::ISDIR) => Errno::STALE,
                _ => error::errno(&error),
            })?
        else {
            return Err(Errno::IO);
        };
        let (handle, known) = self.found(&mut results)?;
        let is_allowed = rights.is_empty()
            || matches!(results.next_ok(), Ok(Results::Access(Ok(ok)))
                if ok.access.contains(rights & ok.supported));
        Ok(Opened { stateid, handle, known, is_allowed })
    }

    fn register(
        &self,
        opening: &Opening<'_>,
        inode: Arc<Inode>,
        caller: Caller,
        flags: u32,
        stateid: Stateid,
    ) -> Arc<OpenFile> {
        let is_direct = flags & O_DIRECT != 0;
        let access = opening.access & ShareAccess::BOTH;
        let file =
            Arc::new(OpenFile::new(opening.number, inode, caller, access, is_direct, stateid));
        self.session.files.lock().insert(file.number, file.clone());
        file
    }

    pub(crate) fn file(&self, number: u64) -> Result<Arc<OpenFile>> {
        self.session.files.lock().get(&number).cloned().ok_or(Errno::BADF)
    }

    pub(crate) async fn flush_file(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let file = self.file(fields.u64().ok_or(Errno::INVAL)?)?;
        fields.u64().ok_or(Errno::INVAL)?;
        let lock_owner = fields.u64().ok_or(Errno::INVAL)?;
        let flushed = self.flush(&file.inode, true).await;
        // close(2) of any descriptor ends the process's POSIX locks on the file.
        self.unlock_all(&file, lock_owner).await;
        flushed.and_then(|()| file.inode.writes.take_error())?;
        file.check()?;
        Ok(Record::default())
    }

    pub(crate) async fn fsync(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let file = self.file(request.fields().u64().ok_or(Errno::INVAL)?)?;
        self.flush(&file.inode, true).await?;
        file.inode.writes.take_error()?;
        file.check()?;
        Ok(Record::default())
    }

    pub(crate) async fn release(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let file = self.file(fields.u64().ok_or(Errno::INVAL)?)?;
        let (_, flags) = (fields.u32(), fields.u32().ok_or(Errno::INVAL)?);
        let lock_owner = fields.u64().ok_or(Errno::INVAL)?;
        if flags & RELEASE_FLOCK_UNLOCK != 0 {
            self.unlock_all(&file, lock_owner).await;
        }
        self.close(&file).await;
        Ok(Record::default())
    }

    /// The reply to an open did not reach the kernel.
    pub(crate) async fn close_number(self: &Arc<Self>, number: u64) {
        if let Ok(file) = self.file(number) {
            self.close(&file).await;
        }
    }

    async fn close(self: &Arc<Self>, file: &Arc<OpenFile>) {
        let _ = self.flush(&file.inode, true).await;
        // Locks of open file descriptions end with the last close.
        for (owner, _) in file.inode.locks.of_file(file.number) {
            self.unlock_all(file, owner).await;
        }
        self.session.files.lock().remove(&file.number);
        let closing = self.session.call_ending(&file.caller, |c| {
            let close = CloseArgs { seq: OwnerSeq(0), stateid: file.stateid() };
            c.cached().putfh(&file.inode.handle).op(&Args::Close(close))
        });
        if let Err(error) = closing.await {
            tracing::debug!("CLOSE: {error}");
        }
    }
}

struct Opened {
    stateid: Stateid,
    handle: Filehandle,
    known: Known,
    is_allowed: bool,
}

fn rights(flags: u32) -> Access {
    let reading = if flags & FMODE_EXEC != 0 { 1 } else { 4 };
    let mask = match flags & O_ACCMODE {
        O_WRONLY => 2,
        O_RDWR => reading | 2,
        _ => reading,
    };
    access_bits(mask, false)
}

fn share_access(flags: u32) -> ShareAccess {
    let access = match flags & O_ACCMODE {
        O_WRONLY => ShareAccess::WRITE,
        O_RDWR => ShareAccess::BOTH,
        _ => ShareAccess::READ,
    };
    access | ShareAccess::WANT_NO_DELEG
}

// Linux, fcntl.h. O_DIRECT differs by CPU.
const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_EXCL: u32 = rustix::fs::OFlags::EXCL.bits();
const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();

/// Linux sets it when a file is opened for execution; open(2) cannot.
const FMODE_EXEC: u32 = 0x20;
