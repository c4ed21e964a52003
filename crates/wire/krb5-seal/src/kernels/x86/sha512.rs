//! SHA-512 of one message, two blocks at a time: the schedules of both in vectors, the rounds in
//! integer registers.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::kernels::interface::HashItem;
use crate::kernels::lanes::{self, HashLanes};
use crate::kernels::wide::sha2::K512;

const BLOCK_LEN: usize = 128;
const ROUNDS: usize = 80;

/// # Safety
/// As [`HashItem`] says; the CPU has AVX2 and BMI2.
pub(super) unsafe fn one_by_one(items: &mut [HashItem<[u64; 8]>]) {
    // SAFETY: the caller's promise.
    unsafe { lanes::hash(items, BLOCK_LEN, shifts, 1, no_finish) }
}

/// # Safety
/// As [`HashItem`] says; the CPU has AVX-512F, AVX-512VL and BMI2.
pub(super) unsafe fn one_by_one_avx512(items: &mut [HashItem<[u64; 8]>]) {
    // SAFETY: the caller's promise.
    unsafe { lanes::hash(items, BLOCK_LEN, rotations, 1, no_finish) }
}

unsafe fn no_finish(items: &mut [HashItem<[u64; 8]>]) {
    debug_assert!(items.is_empty());
}

/// # Safety
/// The lane's pointer is valid for reads of `blocks` blocks; the CPU has AVX2 and BMI2.
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn shifts(lanes: &mut HashLanes<u64, 8, 1>, blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe { compress::<false>(lanes, blocks) }
}

/// # Safety
/// As [`shifts`]; the CPU has AVX-512F and AVX-512VL, too.
#[target_feature(enable = "avx2,bmi1,bmi2,avx512f,avx512vl")]
unsafe fn rotations(lanes: &mut HashLanes<u64, 8, 1>, blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe { compress::<true>(lanes, blocks) }
}

/// Words of two schedules with their constants: two of the first block, two of the second, and so
/// on.
#[repr(align(32))]
struct Scheduled(#[allow(dead_code, reason = "reached by pointer")] [u64; 2 * ROUNDS]);

#[inline(always)]
unsafe fn compress<const ROTATE: bool>(lanes: &mut HashLanes<u64, 8, 1>, blocks: usize) {
    let mut state = lanes.state.map(|[word]| word);
    // Starts uninitialized: zeroing takes 2 % of the time of a short message. `first_of_two` writes
    // each word before a round reads it. The caller wipes the stack.
    let mut scheduled = MaybeUninit::<Scheduled>::uninit();
    let scheduled = scheduled.as_mut_ptr().cast::<u64>();
    let mut data = lanes.data[0];
    // SAFETY: `blocks` blocks from `data` on are valid for reads; the caller has enabled the
    // instructions.
    unsafe {
        for _ in 0..blocks / 2 {
            first_of_two::<ROTATE>(&mut state, data, data.add(BLOCK_LEN), scheduled);
            second_of_two(&mut state, scheduled);
            data = data.add(2 * BLOCK_LEN);
        }
        if blocks % 2 == 1 {
            first_of_two::<ROTATE>(&mut state, data, data, scheduled);
        }
    }
    lanes.state = state.map(|word| [word]);
}

/// A round, whose word is at byte `$place` of `$scheduled`. The addition from memory is in
/// assembly: the compiler would take the word out of the vector, on units that the rounds need.
macro_rules! round {
    ($s:ident, $bc:ident, $r:expr, $scheduled:ident, $place:expr) => {{
        const A: usize = (80 - $r) % 8;
        const B: usize = (81 - $r) % 8;
        const D: usize = (83 - $r) % 8;
        const E: usize = (84 - $r) % 8;
        const F: usize = (85 - $r) % 8;
        const G: usize = (86 - $r) % 8;
        const H: usize = (87 - $r) % 8;
        let mut h = $s[H];
        asm!(
            "add {h}, qword ptr [{scheduled} + {place}]",
            h = inout(reg) h,
            scheduled = in(reg) $scheduled,
            place = const $place,
            options(pure, readonly, nostack)
        );
        let e = $s[E];
        let big1 = e.rotate_right(14) ^ e.rotate_right(18) ^ e.rotate_right(41);
        let choice = (e & $s[F]).wrapping_add(!e & $s[G]);
        let t1 = h.wrapping_add(choice).wrapping_add(big1);
        $s[D] = $s[D].wrapping_add(t1);
        let a = $s[A];
        let big0 = a.rotate_right(28) ^ a.rotate_right(34) ^ a.rotate_right(39);
        let ab = a ^ $s[B];
        let majority = (ab & $bc) ^ $s[B];
        $bc = ab;
        $s[H] = t1.wrapping_add(big0).wrapping_add(majority);
    }};
}

/// Hashes the first block and computes the schedule of the second.
#[inline(always)]
#[allow(unused_assignments, reason = "the schedule ends before the rounds do")]
unsafe fn first_of_two<const ROTATE: bool>(
    state: &mut [u64; 8],
    first: *const u8,
    second: *const u8,
    scheduled: *mut u64,
) {
    // SAFETY: by the caller's promise, both blocks are valid for reads, and the caller has enabled
    // the instructions. `scheduled` has 40 aligned vectors.
    unsafe {
        let swap = _mm256_broadcastsi128_si256(_mm_set_epi8(
            8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7,
        ));
        // A loop: the compiler made a closure with these intrinsics a function without AVX2.
        let mut w = [_mm256_setzero_si256(); 8];
        for (at, words) in w.iter_mut().enumerate() {
            let low = _mm_loadu_si128(first.cast::<__m128i>().add(at));
            let high = _mm_loadu_si128(second.cast::<__m128i>().add(at));
            *words = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), swap);
        }
        let mut s = *state;
        let mut bc = s[1] ^ s[2];
        macro_rules! two_rounds {
            ($g:expr) => {{
                let k =
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(K512.as_ptr().add(2 * $g).cast()));
                _mm256_store_si256(scheduled.add(4 * $g).cast(), _mm256_add_epi64(w[$g % 8], k));
                if $g < 32 {
                    let behind = _mm256_alignr_epi8::<8>(w[($g + 1) % 8], w[$g % 8]);
                    let nine = _mm256_alignr_epi8::<8>(w[($g + 5) % 8], w[($g + 4) % 8]);
                    let sum = _mm256_add_epi64(
                        _mm256_add_epi64(w[$g % 8], nine),
                        small0::<ROTATE>(behind),
                    );
                    w[$g % 8] = _mm256_add_epi64(sum, small1::<ROTATE>(w[($g + 7) % 8]));
                }
                round!(s, bc, 2 * $g, scheduled, 32 * $g);
                round!(s, bc, 2 * $g + 1, scheduled, 32 * $g + 8);
            }};
        }
        forty_times!(two_rounds);
        state.iter_mut().zip(s).for_each(|(word, worked)| *word = word.wrapping_add(worked));
    }
}

#[inline(always)]
#[allow(unused_assignments, reason = "the last round has no next one")]
unsafe fn second_of_two(state: &mut [u64; 8], scheduled: *const u64) {
    let mut s = *state;
    let mut bc = s[1] ^ s[2];
    macro_rules! two_rounds {
        ($g:expr) => {{
            // SAFETY: the places are within `scheduled`, and the first block has written them.
            unsafe {
                round!(s, bc, 2 * $g, scheduled, 32 * $g + 16);
                round!(s, bc, 2 * $g + 1, scheduled, 32 * $g + 24);
            }
        }};
    }
    forty_times!(two_rounds);
    state.iter_mut().zip(s).for_each(|(word, worked)| *word = word.wrapping_add(worked));
}

/// FIPS 180-4, section 4.1.3: σ0, of two words of each block.
#[inline(always)]
unsafe fn small0<const ROTATE: bool>(x: __m256i) -> __m256i {
    // SAFETY: the caller has enabled the instructions.
    unsafe {
        if ROTATE {
            return xor3(
                _mm256_ror_epi64::<1>(x),
                _mm256_ror_epi64::<8>(x),
                _mm256_srli_epi64::<7>(x),
            );
        }
        let bytes = _mm256_broadcastsi128_si256(_mm_set_epi8(
            8, 15, 14, 13, 12, 11, 10, 9, 0, 7, 6, 5, 4, 3, 2, 1,
        ));
        let by_1 = _mm256_xor_si256(_mm256_srli_epi64::<1>(x), _mm256_slli_epi64::<63>(x));
        _mm256_xor_si256(
            _mm256_xor_si256(by_1, _mm256_shuffle_epi8(x, bytes)),
            _mm256_srli_epi64::<7>(x),
        )
    }
}

/// FIPS 180-4, section 4.1.3: σ1, of two words of each block.
#[inline(always)]
unsafe fn small1<const ROTATE: bool>(x: __m256i) -> __m256i {
    // SAFETY: the caller has enabled the instructions.
    unsafe {
        if ROTATE {
            return xor3(
                _mm256_ror_epi64::<19>(x),
                _mm256_ror_epi64::<61>(x),
                _mm256_srli_epi64::<6>(x),
            );
        }
        let by_19 = _mm256_xor_si256(_mm256_srli_epi64::<19>(x), _mm256_slli_epi64::<45>(x));
        let by_61 = _mm256_xor_si256(_mm256_srli_epi64::<61>(x), _mm256_slli_epi64::<3>(x));
        _mm256_xor_si256(_mm256_xor_si256(by_19, by_61), _mm256_srli_epi64::<6>(x))
    }
}

#[inline(always)]
unsafe fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    // SAFETY: the caller has enabled AVX-512.
    unsafe { _mm256_ternarylogic_epi64::<0x96>(a, b, c) }
}
