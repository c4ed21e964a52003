//! AES with AES-NI.

use std::arch::x86_64::*;

use crate::aes_key::AesKey;
use crate::kernels::interface::{CbcItem, DecryptKernel, EncryptKernel};
use crate::kernels::lanes::{self, CbcForms, CbcLanes};

pub(in crate::kernels) static ENCRYPT: EncryptKernel =
    EncryptKernel { name: "AES-NI x8", many: encrypt };
pub(in crate::kernels) static DECRYPT: DecryptKernel =
    DecryptKernel { name: "AES-NI x8", one: decrypt };

static FORMS4: CbcForms<4> = CbcForms {
    rounds10: [wide::<4, 10, false>, wide::<4, 10, true>],
    rounds14: [wide::<4, 14, false>, wide::<4, 14, true>],
};
static FORMS8: CbcForms<8> = CbcForms {
    rounds10: [wide::<8, 10, false>, wide::<8, 10, true>],
    rounds14: [wide::<8, 14, false>, wide::<8, 14, true>],
};

unsafe fn encrypt(items: &mut [CbcItem]) {
    // SAFETY: offered only where AES-NI is; the rest is the caller's promise.
    unsafe {
        if items.len() <= 4 {
            lanes::encrypt(items, &FORMS4)
        } else {
            lanes::encrypt(items, &FORMS8)
        }
    }
}

#[target_feature(enable = "sse2,aes")]
unsafe fn wide<const N: usize, const ROUNDS: usize, const SAME: bool>(
    lanes: &mut CbcLanes<N>,
    blocks: usize,
) {
    let data = lanes.data;
    let keys = &lanes.keys;
    let column = |round: usize, lane: usize| -> *const __m128i {
        keys[round][if SAME { 0 } else { lane }].as_ptr().cast()
    };
    // SAFETY: aligned rows of 16 bytes; each lane has `blocks` blocks for reads and writes.
    unsafe {
        let mut x: [__m128i; N] =
            std::array::from_fn(|lane| _mm_loadu_si128(lanes.chain[lane].as_ptr().cast()));
        for block in 0..blocks {
            for lane in 0..N {
                let plaintext = _mm_loadu_si128(data[lane].add(16 * block).cast());
                x[lane] = _mm_xor_si128(
                    x[lane],
                    _mm_xor_si128(plaintext, _mm_load_si128(column(0, lane))),
                );
            }
            for round in 1..ROUNDS {
                for lane in 0..N {
                    x[lane] = _mm_aesenc_si128(x[lane], _mm_load_si128(column(round, lane)));
                }
            }
            for lane in 0..N {
                x[lane] = _mm_aesenclast_si128(x[lane], _mm_load_si128(column(ROUNDS, lane)));
            }
            for lane in 0..N {
                _mm_storeu_si128(data[lane].add(16 * block).cast(), x[lane]);
            }
        }
        for lane in 0..N {
            _mm_storeu_si128(lanes.chain[lane].as_mut_ptr().cast(), x[lane]);
            lanes.data[lane] = data[lane].add(16 * blocks);
        }
    }
}

pub(in crate::kernels) fn decrypt(key: &AesKey, chain: &mut [u8; 16], blocks: &mut [[u8; 16]]) {
    // SAFETY: offered only where AES-NI is.
    unsafe {
        match key.rounds {
            10 => decrypt_rounds::<10>(key, chain, blocks),
            _ => decrypt_rounds::<14>(key, chain, blocks),
        }
    }
}

#[target_feature(enable = "sse2,aes")]
unsafe fn decrypt_rounds<const ROUNDS: usize>(
    key: &AesKey,
    chain: &mut [u8; 16],
    blocks: &mut [[u8; 16]],
) {
    const N: usize = 8;
    // SAFETY: loads and stores of 16 bytes stay in their arrays.
    unsafe {
        let keys: *const __m128i = key.decrypt.as_ptr().cast();
        let mut before = _mm_loadu_si128(chain.as_ptr().cast());
        let (many, rest) = blocks.as_chunks_mut::<N>();
        for blocks in many {
            let at: *mut __m128i = blocks.as_mut_ptr().cast();
            let mut x: [__m128i; N] = std::array::from_fn(|block| {
                _mm_xor_si128(_mm_loadu_si128(at.add(block)), _mm_load_si128(keys))
            });
            for round in 1..ROUNDS {
                for block in &mut x {
                    *block = _mm_aesdec_si128(*block, _mm_load_si128(keys.add(round)));
                }
            }
            for block in &mut x {
                *block = _mm_aesdeclast_si128(*block, _mm_load_si128(keys.add(ROUNDS)));
            }
            for (block, plaintext) in x.into_iter().enumerate() {
                let ciphertext = _mm_loadu_si128(at.add(block));
                _mm_storeu_si128(at.add(block), _mm_xor_si128(plaintext, before));
                before = ciphertext;
            }
        }
        for block in rest {
            let ciphertext = _mm_loadu_si128(block.as_ptr().cast());
            let mut x = _mm_xor_si128(ciphertext, _mm_load_si128(keys));
            for round in 1..ROUNDS {
                x = _mm_aesdec_si128(x, _mm_load_si128(keys.add(round)));
            }
            x = _mm_aesdeclast_si128(x, _mm_load_si128(keys.add(ROUNDS)));
            _mm_storeu_si128(block.as_mut_ptr().cast(), _mm_xor_si128(x, before));
            before = ciphertext;
        }
        _mm_storeu_si128(chain.as_mut_ptr().cast(), before);
    }
}
