//! Attributes, access, and space of the file system.

use std::sync::Arc;

use rustix::io::Errno;
use vouch_nfs4::op::{Access, AccessArgs, Args, Op, Results, SetattrArgs, ShareAccess};
use vouch_nfs4::{Attributes, Bitmap, Bytes, SetTime, Stateid, Status, Time};
use vouch_xdr::Writer;

use super::names::pack;
use crate::attributes::{Known, WANTED};
use crate::caller::Caller;
use crate::error::{self, Result};
use crate::fuse::{AttrFlags, Fields, Record, Request};
use crate::inode::Inode;
use crate::mount::{Mount, skip};

impl Mount {
    pub(crate) async fn getattr(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let inode = self.inodes.get(request.header.node)?;
        let mut fields = request.fields();
        let (flags, _) = (fields.u32().unwrap_or(0), fields.u32());
        let file = fields.u64().filter(|_| flags & GETATTR_FH != 0);
        if let Some((known, valid)) = inode.take_fresh(self.changes()) {
            return Ok(known.attr.reply(valid));
        }
        let caller = self.caller_of(request, file);
        let (known, valid) = self.attributes(&inode, &caller).await?;
        Ok(known.attr.reply(valid))
    }

    /// That of an open file, whose rights stay after a change of its mode.
    fn caller_of(&self, request: &Request, file: Option<u64>) -> Caller {
        let opened = file.and_then(|number| self.session.files.lock().get(&number).cloned());
        opened.map_or_else(|| self.callers.of(&request.header), |file| file.caller.clone())
    }

    pub(crate) async fn setattr(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let inode = self.inodes.get(request.header.node)?;
        let wish = Wish::read(&mut request.fields()).ok_or(Errno::INVAL)?;
        let opened = wish.file.and_then(|number| self.session.files.lock().get(&number).cloned());
        let caller = self.callers.of(&request.header);
        // Writes before the change must not come after it.
        self.flush(&inode, false).await?;
        let stateid = || {
            let with_size = opened.as_ref().filter(|_| wish.size.is_some());
            with_size.map_or(Stateid::ANONYMOUS, |file| file.stateid())
        };
        let caller = match &opened {
            Some(file) if wish.size.is_some() => &file.caller,
            _ => &caller,
        };
        let writes = opened.as_ref().is_some_and(|file| file.access.contains(ShareAccess::WRITE));
        if wish.size.is_some() && !writes {
            // Servers let an owner truncate a file that the mode protects.
            self.check_access(&inode, Access::MODIFY, caller).await?;
        }
        let owners = (wish.uid.map(decimal), wish.gid.map(decimal));
        let mut outcome = self.set(&inode, caller, &stateid, &wish, &owners).await;
        if outcome == Err(Status::BADOWNER) {
            // The server wants names.
            let names = (
                wish.uid.and_then(|uid| self.converter.user_name(uid)),
                wish.gid.and_then(|gid| self.converter.group_name(gid)),
            );
            if names.0.is_some() != wish.uid.is_some() || names.1.is_some() != wish.gid.is_some() {
                return Err(Errno::INVAL);
            }
            outcome = self.set(&inode, caller, &stateid, &wish, &names).await;
        }
        outcome.map_err(error::errno_of)?;
        inode.writes.mark_written();
        let (known, valid) = self.attributes(&inode, caller).await?;
        if self.is_shared() && inode.is_directory() && wish.mode.is_some_and(|m| m & 0o001 == 0) {
            let _ = self.drop_names(inode.places()).await;
        }
        Ok(known.attr.reply(valid))
    }

    /// Of a new file: to now.
    pub(crate) async fn reset_times(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        caller: &Caller,
    ) -> Result<Known> {
        let attributes = Attributes {
            time_access_set: Some(SetTime::Server),
            time_modify_set: Some(SetTime::Server),
            ..Attributes::default()
        };
        let mut packed = Writer::new();
        let args =
            SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: pack(&attributes, &mut packed) };
        let args = Args::Setattr(args);
        let reply = self
            .call(caller, |c| c.cached().putfh(&inode.handle).op(&args).getattr(WANTED))
            .await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH, Op::SETATTR])?;
        self.converter.next(&mut results)
    }

    async fn set(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        caller: &Caller,
        stateid: &(dyn Fn() -> Stateid + Send + Sync),
        wish: &Wish,
        (owner, group): &(Option<Vec<u8>>, Option<Vec<u8>>),
    ) -> std::result::Result<(), Status> {
        let attributes = Attributes {
            size: wish.size,
            mode: wish.mode.map(|mode| mode & 0o7777),
            owner: owner.as_deref().map(Bytes),
            owner_group: group.as_deref().map(Bytes),
            time_access_set: wish.atime,
            time_modify_set: wish.mtime,
            ..Attributes::default()
        };
        let mut packed = Writer::new();
        let attrs = pack(&attributes, &mut packed);
        let reply = self
            .call(caller, |c| {
                let args = Args::Setattr(SetattrArgs { stateid: stateid(), attrs });
                c.cached().putfh(&inode.handle).op(&args)
            })
            .await
            .map_err(|_| Status::IO)?;
        match reply.status() {
            Status::OK => Ok(()),
            status => Err(status),
        }
    }

    pub(crate) async fn access(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let inode = self.inodes.get(request.header.node)?;
        let mask = request.fields().u32().ok_or(Errno::INVAL)?;
        let wanted = access_bits(mask, inode.is_directory());
        let caller = self.callers.of(&request.header);
        if !wanted.is_empty() {
            self.check_access(&inode, wanted, &caller).await?;
        }
        Ok(Record::default())
    }

    async fn check_access(&self, inode: &Inode, wanted: Access, caller: &Caller) -> Result<()> {
        let args = Args::Access(AccessArgs { access: wanted });
        let reply = self.call(caller, |c| c.putfh(&inode.handle).op(&args)).await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        match results.next_ok().map_err(|error| error::errno(&error))? {
            Results::Access(Ok(ok)) if ok.access.contains(wanted & ok.supported) => Ok(()),
            Results::Access(Ok(_)) => Err(Errno::ACCESS),
            _ => Err(Errno::IO),
        }
    }

    pub(crate) async fn statfs(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let inode = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let reply = self.call(&caller, |c| c.putfh(&inode.handle).getattr(SPACE)).await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        let Results::Getattr(Ok(ok)) = results.next_ok().map_err(|error| error::errno(&error))?
        else {
            return Err(Errno::IO);
        };
        let space = ok.attrs.attributes().map_err(|_| Errno::IO)?;
        let blocks = |bytes: Option<u64>| bytes.unwrap_or(0) / u64::from(BLOCK_LEN);
        Ok(Record::default()
            .u64(blocks(space.space_total))
            .u64(blocks(space.space_free))
            .u64(blocks(space.space_avail))
            .u64(space.files_total.unwrap_or(0))
            .u64(space.files_free.unwrap_or(0))
            .u32(BLOCK_LEN)
            .u32(space.maxname.unwrap_or(255))
            .u32(BLOCK_LEN)
            .zeros(28))
    }
}

/// `fuse_setattr_in`.
#[derive(Debug)]
struct Wish {
    file: Option<u64>,
    size: Option<u64>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<SetTime>,
    mtime: Option<SetTime>,
}

impl Wish {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (valid, _) = (fields.u32()?, fields.u32()?);
        let is_set = |flag: u32| valid & flag != 0;
        let (file, size, _lock_owner) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (atime, mtime, _ctime) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (atime_ns, mtime_ns, _ctime_ns) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (mode, _, uid, gid) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let time = |flag: u32, now: u32, seconds: u64, nanoseconds: u32| {
            let seconds = seconds.cast_signed();
            let given = SetTime::Client(Time { seconds, nanoseconds });
            is_set(flag).then_some(if is_set(now) { SetTime::Server } else { given })
        };
        Some(Self {
            file: is_set(AttrFlags::FH).then_some(file),
            size: is_set(AttrFlags::SIZE).then_some(size),
            mode: is_set(AttrFlags::MODE).then_some(mode),
            uid: is_set(AttrFlags::UID).then_some(uid),
            gid: is_set(AttrFlags::GID).then_some(gid),
            atime: time(AttrFlags::ATIME, AttrFlags::ATIME_NOW, atime, atime_ns),
            mtime: time(AttrFlags::MTIME, AttrFlags::MTIME_NOW, mtime, mtime_ns),
        })
    }
}

/// access(2) to ACCESS.
pub(crate) fn access_bits(mask: u32, is_directory: bool) -> Access {
    let mut wanted = Access(0);
    if mask & 4 != 0 {
        wanted |= Access::READ;
    }
    if mask & 2 != 0 {
        wanted |= Access::MODIFY | Access::EXTEND;
    }
    if mask & 1 != 0 {
        wanted |= if is_directory { Access::LOOKUP } else { Access::EXECUTE };
    }
    wanted
}

fn decimal(number: u32) -> Vec<u8> {
    number.to_string().into_bytes()
}

const GETATTR_FH: u32 = 1;

const SPACE: Bitmap = Bitmap::of(&[21, 22, 23, 29, 42, 43, 44]);

const BLOCK_LEN: u32 = 4096;
