//! CBC encryption and SHA-512 of one message in one pass, for RFC 8009: each is a long dependency
//! chain on units that the other leaves idle.

use std::arch::x86_64::*;

use crate::kernels::interface::StitchedOne;
use crate::kernels::wide::sha2::K512;

const BLOCK_LEN: usize = 128;
const QUARTERS: usize = BLOCK_LEN / 16;
const ROUNDS: usize = 14;

/// Encrypts `steps` times 128 bytes. Hashes one block less, because each block is hashed after its
/// encryption.
///
/// # Safety
/// As [`StitchedOne`] says; the CPU has AVX2, BMI2 and AES-NI.
pub(in crate::kernels) unsafe fn seal(item: &mut StitchedOne<[u64; 8]>, steps: usize) {
    // SAFETY: the caller's promise.
    unsafe { seal_steps(item, steps) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,aes")]
unsafe fn seal_steps(item: &mut StitchedOne<[u64; 8]>, steps: usize) {
    // SAFETY: the key is valid for reads, the chain has 16 bytes, and the caller promises the bytes
    // of `steps` steps.
    unsafe {
        let keys: *const __m128i = (*item.key).encrypt.as_ptr().cast();
        debug_assert_eq!((*item.key).rounds, ROUNDS);
        let mut chain = _mm_loadu_si128(item.chain.as_ptr().cast());
        let mut state = item.state;
        for at in 0..steps {
            let cipher = item.cipher.add(BLOCK_LEN * at).cast();
            match at {
                0 => step::<false>(&mut state, std::ptr::null(), &mut chain, keys, cipher),
                _ => step::<true>(
                    &mut state,
                    item.hash.add(BLOCK_LEN * (at - 1)),
                    &mut chain,
                    keys,
                    cipher,
                ),
            }
        }
        _mm_storeu_si128(item.chain.as_mut_ptr().cast(), chain);
        item.state = state;
    }
}

/// Encrypts 128 bytes, and hashes one block.
///
/// # Safety
/// `hash` is valid for reads of a block if it is hashed, `keys` of 15 round keys, `cipher` for reads
/// and writes of a block. The hashed block is already encrypted.
#[inline(always)]
#[allow(unused_assignments, reason = "the schedule ends before the rounds do")]
unsafe fn step<const HASH: bool>(
    state: &mut [u64; 8],
    hash: *const u8,
    chain: &mut __m128i,
    keys: *const __m128i,
    cipher: *mut __m128i,
) {
    // SAFETY: by the caller's promise; the caller has enabled the instructions.
    unsafe {
        let swap = _mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
        let mut w: [__m128i; 8] = std::array::from_fn(|at| match HASH {
            true => _mm_shuffle_epi8(_mm_loadu_si128(hash.cast::<__m128i>().add(at)), swap),
            false => _mm_setzero_si128(),
        });
        let mut s = *state;
        let mut x = *chain;
        // `ROUNDS + 1` steps for each of the eight blocks.
        macro_rules! cipher_step {
            ($step:expr) => {{
                let (quarter, round) = ($step / (ROUNDS + 1), $step % (ROUNDS + 1));
                if round == 0 {
                    x = _mm_xor_si128(
                        x,
                        _mm_xor_si128(_mm_loadu_si128(cipher.add(quarter)), _mm_load_si128(keys)),
                    );
                } else if round < ROUNDS {
                    x = _mm_aesenc_si128(x, _mm_load_si128(keys.add(round)));
                } else {
                    x = _mm_aesenclast_si128(x, _mm_load_si128(keys.add(ROUNDS)));
                    _mm_storeu_si128(cipher.add(quarter), x);
                }
            }};
        }
        macro_rules! round {
            ($r:expr, $wk:expr) => {{
                const A: usize = (80 - $r) % 8;
                const B: usize = (81 - $r) % 8;
                const C: usize = (82 - $r) % 8;
                const D: usize = (83 - $r) % 8;
                const E: usize = (84 - $r) % 8;
                const F: usize = (85 - $r) % 8;
                const G: usize = (86 - $r) % 8;
                const H: usize = (87 - $r) % 8;
                let e = s[E];
                let big1 = e.rotate_right(14) ^ e.rotate_right(18) ^ e.rotate_right(41);
                let choice = (e & s[F]).wrapping_add(!e & s[G]);
                let t1 = s[H].wrapping_add($wk).wrapping_add(big1).wrapping_add(choice);
                s[D] = s[D].wrapping_add(t1);
                let a = s[A];
                let big0 = a.rotate_right(28) ^ a.rotate_right(34) ^ a.rotate_right(39);
                let majority = (a & s[B]).wrapping_add((a ^ s[B]) & s[C]);
                s[H] = t1.wrapping_add(big0).wrapping_add(majority);
            }};
        }
        // Two rounds of the hash, two schedule words for 16 rounds later, and a fortieth of the
        // cipher's steps.
        macro_rules! interleave {
            ($g:expr) => {{
                if HASH {
                    let k = _mm_loadu_si128(K512.as_ptr().add(2 * $g).cast());
                    let wk = _mm_add_epi64(w[$g % 8], k);
                    let (first, second) =
                        (_mm_cvtsi128_si64(wk) as u64, _mm_extract_epi64::<1>(wk) as u64);
                    if $g < 32 {
                        let behind = _mm_alignr_epi8::<8>(w[($g + 1) % 8], w[$g % 8]);
                        let nine = _mm_alignr_epi8::<8>(w[($g + 5) % 8], w[($g + 4) % 8]);
                        let sum = _mm_add_epi64(_mm_add_epi64(w[$g % 8], nine), small0(behind));
                        w[$g % 8] = _mm_add_epi64(sum, small1(w[($g + 7) % 8]));
                    }
                    round!(2 * $g, first);
                    round!(2 * $g + 1, second);
                }
                cipher_step!(3 * $g);
                cipher_step!(3 * $g + 1);
                cipher_step!(3 * $g + 2);
            }};
        }
        const { assert!(QUARTERS * (ROUNDS + 1) == 3 * 40) };
        forty_times!(interleave);
        *chain = x;
        if HASH {
            state.iter_mut().zip(s).for_each(|(word, worked)| *word = word.wrapping_add(worked));
        }
    }
}

/// FIPS 180-4, section 4.1.3: σ0, of two words.
#[inline(always)]
unsafe fn small0(x: __m128i) -> __m128i {
    // SAFETY: the caller has enabled the instructions.
    unsafe {
        let by_8 =
            _mm_shuffle_epi8(x, _mm_set_epi8(8, 15, 14, 13, 12, 11, 10, 9, 0, 7, 6, 5, 4, 3, 2, 1));
        let by_1 = _mm_xor_si128(_mm_srli_epi64::<1>(x), _mm_slli_epi64::<63>(x));
        _mm_xor_si128(_mm_xor_si128(by_1, by_8), _mm_srli_epi64::<7>(x))
    }
}

/// FIPS 180-4, section 4.1.3: σ1, of two words.
#[inline(always)]
unsafe fn small1(x: __m128i) -> __m128i {
    // SAFETY: the caller has enabled the instructions.
    unsafe {
        let by_19 = _mm_xor_si128(_mm_srli_epi64::<19>(x), _mm_slli_epi64::<45>(x));
        let by_61 = _mm_xor_si128(_mm_srli_epi64::<61>(x), _mm_slli_epi64::<3>(x));
        _mm_xor_si128(_mm_xor_si128(by_19, by_61), _mm_srli_epi64::<6>(x))
    }
}
