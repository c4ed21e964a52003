//! Space, holes and copies within the server (RFC 7862).

use std::sync::Arc;

use rustix::io::Errno;
use vouch_nfs4::List;
use vouch_nfs4::op::{
    AllocateArgs, Args, CopyArgs, DataContent, DeallocateArgs, Op, Results, SeekArgs, StableHow,
};

use crate::error::{self, Result};
use crate::fuse::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, Record, Request};
use crate::mount::{Mount, skip};

impl Mount {
    pub(crate) async fn fallocate(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let file = self.file(fields.u64().ok_or(Errno::INVAL)?)?;
        let offset = fields.u64().ok_or(Errno::INVAL)?;
        let length = fields.u64().ok_or(Errno::INVAL)?;
        let mode = fields.u32().ok_or(Errno::INVAL)?;
        let punches = match mode {
            _ if !self.has_ranges => return Err(Errno::OPNOTSUPP),
            0 => false,
            mode if mode == FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE => true,
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.flush(&file.inode, false).await?;
        let reply = self
            .call(&file.caller, |c| {
                let stateid = file.stateid();
                let args = match punches {
                    true => Args::Deallocate(DeallocateArgs { stateid, offset, length }),
                    false => Args::Allocate(AllocateArgs { stateid, offset, length }),
                };
                c.cached().putfh(&file.inode.handle).op(&args)
            })
            .await?;
        let operation = if punches { Op::DEALLOCATE } else { Op::ALLOCATE };
        skip(&mut reply.results(), &[Op::PUTFH, operation])?;
        file.inode.writes.mark_written();
        Ok(Record::default())
    }

    pub(crate) async fn lseek(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let file = self.file(fields.u64().ok_or(Errno::INVAL)?)?;
        let offset = fields.u64().ok_or(Errno::INVAL)?;
        let what = match fields.u32().ok_or(Errno::INVAL)? {
            SEEK_DATA => DataContent::Data,
            SEEK_HOLE => DataContent::Hole,
            _ => return Err(Errno::INVAL),
        };
        if !self.has_ranges {
            // The kernel then takes the whole file for data.
            return Err(Errno::NOSYS);
        }
        self.flush(&file.inode, false).await?;
        let reply = self
            .call(&file.caller, |c| {
                let args = Args::Seek(SeekArgs { stateid: file.stateid(), offset, what });
                c.putfh(&file.inode.handle).op(&args)
            })
            .await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        match results.next_ok().map_err(|error| error::errno(&error)) {
            Ok(Results::Seek(Ok(ok))) if ok.eof && what == DataContent::Data => Err(Errno::NXIO),
            Ok(Results::Seek(Ok(ok))) => Ok(Record::default().u64(ok.offset)),
            Ok(_) => Err(Errno::IO),
            Err(Errno::OPNOTSUPP) => Err(Errno::NOSYS),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn copy_file_range(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let mut fields = request.fields();
        let mut next = || fields.u64().ok_or(Errno::INVAL);
        let (from, source_offset, _node) = (self.file(next()?)?, next()?, next()?);
        let (to, destination_offset, len) = (self.file(next()?)?, next()?, next()?);
        if !self.has_ranges {
            return Err(Errno::OPNOTSUPP);
        }
        self.flush(&from.inode, false).await?;
        self.flush(&to.inode, false).await?;
        // A count of zero would mean up to the end of the file.
        let count = len.min(COPY_LEN_MAX);
        if count == 0 {
            return Ok(Record::default().u32(0).u32(0));
        }
        let reply = self
            .call(&to.caller, |c| {
                let args = Args::Copy(CopyArgs {
                    source: from.stateid(),
                    destination: to.stateid(),
                    source_offset,
                    destination_offset,
                    count,
                    consecutive: true,
                    synchronous: true,
                    source_server: List::default(),
                });
                let c = c.cached().putfh(&from.inode.handle).savefh();
                c.putfh(&to.inode.handle).op(&args)
            })
            .await?;
        to.inode.writes.mark_written();
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH, Op::SAVEFH, Op::PUTFH])?;
        let Results::Copy(Ok(ok)) = results.next_ok().map_err(|error| error::errno(&error))? else {
            return Err(Errno::IO);
        };
        if ok.response.callback.is_some() {
            return Err(Errno::IO);
        }
        if ok.response.committed != StableHow::FileSync {
            self.commit_copied(&to, ok.response.verifier).await?;
        }
        Ok(Record::default().u32(ok.response.count as u32).u32(0))
    }
}

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// One call should not take longer than other calls wait.
const COPY_LEN_MAX: u64 = 256 << 20;
