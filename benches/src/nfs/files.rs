//! Load on the data of one file: reads in sequence and at random, writes in sequence.

use std::sync::Arc;

use vouch_nfs4::op::{Args, CommitArgs, Op, ReadArgs, Results, StableHow};
use vouch_nfs4::{Filehandle, Stateid, Wire as _};
use vouch_nfs4_client::{Error, OpenCall, ReplyBody};
use vouch_xdr::Writer;

use super::pages::{self, PAGE_LEN};
use super::{Gain, Work, putfh};
use crate::tree;

/// An open file.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    /// Its handle.
    pub handle: Filehandle,
    /// The open.
    pub stateid: Stateid,
}

/// Bytes of a sequential transfer.
pub const BLOCK_LEN: usize = 1 << 20;

/// Reads blocks one after another, from the front again after the last, or pages at random.
#[derive(Debug)]
pub struct Reads {
    file: Opened,
    pages: u64,
    /// Bytes a call.
    len: usize,
    /// State of the random sequence; 0 for reads in sequence.
    seed: u64,
    next: u64,
    /// First page of each lane's call.
    asked: Vec<u64>,
}

impl Reads {
    /// Blocks in sequence.
    pub fn in_sequence(file: Opened, pages: u64, depth: usize) -> Self {
        Self { file, pages, len: BLOCK_LEN, seed: 0, next: 0, asked: vec![0; depth] }
    }

    /// Pages at random.
    pub fn at_random(file: Opened, pages: u64, depth: usize) -> Self {
        Self { file, pages, len: PAGE_LEN, seed: 0x9e37_79b9_7f4a_7c15, next: 0, asked: vec![0; depth] }
    }
}

impl Work for Reads {
    fn next(&mut self, lane: usize) -> bool {
        if self.seed == 0 {
            self.asked[lane] = self.next;
            self.next = (self.next + (self.len / PAGE_LEN) as u64) % self.pages;
        } else {
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            self.asked[lane] = self.seed % self.pages;
        }
        true
    }

    fn write(&mut self, lane: usize, call: &mut OpenCall, w: &mut Writer) {
        putfh(&self.file.handle, call, w);
        let (offset, count) = (self.asked[lane] * PAGE_LEN as u64, self.len as u32);
        call.op(w, &Args::Read(ReadArgs { stateid: self.file.stateid, offset, count }));
    }

    fn reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        body.next_ok()?;
        let Results::Read(Ok(ok)) = body.next_ok()? else { return Err(Error::Mismatch("not READ's result")) };
        match ok.data.len() == self.len && pages::are(&ok.data, self.asked[lane]) {
            true => Ok(Gain { bytes: self.len as u64, done: 1 }),
            false => Err(Error::Mismatch("other data than the file's")),
        }
    }
}

/// Writes blocks one after another; after the last a COMMIT, and then from the front again.
#[derive(Debug)]
pub struct Writes {
    file: Opened,
    blocks: u64,
    next: u64,
    /// Blocks written of this round.
    written: u64,
    /// Of each lane.
    data: Vec<Arc<[u8]>>,
    /// What each lane does.
    doing: Vec<Option<u64>>,
}

impl Writes {
    /// To a file of so many blocks.
    pub fn new(file: Opened, blocks: u64, depth: usize) -> Self {
        let page = tree::noise(PAGE_LEN, 5);
        let data = (0..depth).map(|_| Arc::from(page.repeat(BLOCK_LEN / PAGE_LEN))).collect();
        Self { file, blocks, next: 0, written: 0, data, doing: vec![None; depth] }
    }
}

impl Work for Writes {
    fn next(&mut self, lane: usize) -> bool {
        self.doing[lane] = Some(self.next % self.blocks);
        if self.written >= self.blocks {
            self.written -= self.blocks;
            self.doing[lane] = None;
        } else {
            self.next += 1;
        }
        true
    }

    fn write(&mut self, lane: usize, call: &mut OpenCall, w: &mut Writer) {
        putfh(&self.file.handle, call, w);
        let Some(block) = self.doing[lane] else {
            call.op(w, &Args::Commit(CommitArgs { offset: 0, count: 0 }));
            return;
        };
        let data = Arc::get_mut(&mut self.data[lane]).expect("the call before has left, for its reply has come");
        pages::stamp(data, block * (BLOCK_LEN / PAGE_LEN) as u64);
        // WRITE up to its data, which follows from where it is.
        let mut head = Writer::new();
        head.u32(Op::WRITE.0);
        self.file.stateid.encode(&mut head);
        head.u64(block * BLOCK_LEN as u64);
        StableHow::Unstable.encode(&mut head);
        head.u32(BLOCK_LEN as u32);
        call.raw(w, head.as_bytes(), 1);
    }

    fn data(&mut self, lane: usize) -> Option<Arc<[u8]>> {
        self.doing[lane].map(|_| self.data[lane].clone())
    }

    fn reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        body.next_ok()?;
        match (body.next_ok()?, self.doing[lane]) {
            (Results::Write(Ok(ok)), Some(_)) if ok.count as usize == BLOCK_LEN => {
                self.written += 1;
                Ok(Gain { bytes: BLOCK_LEN as u64, done: 1 })
            }
            (Results::Commit(Ok(_)), None) => Ok(Gain::default()),
            _ => Err(Error::Mismatch("not all was written")),
        }
    }
}
