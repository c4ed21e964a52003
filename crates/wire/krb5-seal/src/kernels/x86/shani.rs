//! SHA-1 and SHA-256 with the SHA extensions.

use std::arch::x86_64::*;

use crate::kernels::interface::{HashItem, HashKernel};
use crate::kernels::lanes::{self, HashLanes, HashWide};
use crate::kernels::wide::sha2::K256;

pub(in crate::kernels) static SHA1: HashKernel<[u32; 5]> =
    HashKernel { name: "SHA-NI x2", many: sha1, few: Some(sha1_few) };
pub(in crate::kernels) static SHA256: HashKernel<[u32; 8]> =
    HashKernel { name: "SHA-NI x2", many: sha256, few: Some(sha256_few) };

unsafe fn sha1(items: &mut [HashItem<[u32; 5]>]) {
    // SAFETY: offered only where the instructions are; the rest is the caller's promise.
    unsafe { lanes::hash(items, 64, sha1_wide::<2>, 2, sha1_one_by_one) }
}

unsafe fn sha1_one_by_one(items: &mut [HashItem<[u32; 5]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 64, sha1_wide::<1>, 1, no_finish) }
}

unsafe fn sha256(items: &mut [HashItem<[u32; 8]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 64, sha256_wide::<2>, 2, sha256_one_by_one) }
}

unsafe fn sha256_one_by_one(items: &mut [HashItem<[u32; 8]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 64, sha256_wide::<1>, 1, no_finish) }
}

unsafe fn sha1_few(states: &mut [[u32; 5]; 2], data: [*const u8; 2], blocks: [usize; 2]) {
    // SAFETY: as above.
    unsafe { few(states, data, blocks, sha1_wide::<2>, sha1_wide::<1>) }
}

unsafe fn sha256_few(states: &mut [[u32; 8]; 2], data: [*const u8; 2], blocks: [usize; 2]) {
    // SAFETY: as above.
    unsafe { few(states, data, blocks, sha256_wide::<2>, sha256_wide::<1>) }
}

/// # Safety
/// As [`HashFew`](crate::kernels::HashFew) says; the CPU has what `two` and `one` need.
unsafe fn few<const WORDS: usize>(
    states: &mut [[u32; WORDS]; 2],
    data: [*const u8; 2],
    blocks: [usize; 2],
    two: HashWide<u32, WORDS, 2>,
    one: HashWide<u32, WORDS, 1>,
) {
    let both = blocks[0].min(blocks[1]);
    if both > 0 {
        let mut lanes = HashLanes {
            state: std::array::from_fn(|word| [states[0][word], states[1][word]]),
            data,
        };
        // SAFETY: the caller's promise.
        unsafe { two(&mut lanes, both) };
        for (lane, state) in states.iter_mut().enumerate() {
            *state = std::array::from_fn(|word| lanes.state[word][lane]);
        }
    }
    for lane in 0..2 {
        if blocks[lane] > both {
            // SAFETY: both lanes have at least `both` blocks.
            let rest = unsafe { data[lane].add(64 * both) };
            let mut lanes = HashLanes { state: states[lane].map(|word| [word]), data: [rest] };
            // SAFETY: the caller's promise.
            unsafe { one(&mut lanes, blocks[lane] - both) };
            states[lane] = lanes.state.map(|[word]| word);
        }
    }
}

unsafe fn no_finish<S>(items: &mut [HashItem<S>]) {
    debug_assert!(items.is_empty());
}

/// Reverses the bytes of four words and the order of words, for SHA-1.
#[inline(always)]
pub(super) fn swap_all() -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f) }
}

#[target_feature(enable = "sha,ssse3,sse4.1")]
unsafe fn sha1_wide<const N: usize>(lanes: &mut HashLanes<u32, 5, N>, blocks: usize) {
    let swap = swap_all();
    let state = &lanes.state;
    let mut abcd: [__m128i; N] = std::array::from_fn(|lane| {
        _mm_set_epi32(
            state[0][lane] as i32,
            state[1][lane] as i32,
            state[2][lane] as i32,
            state[3][lane] as i32,
        )
    });
    let mut e: [__m128i; N] =
        std::array::from_fn(|lane| _mm_set_epi32(state[4][lane] as i32, 0, 0, 0));
    for block in 0..blocks {
        let (abcd_before, e_before) = (abcd, e);
        let mut w: [[__m128i; N]; 4] = std::array::from_fn(|quarter| {
            std::array::from_fn(|lane| {
                // SAFETY: each lane has `blocks` blocks for reads.
                let words = unsafe {
                    _mm_loadu_si128(lanes.data[lane].add(64 * block + 16 * quarter).cast())
                };
                _mm_shuffle_epi8(words, swap)
            })
        });
        // Four rounds with words `w[g % 4]`, and the words that replace them.
        macro_rules! four {
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
            };
        }
        twenty_times!(four);
        for lane in 0..N {
            e[lane] = _mm_sha1nexte_epu32(e[lane], e_before[lane]);
            abcd[lane] = _mm_add_epi32(abcd[lane], abcd_before[lane]);
        }
    }
    for lane in 0..N {
        lanes.state[0][lane] = _mm_extract_epi32::<3>(abcd[lane]) as u32;
        lanes.state[1][lane] = _mm_extract_epi32::<2>(abcd[lane]) as u32;
        lanes.state[2][lane] = _mm_extract_epi32::<1>(abcd[lane]) as u32;
        lanes.state[3][lane] = _mm_extract_epi32::<0>(abcd[lane]) as u32;
        lanes.state[4][lane] = _mm_extract_epi32::<3>(e[lane]) as u32;
        // SAFETY: the blocks before it were readable.
        lanes.data[lane] = unsafe { lanes.data[lane].add(64 * blocks) };
    }
}

#[target_feature(enable = "sha,ssse3,sse4.1")]
unsafe fn sha256_wide<const N: usize>(lanes: &mut HashLanes<u32, 8, N>, blocks: usize) {
    // Reverses the bytes of each word and keeps the order of words.
    let swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    let state = &lanes.state;
    let pack = |words: [usize; 4], lane: usize| {
        let [high, second, third, low] = words.map(|word| state[word][lane] as i32);
        _mm_set_epi32(high, second, third, low)
    };
    let mut abef: [__m128i; N] = std::array::from_fn(|lane| pack([0, 1, 4, 5], lane));
    let mut cdgh: [__m128i; N] = std::array::from_fn(|lane| pack([2, 3, 6, 7], lane));
    for block in 0..blocks {
        let (abef_before, cdgh_before) = (abef, cdgh);
        let mut w: [[__m128i; N]; 4] = std::array::from_fn(|quarter| {
            std::array::from_fn(|lane| {
                // SAFETY: each lane has `blocks` blocks for reads.
                let words = unsafe {
                    _mm_loadu_si128(lanes.data[lane].add(64 * block + 16 * quarter).cast())
                };
                _mm_shuffle_epi8(words, swap)
            })
        });
        macro_rules! four {
            ($g:expr) => {
                // SAFETY: the table has 64 words.
                let k = unsafe { _mm_loadu_si128(K256.as_ptr().add(4 * $g).cast()) };
                for lane in 0..N {
                    let words = w[$g % 4][lane];
                    let sum = _mm_add_epi32(words, k);
                    cdgh[lane] = _mm_sha256rnds2_epu32(cdgh[lane], abef[lane], sum);
                    abef[lane] = _mm_sha256rnds2_epu32(
                        abef[lane],
                        cdgh[lane],
                        _mm_shuffle_epi32::<0x0e>(sum),
                    );
                    if $g < 12 {
                        let last = w[($g + 3) % 4][lane];
                        let shifted = _mm_alignr_epi8::<4>(last, w[($g + 2) % 4][lane]);
                        let mixed = _mm_add_epi32(
                            _mm_sha256msg1_epu32(words, w[($g + 1) % 4][lane]),
                            shifted,
                        );
                        w[$g % 4][lane] = _mm_sha256msg2_epu32(mixed, last);
                    }
                }
            };
        }
        four!(0);
        four!(1);
        four!(2);
        four!(3);
        four!(4);
        four!(5);
        four!(6);
        four!(7);
        four!(8);
        four!(9);
        four!(10);
        four!(11);
        four!(12);
        four!(13);
        four!(14);
        four!(15);
        for lane in 0..N {
            abef[lane] = _mm_add_epi32(abef[lane], abef_before[lane]);
            cdgh[lane] = _mm_add_epi32(cdgh[lane], cdgh_before[lane]);
        }
    }
    for lane in 0..N {
        for (vector, words) in [(abef[lane], [0, 1, 4, 5]), (cdgh[lane], [2, 3, 6, 7])] {
            lanes.state[words[0]][lane] = _mm_extract_epi32::<3>(vector) as u32;
            lanes.state[words[1]][lane] = _mm_extract_epi32::<2>(vector) as u32;
            lanes.state[words[2]][lane] = _mm_extract_epi32::<1>(vector) as u32;
            lanes.state[words[3]][lane] = _mm_extract_epi32::<0>(vector) as u32;
        }
        // SAFETY: the blocks before it were readable.
        lanes.data[lane] = unsafe { lanes.data[lane].add(64 * blocks) };
    }
}
