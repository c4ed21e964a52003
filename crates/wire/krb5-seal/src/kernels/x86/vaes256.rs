//! AES with VAES on vectors of 256 bits, two blocks each.

use std::arch::x86_64::*;

use super::aesni;
use crate::aes_key::AesKey;
use crate::kernels::interface::{CbcItem, DecryptKernel, EncryptKernel};
use crate::kernels::lanes::{self, CbcForms, CbcLanes};

pub(in crate::kernels) static ENCRYPT: EncryptKernel =
    EncryptKernel { name: "VAES-256 x16", many: encrypt };
pub(in crate::kernels) static DECRYPT: DecryptKernel =
    DecryptKernel { name: "VAES-256 x16", one: decrypt };

const LANES: usize = 16;
const VECTORS: usize = LANES / 2;

static FORMS: CbcForms<LANES> = CbcForms {
    rounds10: [wide::<10, false>, wide::<10, true>],
    rounds14: [wide::<14, false>, wide::<14, true>],
};

unsafe fn encrypt(items: &mut [CbcItem]) {
    // SAFETY: offered only where VAES, AVX2 and AES-NI are; the rest is the caller's promise.
    unsafe {
        if items.len() <= 4 { (aesni::ENCRYPT.many)(items) } else { lanes::encrypt(items, &FORMS) }
    }
}

#[target_feature(enable = "avx2,aes,vaes")]
unsafe fn wide<const ROUNDS: usize, const SAME: bool>(lanes: &mut CbcLanes<LANES>, blocks: usize) {
    let data = lanes.data;
    // SAFETY: rows of a table aligned to 64 bytes; each lane has `blocks` blocks for reads and
    // writes.
    unsafe {
        let keys = &lanes.keys;
        let key = |round: usize, vector: usize| {
            if SAME {
                _mm256_broadcastsi128_si256(_mm_load_si128(keys[round].as_ptr().cast()))
            } else {
                _mm256_load_si256(keys[round].as_ptr().cast::<__m256i>().add(vector))
            }
        };
        let mut x: [__m256i; VECTORS] = std::array::from_fn(|vector| {
            _mm256_load_si256(lanes.chain.as_ptr().cast::<__m256i>().add(vector))
        });
        for block in 0..blocks {
            for (vector, x) in x.iter_mut().enumerate() {
                let low = _mm_loadu_si128(data[2 * vector].add(16 * block).cast());
                let high = _mm_loadu_si128(data[2 * vector + 1].add(16 * block).cast());
                let plaintext = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
                *x = _mm256_xor_si256(*x, _mm256_xor_si256(plaintext, key(0, vector)));
            }
            for round in 1..ROUNDS {
                for (vector, x) in x.iter_mut().enumerate() {
                    *x = _mm256_aesenc_epi128(*x, key(round, vector));
                }
            }
            for (vector, x) in x.iter_mut().enumerate() {
                *x = _mm256_aesenclast_epi128(*x, key(ROUNDS, vector));
            }
            for (vector, x) in x.iter().enumerate() {
                _mm_storeu_si128(
                    data[2 * vector].add(16 * block).cast(),
                    _mm256_castsi256_si128(*x),
                );
                _mm_storeu_si128(
                    data[2 * vector + 1].add(16 * block).cast(),
                    _mm256_extracti128_si256::<1>(*x),
                );
            }
        }
        for (vector, x) in x.into_iter().enumerate() {
            _mm256_store_si256(lanes.chain.as_mut_ptr().cast::<__m256i>().add(vector), x);
        }
        for pointer in &mut lanes.data {
            *pointer = pointer.add(16 * blocks);
        }
    }
}

fn decrypt(key: &AesKey, chain: &mut [u8; 16], blocks: &mut [[u8; 16]]) {
    let (many, rest) = blocks.as_chunks_mut::<LANES>();
    // SAFETY: offered only where VAES and AVX2 are.
    unsafe {
        match key.rounds {
            10 => decrypt_rounds::<10>(key, chain, many),
            _ => decrypt_rounds::<14>(key, chain, many),
        }
    }
    aesni::decrypt(key, chain, rest);
}

#[target_feature(enable = "avx2,aes,vaes")]
unsafe fn decrypt_rounds<const ROUNDS: usize>(
    key: &AesKey,
    chain: &mut [u8; 16],
    blocks: &mut [[[u8; 16]; LANES]],
) {
    // SAFETY: loads and stores stay in the round keys and blocks.
    unsafe {
        let keys: *const __m128i = key.decrypt.as_ptr().cast();
        let key = |round: usize| _mm256_broadcastsi128_si256(_mm_load_si128(keys.add(round)));
        let mut before = _mm_loadu_si128(chain.as_ptr().cast());
        for blocks in blocks {
            let at: *mut __m256i = blocks.as_mut_ptr().cast();
            let mut x: [__m256i; VECTORS] = std::array::from_fn(|vector| {
                _mm256_xor_si256(_mm256_loadu_si256(at.add(vector)), key(0))
            });
            for round in 1..ROUNDS {
                let key = key(round);
                for x in &mut x {
                    *x = _mm256_aesdec_epi128(*x, key);
                }
            }
            let key = key(ROUNDS);
            for x in &mut x {
                *x = _mm256_aesdeclast_epi128(*x, key);
            }
            for (vector, x) in x.into_iter().enumerate() {
                let ciphertext = _mm256_loadu_si256(at.add(vector));
                let earlier = _mm256_inserti128_si256::<1>(
                    _mm256_castsi128_si256(before),
                    _mm256_castsi256_si128(ciphertext),
                );
                _mm256_storeu_si256(at.add(vector), _mm256_xor_si256(x, earlier));
                before = _mm256_extracti128_si256::<1>(ciphertext);
            }
        }
        _mm_storeu_si128(chain.as_mut_ptr().cast(), before);
    }
}
