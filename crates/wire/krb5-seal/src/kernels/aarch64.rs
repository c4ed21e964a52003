//! AES with the ARMv8 cryptographic extension. The plain hashes use the extension themselves.

use std::arch::aarch64::*;

use super::lanes::{self, CbcForms, CbcLanes};
use crate::aes_key::AesKey;
use crate::kernels::interface::{CbcItem, DecryptKernel, EncryptKernel};

pub(super) static ENCRYPT: EncryptKernel = EncryptKernel { name: "ARMv8 AES x8", many: encrypt };
pub(super) static DECRYPT: DecryptKernel = DecryptKernel { name: "ARMv8 AES x8", one: decrypt };

static FORMS4: CbcForms<4> = CbcForms {
    rounds10: [wide::<4, 10, false>, wide::<4, 10, true>],
    rounds14: [wide::<4, 14, false>, wide::<4, 14, true>],
};
static FORMS8: CbcForms<8> = CbcForms {
    rounds10: [wide::<8, 10, false>, wide::<8, 10, true>],
    rounds14: [wide::<8, 14, false>, wide::<8, 14, true>],
};

unsafe fn encrypt(items: &mut [CbcItem]) {
    // SAFETY: offered only where the extension is; the rest is the caller's promise.
    unsafe {
        if items.len() <= 4 {
            lanes::encrypt(items, &FORMS4)
        } else {
            lanes::encrypt(items, &FORMS8)
        }
    }
}

#[target_feature(enable = "neon,aes")]
unsafe fn wide<const N: usize, const ROUNDS: usize, const SAME: bool>(
    lanes: &mut CbcLanes<N>,
    blocks: usize,
) {
    let data = lanes.data;
    let keys = &lanes.keys;
    // SAFETY: rows of 16 bytes; each lane has `blocks` blocks for reads and writes.
    unsafe {
        let key = |round: usize, lane: usize| {
            vld1q_u8(keys[round][if SAME { 0 } else { lane }].as_ptr().cast())
        };
        let mut x: [uint8x16_t; N] =
            std::array::from_fn(|lane| vld1q_u8(lanes.chain[lane].as_ptr()));
        for block in 0..blocks {
            for lane in 0..N {
                x[lane] = veorq_u8(x[lane], vld1q_u8(data[lane].add(16 * block)));
            }
            // AESE adds the key first, so the last key is added separately.
            for round in 0..ROUNDS - 1 {
                for lane in 0..N {
                    x[lane] = vaesmcq_u8(vaeseq_u8(x[lane], key(round, lane)));
                }
            }
            for lane in 0..N {
                x[lane] = veorq_u8(vaeseq_u8(x[lane], key(ROUNDS - 1, lane)), key(ROUNDS, lane));
            }
            for lane in 0..N {
                vst1q_u8(data[lane].add(16 * block), x[lane]);
            }
        }
        for lane in 0..N {
            vst1q_u8(lanes.chain[lane].as_mut_ptr(), x[lane]);
            lanes.data[lane] = data[lane].add(16 * blocks);
        }
    }
}

fn decrypt(key: &AesKey, chain: &mut [u8; 16], blocks: &mut [[u8; 16]]) {
    // SAFETY: offered only where the extension is.
    unsafe {
        match key.rounds {
            10 => decrypt_rounds::<10>(key, chain, blocks),
            _ => decrypt_rounds::<14>(key, chain, blocks),
        }
    }
}

#[target_feature(enable = "neon,aes")]
unsafe fn decrypt_rounds<const ROUNDS: usize>(
    key: &AesKey,
    chain: &mut [u8; 16],
    blocks: &mut [[u8; 16]],
) {
    const N: usize = 8;
    // SAFETY: loads and stores of 16 bytes stay in their arrays.
    unsafe {
        let key = |round: usize| vld1q_u8(key.decrypt[round].as_ptr());
        let mut before = vld1q_u8(chain.as_ptr());
        for blocks in blocks.chunks_mut(N) {
            // Blocks beyond the end are computed and not stored.
            let ciphertext: [uint8x16_t; N] =
                std::array::from_fn(|block| vld1q_u8(blocks[block.min(blocks.len() - 1)].as_ptr()));
            let mut x = ciphertext;
            for round in 0..ROUNDS - 1 {
                for x in &mut x {
                    *x = vaesimcq_u8(vaesdq_u8(*x, key(round)));
                }
            }
            for x in &mut x {
                *x = veorq_u8(vaesdq_u8(*x, key(ROUNDS - 1)), key(ROUNDS));
            }
            for (block, plaintext) in blocks.iter_mut().zip(x) {
                let current = vld1q_u8(block.as_ptr());
                vst1q_u8(block.as_mut_ptr(), veorq_u8(plaintext, before));
                before = current;
            }
        }
        vst1q_u8(chain.as_mut_ptr(), before);
    }
}
