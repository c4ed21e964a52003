//! Hashes over vectors of any width, one message in each lane.

pub(super) mod sha1;
pub(super) mod sha2;

/// Work that a kernel interleaves with the rounds of a hash. The hash waits for ports and the other
/// work for latency, so together they take little longer than one alone.
///
/// # Safety
/// As [`Vector`]'s.
pub(super) trait Interleaved {
    unsafe fn begin(&mut self, block: usize);
    unsafe fn step_round(&mut self, round: usize);
    /// Keeps the order of rounds if nothing else runs between them.
    #[inline(always)]
    unsafe fn ordered<V: Vector>(vector: V) -> V {
        vector
    }
}

pub(super) struct NotInterleaved;

impl Interleaved for NotInterleaved {
    #[inline(always)]
    unsafe fn begin(&mut self, _block: usize) {}

    #[inline(always)]
    unsafe fn step_round(&mut self, _round: usize) {}

    #[inline(always)]
    unsafe fn ordered<V: Vector>(vector: V) -> V {
        // SAFETY: as the caller.
        unsafe { vector.barrier() }
    }
}

/// Words of as many messages as the vector has lanes.
///
/// # Safety
/// The CPU needs the implementation's instructions; all methods are inlined into functions that
/// enable them.
pub(super) trait Vector: Copy {
    type Word: Copy;

    unsafe fn splat(word: Self::Word) -> Self;
    unsafe fn load(from: *const Self::Word) -> Self;
    unsafe fn store(self, to: *mut Self::Word);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn rotate<const RIGHT: i32, const LEFT: i32>(self) -> Self;
    unsafe fn shift_right<const BITS: i32>(self) -> Self;
    /// Bits of `then` where `self` is set, of `otherwise` elsewhere.
    unsafe fn choose(self, then: Self, otherwise: Self) -> Self;
    unsafe fn majority(self, b: Self, c: Self) -> Self;
    unsafe fn xor3(self, b: Self, c: Self) -> Self;
    /// The compiler computes nothing from it before earlier barriers, which saves registers.
    unsafe fn barrier(self) -> Self;
    unsafe fn load_block(data: *const *const u8, offset: usize) -> [Self; 16];
}
