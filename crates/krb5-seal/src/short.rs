//! HMACs of short messages, as most calls' headers, verifiers and bodies are: laid out whole, and hashed two by two or over all lanes. They take none of the steps by which long
//! messages go side by side, which would cost several times what the hash does.

use zeroize::{Zeroize, optimization_barrier};

use crate::digest::{BLOCK_LEN_MAX, DIGEST_LEN_MAX, Digest, HmacPads};
use crate::kernels::{HashFew, HashItem, Kernels, SHORTS_MAX, Segment};
use crate::stack::Stack;
use crate::wipe::{wipe_frame, wipe_frames};

/// Bytes of the longest message that is short.
pub(crate) const SHORT_LEN_MAX: usize = 440;
/// Room for one, with its padding.
const ROOM_LEN: usize = 512;
const _: () = assert!(SHORT_LEN_MAX + 1 + 8 <= ROOM_LEN && ROOM_LEN.is_multiple_of(BLOCK_LEN_MAX));

/// Up to so many messages as are hashed together.
pub(crate) struct Batch<'k, D: Digest> {
    kernels: &'k Kernels,
    few: HashFew<D::State>,
    rooms: Stack<Room<D>, SHORTS_MAX>,
}

/// A message, laid out.
struct Room<D: Digest> {
    state: D::State,
    outer: D::State,
    blocks: usize,
    bytes: [u8; ROOM_LEN],
}

impl<'k, D: Digest> Batch<'k, D> {
    /// None where the CPU has no instructions for this hash: then short messages are as any other.
    pub(crate) fn new(kernels: &'k Kernels) -> Option<Batch<'k, D>> {
        Some(Batch { kernels, few: D::few(kernels)?, rooms: Stack::new() })
    }

    /// Lays out a message in parts, of [`SHORT_LEN_MAX`] bytes at most, and says the how manyeth it is.
    pub(crate) fn add<'p>(&mut self, pads: &HmacPads<D>, parts: impl IntoIterator<Item = &'p [u8]>) -> usize {
        let at = self.rooms.len();
        let room = self.rooms.push(Room { state: D::INITIAL, outer: D::INITIAL, blocks: 0, bytes: [0; ROOM_LEN] });
        let mut len = 0;
        for part in parts {
            room.bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        room.blocks = (len + 1 + D::COUNT_LEN).div_ceil(D::BLOCK_LEN);
        pad(&mut room.bytes[..room.blocks * D::BLOCK_LEN], len, (D::BLOCK_LEN + len) as u64);
        // One by one: a pair would be made on the stack first.
        room.state = pads.inner;
        room.outer = pads.outer;
        at
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rooms.len() >= self.kernels.shorts
    }

    /// Gives `finish` the number and the HMAC of each message, and forgets them.
    pub(crate) fn run(&mut self, mut finish: impl FnMut(usize, &[u8; DIGEST_LEN_MAX])) {
        self.hash();
        for room in self.rooms.iter_mut() {
            room.bytes[..D::LEN].copy_from_slice(&D::output(&room.state)[..D::LEN]);
            pad(&mut room.bytes[..D::BLOCK_LEN], D::LEN, (D::BLOCK_LEN + D::LEN) as u64);
            room.blocks = 1;
            room.state = room.outer;
        }
        self.hash();
        for (at, room) in self.rooms.iter().enumerate() {
            finish(at, &D::output(&room.state));
        }
        self.forget();
    }

    /// Compresses what is laid out.
    fn hash(&mut self) {
        let rooms = &mut *self.rooms;
        if rooms.len() <= FEW {
            for pair in rooms.chunks_mut(2) {
                let mut states = [pair[0].state, pair[pair.len() - 1].state];
                let (first, second) = (&pair[0], pair.get(1));
                let starts = [first.bytes.as_ptr(), second.unwrap_or(first).bytes.as_ptr()];
                // SAFETY: as many blocks of each room as were laid out.
                unsafe { (self.few)(&mut states, starts, [first.blocks, second.map_or(0, |room| room.blocks)]) };
                pair.iter_mut().zip(&states).for_each(|(room, state)| room.state = *state);
                states.zeroize();
            }
            return wipe_frame();
        }
        let mut items = Stack::<HashItem<D::State>, SHORTS_MAX>::new();
        for room in rooms.iter_mut() {
            let segment = Segment { start: room.bytes.as_mut_ptr(), blocks: room.blocks };
            items.push(HashItem { state: D::INITIAL, segments: [segment, Segment::NONE] }).state = room.state;
        }
        // SAFETY: the segments lie in the rooms, which are ours and not moved.
        unsafe { D::run(self.kernels, &mut items) };
        for (room, item) in rooms.iter_mut().zip(items.iter_mut()) {
            room.state = item.state;
            item.state.zeroize();
        }
        wipe_frames();
    }

    /// What was hashed may be secret, and what came out is.
    fn forget(&mut self) {
        for room in self.rooms.iter_mut() {
            room.state.zeroize();
            room.outer.zeroize();
            // As a whole: `zeroize` goes byte by byte.
            room.bytes = [0; ROOM_LEN];
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

/// So many messages are hashed two by two, by the CPU's instructions for the hash, before it is worth filling lanes.
const FEW: usize = 4;

/// Pads what `blocks` holds the first `filled` bytes of; `total_len` bytes are hashed in all.
fn pad(blocks: &mut [u8], filled: usize, total_len: u64) {
    let end = blocks.len() - 8;
    blocks[filled] = 0x80;
    blocks[filled + 1..end].fill(0);
    blocks[end..].copy_from_slice(&(8 * total_len).to_be_bytes());
}
