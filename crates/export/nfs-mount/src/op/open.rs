//! OPEN and CLOSE.
//!
//! The server compares a name and its rights at each open(2). The kernel keeps its pages if the
//! change id is that of the last close (close-to-open consistency).

use std::sync::Arc;

use rustix::io::Errno;
use vouch_nfs4::op::{
    Access, AccessArgs, Args, CloseArgs, CreateHow, CreateVerifierAttrs, Op, OpenArgs, OpenClaim,
    OpenHow, OpenOk, ReadArgs, Results, ShareAccess, ShareDeny,
};
use vouch_nfs4::{
    Attributes, Bytes, ClientId, Fattr, Filehandle, Name, OwnerSeq, StateOwner, Stateid, Status,
    Verifier,
};
use vouch_nfs4_client::Reply;
use vouch_xdr::Writer;

use super::attributes::access_bits;
use super::names::pack;
use crate::attributes::{Known, WANTED};
use crate::caller::Caller;
use crate::error::{self, Result};
use crate::fuse::{FOPEN_KEEP_CACHE, RELEASE_FLOCK_UNLOCK, Record, Request};
use crate::inode::{Inode, Place};
use crate::mount::{Mount, skip};
use crate::open_file::{Content, OpenFile, owner_of};

/// How a file is opened.
struct Opening<'a> {
    number: u64,
    base: Filehandle,
    access: ShareAccess,
    how: OpenHow<'a>,
    claim: OpenClaim<'a>,
    /// Rights that the caller must have, although servers let owners and executors read more.
    rights: Access,
    /// Bytes to read in the same call.
    content_len: u32,
}

impl Mount {
    /// Returns the reply's body, and the number of the open file. After ESTALE the kernel looks up the name
    /// again.
    pub(crate) async fn open(self: &Arc<Self>, request: &Request) -> Result<(Record, u64)> {
        let flags = request.fields().u32().ok_or(Errno::INVAL)?;
        let inode = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        self.check_other_names(&inode, &caller).await?;
        let place = inode.places().into_iter().next();
        let directory = place.as_ref().and_then(|(node, _)| self.inodes.get(*node).ok());
        let (base, claim) = match (&directory, &place) {
            (Some(directory), Some((_, name))) => (directory.handle, OpenClaim::Null(Name(name))),
            _ => (inode.handle, OpenClaim::Fh),
        };
        // Data of this client that the server lacks would look like a change of another.
        self.flush(&inode, false).await?;
        let content_len = self.content_len(&inode, flags);
        let room = content_len.and_then(|len| self.reserve_content(len as usize));
        let opening = Opening {
            number: self.session.next_file(),
            base,
            access: share_access(flags),
            how: OpenHow::NoCreate,
            claim,
            rights: rights(flags),
            content_len: room.as_ref().and(content_len).unwrap_or(0),
        };
        let (changes, is_own) = (self.changes(), inode.writes.take_written());
        let opened = match self.send_open(&caller, &opening).await {
            Ok(opened) => opened,
            // Another file may have the name now.
            Err(Errno::NOENT | Errno::STALE) => return Err(self.lose_names(place).await),
            Err(error) => return Err(error),
        };
        let file = self.register(&opening, inode.clone(), caller, flags, opened.stateid);
        if opened.handle != inode.handle || !opened.is_allowed {
            self.close(&file).await;
            let is_other = opened.handle != inode.handle;
            return Err(if is_other { self.lose_names(place).await } else { Errno::ACCESS });
        }
        let valid = self.note(&inode, &opened.known, is_own);
        let keeps = {
            let _turn = inode.dropping.lock().await;
            inode.keep_cache(opened.known.change)
        };
        if !keeps {
            self.device.invalidate_attributes(inode.node);
        }
        inode.set_fresh(&opened.known, valid, changes);
        if let (Some(content), Some(room)) = (opened.content, room) {
            file.set_content(Content::new(content, &opened.known, (valid, changes), room));
        }
        let keep = if keeps { FOPEN_KEEP_CACHE } else { 0 };
        Ok((Record::default().u64(file.number).u32(keep).u32(0), file.number))
    }

    /// Of a small file that the kernel will read next.
    fn content_len(&self, inode: &Inode, flags: u32) -> Option<u32> {
        let reads = flags & O_ACCMODE != O_WRONLY && flags & (O_DIRECT | O_TRUNC) == 0;
        let len_max = CONTENT_LEN_MAX.min(self.options.io_len_max);
        let len = inode.size_to_read().filter(|_| reads && !self.options.times.file.1.is_zero())?;
        u32::try_from(len).ok().filter(|len| (1..=len_max).contains(len))
    }

    async fn lose_names(self: &Arc<Self>, places: impl IntoIterator<Item = Place>) -> Errno {
        let places: Vec<Place> = places.into_iter().collect();
        let _ = self.drop_names(places.clone()).await;
        places.iter().for_each(|place| self.inodes.remove_place(place));
        Errno::STALE
    }

    /// The kernel does not say by which of the names that it knows it opens a file. ESTALE if one but the
    /// newest is no longer the file's.
    async fn check_other_names(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        caller: &Caller,
    ) -> Result<()> {
        let mut places = inode.places();
        let mut lost = places.split_off(places.len().min(NAMES_MAX));
        for place in places.into_iter().skip(1) {
            let Ok(directory) = self.inodes.get(place.0) else { continue };
            let reply =
                self.call(caller, |c| c.putfh(&directory.handle).lookup(&place.1).getfh()).await?;
            let mut results = reply.results();
            let is_it = skip(&mut results, &[Op::PUTFH, Op::LOOKUP]).is_ok()
                && matches!(results.next_ok(), Ok(Results::Getfh(Ok(got))) if got.handle == inode.handle);
            if !is_it {
                lost.push(place);
            }
        }
        match lost.is_empty() {
            true => Ok(()),
            false => Err(self.lose_names(lost).await),
        }
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
            true => exclusive(attrs)?,
            false => CreateHow::Unchecked(attrs),
        };
        let opening = Opening {
            number: self.session.next_file(),
            base: directory.handle,
            access: share_access(flags),
            how: OpenHow::Create(how),
            claim: OpenClaim::Null(Name(name)),
            rights: Access(0),
            content_len: 0,
        };
        let (file, known) = self.send_create(&caller, &opening, (&directory, name), flags).await?;
        let inode = &file.inode;
        let entry = self.entry(inode, &known, &directory, false);
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
            how: OpenHow::Create(exclusive(pack(&attributes, &mut packed))?),
            claim: OpenClaim::Null(Name(name)),
            rights: Access(0),
            content_len: 0,
        };
        let (file, known) = self.send_create(&caller, &opening, (&directory, name), 0).await?;
        self.close(&file).await;
        Ok(self.entry(&file.inode, &known, &directory, false).reply())
    }

    async fn send_create(
        self: &Arc<Self>,
        caller: &Caller,
        opening: &Opening<'_>,
        (directory, name): (&Inode, &[u8]),
        flags: u32,
    ) -> Result<(Arc<OpenFile>, Known)> {
        let opened = self.send_open(caller, opening).await?;
        let inode = self.inodes.insert(&opened.handle, &opened.known, Some((directory.node, name)));
        let file = self.register(opening, inode, caller.clone(), flags, opened.stateid);
        if !opened.has_verifier_times {
            return Ok((file, opened.known));
        }
        match self.reset_times(&file.inode, caller).await {
            Ok(known) => Ok((file, known)),
            Err(error) => {
                self.close(&file).await;
                self.inodes.forget(file.inode.node, 1);
                Err(error)
            }
        }
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
        let (stateid, count) = (Stateid::CURRENT, opening.content_len);
        let read = Args::Read(ReadArgs { stateid, offset: 0, count });
        let reply = self
            .call(caller, |c| {
                // Servers cache no reply with much data. Without creation, a repetition is harmless.
                let c = if count == 0 { c.cached() } else { c };
                let c = c.putfh(&opening.base).op(&open).getfh().getattr(WANTED);
                let c = if opening.rights.is_empty() { c } else { c.op(&access) };
                if count == 0 { c } else { c.op(&read) }
            })
            .await?;
        self.opened(&reply, opening.rights, opening.content_len as usize)
    }

    fn opened(&self, reply: &Reply, rights: Access, content_len: usize) -> Result<Opened> {
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        let Results::Open(Ok(OpenOk { stateid, attrs_set, .. })) =
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
        let content = match results.next_ok() {
            // Not more than was asked for: there is no room for it.
            Ok(Results::Read(Ok(ok))) if ok.eof && ok.data.0.len() <= content_len => {
                Some(ok.data.0.to_vec())
            }
            _ => None,
        };
        let has_verifier_times = attrs_set.has(TIME_ACCESS) || attrs_set.has(TIME_MODIFY);
        Ok(Opened { stateid, handle, known, is_allowed, has_verifier_times, content })
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
    /// The server keeps the verifier of an exclusive create in the times (RFC 8881 §18.16.3).
    has_verifier_times: bool,
    /// All of the file's.
    content: Option<Vec<u8>>,
}

/// A repetition after a restart of the server finds its own file by the verifier.
fn exclusive(attrs: Fattr<'_>) -> Result<CreateHow<'_>> {
    let mut verifier = Verifier::default();
    getrandom::fill(&mut verifier.0).map_err(|_| Errno::IO)?;
    Ok(CreateHow::Exclusive41(CreateVerifierAttrs { verifier, attrs }))
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

/// By which the kernel may know a file. Each is compared at an open.
const NAMES_MAX: usize = 4;

/// Larger files cost a call more, and no memory.
const CONTENT_LEN_MAX: u32 = 64 << 10;

const TIME_ACCESS: u32 = 47;
const TIME_MODIFY: u32 = 53;

// Linux, fcntl.h. O_DIRECT differs by CPU.
const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_EXCL: u32 = rustix::fs::OFlags::EXCL.bits();
const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();

/// Linux sets it when a file is opened for execution; open(2) cannot.
const FMODE_EXEC: u32 = 0x20;
