//! AES with VAES on vectors of 512 bits, four blocks each.

use std::arch::x86_64::*;

use super::{aesni, vaes256};
use crate::aes_key::AesKey;
use crate::kernels::interface::{CbcItem, DecryptKernel, EncryptKernel};
use crate::kernels::lanes::{self, CbcForms, CbcLanes};

pub(in crate::kernels) static ENCRYPT: EncryptKernel =
    EncryptKernel { name: "VAES-512 x32", many: encrypt };
pub(in crate::kernels) static DECRYPT: DecryptKernel =
    DecryptKernel { name: "VAES-512 x32", one: decrypt };

const BLOCKS: usize = 32;
const VECTORS: usize = BLOCKS / 4;

static FORMS16: CbcForms<16> = CbcForms {
    rounds10: [wide::<16, 4, 10, false>, wide::<16, 4, 10, true>],
    rounds14: [wide::<16, 4, 14, false>, wide::<16, 4, 14, true>],
};
static FORMS32: CbcForms<32> = CbcForms {
    rounds10: [wide::<32, 8, 10, false>, wide::<32, 8, 10, true>],
    rounds14: [wide::<32, 8, 14, false>, wide::<32, 8, 14, true>],
};

unsafe fn encrypt(items: &mut [CbcItem]) {
    // SAFETY: offered only where VAES, AVX-512F, AVX2 and AES-NI are; the rest is the caller's
    // promise.
    unsafe {
        match items.len() {
            0..=4 => (aesni::ENCRYPT.many)(items),
            5..=16 => lanes::encrypt(items, &FORMS16),
            _ => lanes::encrypt(items, &FORMS32),
        }
    }
}

#[target_feature(enable = "avx512f,aes,vaes")]
unsafe fn wide<const N: usize, const Z: usize, const ROUNDS: usize, const SAME: bool>(
    lanes: &mut CbcLanes<N>,
    blocks: usize,
) {
    const { assert!(N == 4 * Z) };
    let data = lanes.data;
    // SAFETY: rows of a table aligned to 64 bytes; each lane has `blocks` blocks for reads and
    // writes.
    unsafe {
        let keys = &lanes.keys;
        let key = |round: usize, vector: usize| {
            if SAME {
                _mm512_broadcast_i32x4(_mm_load_si128(keys[round].as_ptr().cast()))
            } else {
                _mm512_load_si512(keys[round].as_ptr().cast::<__m512i>().add(vector))
            }
        };
        let mut x: [__m512i; Z] = std::array::from_fn(|vector| {
            _mm512_load_si512(lanes.chain.as_ptr().cast::<__m512i>().add(vector))
        });
        for block in 0..blocks {
            for (vector, x) in x.iter_mut().enumerate() {
                let quarter =
                    |at: usize| _mm_loadu_si128(data[4 * vector + at].add(16 * block).cast());
                let plaintext =
                    _mm512_inserti32x4::<1>(_mm512_castsi128_si512(quarter(0)), quarter(1));
                let plaintext = _mm512_inserti32x4::<3>(
                    _mm512_inserti32x4::<2>(plaintext, quarter(2)),
                    quarter(3),
                );
                *x = _mm512_ternarylogic_epi32::<0x96>(*x, plaintext, key(0, vector));
            }
            for round in 1..ROUNDS {
                for (vector, x) in x.iter_mut().enumerate() {
                    *x = _mm512_aesenc_epi128(*x, key(round, vector));
                }
            }
            for (vector, x) in x.iter_mut().enumerate() {
                *x = _mm512_aesenclast_epi128(*x, key(ROUNDS, vector));
            }
            for (vector, x) in x.iter().enumerate() {
                let to =
                    |at: usize| -> *mut __m128i { data[4 * vector + at].add(16 * block).cast() };
                _mm_storeu_si128(to(0), _mm512_castsi512_si128(*x));
                _mm_storeu_si128(to(1), _mm512_extracti32x4_epi32::<1>(*x));
                _mm_storeu_si128(to(2), _mm512_extracti32x4_epi32::<2>(*x));
                _mm_storeu_si128(to(3), _mm512_extracti32x4_epi32::<3>(*x));
            }
        }
        for (vector, x) in x.into_iter().enumerate() {
            _mm512_store_si512(lanes.chain.as_mut_ptr().cast::<__m512i>().add(vector), x);
        }
        for pointer in &mut lanes.data {
            *pointer = pointer.add(16 * blocks);
        }
    }
}

fn decrypt(key: &AesKey, chain: &mut [u8; 16], blocks: &mut [[u8; 16]]) {
    let (many, rest) = blocks.as_chunks_mut::<BLOCKS>();
    // SAFETY: offered only where VAES and AVX-512F are.
    unsafe {
        match key.rounds {
            10 => decrypt_rounds::<10>(key, chain, many),
            _ => decrypt_rounds::<14>(key, chain, many),
        }
    }
    (vaes256::DECRYPT.one)(key, chain, rest);
}

#[target_feature(enable = "avx512f,aes,vaes")]
unsafe fn decrypt_rounds<const ROUNDS: usize>(
    key: &AesKey,
    chain: &mut [u8; 16],
    blocks: &mut [[[u8; 16]; BLOCKS]],
) {
    // SAFETY: loads and stores stay in the round keys and blocks.
    unsafe {
        let keys: *const __m128i = key.decrypt.as_ptr().cast();
        let key = |round: usize| _mm512_broadcast_i32x4(_mm_load_si128(keys.add(round)));
        let mut before = _mm512_broadcast_i32x4(_mm_loadu_si128(chain.as_ptr().cast()));
        for blocks in blocks {
            let at: *mut __m512i = blocks.as_mut_ptr().cast();
            let ciphertext: [__m512i; VECTORS] =
                std::array::from_fn(|vector| _mm512_loadu_si512(at.add(vector).cast()));
            let mut x = ciphertext.map(|x| _mm512_xor_si512(x, key(0)));
            for round in 1..ROUNDS {
                let key = key(round);
                for x in &mut x {
                    *x = _mm512_aesdec_epi128(*x, key);
                }
            }
            let key = key(ROUNDS);
            for x in &mut x {
                *x = _mm512_aesdeclast_epi128(*x, key);
            }
            for (vector, x) in x.into_iter().enumerate() {
                // Shifted by one block: six words of this vector after the last two of the previous
                // one.
                let earlier = _mm512_alignr_epi64::<6>(ciphertext[vector], before);
                _mm512_storeu_si512(at.add(vector).cast(), _mm512_xor_si512(x, earlier));
                before = ciphertext[vector];
            }
        }
        _mm_storeu_si128(chain.as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<3>(before));
    }
}
