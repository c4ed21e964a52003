//! Extended attributes (RFC 8276): those of users only.

use std::sync::Arc;

use rustix::io::Errno;
use vouch_nfs4::op::{
    Args, GetxattrArgs, ListxattrsArgs, Op, RemovexattrArgs, Results, SetxattrArgs, SetxattrOption,
    XATTR_NAMES_MAX,
};
use vouch_nfs4::{Bytes, Cookie, Name};

use crate::error::{self, Result};
use crate::fuse::{Record, Request};
use crate::mount::{Mount, skip};

impl Mount {
    pub(crate) async fn getxattr(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let (len, _) = (fields.u32().ok_or(Errno::INVAL)?, fields.u32());
        let name = self.user_name(fields.name().ok_or(Errno::INVAL)?)?;
        let inode = self.inodes.get(request.header.node)?;
        let args = Args::Getxattr(GetxattrArgs { name });
        let caller = self.callers.of(&request.header);
        let reply = self.call(&caller, |c| c.putfh(&inode.handle).op(&args)).await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        match results.next_ok().map_err(|error| error::errno(&error))? {
            Results::Getxattr(Ok(ok)) => sized(len, ok.value.0),
            _ => Err(Errno::IO),
        }
    }

    pub(crate) async fn listxattr(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let len = request.fields().u32().ok_or(Errno::INVAL)?;
        if !self.has_ranges {
            return Err(Errno::OPNOTSUPP);
        }
        let inode = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let (mut cookie, mut names, mut count) = (Cookie(0), Vec::new(), 0);
        loop {
            let args = Args::Listxattrs(ListxattrsArgs { cookie, max_count: 64 * 1024 });
            let reply = self.call(&caller, |c| c.putfh(&inode.handle).op(&args)).await?;
            let mut results = reply.results();
            skip(&mut results, &[Op::PUTFH])?;
            let Results::Listxattrs(Ok(ok)) =
                results.next_ok().map_err(|error| error::errno(&error))?
            else {
                return Err(Errno::IO);
            };
            for name in ok.names.iter() {
                names.extend_from_slice(PREFIX);
                names.extend_from_slice(name.0);
                names.push(0);
                count += 1;
            }
            if ok.eof {
                return sized(len, &names);
            }
            if ok.names.is_empty() || count > XATTR_NAMES_MAX {
                return Err(Errno::IO);
            }
            cookie = ok.cookie;
        }
    }

    pub(crate) async fn setxattr(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let (len, flags) = (fields.u32().ok_or(Errno::INVAL)?, fields.u32().ok_or(Errno::INVAL)?);
        let name = self.user_name(fields.name().ok_or(Errno::INVAL)?)?;
        let value = Bytes(fields.bytes(len as usize).ok_or(Errno::INVAL)?);
        let option = match flags {
            XATTR_CREATE => SetxattrOption::Create,
            XATTR_REPLACE => SetxattrOption::Replace,
            _ => SetxattrOption::Either,
        };
        self.change_xattr(request, &Args::Setxattr(SetxattrArgs { option, name, value })).await
    }

    pub(crate) async fn removexattr(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let name = self.user_name(request.fields().name().ok_or(Errno::INVAL)?)?;
        self.change_xattr(request, &Args::Removexattr(RemovexattrArgs { name })).await
    }

    async fn change_xattr(self: &Arc<Self>, request: &Request, args: &Args<'_>) -> Result<Record> {
        let inode = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let reply = self.call(&caller, |c| c.cached().putfh(&inode.handle).op(args)).await?;
        inode.writes.mark_written();
        skip(&mut reply.results(), &[Op::PUTFH, args.op()])?;
        Ok(Record::default())
    }

    /// NFS leaves out the prefix, and has no other namespace.
    fn user_name<'a>(&self, name: &'a [u8]) -> Result<Name<'a>> {
        let own = name.strip_prefix(PREFIX).filter(|_| self.has_ranges);
        own.map(Name).ok_or(Errno::OPNOTSUPP)
    }
}

/// A caller with a buffer of zero bytes asks for the length.
fn sized(len: u32, value: &[u8]) -> Result<Record> {
    match len as usize {
        0 => Ok(Record::default().u32(value.len() as u32).u32(0)),
        len if value.len() <= len => Ok(Record::default().raw(value)),
        _ => Err(Errno::RANGE),
    }
}

const PREFIX: &[u8] = b"user.";
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
