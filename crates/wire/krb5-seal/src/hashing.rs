//! Whole blocks come from the message, partial and final blocks from a scratch block.

use zeroize::{Zeroize, optimization_barrier};

use crate::digest::{BLOCK_LEN_MAX, DIGEST_LEN_MAX, Digest, HmacPads};
use crate::kernels::{HashItem, Kernels, LANES_MAX, Segment};
use crate::stack::Stack;
use crate::wipe::wipe_frames;

/// Bytes of each message: the data of all lanes should stay in the nearest caches.
pub(crate) const STEP_LEN: usize = 4096;

pub(crate) fn step_blocks(whole: usize, block_len: usize) -> usize {
    if whole * block_len <= STEP_LEN + STEP_LEN / 8 { whole } else { STEP_LEN / block_len }
}

pub(crate) struct Hashing<D: Digest> {
    state: D::State,
    outer: D::State,
    scratch: [u8; 2 * BLOCK_LEN_MAX],
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Message,
    End,
    Done,
}

impl<D: Digest> Hashing<D> {
    fn new() -> Hashing<D> {
        Hashing {
            state: D::INITIAL,
            outer: D::INITIAL,
            scratch: [0; 2 * BLOCK_LEN_MAX],
            stage: Stage::Message,
        }
    }

    /// The lane must be at its final place, since a move leaves a copy of the key.
    pub(crate) fn begin(&mut self, pads: &HmacPads<D>) {
        // Field by field: a struct would first be built on the stack.
        self.state = pads.inner;
        self.outer = pads.outer;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    pub(crate) fn mac(&self) -> [u8; DIGEST_LEN_MAX] {
        debug_assert!(self.is_done());
        D::output(&self.state)
    }

    pub(crate) fn wipe(&mut self) {
        self.state.zeroize();
        self.outer.zeroize();
        // As a whole: `zeroize` works byte by byte.
        self.scratch = [0; 2 * BLOCK_LEN_MAX];
        optimization_barrier(&self.scratch);
    }
}

pub(crate) trait HashLane<D: Digest> {
    fn hashing(&mut self) -> &mut Hashing<D>;

    fn next(&mut self) -> Blocks;
}

/// Blocks of a lane for one step.
pub(crate) struct Blocks {
    pub(crate) direct: Segment,
    pub(crate) scratch: usize,
    pub(crate) last: bool,
}

/// A lane at the end of its message also gets its outer hash.
///
/// # Safety
/// Every segment that a lane's `next` returns is valid for reads until this returns.
pub(crate) unsafe fn step<D: Digest, L: HashLane<D>>(kernels: &Kernels, lanes: &mut [L]) {
    // In place and in separate statements: a move would leave a copy of the state.
    let mut items = Stack::<HashItem<D::State>, LANES_MAX>::new();
    for lane in lanes.iter_mut() {
        if lane.hashing().is_done() {
            continue;
        }
        let blocks = lane.next();
        let hashing = lane.hashing();
        if blocks.last {
            hashing.stage = Stage::End;
        }
        let scratch = Segment { start: hashing.scratch.as_mut_ptr(), blocks: blocks.scratch };
        let item = items.push(HashItem { state: D::INITIAL, segments: [blocks.direct, scratch] });
        item.state = hashing.state;
    }
    // SAFETY: direct segments by the caller's promise; the others lie in the lanes, which are not
    // moved.
    unsafe { D::run(kernels, &mut items) };

    let mut done = items.iter();
    let mut ends = Stack::<HashItem<D::State>, LANES_MAX>::new();
    for lane in lanes.iter_mut() {
        let hashing = lane.hashing();
        if hashing.is_done() {
            continue;
        }
        hashing.state = done.next().expect("an item for each lane that was not done").state;
        if hashing.stage == Stage::End {
            HmacPads::<D>::outer_block(&hashing.state, &mut hashing.scratch);
            let scratch = Segment { start: hashing.scratch.as_mut_ptr(), blocks: 1 };
            let item =
                ends.push(HashItem { state: D::INITIAL, segments: [scratch, Segment::NONE] });
            item.state = hashing.outer;
        }
    }
    if !ends.is_empty() {
        // SAFETY: the segments lie in the lanes.
        unsafe { D::run(kernels, &mut ends) };
        let mut done = ends.iter();
        for lane in lanes.iter_mut() {
            let hashing = lane.hashing();
            if hashing.stage == Stage::End {
                hashing.state = done.next().expect("an item for each lane at its end").state;
                hashing.stage = Stage::Done;
            }
        }
        // Initial states on the stack are equivalent to the key.
        wipe_frames();
    }
    for item in items.iter_mut().chain(ends.iter_mut()) {
        item.state.zeroize();
    }
}

pub(crate) struct Region<D: Digest> {
    pub(crate) hashing: Hashing<D>,
    start: *mut u8,
    len: usize,
    pub(crate) hashed: usize,
    pub(crate) ready: usize,
}

impl<D: Digest> Region<D> {
    /// # Safety
    /// `start` is valid for reads of `len` bytes as long as the region is used.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Region<D> {
        Region { hashing: Hashing::new(), start, len, hashed: 0, ready: 0 }
    }

    pub(crate) fn skip(&mut self, blocks: usize) -> (*mut u8, &mut D::State) {
        // SAFETY: `hashed <= ready <= len`, inside the region.
        let start = unsafe { self.start.add(self.hashed) };
        self.hashed += blocks * D::BLOCK_LEN;
        debug_assert!(self.hashed <= self.ready);
        (start, &mut self.hashing.state)
    }

    pub(crate) fn next(&mut self) -> Blocks {
        let whole = self.ready / D::BLOCK_LEN - self.hashed / D::BLOCK_LEN;
        let blocks = step_blocks(whole, D::BLOCK_LEN);
        // SAFETY: as above.
        let direct = Segment { start: unsafe { self.start.add(self.hashed) }, blocks };
        self.hashed += blocks * D::BLOCK_LEN;
        let left = self.len - self.hashed;
        let last = self.ready == self.len && left < D::BLOCK_LEN;
        let mut scratch = 0;
        if last {
            // SAFETY: `left` bytes of the region are left, and the scratch has room for them.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.start.add(self.hashed),
                    self.hashing.scratch.as_mut_ptr(),
                    left,
                )
            };
            scratch = crate::digest::pad::<D>(
                &mut self.hashing.scratch,
                left,
                (D::BLOCK_LEN + self.len) as u64,
            );
        }
        Blocks { direct, scratch, last }
    }
}

pub(crate) struct Parts<'a, D: Digest> {
    pub(crate) hashing: Hashing<D>,
    parts: &'a [&'a [u8]],
    rest: &'a [u8],
    header: [u8; 16],
    header_taken: usize,
    len: u64,
}

impl<'a, D: Digest> Parts<'a, D> {
    pub(crate) fn new(parts: &'a [&'a [u8]], header: [u8; 16]) -> Parts<'a, D> {
        let len =
            D::BLOCK_LEN as u64 + 16 + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Parts { hashing: Hashing::new(), parts, rest: &[], header, header_taken: 0, len }
    }

    pub(crate) fn next(&mut self) -> Blocks {
        self.find_rest();
        let whole = self.rest.len() / D::BLOCK_LEN;
        let blocks = step_blocks(whole, D::BLOCK_LEN);
        let (direct, rest) = self.rest.split_at(blocks * D::BLOCK_LEN);
        self.rest = rest;
        let direct = Segment { start: direct.as_ptr().cast_mut(), blocks };
        if blocks < whole {
            return Blocks { direct, scratch: 0, last: false };
        }
        let mut filled = 0;
        while filled < D::BLOCK_LEN {
            self.find_rest();
            if self.rest.is_empty() {
                // The header is the last part, and may span two blocks.
                let header = &self.header[self.header_taken..];
                if header.is_empty() {
                    let scratch =
                        crate::digest::pad::<D>(&mut self.hashing.scratch, filled, self.len);
                    return Blocks { direct, scratch, last: true };
                }
                let count = (D::BLOCK_LEN - filled).min(header.len());
                self.hashing.scratch[filled..filled + count].copy_from_slice(&header[..count]);
                self.header_taken += count;
                filled += count;
            } else {
                let count = (D::BLOCK_LEN - filled).min(self.rest.len());
                let (bytes, rest) = self.rest.split_at(count);
                self.hashing.scratch[filled..filled + count].copy_from_slice(bytes);
                self.rest = rest;
                filled += count;
            }
        }
        Blocks { direct, scratch: 1, last: false }
    }

    fn find_rest(&mut self) {
        while self.rest.is_empty()
            && let [part, parts @ ..] = self.parts
        {
            (self.rest, self.parts) = (part, parts);
        }
    }
}
