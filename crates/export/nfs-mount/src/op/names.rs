//! Names: look-up, creation, removal, links.

use std::sync::Arc;

use rustix::io::Errno;
use vouch_nfs4::attr::{FileType, SpecData};
use vouch_nfs4::op::{Args, CreateArgs, CreateType, LinkArgs, Op, RemoveArgs, RenameArgs, Results};
use vouch_nfs4::{Attributes, Fattr, Filehandle, Name, Wire as _};
use vouch_nfs4_client::ReplyBody;
use vouch_xdr::{Reader, Writer};

use crate::attributes::{Known, WANTED, device_parts};
use crate::caller::Caller;
use crate::error::{self, Result};
use crate::fuse::{Entry, Record, Request};
use crate::inode::Inode;
use crate::mount::{Mount, skip};

impl Mount {
    pub(crate) async fn lookup(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let name = request.fields().name().ok_or(Errno::INVAL)?;
        let caller = self.callers.of(&request.header);
        let directory = self.inodes.get(request.header.node)?;
        match self.look_up(&directory, name, &caller).await {
            Ok(entry) => Ok(entry.reply()),
            // The kernel may remember for a moment that there is no such name.
            Err(Errno::NOENT) => {
                let (min, _) = self.options.times.of(false);
                let name_valid = directory.name_valid(self.is_shared()).min(min);
                Ok(Entry { name_valid, ..Entry::default() }.reply())
            }
            Err(error) => Err(error),
        }
    }

    /// Counts a look-up.
    pub(crate) async fn look_up(
        self: &Arc<Self>,
        directory: &Arc<Inode>,
        name: &[u8],
        caller: &Caller,
    ) -> Result<Entry> {
        let reply = self
            .call(caller, |c| c.putfh(&directory.handle).lookup(name).getfh().getattr(WANTED))
            .await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH, Op::LOOKUP])?;
        let (handle, known) = self.found(&mut results)?;
        self.entry_of(&handle, known, directory, name, caller).await
    }

    /// The results of GETFH and GETATTR.
    pub(crate) fn found(&self, results: &mut ReplyBody<'_>) -> Result<(Filehandle, Known)> {
        match results.next_ok().map_err(|error| error::errno(&error))? {
            Results::Getfh(Ok(got)) => Ok((got.handle, self.converter.next(results)?)),
            _ => Err(Errno::IO),
        }
    }

    async fn entry_of(
        self: &Arc<Self>,
        handle: &Filehandle,
        known: Known,
        directory: &Arc<Inode>,
        name: &[u8],
        caller: &Caller,
    ) -> Result<Entry> {
        let inode = self.inodes.insert(handle, &known, Some((directory.node, name)));
        if !inode.writes.is_dirty() {
            return Ok(self.entry(&inode, &known, directory, inode.writes.take_written()));
        }
        // The server's size may be that before a write whose pages the kernel has.
        match self.attributes(&inode, caller).await {
            Ok((known, _)) => Ok(self.entry(&inode, &known, directory, false)),
            Err(error) => {
                self.inodes.forget(inode.node, 1);
                Err(error)
            }
        }
    }

    pub(crate) async fn mkdir(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let (mode, _umask) = (fields.u32().ok_or(Errno::INVAL)?, fields.u32());
        let name = fields.name().ok_or(Errno::INVAL)?;
        self.create_object(request, name, CreateType::Plain(FileType::Directory), Some(mode)).await
    }

    pub(crate) async fn symlink(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let name = fields.name().ok_or(Errno::INVAL)?;
        let target = fields.name().ok_or(Errno::INVAL)?;
        self.create_object(request, name, CreateType::Symlink(target), None).await
    }

    pub(crate) async fn mknod(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let mode = fields.u32().ok_or(Errno::INVAL)?;
        let device = fields.u32().ok_or(Errno::INVAL)?;
        fields.u64().ok_or(Errno::INVAL)?;
        let name = fields.name().ok_or(Errno::INVAL)?;
        let (major, minor) = device_parts(device);
        let device = SpecData { major, minor };
        let kind = match mode & 0o170_000 {
            0o100_000 | 0 => return self.create_closed(request, name, mode).await,
            0o010_000 => CreateType::Plain(FileType::Fifo),
            0o140_000 => CreateType::Plain(FileType::Socket),
            0o020_000 => CreateType::Character(device),
            0o060_000 => CreateType::Block(device),
            _ => return Err(Errno::INVAL),
        };
        self.create_object(request, name, kind, Some(mode)).await
    }

    async fn create_object(
        self: &Arc<Self>,
        request: &Request,
        name: &[u8],
        kind: CreateType<'_>,
        mode: Option<u32>,
    ) -> Result<Record> {
        let directory = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let attributes = Attributes { mode: mode.map(|mode| mode & 0o7777), ..Default::default() };
        let mut packed = Writer::new();
        let attrs = pack(&attributes, &mut packed);
        let args = Args::Create(CreateArgs { kind, name: Name(name), attrs });
        let reply = self
            .call(&caller, |c| {
                c.cached().putfh(&directory.handle).op(&args).getfh().getattr(WANTED)
            })
            .await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH, Op::CREATE])?;
        let (handle, known) = self.found(&mut results)?;
        Ok(self.entry_of(&handle, known, &directory, name, &caller).await?.reply())
    }

    pub(crate) async fn unlink(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let name = request.fields().name().ok_or(Errno::INVAL)?;
        let directory = self.inodes.get(request.header.node)?;
        let args = Args::Remove(RemoveArgs { name: Name(name) });
        let caller = self.callers.of(&request.header);
        let reply = self.call(&caller, |c| c.cached().putfh(&directory.handle).op(&args)).await?;
        skip(&mut reply.results(), &[Op::PUTFH, Op::REMOVE])?;
        self.inodes.remove_place(&(directory.node, name.into()));
        Ok(Record::default())
    }

    pub(crate) async fn rename(self: &Arc<Self>, request: &Request, flags: bool) -> Result<Record> {
        let mut fields = request.fields();
        let to = self.inodes.get(fields.u64().ok_or(Errno::INVAL)?)?;
        // NFS has neither RENAME_EXCHANGE nor RENAME_NOREPLACE.
        if flags && fields.u64().ok_or(Errno::INVAL)? as u32 != 0 {
            return Err(Errno::INVAL);
        }
        let old = Name(fields.name().ok_or(Errno::INVAL)?);
        let new = Name(fields.name().ok_or(Errno::INVAL)?);
        let from = self.inodes.get(request.header.node)?;
        let args = Args::Rename(RenameArgs { old, new });
        let reply = self
            .call(&self.callers.of(&request.header), |c| {
                c.cached().putfh(&from.handle).savefh().putfh(&to.handle).op(&args)
            })
            .await?;
        skip(&mut reply.results(), &[Op::PUTFH, Op::SAVEFH, Op::PUTFH, Op::RENAME])?;
        self.inodes.move_place(&(from.node, old.0.into()), (to.node, new.0.into()));
        Ok(Record::default())
    }

    pub(crate) async fn link(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let file = self.inodes.get(fields.u64().ok_or(Errno::INVAL)?)?;
        let name = fields.name().ok_or(Errno::INVAL)?;
        let directory = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let args = Args::Link(LinkArgs { name: Name(name) });
        let reply = self
            .call(&caller, |c| {
                c.cached()
                    .putfh(&file.handle)
                    .savefh()
                    .putfh(&directory.handle)
                    .op(&args)
                    .putfh(&file.handle)
                    .getattr(WANTED)
            })
            .await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH, Op::SAVEFH, Op::PUTFH, Op::LINK, Op::PUTFH])?;
        let known = self.converter.next(&mut results)?;
        Ok(self.entry_of(&file.handle, known, &directory, name, &caller).await?.reply())
    }

    pub(crate) async fn readlink(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let inode = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let reply = self.call(&caller, |c| c.putfh(&inode.handle).op(&Args::Readlink)).await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        match results.next_ok().map_err(|error| error::errno(&error))? {
            Results::Readlink(Ok(ok)) => Ok(Record::default().raw(&ok.link)),
            _ => Err(Errno::IO),
        }
    }
}

/// `fattr4` of these attributes, in `w`.
pub(crate) fn pack<'a>(attributes: &Attributes<'_>, w: &'a mut Writer) -> Fattr<'a> {
    attributes.encode(Attributes::KNOWN, w);
    let mut r = Reader::new(w.as_bytes());
    Fattr::decode(&mut r).expect("encoded attributes can be decoded")
}
