//! SHA-1 of a block and CBC encryption of its four blocks in one pass (RFC 3962): two long
//! dependency chains, of which one costs almost nothing beside the other.

use std::arch::x86_64::*;

use super::shani::swap_all;
use crate::kernels::interface::Stitched;

pub(in crate::kernels) const MESSAGES_MAX: usize = 4;

/// Hashes and then encrypts blocks of 64 bytes in place, of up to [`MESSAGES_MAX`] messages.
///
/// # Safety
/// As [`StitchedKernel`](crate::kernels::StitchedKernel) says; the CPU has AES-NI and the SHA
/// extensions.
pub(in crate::kernels) unsafe fn seal(items: &mut [Stitched], blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(first) = items.first() else { return };
        match ((*first.key).rounds, items) {
            (10, [a]) => seal_rounds::<10, 1>([a], blocks),
            (10, [a, b]) => seal_rounds::<10, 2>([a, b], blocks),
            (10, [a, b, c]) => seal_rounds::<10, 3>([a, b, c], blocks),
            (10, [a, b, c, d]) => seal_rounds::<10, 4>([a, b, c, d], blocks),
            (_, [a]) => seal_rounds::<14, 1>([a], blocks),
            (_, [a, b]) => seal_rounds::<14, 2>([a, b], blocks),
            (_, [a, b, c]) => seal_rounds::<14, 3>([a, b, c], blocks),
            (_, [a, b, c, d]) => seal_rounds::<14, 4>([a, b, c, d], blocks),
            (_, more) => more.chunks_mut(MESSAGES_MAX).for_each(|items| seal(items, blocks)),
        }
    }
}

#[target_feature(enable = "sha,ssse3,sse4.1,aes")]
unsafe fn seal_rounds<const ROUNDS: usize, const N: usize>(
    items: [&mut Stitched; N],
    blocks: usize,
) {
    let swap = swap_all();
    // SAFETY: keys are valid for reads.
    let keys: [*const __m128i; N] =
        std::array::from_fn(|lane| unsafe { (*items[lane].key).encrypt.as_ptr().cast() });
    // SAFETY: of 15 round keys of 16 aligned bytes, `ROUNDS + 1` are used.
    let round_key = |lane: usize, round: usize| unsafe { _mm_load_si128(keys[lane].add(round)) };
    let mut abcd: [__m128i; N] = std::array::from_fn(|lane| {
        let state = &items[lane].state;
        _mm_set_epi32(state[0] as i32, state[1] as i32, state[2] as i32, state[3] as i32)
    });
    let mut e: [__m128i; N] =
        std::array::from_fn(|lane| _mm_set_epi32(items[lane].state[4] as i32, 0, 0, 0));
    // SAFETY: 16 bytes.
    let mut x: [__m128i; N] =
        std::array::from_fn(|lane| unsafe { _mm_loadu_si128(items[lane].chain.as_ptr().cast()) });
    for block in 0..blocks {
        // SAFETY: block `block` of `blocks`.
        let at: [*mut __m128i; N] =
            std::array::from_fn(|lane| unsafe { items[lane].data.add(64 * block).cast() });
        let (abcd_before, e_before) = (abcd, e);
        // SAFETY: the block has four quarters.
        let read = |lane: usize, quarter: usize| unsafe { _mm_loadu_si128(at[lane].add(quarter)) };
        let mut w: [[__m128i; N]; 4] = std::array::from_fn(|quarter| {
            std::array::from_fn(|lane| _mm_shuffle_epi8(read(lane, quarter), swap))
        });
        // `ROUNDS + 1` steps for each of the four blocks, read again before they are written.
        macro_rules! cipher_step {
            ($step:expr, $lane:expr) => {{
                let (quarter, round) = ($step / (ROUNDS + 1), $step % (ROUNDS + 1));
                if round == 0 {
                    x[$lane] = _mm_xor_si128(
                        x[$lane],
                        _mm_xor_si128(read($lane, quarter), round_key($lane, 0)),
                    );
                } else if round < ROUNDS {
                    x[$lane] = _mm_aesenc_si128(x[$lane], round_key($lane, round));
                } else {
                    x[$lane] = _mm_aesenclast_si128(x[$lane], round_key($lane, ROUNDS));
                    // SAFETY: the block has four quarters, which the hash has read before.
                    unsafe { _mm_storeu_si128(at[$lane].add(quarter), x[$lane]) };
                }
            }};
        }
        // Four rounds of the hash, and a twentieth of the cipher's steps.
        macro_rules! interleave {
            ($g:expr) => {
                for lane in 0..N {
                    let words = w[$g % 4][lane];
                    let sum = if $g == 0 {
                        _mm_add_epi32(e[lane], words)
                    } else {
                        _mm_sha1nexte_epu32(e[lane], words)
                    };
                    e[lane] = abcd[lane];
                    abcd[lane] = _mm_sha1rnds4_epu32::<{ $g / 5 }>(abcd[lane], sum);
                    if $g < 16 {
                        let mixed = _mm_xor_si128(
                            _mm_sha1msg1_epu32(words, w[($g + 1) % 4][lane]),
                            w[($g + 2) % 4][lane],
                        );
                        w[$g % 4][lane] = _mm_sha1msg2_epu32(mixed, w[($g + 3) % 4][lane]);
                    }
                }
                let from = 4 * (ROUNDS + 1) * $g / 20;
                let until = 4 * (ROUNDS + 1) * ($g + 1) / 20;
                for lane in 0..N {
                    if from < until {
                        cipher_step!(from, lane);
                    }
                }
                for lane in 0..N {
                    if from + 1 < until {
                        cipher_step!(from + 1, lane);
                    }
                }
                for lane in 0..N {
                    if from + 2 < until {
                        cipher_step!(from + 2, lane);
                    }
                }
            };
        }
        twenty_times!(interleave);
        for lane in 0..N {
            e[lane] = _mm_sha1nexte_epu32(e[lane], e_before[lane]);
            abcd[lane] = _mm_add_epi32(abcd[lane], abcd_before[lane]);
        }
    }
    for (lane, item) in items.into_iter().enumerate() {
        // SAFETY: 16 bytes.
        unsafe { _mm_storeu_si128(item.chain.as_mut_ptr().cast(), x[lane]) };
        item.state = [
            _mm_extract_epi32::<3>(abcd[lane]) as u32,
            _mm_extract_epi32::<2>(abcd[lane]) as u32,
            _mm_extract_epi32::<1>(abcd[lane]) as u32,
            _mm_extract_epi32::<0>(abcd[lane]) as u32,
            _mm_extract_epi32::<3>(e[lane]) as u32,
        ];
    }
}
