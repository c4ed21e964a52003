//! Vectors of AVX2: 8 words of 32 bits, 4 of 64.

use std::arch::x86_64::*;

use crate::kernels::wide::Vector;

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct U32x8(__m256i);
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct U64x4(__m256i);

macro_rules! vector {
    ($name:ident, $word:ty, $splat:ident($as:ty), $add:ident, $left:ident, $right:ident, $load_block:ident) => {
        impl Vector for $name {
            type Word = $word;

            #[inline(always)]
            unsafe fn splat(word: $word) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($splat(word as $as)) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $word) -> Self {
                // SAFETY: aligned and readable, the caller promises.
                unsafe { $name(_mm256_load_si256(from.cast())) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $word) {
                // SAFETY: aligned and writable, the caller promises.
                unsafe { _mm256_store_si256(to.cast(), self.0) }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($add(self.0, other.0)) }
            }

            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name(_mm256_xor_si256(self.0, other.0)) }
            }

            #[inline(always)]
            unsafe fn rotate<const RIGHT: i32, const LEFT: i32>(self) -> Self {
                // SAFETY: as Vector says.
                unsafe {
                    // Doubling by addition, which runs on more ports than a shift.
                    let high = if LEFT == 1 { $add(self.0, self.0) } else { $left::<LEFT>(self.0) };
                    $name(_mm256_or_si256(high, $right::<RIGHT>(self.0)))
                }
            }

            #[inline(always)]
            unsafe fn shift_right<const BITS: i32>(self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($right::<BITS>(self.0)) }
            }

            #[inline(always)]
            unsafe fn choose(self, then: Self, otherwise: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe {
                    $name(_mm256_xor_si256(
                        otherwise.0,
                        _mm256_and_si256(self.0, _mm256_xor_si256(then.0, otherwise.0)),
                    ))
                }
            }

            #[inline(always)]
            unsafe fn majority(self, b: Self, c: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe {
                    let differ = _mm256_xor_si256(b.0, c.0);
                    $name(_mm256_xor_si256(
                        _mm256_and_si256(self.0, differ),
                        _mm256_and_si256(b.0, c.0),
                    ))
                }
            }

            #[inline(always)]
            unsafe fn xor3(self, b: Self, c: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name(_mm256_xor_si256(_mm256_xor_si256(self.0, b.0), c.0)) }
            }

            #[inline(always)]
            unsafe fn barrier(self) -> Self {
                self
            }

            #[inline(always)]
            unsafe fn load_block(data: *const *const u8, offset: usize) -> [Self; 16] {
                // SAFETY: as Vector says; the type is transparent.
                unsafe {
                    std::mem::transmute::<[__m256i; 16], [$name; 16]>($load_block(data, offset))
                }
            }
        }
    };
}

vector!(
    U32x8,
    u32,
    _mm256_set1_epi32(i32),
    _mm256_add_epi32,
    _mm256_slli_epi32,
    _mm256_srli_epi32,
    load_block32
);
vector!(
    U64x4,
    u64,
    _mm256_set1_epi64x(i64),
    _mm256_add_epi64,
    _mm256_slli_epi64,
    _mm256_srli_epi64,
    load_block64
);

/// # Safety
/// As [`Vector::load_block`], 8 lanes.
#[inline(always)]
pub(super) unsafe fn load_block32(data: *const *const u8, offset: usize) -> [__m256i; 16] {
    // SAFETY: 64 bytes of each lane are readable.
    unsafe {
        let mut words = [_mm256_setzero_si256(); 16];
        let swap =
            _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
        for half in 0..2 {
            // Macros, because closures would lack AVX2.
            macro_rules! row {
                ($lane:expr) => {{
                    let from = (*data.add($lane)).add(offset + 32 * half);
                    _mm256_shuffle_epi8(_mm256_loadu_si256(from.cast()), swap)
                }};
            }
            // Four rows become four columns in each half of the vector.
            macro_rules! quad {
                ($lane:expr) => {{
                    let (r0, r1, r2, r3) =
                        (row!($lane), row!($lane + 1), row!($lane + 2), row!($lane + 3));
                    let (lo01, hi01) =
                        (_mm256_unpacklo_epi32(r0, r1), _mm256_unpackhi_epi32(r0, r1));
                    let (lo23, hi23) =
                        (_mm256_unpacklo_epi32(r2, r3), _mm256_unpackhi_epi32(r2, r3));
                    [
                        _mm256_unpacklo_epi64(lo01, lo23),
                        _mm256_unpackhi_epi64(lo01, lo23),
                        _mm256_unpacklo_epi64(hi01, hi23),
                        _mm256_unpackhi_epi64(hi01, hi23),
                    ]
                }};
            }
            let (low, high) = (quad!(0), quad!(4));
            for column in 0..4 {
                words[8 * half + column] =
                    _mm256_permute2x128_si256::<0x20>(low[column], high[column]);
                words[8 * half + 4 + column] =
                    _mm256_permute2x128_si256::<0x31>(low[column], high[column]);
            }
        }
        words
    }
}

/// # Safety
/// As [`Vector::load_block`], 4 lanes.
#[inline(always)]
pub(super) unsafe fn load_block64(data: *const *const u8, offset: usize) -> [__m256i; 16] {
    // SAFETY: 128 bytes of each lane are readable.
    unsafe {
        let mut words = [_mm256_setzero_si256(); 16];
        let swap =
            _mm256_broadcastsi128_si256(_mm_set_epi64x(0x08090a0b0c0d0e0f, 0x0001020304050607));
        for quarter in 0..4 {
            macro_rules! row {
                ($lane:expr) => {{
                    let from = (*data.add($lane)).add(offset + 32 * quarter);
                    _mm256_shuffle_epi8(_mm256_loadu_si256(from.cast()), swap)
                }};
            }
            let (r0, r1, r2, r3) = (row!(0), row!(1), row!(2), row!(3));
            let (even01, odd01) = (_mm256_unpacklo_epi64(r0, r1), _mm256_unpackhi_epi64(r0, r1));
            let (even23, odd23) = (_mm256_unpacklo_epi64(r2, r3), _mm256_unpackhi_epi64(r2, r3));
            words[4 * quarter] = _mm256_permute2x128_si256::<0x20>(even01, even23);
            words[4 * quarter + 1] = _mm256_permute2x128_si256::<0x20>(odd01, odd23);
            words[4 * quarter + 2] = _mm256_permute2x128_si256::<0x31>(even01, even23);
            words[4 * quarter + 3] = _mm256_permute2x128_si256::<0x31>(odd01, odd23);
        }
        words
    }
}
