//! What calls leave on the stack: spilled registers and moved structs, which nothing that is
//! dropped wipes.

use zeroize::optimization_barrier;

/// Deeper than any call that makes keys goes.
const DEPTH: usize = 64 * 1024;

/// More than the frame of any kernel of ours takes: round keys in the widest vectors are 960 bytes.
const FRAME: usize = 2048;

/// More than a kernel's takes, its caller's and those of the libraries that it calls: SHA-384 over
/// the widest vectors has 6.3 KiB of them, items and lanes among it.
const FRAMES: usize = 8 * 1024;

/// More than the library's cipher goes down: bit-sliced round keys are 960 bytes, and it moves them
/// by value through some frames.
const CIPHER: usize = 16 * 1024;

/// Wipes the 64 KiB of this thread's stack below the caller's frame: what the functions left there
/// that it called before. For who had keys made or exported, after the last function that did so
/// has returned. The thread's stack must have that much room left. Costs as much as filling them.
pub fn wipe_stack() {
    wipe::<DEPTH>();
}

/// Wipes what a kernel left on the stack that the caller has just called: it keeps round keys in
/// registers, and spills them where they don't suffice.
pub(crate) fn wipe_frame() {
    wipe::<FRAME>();
}

/// The same, where one function calls another.
pub(crate) fn wipe_frames() {
    wipe::<FRAMES>();
}

/// The same, where the library's cipher was made.
pub(crate) fn wipe_cipher() {
    wipe::<CIPHER>();
}

/// Not inlined: so its room lies where the frames of the functions were that were called before it.
#[inline(never)]
fn wipe<const LEN: usize>() {
    let room = [0u8; LEN];
    optimization_barrier(&room);
}
