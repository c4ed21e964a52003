//! Reads and writes within one open file; and one large file, written or read whole.

use vouch_nfs4::op::{Args, ReadArgs, Results, StableHow, WriteArgs};
use vouch_nfs4::{Bytes, Status};
use vouch_nfs4_client::{Error, OpenCall, ReplyBody};
use vouch_xdr::Writer;

use super::session::OTHER_DATA;
use super::{Gain, Opened, Work, putfh};
use crate::case::{Content, Load, Order};
use crate::content::{Pages, mix};

/// A mix of reads and writes, for as long as it is wanted. What is written is what was there, so that every read can be checked.
#[derive(Debug)]
pub(super) struct Mixed {
    pages: Pages,
    file: Opened,
    number: u64,
    load: Load,
    blocks: u64,
    next: u64,
    seed: u64,
    asked: Vec<Asked>,
    data: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    block: u64,
    writes: bool,
}

impl Mixed {
    pub(super) fn new(pages: &Pages, file: Opened, number: u64, load: Load, seed: u64) -> Self {
        let (blocks, data) = ((load.file_len / u64::from(load.block)).max(1), vec![0; load.block as usize]);
        // Sessions that read one after another begin apart.
        let next = mix(seed) % blocks;
        Self { pages: pages.clone(), file, number, load, blocks, next, seed, asked: vec![Asked::default(); load.depth as usize], data }
    }

    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.seed)
    }
}

impl Work for Mixed {
    fn next(&mut self, lane: usize) -> bool {
        let block = match self.load.order {
            Order::Random => self.random() % self.blocks,
            Order::Sequential => {
                self.next = (self.next + 1) % self.blocks;
                self.next
            }
        };
        let writes = match self.load.read_percent {
            100 => false,
            0 => true,
            percent => self.random() % 100 >= u64::from(percent),
        };
        self.asked[lane] = Asked { block, writes };
        true
    }

    fn write(&mut self, lane: usize, call: &mut OpenCall, w: &mut Writer) {
        let Asked { block, writes } = self.asked[lane];
        let (offset, stateid) = (block * u64::from(self.load.block), self.file.stateid);
        putfh(&self.file.handle, call, w);
        if writes {
            self.pages.fill(Content::Random, self.number, offset, &mut self.data);
            call.op(w, &Args::Write(WriteArgs { stateid, offset, stable: StableHow::Unstable, data: Bytes(&self.data) }));
        } else {
            call.op(w, &Args::Read(ReadArgs { stateid, offset, count: self.load.block }));
        }
    }

    fn reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        let Asked { block, .. } = self.asked[lane];
        let offset = block * u64::from(self.load.block);
        body.next_ok()?;
        match body.next_ok()? {
            Results::Read(Ok(ok)) => {
                let whole = ok.data.len() == self.load.block as usize;
                if !whole || !self.pages.are(Content::Random, self.number, offset, &ok.data) {
                    return Err(Error::Mismatch(OTHER_DATA));
                }
            }
            Results::Write(Ok(ok)) if ok.count == self.load.block => {}
            _ => return Err(Error::Mismatch("a short transfer")),
        }
        Ok(Gain { bytes: u64::from(self.load.block), operations: 1 })
    }

    fn refused(&mut self, _lane: usize, _status: Status) {}
}

/// A whole file, block after block, once.
#[derive(Debug)]
pub(super) struct Whole {
    pages: Pages,
    file: Opened,
    number: u64,
    content: Content,
    len: u64,
    writes: bool,
    next: u64,
    asked: Vec<u64>,
    /// Blocks that the server has put off, and those of them that are asked again.
    put_off: Vec<u64>,
    again: Vec<u64>,
    data: Vec<u8>,
}

impl Whole {
    pub(super) fn new(pages: &Pages, file: Opened, number: u64, content: Content, len: u64, writes: bool, depth: usize) -> Self {
        let (asked, data) = (vec![0; depth], vec![0; BLOCK_LEN as usize]);
        let (put_off, again) = (Vec::new(), Vec::new());
        Self { pages: pages.clone(), file, number, content, len, writes, next: 0, asked, put_off, again, data }
    }

    fn part(&self, lane: usize) -> (u64, usize) {
        let offset = self.asked[lane];
        (offset, BLOCK_LEN.min(self.len - offset) as usize)
    }
}

impl Work for Whole {
    fn next(&mut self, lane: usize) -> bool {
        if let Some(offset) = self.again.pop() {
            self.asked[lane] = offset;
            return true;
        }
        if self.next >= self.len {
            return false;
        }
        self.asked[lane] = self.next;
        self.next += BLOCK_LEN;
        true
    }

    fn write(&mut self, lane: usize, call: &mut OpenCall, w: &mut Writer) {
        let ((offset, len), stateid) = (self.part(lane), self.file.stateid);
        putfh(&self.file.handle, call, w);
        if self.writes {
            self.pages.fill(self.content, self.number, offset, &mut self.data[..len]);
            call.op(w, &Args::Write(WriteArgs { stateid, offset, stable: StableHow::Unstable, data: Bytes(&self.data[..len]) }));
        } else {
            call.op(w, &Args::Read(ReadArgs { stateid, offset, count: len as u32 }));
        }
    }

    fn reply(&mut self, lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        let (offset, len) = self.part(lane);
        body.next_ok()?;
        match body.next_ok()? {
            Results::Read(Ok(ok)) if ok.data.len() == len && self.pages.are(self.content, self.number, offset, &ok.data) => {}
            Results::Read(Ok(_)) => return Err(Error::Mismatch(OTHER_DATA)),
            Results::Write(Ok(ok)) if ok.count as usize == len => {}
            _ => return Err(Error::Mismatch("a short transfer")),
        }
        Ok(Gain { bytes: len as u64, operations: 1 })
    }

    fn refused(&mut self, lane: usize, status: Status) {
        if status == Status::DELAY {
            self.put_off.push(self.asked[lane]);
        }
    }

    fn again(&mut self) -> bool {
        self.again.append(&mut self.put_off);
        !self.again.is_empty()
    }
}

/// Bytes of a block of a whole file: what every server takes at once.
pub(super) const BLOCK_LEN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_put_off_is_asked_again_and_one_that_was_refused_is_not() {
        let file = Opened { handle: vouch_nfs4::Filehandle::new(b"h").expect("a short one"), stateid: vouch_nfs4::Stateid::default() };
        let mut work = Whole::new(&Pages::new(), file, 0, Content::Random, 3 * BLOCK_LEN + 5, true, 4);
        assert!((0..4).all(|lane| work.next(lane)) && !work.next(0));
        work.refused(1, Status::DELAY);
        work.refused(2, Status::NOSPC);
        work.refused(3, Status::DELAY);
        // Not before the pause: a server that asks for patience would be asked at once, over and over.
        assert!(!work.next(0));
        assert!(work.again());
        assert!(work.next(0) && work.next(2) && !work.next(1));
        assert_eq!((work.part(0), work.part(2)), ((3 * BLOCK_LEN, 5), (BLOCK_LEN, BLOCK_LEN as usize)));
        assert!(!work.again());
    }
}
