//! All lanes process as many blocks as the shortest has left; a lane whose item ends takes the next
//! one.

use std::mem::MaybeUninit;

use zeroize::{DefaultIsZeroes, Zeroize, optimization_barrier};

use crate::aes_key::AesKey;
use crate::kernels::interface::{CbcItem, HashItem, Segment};
use crate::wipe::wipe_frame;

#[repr(C, align(64))]
pub(super) struct HashLanes<T, const WORDS: usize, const N: usize> {
    pub(super) state: [[T; N]; WORDS],
    pub(super) data: [*const u8; N],
}

pub(super) type HashWide<T, const WORDS: usize, const N: usize> =
    unsafe fn(&mut HashLanes<T, WORDS, N>, usize);

#[derive(Clone, Copy)]
struct LaneWork {
    item: usize,
    segment: usize,
    left: usize,
}

impl LaneWork {
    fn at(item: usize, segments: &[Segment; 2], segment: usize) -> Option<LaneWork> {
        (segment..2).find(|at| segments[*at].blocks > 0).map(|segment| LaneWork {
            item,
            segment,
            left: segments[segment].blocks,
        })
    }
}

/// Uses `N` lanes while at least `least` items are left, then `few`.
///
/// # Safety
/// As [`HashItem`] says; the CPU has what `wide` and `few` need. `block_len` is the hash's.
pub(super) unsafe fn hash<T, const WORDS: usize, const N: usize>(
    items: &mut [HashItem<[T; WORDS]>],
    block_len: usize,
    wide: HashWide<T, WORDS, N>,
    least: usize,
    few: unsafe fn(&mut [HashItem<[T; WORDS]>]),
) where
    T: DefaultIsZeroes,
{
    if items.len() < least {
        // SAFETY: the caller's promise.
        return unsafe { few(items) };
    }
    let mut lanes = HashLanes { state: [[T::default(); N]; WORDS], data: [std::ptr::null(); N] };
    let mut lane_work: [Option<LaneWork>; N] = [None; N];
    let mut next = 0;
    loop {
        let mut busy = 0;
        let mut blocks = usize::MAX;
        let mut any = 0;
        for lane in 0..N {
            while lane_work[lane].is_none() && next < items.len() {
                lane_work[lane] = LaneWork::at(next, &items[next].segments, 0);
                if let Some(work) = lane_work[lane] {
                    for (words, word) in lanes.state.iter_mut().zip(items[next].state) {
                        words[lane] = word;
                    }
                    lanes.data[lane] = items[next].segments[work.segment].start;
                }
                next += 1;
            }
            if let Some(work) = lane_work[lane] {
                (busy, any) = (busy + 1, lane);
                blocks = blocks.min(work.left);
            }
        }
        if busy == 0 {
            break;
        }
        if busy < least {
            // SAFETY: the caller's promise.
            unsafe { finish(items, block_len, &lanes, &lane_work, few) };
            break;
        }
        for lane in 0..N {
            if lane_work[lane].is_none() {
                lanes.data[lane] = lanes.data[any];
            }
        }
        // SAFETY: busy lanes have `blocks` blocks left, valid for reads; the others read a busy
        // lane's.
        unsafe { wide(&mut lanes, blocks) };
        for lane in 0..N {
            let Some(work) = &mut lane_work[lane] else { continue };
            work.left -= blocks;
            if work.left > 0 {
                continue;
            }
            let item = &mut items[work.item];
            lane_work[lane] = LaneWork::at(work.item, &item.segments, work.segment + 1);
            match lane_work[lane] {
                Some(work) => lanes.data[lane] = item.segments[work.segment].start,
                None => item.state = std::array::from_fn(|word| lanes.state[word][lane]),
            }
        }
    }
    lanes.state = [[T::default(); N]; WORDS];
    optimization_barrier(&lanes.state);
}

/// Hashes the rest of each lane as an item.
///
/// # Safety
/// As [`hash`] says.
unsafe fn finish<T: DefaultIsZeroes, const WORDS: usize, const N: usize>(
    items: &mut [HashItem<[T; WORDS]>],
    block_len: usize,
    lanes: &HashLanes<T, WORDS, N>,
    lane_work: &[Option<LaneWork>; N],
    few: unsafe fn(&mut [HashItem<[T; WORDS]>]),
) {
    let mut rest = crate::stack::Stack::<HashItem<[T; WORDS]>, N>::new();
    for (lane, work) in lane_work.iter().enumerate() {
        let Some(work) = work else { continue };
        let segments = items[work.item].segments;
        let done = segments[work.segment].blocks - work.left;
        // SAFETY: `done` is at most the length of the segment.
        let start = unsafe { segments[work.segment].start.add(done * block_len) };
        let current = Segment { start, blocks: work.left };
        let after = if work.segment == 0 { segments[1] } else { Segment::NONE };
        let item = rest.push(HashItem { state: [T::default(); WORDS], segments: [current, after] });
        for (word, words) in item.state.iter_mut().zip(&lanes.state) {
            *word = words[lane];
        }
    }
    // SAFETY: the caller's promise.
    unsafe { few(&mut rest) };
    for (work, item) in lane_work.iter().flatten().zip(rest.iter_mut()) {
        items[work.item].state = item.state;
        item.state.zeroize();
    }
}

#[repr(C, align(64))]
pub(super) struct CbcLanes<const N: usize> {
    pub(super) keys: [[MaybeUninit<[u8; 16]>; N]; 15],
    pub(super) chain: [[u8; 16]; N],
    pub(super) data: [*mut u8; N],
}

impl<const N: usize> CbcLanes<N> {
    pub(super) fn new(data: [*mut u8; N]) -> CbcLanes<N> {
        CbcLanes {
            keys: [const { [const { MaybeUninit::uninit() }; N] }; 15],
            chain: [[0; 16]; N],
            data,
        }
    }

    pub(super) fn set_key(&mut self, lane: usize, key: &AesKey) {
        for (column, round_key) in self.keys.iter_mut().zip(&key.encrypt).take(key.rounds + 1) {
            column[lane].write(*round_key);
        }
    }

    pub(super) fn wipe_keys(&mut self, count: usize) {
        for column in &mut self.keys {
            column[..count].fill(MaybeUninit::new([0; 16]));
        }
        optimization_barrier(&self.keys);
    }
}

/// Lanes may repeat a message and write equal data, so all blocks are read before any is written.
pub(super) type CbcWide<const N: usize> = unsafe fn(&mut CbcLanes<N>, usize);

/// `[rounds: 10 or 14][every lane has the same key]`.
pub(super) struct CbcForms<const N: usize> {
    pub(super) rounds10: [CbcWide<N>; 2],
    pub(super) rounds14: [CbcWide<N>; 2],
}

/// # Safety
/// As [`CbcItem`] says; the CPU has what `forms` need.
pub(super) unsafe fn encrypt<const N: usize>(items: &mut [CbcItem], forms: &CbcForms<N>) {
    let Some(first) = items.first() else { return };
    // SAFETY: the caller's promise.
    let rounds = unsafe { (*first.key).rounds };
    let forms = if rounds == 10 { &forms.rounds10 } else { &forms.rounds14 };
    let mut lanes = CbcLanes::new([std::ptr::null_mut(); N]);
    let mut lane_work: [Option<LaneWork>; N] = [None; N];
    let mut holds = [std::ptr::null::<AesKey>(); N];
    let mut next = 0;
    loop {
        let mut any = None;
        let mut blocks = usize::MAX;
        for lane in 0..N {
            while lane_work[lane].is_none() && next < items.len() {
                lane_work[lane] = LaneWork::at(next, &items[next].segments, 0);
                if let Some(work) = lane_work[lane] {
                    lanes.chain[lane] = items[next].chain;
                    lanes.data[lane] = items[next].segments[work.segment].start;
                }
                next += 1;
            }
            if let Some(work) = lane_work[lane] {
                any = Some(lane);
                blocks = blocks.min(work.left);
            }
        }
        let Some(any) = any else { break };
        let mut same = true;
        let key_of = |lane: usize| lane_work[lane].map(|work: LaneWork| items[work.item].key);
        let any_key = key_of(any).expect("a busy lane");
        for lane in 0..N {
            let key = key_of(lane).unwrap_or(any_key);
            same &= key == any_key;
            if lane_work[lane].is_none() {
                (lanes.data[lane], lanes.chain[lane]) = (lanes.data[any], lanes.chain[any]);
            }
        }
        for lane in 0..N {
            let key = key_of(lane).unwrap_or(any_key);
            // With one key for all, the kernel reads only the first lane's.
            if holds[lane] != key && (lane == 0 || !same) {
                // SAFETY: the caller's promise.
                lanes.set_key(lane, unsafe { &*key });
                holds[lane] = key;
            }
        }
        // SAFETY: busy lanes have `blocks` blocks left, ours alone; the others repeat a busy lane.
        unsafe { forms[usize::from(same)](&mut lanes, blocks) };
        for lane in 0..N {
            let Some(work) = &mut lane_work[lane] else { continue };
            work.left -= blocks;
            if work.left > 0 {
                continue;
            }
            let item = &mut items[work.item];
            lane_work[lane] = LaneWork::at(work.item, &item.segments, work.segment + 1);
            match lane_work[lane] {
                Some(work) => lanes.data[lane] = item.segments[work.segment].start,
                None => item.chain = lanes.chain[lane],
            }
        }
    }
    let held = holds.iter().rposition(|key| !key.is_null()).map_or(0, |last| last + 1);
    lanes.wipe_keys(held);
    wipe_frame();
}
