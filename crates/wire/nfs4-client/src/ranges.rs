//! 4.2 only.

use vouch_nfs4::List;
use vouch_nfs4::op::*;

use crate::{Client, Error, OpenFile};

impl Client {
    /// Finds the next data or hole at or after `offset`. `None` at the end of the file.
    pub async fn seek(
        &self,
        file: &OpenFile,
        offset: u64,
        what: DataContent,
    ) -> Result<Option<u64>, Error> {
        let args = SeekArgs { stateid: file.stateid, offset, what };
        let reply = self.compound().putfh(&file.handle).op(&Args::Seek(args)).send().await?;
        match reply.result_after(&[Op::PUTFH])? {
            Results::Seek(Ok(ok)) => Ok((!ok.eof).then_some(ok.offset)),
            _ => Err(Error::Mismatch("expected the result of SEEK")),
        }
    }

    /// Reserves space for a range.
    pub async fn allocate(&self, file: &OpenFile, offset: u64, length: u64) -> Result<(), Error> {
        let args = AllocateArgs { stateid: file.stateid, offset, length };
        let reply =
            self.compound().cached().putfh(&file.handle).op(&Args::Allocate(args)).send().await?;
        reply.results().skip(&[Op::PUTFH, Op::ALLOCATE])
    }

    /// The range then reads as zeros.
    pub async fn deallocate(&self, file: &OpenFile, offset: u64, length: u64) -> Result<(), Error> {
        let args = DeallocateArgs { stateid: file.stateid, offset, length };
        let reply =
            self.compound().cached().putfh(&file.handle).op(&Args::Deallocate(args)).send().await?;
        reply.results().skip(&[Op::PUTFH, Op::DEALLOCATE])
    }

    /// Copies on the server, synchronously or as the server decides.
    pub async fn copy(
        &self,
        from: (&OpenFile, u64),
        to: (&OpenFile, u64),
        count: u64,
        synchronous: bool,
    ) -> Result<CopyOk, Error> {
        let args = CopyArgs {
            source: from.0.stateid,
            destination: to.0.stateid,
            source_offset: from.1,
            destination_offset: to.1,
            count,
            consecutive: true,
            synchronous,
            source_server: List::default(),
        };
        let reply = self
            .compound()
            .cached()
            .putfh(&from.0.handle)
            .savefh()
            .putfh(&to.0.handle)
            .op(&Args::Copy(args))
            .send()
            .await?;
        match reply.result_after(&[Op::PUTFH, Op::SAVEFH, Op::PUTFH])? {
            Results::Copy(Ok(ok)) => Ok(ok),
            _ => Err(Error::Mismatch("expected the result of COPY")),
        }
    }

    /// The files share the blocks.
    pub async fn clone_range(
        &self,
        from: (&OpenFile, u64),
        to: (&OpenFile, u64),
        count: u64,
    ) -> Result<(), Error> {
        let args = CloneArgs {
            source: from.0.stateid,
            destination: to.0.stateid,
            source_offset: from.1,
            destination_offset: to.1,
            count,
        };
        let reply = self
            .compound()
            .cached()
            .putfh(&from.0.handle)
            .savefh()
            .putfh(&to.0.handle)
            .op(&Args::Clone(args))
            .send()
            .await?;
        reply.results().skip(&[Op::PUTFH, Op::SAVEFH, Op::PUTFH, Op::CLONE])
    }
}
