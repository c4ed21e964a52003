use std::collections::VecDeque;

use vouch_nfs4::op::{Args, ReadArgs, Results, StableHow, WriteArgs};
use vouch_nfs4::{Bytes, Status};
use vouch_nfs4_client::{CallBuilder, Error, ReplyBody};
use vouch_xdr::Writer;

use super::calls::{Opened, putfh};
use super::session::OTHER_DATA;
use super::{CallResult, CallSource};
use crate::case::{Content, Load, Order};
use crate::content::{Pages, mix};
use crate::page_versions::{self, Block, PageVersions};

/// Each write has new content, so that a read detects a lost write.
#[derive(Debug)]
pub(super) struct ReadWriteMix<'a> {
    pages: Pages,
    file: Opened,
    number: u64,
    load: Load,
    blocks: u64,
    next: u64,
    seed: u64,
    written: &'a PageVersions,
    pending: Vec<Option<Pending>>,
    last: VecDeque<u64>,
    only: Option<Vec<u64>>,
    data: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    number: u64,
    block: Block,
    writes: bool,
    sent: bool,
}

impl<'a> ReadWriteMix<'a> {
    pub(super) fn new(
        pages: &Pages,
        file: Opened,
        number: u64,
        load: Load,
        seed: u64,
        written: &'a PageVersions,
    ) -> Self {
        let (blocks, data) = (page_versions::blocks(&load), vec![0; load.block as usize]);
        // Sessions that read sequentially start at different blocks.
        let next = mix(seed) % blocks;
        let (pages, pending, last) =
            (pages.clone(), vec![None; load.depth as usize], VecDeque::new());
        Self {
            pages,
            file,
            number,
            load,
            blocks,
            next,
            seed,
            written,
            pending,
            last,
            only: None,
            data,
        }
    }

    pub(super) fn read_back_only(mut self, blocks: Vec<u64>) -> Self {
        self.only = Some(blocks);
        self
    }

    pub(super) fn recent_writes(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.last.iter().copied().collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// A write without an answer makes its content uncertain.
    fn release(&mut self, lane: usize) {
        if let Some(Pending { block, writes, sent, .. }) = self.pending[lane].take() {
            if writes && sent {
                self.written.mark_unanswered(block);
            }
            self.written.release(block);
        }
    }

    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.seed)
    }
}

impl Drop for ReadWriteMix<'_> {
    fn drop(&mut self) {
        (0..self.pending.len()).for_each(|lane| self.release(lane));
    }
}

impl CallSource for ReadWriteMix<'_> {
    fn next(&mut self, lane: usize) -> bool {
        self.release(lane);
        let number = match (&mut self.only, self.load.order) {
            (Some(blocks), _) => match blocks.pop() {
                Some(number) => number,
                None => return false,
            },
            (None, Order::Random) => self.random() % self.blocks,
            (None, Order::Sequential) => {
                self.next = (self.next + 1) % self.blocks;
                self.next
            }
        };
        let writes = match self.load.read_percent {
            _ if self.only.is_some() => false,
            100 => false,
            0 => true,
            percent => self.random() % 100 >= u64::from(percent),
        };
        let len = u64::from(self.load.block);
        let (number, block) = match self.only.is_some() || self.load.read_percent == 100 {
            true => (number, PageVersions::share(number, len)),
            false => self.written.take(number, len, self.blocks),
        };
        if self.load.order == Order::Sequential {
            self.next = number;
        }
        self.pending[lane] = Some(Pending { number, block, writes, sent: false });
        true
    }

    fn write(&mut self, lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        let pending = self.pending[lane].as_mut().expect("`next` has prepared it");
        pending.sent = true;
        let Pending { block, writes, .. } = *pending;
        let (offset, stateid) = (block.offset(), self.file.stateid);
        putfh(&self.file.handle, call, w);
        if writes {
            self.written.fill(&self.pages, self.number, block, &mut self.data);
            call.op(
                w,
                &Args::Write(WriteArgs {
                    stateid,
                    offset,
                    stable: StableHow::Unstable,
                    data: Bytes(&self.data),
                }),
            );
        } else {
            call.op(w, &Args::Read(ReadArgs { stateid, offset, count: self.load.block }));
        }
    }

    fn on_reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, Error> {
        let Some(Pending { number, block, .. }) = self.pending[lane] else {
            return Err(Error::Mismatch("a reply without a call"));
        };
        body.next_ok()?;
        match body.next_ok()? {
            Results::Read(Ok(ok)) => {
                if !self.written.holds(&self.pages, self.number, block, &ok.data) {
                    return Err(Error::Mismatch(OTHER_DATA));
                }
            }
            Results::Write(Ok(ok)) if ok.count == self.load.block => {
                self.written.acknowledge(block);
                self.last.truncate(SAMPLE - 1);
                self.last.push_front(number);
            }
            _ => return Err(Error::Mismatch("a short transfer")),
        }
        self.written.release(block);
        self.pending[lane] = None;
        Ok(CallResult { bytes: u64::from(self.load.block), operations: 1 })
    }

    fn on_refusal(&mut self, lane: usize, _status: Status) {
        self.release(lane);
    }
}

/// Blocks to read back after a load that only writes.
const SAMPLE: usize = 256;

#[derive(Debug)]
pub(super) struct WholeFile {
    pages: Pages,
    file: Opened,
    number: u64,
    content: Content,
    len: u64,
    writes: bool,
    next: u64,
    pending: Vec<u64>,
    delayed: Vec<u64>,
    again: Vec<u64>,
    data: Vec<u8>,
    block_len: u64,
}

impl WholeFile {
    pub(super) fn new(
        pages: &Pages,
        file: Opened,
        number: u64,
        content: Content,
        len: u64,
        writes: bool,
        depth: usize,
    ) -> Self {
        let (pending, data) = (vec![0; depth], vec![0; BLOCK_LEN as usize]);
        let (delayed, again) = (Vec::new(), Vec::new());
        Self {
            pages: pages.clone(),
            file,
            number,
            content,
            len,
            writes,
            next: 0,
            pending,
            delayed,
            again,
            data,
            block_len: BLOCK_LEN,
        }
    }

    /// In blocks that the session takes.
    pub(super) fn within(mut self, data_len_max: usize) -> Self {
        let largest = (data_len_max as u64).checked_ilog2().map_or(1, |bits| 1 << bits);
        self.block_len = self.block_len.min(largest);
        self
    }

    fn part(&self, lane: usize) -> (u64, usize) {
        let offset = self.pending[lane];
        (offset, self.block_len.min(self.len - offset) as usize)
    }
}

impl CallSource for WholeFile {
    fn next(&mut self, lane: usize) -> bool {
        if let Some(offset) = self.again.pop() {
            self.pending[lane] = offset;
            return true;
        }
        if self.next >= self.len {
            return false;
        }
        self.pending[lane] = self.next;
        self.next += self.block_len;
        true
    }

    fn write(&mut self, lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        let ((offset, len), stateid) = (self.part(lane), self.file.stateid);
        putfh(&self.file.handle, call, w);
        if self.writes {
            self.pages.fill(self.content, self.number, offset, &mut self.data[..len]);
            call.op(
                w,
                &Args::Write(WriteArgs {
                    stateid,
                    offset,
                    stable: StableHow::Unstable,
                    data: Bytes(&self.data[..len]),
                }),
            );
        } else {
            call.op(w, &Args::Read(ReadArgs { stateid, offset, count: len as u32 }));
        }
    }

    fn on_reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, Error> {
        let (offset, len) = self.part(lane);
        body.next_ok()?;
        match body.next_ok()? {
            Results::Read(Ok(ok))
                if ok.data.len() == len
                    && self.pages.matches(self.content, self.number, offset, &ok.data) => {}
            Results::Read(Ok(_)) => return Err(Error::Mismatch(OTHER_DATA)),
            Results::Write(Ok(ok)) if ok.count as usize == len => {}
            _ => return Err(Error::Mismatch("a short transfer")),
        }
        Ok(CallResult { bytes: len as u64, operations: 1 })
    }

    fn on_refusal(&mut self, lane: usize, status: Status) {
        if status == Status::DELAY {
            self.delayed.push(self.pending[lane]);
        }
    }

    fn retry_delayed(&mut self) -> bool {
        self.again.append(&mut self.delayed);
        !self.again.is_empty()
    }
}

/// Most servers take it in one call.
pub(super) const BLOCK_LEN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_small_sessions() {
        let file = Opened {
            handle: vouch_nfs4::Filehandle::new(b"h").expect("the handle is short"),
            stateid: vouch_nfs4::Stateid::default(),
        };
        let whole = |data_len_max| {
            WholeFile::new(&Pages::new(), file, 0, Content::Random, 3 * BLOCK_LEN, true, 4)
                .within(data_len_max)
        };
        // As Linux grants with less than 4 GB of memory, and with more.
        for (granted, expected) in
            [(524_332, 524_288), (1_048_620, BLOCK_LEN), (usize::MAX, BLOCK_LEN)]
        {
            let mut work = whole(granted);
            assert!(work.next(0) && work.next(1));
            assert_eq!(work.part(1), (expected, expected as usize));
        }
    }

    #[test]
    fn retries_delayed_block_but_not_refused_one() {
        let file = Opened {
            handle: vouch_nfs4::Filehandle::new(b"h").expect("the handle is short"),
            stateid: vouch_nfs4::Stateid::default(),
        };
        let mut work =
            WholeFile::new(&Pages::new(), file, 0, Content::Random, 3 * BLOCK_LEN + 5, true, 4);
        assert!((0..4).all(|lane| work.next(lane)) && !work.next(0));
        work.on_refusal(1, Status::DELAY);
        work.on_refusal(2, Status::NOSPC);
        work.on_refusal(3, Status::DELAY);
        assert!(!work.next(0));
        assert!(work.retry_delayed());
        assert!(work.next(0) && work.next(2) && !work.next(1));
        assert_eq!(
            (work.part(0), work.part(2)),
            ((3 * BLOCK_LEN, 5), (BLOCK_LEN, BLOCK_LEN as usize))
        );
        assert!(!work.retry_delayed());
    }
}
