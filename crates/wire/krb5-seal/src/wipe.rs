//! Wipes the stack: no drop wipes spilled registers and moved structs.

use zeroize::optimization_barrier;

const DEPTH: usize = 64 * 1024;

/// Round keys in the widest vectors take 960 bytes.
const FRAME: usize = 2048;

/// SHA-384 over the widest vectors uses 6.3 KiB, with items and lanes.
const FRAMES: usize = 8 * 1024;

/// RustCrypto's bit-sliced round keys take 960 bytes and are moved through several frames.
const CIPHER: usize = 16 * 1024;

/// Wipes 64 KiB of stack below the caller's frame, which must have that much room. Call it after
/// functions that derive or export keys.
pub fn wipe_stack() {
    wipe::<DEPTH>();
}

/// Kernels spill round keys.
pub(crate) fn wipe_frame() {
    wipe::<FRAME>();
}

pub(crate) fn wipe_frames() {
    wipe::<FRAMES>();
}

pub(crate) fn wipe_cipher() {
    wipe::<CIPHER>();
}

/// Not inlined, so that its buffer covers the frames of earlier calls.
#[inline(never)]
fn wipe<const LEN: usize>() {
    let room = [0u8; LEN];
    optimization_barrier(&room);
}
