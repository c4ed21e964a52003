//! HMACs of short messages, laid out whole and hashed in pairs or over all lanes.

use std::mem::MaybeUninit;

use zeroize::{Zeroize, optimization_barrier};

use crate::digest::{BLOCK_LEN_MAX, DIGEST_LEN_MAX, Digest, HmacPads};
use crate::kernels::{HashFew, HashItem, Kernels, SHORTS_MAX, Segment};
use crate::stack::Stack;
use crate::wipe::{wipe_frame, wipe_frames};

pub(crate) const SHORT_LEN_MAX: usize = 440;
const ROOM_LEN: usize = 512;
const _: () = assert!(SHORT_LEN_MAX + 1 + 8 <= ROOM_LEN && ROOM_LEN.is_multiple_of(BLOCK_LEN_MAX));

pub(crate) struct Batch<'k, D: Digest> {
    kernels: &'k Kernels,
    few: HashFew<D::State>,
    rooms: Stack<Room<D>, SHORTS_MAX>,
}

struct Room<D: Digest> {
    state: D::State,
    outer: D::State,
    blocks: usize,
    used: usize,
    bytes: [MaybeUninit<u8>; ROOM_LEN],
}

impl<'k, D: Digest> Batch<'k, D> {
    /// None on CPUs without instructions for this hash.
    pub(crate) fn new(kernels: &'k Kernels) -> Option<Batch<'k, D>> {
        Some(Batch { kernels, few: D::few(kernels)?, rooms: Stack::new() })
    }

    /// At most [`SHORT_LEN_MAX`] bytes. Returns the message's number.
    pub(crate) fn add<'p>(
        &mut self,
        pads: &HmacPads<D>,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> usize {
        let at = self.rooms.len();
        let bytes = [const { MaybeUninit::uninit() }; ROOM_LEN];
        let room = self.rooms.push(Room {
            state: D::INITIAL,
            outer: D::INITIAL,
            blocks: 0,
            used: 0,
            bytes,
        });
        let mut len = 0;
        for part in parts {
            put(&mut room.bytes[len..len + part.len()], part);
            len += part.len();
        }
        room.pad(len, (D::BLOCK_LEN + len) as u64);
        // Field by field: a struct would first be built on the stack.
        room.state = pads.inner;
        room.outer = pads.outer;
        at
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rooms.len() >= self.kernels.shorts
    }

    pub(crate) fn run(&mut self, mut finish: impl FnMut(usize, &[u8; DIGEST_LEN_MAX])) {
        if self.rooms.is_empty() {
            return;
        }
        self.hash();
        for room in self.rooms.iter_mut() {
            put(&mut room.bytes[..D::LEN], &D::output(&room.state)[..D::LEN]);
            room.pad(D::LEN, (D::BLOCK_LEN + D::LEN) as u64);
            room.state = room.outer;
        }
        self.hash();
        // Wiping once for both: it costs as much as hashing a message.
        if self.rooms.len() <= FEW {
            wipe_frame()
        } else {
            wipe_frames()
        }
        for (at, room) in self.rooms.iter().enumerate() {
            finish(at, &D::output(&room.state));
        }
        self.forget();
    }

    /// The caller wipes the stack.
    fn hash(&mut self) {
        if self.rooms.len() <= FEW { self.hash_pairs() } else { self.hash_lanes() }
    }

    #[inline(never)]
    fn hash_pairs(&mut self) {
        for pair in self.rooms.chunks_mut(2) {
            let mut states = [pair[0].state, pair[pair.len() - 1].state];
            let (first, second) = (&pair[0], pair.get(1));
            let starts = [first.bytes.as_ptr(), second.unwrap_or(first).bytes.as_ptr()]
                .map(<*const _>::cast);
            // SAFETY: as many blocks of each room as were laid out.
            unsafe {
                (self.few)(
                    &mut states,
                    starts,
                    [first.blocks, second.map_or(0, |room| room.blocks)],
                )
            };
            pair.iter_mut().zip(&states).for_each(|(room, state)| room.state = *state);
            states.zeroize();
        }
    }

    #[inline(never)]
    fn hash_lanes(&mut self) {
        let mut items = Stack::<HashItem<D::State>, SHORTS_MAX>::new();
        for room in self.rooms.iter_mut() {
            let segment = Segment { start: room.bytes.as_mut_ptr().cast(), blocks: room.blocks };
            items.push(HashItem { state: D::INITIAL, segments: [segment, Segment::NONE] }).state =
                room.state;
        }
        // SAFETY: the segments lie in the rooms, which are not moved.
        unsafe { D::run(self.kernels, &mut items) };
        for (room, item) in self.rooms.iter_mut().zip(items.iter_mut()) {
            room.state = item.state;
            item.state.zeroize();
        }
    }

    fn forget(&mut self) {
        for room in self.rooms.iter_mut() {
            room.state.zeroize();
            room.outer.zeroize();
            // As a whole: `zeroize` works byte by byte.
            room.bytes[..room.used].fill(MaybeUninit::new(0));
            optimization_barrier(&room.bytes);
        }
        self.rooms.clear();
    }
}

impl<D: Digest> Drop for Batch<'_, D> {
    fn drop(&mut self) {
        self.forget();
    }
}

impl<D: Digest> Room<D> {
    fn pad(&mut self, filled: usize, total_len: u64) {
        self.blocks = (filled + 1 + D::COUNT_LEN).div_ceil(D::BLOCK_LEN);
        let len = self.blocks * D::BLOCK_LEN;
        self.used = self.used.max(len);
        let end = len - 8;
        self.bytes[filled].write(0x80);
        self.bytes[filled + 1..end].fill(MaybeUninit::new(0));
        put(&mut self.bytes[end..len], &(8 * total_len).to_be_bytes());
    }
}

fn put(to: &mut [MaybeUninit<u8>], from: &[u8]) {
    // SAFETY: an initialised byte is a valid `MaybeUninit`.
    to.copy_from_slice(unsafe { &*(std::ptr::from_ref(from) as *const [MaybeUninit<u8>]) });
}

/// Messages hashed in pairs by the CPU's instructions; more fill lanes.
const FEW: usize = 4;
