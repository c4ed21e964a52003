//! Wiping of the stack: spilled registers and moved structs that no drop wipes.

use zeroize::optimization_barrier;

const DEPTH: usize = 64 * 1024;

/// Larger than the frame of any kernel: round keys in the widest vectors take 960 bytes.
const FRAME: usize = 2048;

/// Larger than the frames of a kernel, its caller and its libraries: SHA-384 over the widest
/// vectors uses 6.3 KiB, with items and lanes.
const FRAMES: usize = 8 * 1024;

/// Deeper than RustCrypto's cipher: bit-sliced round keys take 960 bytes and are moved through
/// several frames.
const CIPHER: usize = 16 * 1024;

/// Wipes 64 KiB of this thread's stack below the caller's frame, where earlier calls left data. For
/// callers that derived or exported keys, after the last such function returned. The stack must
/// have that much room.
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
