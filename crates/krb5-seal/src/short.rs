//! HMACs of short messages, as most calls' headers, verifiers and bodies are: laid out whole and hashed two by two. They take none of the steps by which long messages go
//! side by side, which would cost several times what the hash does.

use zeroize::{Zeroize, optimization_barrier};

use crate::digest::{BLOCK_LEN_MAX, DIGEST_LEN_MAX, Digest, HmacPads};
use crate::kernels::HashFew;
use crate::wipe::wipe_frame;

/// Bytes of the longest message that is short.
pub(crate) const SHORT_LEN_MAX: usize = 440;
/// Room for one, with its padding.
const ROOM_LEN: usize = 512;
const _: () = assert!(SHORT_LEN_MAX + 1 + 8 <= ROOM_LEN && ROOM_LEN.is_multiple_of(BLOCK_LEN_MAX));

/// Up to two messages.
pub(crate) struct Two<D: Digest> {
    count: usize,
    states: [D::State; 2],
    outers: [D::State; 2],
    blocks: [usize; 2],
    rooms: [[u8; ROOM_LEN]; 2],
}

impl<D: Digest> Two<D> {
    pub(crate) fn new() -> Two<D> {
        Two { count: 0, states: [D::INITIAL; 2], outers: [D::INITIAL; 2], blocks: [0; 2], rooms: [[0; ROOM_LEN]; 2] }
    }

    /// Lays out a message in parts, of [`SHORT_LEN_MAX`] bytes at most, and says which of the two it is.
    pub(crate) fn add<'p>(&mut self, pads: &HmacPads<D>, parts: impl IntoIterator<Item = &'p [u8]>) -> usize {
        let at = self.count;
        let room = &mut self.rooms[at];
        let mut len = 0;
        for part in parts {
            room[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        let blocks = (len + 1 + D::COUNT_LEN).div_ceil(D::BLOCK_LEN);
        pad(&mut room[..blocks * D::BLOCK_LEN], len, (D::BLOCK_LEN + len) as u64);
        self.states[at] = pads.inner;
        self.outers[at] = pads.outer;
        self.blocks[at] = blocks;
        self.count += 1;
        at
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == 2
    }

    /// Gives `finish` the number and the HMAC of each message, and forgets them.
    pub(crate) fn run(&mut self, few: HashFew<D::State>, mut finish: impl FnMut(usize, &[u8; DIGEST_LEN_MAX])) {
        let starts = |rooms: &[[u8; ROOM_LEN]; 2]| [rooms[0].as_ptr(), rooms[1].as_ptr()];
        self.blocks[self.count..].fill(0);
        // SAFETY: as many blocks of each room as were laid out.
        unsafe { few(&mut self.states, starts(&self.rooms), self.blocks) };
        for at in 0..self.count {
            let room = &mut self.rooms[at];
            room[..D::LEN].copy_from_slice(&D::output(&self.states[at])[..D::LEN]);
            pad(&mut room[..D::BLOCK_LEN], D::LEN, (D::BLOCK_LEN + D::LEN) as u64);
            self.blocks[at] = 1;
        }
        // SAFETY: one block of each.
        unsafe { few(&mut self.outers, starts(&self.rooms), self.blocks) };
        for at in 0..self.count {
            finish(at, &D::output(&self.outers[at]));
        }
        self.count = 0;
    }
}

/// What was hashed may be secret, and what came out is.
impl<D: Digest> Drop for Two<D> {
    fn drop(&mut self) {
        self.states.iter_mut().chain(&mut self.outers).for_each(Zeroize::zeroize);
        // As a whole: `zeroize` goes byte by byte.
        self.rooms = [[0; ROOM_LEN]; 2];
        optimization_barrier(&self.rooms);
        // The kernel keeps the states that it begins with.
        wipe_frame();
    }
}

/// Pads what `blocks` holds the first `filled` bytes of; `total_len` bytes are hashed in all.
fn pad(blocks: &mut [u8], filled: usize, total_len: u64) {
    let end = blocks.len() - 8;
    blocks[filled] = 0x80;
    blocks[filled + 1..end].fill(0);
    blocks[end..].copy_from_slice(&(8 * total_len).to_be_bytes());
}
