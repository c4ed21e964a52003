//! Vectors of AVX-512, and half as wide, which run on one more port.

use std::arch::x86_64::*;

use super::vectors256;
use crate::kernels::wide::Vector;

macro_rules! vector {
    (
        $name:ident($vector:ident), $word:ty, $splat:ident($as:ty), $load:ident, $store:ident, $add:ident, $xor:ident, $rotate:ident, $shift:ident,
        $ternary:ident, $barrier:path, $load_block:path
    ) => {
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(super) struct $name($vector);

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
                unsafe { $name($load(from.cast())) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $word) {
                // SAFETY: aligned and writable, the caller promises.
                unsafe { $store(to.cast(), self.0) }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($add(self.0, other.0)) }
            }

            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($xor(self.0, other.0)) }
            }

            #[inline(always)]
            unsafe fn rotate<const RIGHT: i32, const LEFT: i32>(self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($rotate::<RIGHT>(self.0)) }
            }

            #[inline(always)]
            unsafe fn shift_right<const BITS: i32>(self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($shift(self.0, _mm_cvtsi32_si128(BITS))) }
            }

            #[inline(always)]
            unsafe fn choose(self, then: Self, otherwise: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($ternary::<0xca>(self.0, then.0, otherwise.0)) }
            }

            #[inline(always)]
            unsafe fn majority(self, b: Self, c: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($ternary::<0xe8>(self.0, b.0, c.0)) }
            }

            #[inline(always)]
            unsafe fn xor3(self, b: Self, c: Self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($ternary::<0x96>(self.0, b.0, c.0)) }
            }

            #[inline(always)]
            unsafe fn barrier(self) -> Self {
                // SAFETY: as Vector says.
                unsafe { $name($barrier(self.0)) }
            }

            #[inline(always)]
            unsafe fn load_block(data: *const *const u8, offset: usize) -> [Self; 16] {
                // SAFETY: as Vector says; the type is transparent.
                unsafe {
                    std::mem::transmute::<[$vector; 16], [$name; 16]>($load_block(data, offset))
                }
            }
        }
    };
}

vector!(
    U32x16(__m512i),
    u32,
    _mm512_set1_epi32(i32),
    _mm512_load_si512,
    _mm512_store_si512,
    _mm512_add_epi32,
    _mm512_xor_si512,
    _mm512_ror_epi32,
    _mm512_srl_epi32,
    _mm512_ternarylogic_epi32,
    barrier,
    load_block32
);
vector!(
    U64x8(__m512i),
    u64,
    _mm512_set1_epi64(i64),
    _mm512_load_si512,
    _mm512_store_si512,
    _mm512_add_epi64,
    _mm512_xor_si512,
    _mm512_ror_epi64,
    _mm512_srl_epi64,
    _mm512_ternarylogic_epi64,
    barrier,
    load_block64
);
vector!(
    U32x8(__m256i),
    u32,
    _mm256_set1_epi32(i32),
    _mm256_load_si256,
    _mm256_store_si256,
    _mm256_add_epi32,
    _mm256_xor_si256,
    _mm256_ror_epi32,
    _mm256_srl_epi32,
    _mm256_ternarylogic_epi32,
    barrier_half,
    vectors256::load_block32
);
vector!(
    U64x4(__m256i),
    u64,
    _mm256_set1_epi64x(i64),
    _mm256_load_si256,
    _mm256_store_si256,
    _mm256_add_epi64,
    _mm256_xor_si256,
    _mm256_ror_epi64,
    _mm256_srl_epi64,
    _mm256_ternarylogic_epi64,
    barrier_half,
    vectors256::load_block64
);

#[inline]
#[target_feature(enable = "avx512f")]
fn barrier(mut vector: __m512i) -> __m512i {
    // SAFETY: no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(zmm_reg) vector, options(nomem, nostack, preserves_flags))
    };
    vector
}

#[inline]
#[target_feature(enable = "avx512f")]
fn barrier_half(vector: __m256i) -> __m256i {
    _mm512_castsi512_si256(barrier(_mm512_castsi256_si512(vector)))
}

/// Quarter `q` of result `r` is quarter `r` of argument `q`.
///
/// # Safety
/// Needs AVX-512F.
#[inline(always)]
unsafe fn turn_quarters(q0: __m512i, q1: __m512i, q2: __m512i, q3: __m512i) -> [__m512i; 4] {
    // SAFETY: as the caller.
    unsafe {
        let (even01, odd01) =
            (_mm512_shuffle_i32x4::<0x88>(q0, q1), _mm512_shuffle_i32x4::<0xdd>(q0, q1));
        let (even23, odd23) =
            (_mm512_shuffle_i32x4::<0x88>(q2, q3), _mm512_shuffle_i32x4::<0xdd>(q2, q3));
        [
            _mm512_shuffle_i32x4::<0x88>(even01, even23),
            _mm512_shuffle_i32x4::<0x88>(odd01, odd23),
            _mm512_shuffle_i32x4::<0xdd>(even01, even23),
            _mm512_shuffle_i32x4::<0xdd>(odd01, odd23),
        ]
    }
}

/// # Safety
/// As [`Vector::load_block`], 16 lanes.
#[inline(always)]
unsafe fn load_block32(data: *const *const u8, offset: usize) -> [__m512i; 16] {
    // SAFETY: 64 bytes of each lane are readable.
    unsafe {
        let mut words = [_mm512_setzero_si512(); 16];
        let swap = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
        // Macros, because closures would lack AVX-512.
        macro_rules! row {
            ($lane:expr) => {
                _mm512_shuffle_epi8(_mm512_loadu_si512((*data.add($lane)).add(offset).cast()), swap)
            };
        }
        // Four rows become four columns in each quarter of the vector.
        macro_rules! quad {
            ($lane:expr) => {{
                let (r0, r1, r2, r3) =
                    (row!($lane), row!($lane + 1), row!($lane + 2), row!($lane + 3));
                let (lo01, hi01) = (_mm512_unpacklo_epi32(r0, r1), _mm512_unpackhi_epi32(r0, r1));
                let (lo23, hi23) = (_mm512_unpacklo_epi32(r2, r3), _mm512_unpackhi_epi32(r2, r3));
                [
                    _mm512_unpacklo_epi64(lo01, lo23),
                    _mm512_unpackhi_epi64(lo01, lo23),
                    _mm512_unpacklo_epi64(hi01, hi23),
                    _mm512_unpackhi_epi64(hi01, hi23),
                ]
            }};
        }
        let (q0, q1, q2, q3) = (quad!(0), quad!(4), quad!(8), quad!(12));
        for column in 0..4 {
            let turned = turn_quarters(q0[column], q1[column], q2[column], q3[column]);
            for quarter in 0..4 {
                words[4 * quarter + column] = turned[quarter];
            }
        }
        words
    }
}

/// # Safety
/// As [`Vector::load_block`], 8 lanes.
#[inline(always)]
unsafe fn load_block64(data: *const *const u8, offset: usize) -> [__m512i; 16] {
    // SAFETY: 128 bytes of each lane are readable.
    unsafe {
        let mut words = [_mm512_setzero_si512(); 16];
        let swap = _mm512_broadcast_i32x4(_mm_set_epi64x(0x08090a0b0c0d0e0f, 0x0001020304050607));
        for half in 0..2 {
            macro_rules! row {
                ($lane:expr) => {{
                    let from = (*data.add($lane)).add(offset + 64 * half);
                    _mm512_shuffle_epi8(_mm512_loadu_si512(from.cast()), swap)
                }};
            }
            macro_rules! pair {
                ($lane:expr) => {{
                    let (r0, r1) = (row!($lane), row!($lane + 1));
                    (_mm512_unpacklo_epi64(r0, r1), _mm512_unpackhi_epi64(r0, r1))
                }};
            }
            let (p0, p1, p2, p3) = (pair!(0), pair!(2), pair!(4), pair!(6));
            let even = turn_quarters(p0.0, p1.0, p2.0, p3.0);
            let odd = turn_quarters(p0.1, p1.1, p2.1, p3.1);
            for quarter in 0..4 {
                words[8 * half + 2 * quarter] = even[quarter];
                words[8 * half + 2 * quarter + 1] = odd[quarter];
            }
        }
        words
    }
}
