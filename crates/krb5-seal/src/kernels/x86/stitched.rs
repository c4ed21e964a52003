//! A lone message of RFC 3962: SHA-1 of a block and CBC encryption of its four blocks in one pass. Each is one long chain of instructions that
//! wait for one another; taken in turns, the hash costs almost nothing beside the cipher.

use std::arch::x86_64::*;

use super::shani::swap_all;
use crate::keys::AesKey;

/// Hashes and then encrypts blocks of 64 bytes in place: the state and the chain are moved on.
///
/// # Safety
/// `data` is valid for reads and writes of `64 * blocks` bytes, which nothing else uses; the CPU has AES-NI and the SHA extensions.
pub(in crate::kernels) unsafe fn seal(key: &AesKey, chain: &mut [u8; 16], state: &mut [u32; 5], data: *mut u8, blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match key.round_keys.rounds {
            10 => seal_rounds::<10>(key, chain, state, data, blocks),
            _ => seal_rounds::<14>(key, chain, state, data, blocks),
        }
    }
}

/// As [`seal`] says.
#[target_feature(enable = "sha,ssse3,sse4.1,aes")]
unsafe fn seal_rounds<const ROUNDS: usize>(key: &AesKey, chain: &mut [u8; 16], state: &mut [u32; 5], data: *mut u8, blocks: usize) {
    let swap = swap_all();
    let round_keys: *const __m128i = key.round_keys.encrypt.as_ptr().cast();
    // SAFETY: there are 15 round keys, each of 16 aligned bytes, of which the first `ROUNDS + 1` are used.
    let round_key = |round: usize| unsafe { _mm_load_si128(round_keys.add(round)) };
    let mut abcd = _mm_set_epi32(state[0] as i32, state[1] as i32, state[2] as i32, state[3] as i32);
    let mut e = _mm_set_epi32(state[4] as i32, 0, 0, 0);
    // SAFETY: 16 bytes.
    let mut x = unsafe { _mm_loadu_si128(chain.as_ptr().cast()) };
    for block in 0..blocks {
        // SAFETY: block `block` of `blocks`.
        let at: *mut __m128i = unsafe { data.add(64 * block).cast() };
        let (abcd_before, e_before) = (abcd, e);
        // SAFETY: the block has four quarters.
        let plaintext: [__m128i; 4] = std::array::from_fn(|quarter| unsafe { _mm_loadu_si128(at.add(quarter)) });
        let mut w = plaintext.map(|words| _mm_shuffle_epi8(words, swap));
        // One step of the cipher: `ROUNDS + 1` for each of the four blocks.
        macro_rules! cipher_step {
            ($step:expr) => {{
                let (quarter, round) = ($step / (ROUNDS + 1), $step % (ROUNDS + 1));
                if round == 0 {
                    x = _mm_xor_si128(x, _mm_xor_si128(plaintext[quarter], round_key(0)));
                } else if round < ROUNDS {
                    x = _mm_aesenc_si128(x, round_key(round));
                } else {
                    x = _mm_aesenclast_si128(x, round_key(ROUNDS));
                    // SAFETY: the block has four quarters, which were all read before.
                    unsafe { _mm_storeu_si128(at.add(quarter), x) };
                }
            }};
        }
        // Four rounds of the hash, and a twentieth of the cipher's steps.
        macro_rules! turn {
            ($g:expr) => {
                let words = w[$g % 4];
                let sum = if $g == 0 { _mm_add_epi32(e, words) } else { _mm_sha1nexte_epu32(e, words) };
                e = abcd;
                abcd = _mm_sha1rnds4_epu32::<{ $g / 5 }>(abcd, sum);
                if $g < 16 {
                    let mixed = _mm_xor_si128(_mm_sha1msg1_epu32(words, w[($g + 1) % 4]), w[($g + 2) % 4]);
                    w[$g % 4] = _mm_sha1msg2_epu32(mixed, w[($g + 3) % 4]);
                }
                let from = 4 * (ROUNDS + 1) * $g / 20;
                let until = 4 * (ROUNDS + 1) * ($g + 1) / 20;
                if from < until {
                    cipher_step!(from);
                }
                if from + 1 < until {
                    cipher_step!(from + 1);
                }
                if from + 2 < until {
                    cipher_step!(from + 2);
                }
            };
        }
        turn!(0);
        turn!(1);
        turn!(2);
        turn!(3);
        turn!(4);
        turn!(5);
        turn!(6);
        turn!(7);
        turn!(8);
        turn!(9);
        turn!(10);
        turn!(11);
        turn!(12);
        turn!(13);
        turn!(14);
        turn!(15);
        turn!(16);
        turn!(17);
        turn!(18);
        turn!(19);
        e = _mm_sha1nexte_epu32(e, e_before);
        abcd = _mm_add_epi32(abcd, abcd_before);
    }
    // SAFETY: 16 bytes.
    unsafe { _mm_storeu_si128(chain.as_mut_ptr().cast(), x) };
    *state = [
        _mm_extract_epi32::<3>(abcd) as u32,
        _mm_extract_epi32::<2>(abcd) as u32,
        _mm_extract_epi32::<1>(abcd) as u32,
        _mm_extract_epi32::<0>(abcd) as u32,
        _mm_extract_epi32::<3>(e) as u32,
    ];
}
