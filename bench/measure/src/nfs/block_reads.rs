use vouch_nfs4::Status;
use vouch_nfs4::op::{Args, ReadArgs, Results};
use vouch_nfs4_client::{CallBuilder, Error, ReplyBody};
use vouch_xdr::Writer;

use super::calls::{Opened, putfh};
use super::session::OTHER_DATA;
use super::{CallResult, CallSource};
use crate::case::{Order, Read};
use crate::content::{Pages, shuffled};

#[derive(Debug)]
pub(super) struct BlockReads {
    pages: Pages,
    file: Opened,
    read: Read,
    blocks: u64,
    next: u64,
    seed: u64,
    offsets: Vec<u64>,
}

impl BlockReads {
    pub(super) fn new(pages: &Pages, file: Opened, read: Read, seed: u64) -> Self {
        let blocks = read.len.div_ceil(u64::from(read.block.max(1)));
        Self { pages: pages.clone(), file, read, blocks, next: 0, seed, offsets: Vec::new() }
    }

    fn len_at(&self, offset: u64) -> u64 {
        u64::from(self.read.block).min(self.read.len - offset)
    }
}

impl CallSource for BlockReads {
    fn next(&mut self, lane: usize) -> bool {
        if self.next == self.blocks {
            return false;
        }
        let block = match self.read.order {
            Order::Sequential => self.next,
            Order::Random => shuffled(self.next, self.blocks, self.seed),
        };
        self.next += 1;
        self.offsets.resize(self.offsets.len().max(lane + 1), 0);
        self.offsets[lane] = block * u64::from(self.read.block);
        true
    }

    fn write(&mut self, lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        let offset = self.offsets[lane];
        putfh(&self.file.handle, call, w);
        call.op(
            w,
            &Args::Read(ReadArgs {
                stateid: self.file.stateid,
                offset,
                count: self.len_at(offset) as u32,
            }),
        );
    }

    fn on_reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, Error> {
        let offset = self.offsets[lane];
        body.next_ok()?;
        let Results::Read(Ok(ok)) = body.next_ok()? else {
            return Err(Error::Mismatch("expected the result of READ"));
        };
        let is_whole = ok.data.len() as u64 == self.len_at(offset);
        match is_whole && self.pages.matches(self.read.content, 0, offset, &ok.data) {
            true => Ok(CallResult { bytes: ok.data.len() as u64, operations: 1 }),
            false => Err(Error::Mismatch(OTHER_DATA)),
        }
    }

    fn on_refusal(&mut self, _lane: usize, _status: Status) {}
}
