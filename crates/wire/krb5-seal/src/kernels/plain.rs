//! RustCrypto, which detects CPU features or uses bit-slicing. Reference for all other kernels.

use crate::aes_key::AesKey;
use crate::digest::{Digest, Sha1, Sha256, Sha384};
use crate::kernels::interface::{CbcItem, DecryptKernel, EncryptKernel, HashItem, HashKernel};
use crate::wipe::wipe_cipher;

pub(crate) static ENCRYPT: EncryptKernel = EncryptKernel { name: "RustCrypto", many: encrypt };
pub(crate) static DECRYPT: DecryptKernel = DecryptKernel { name: "RustCrypto", one: decrypt };
pub(crate) static SHA1: HashKernel<[u32; 5]> =
    HashKernel { name: "RustCrypto", many: hash::<Sha1>, few: None };
pub(crate) static SHA256: HashKernel<[u32; 8]> =
    HashKernel { name: "RustCrypto", many: hash::<Sha256>, few: None };
pub(crate) static SHA512: HashKernel<[u64; 8]> =
    HashKernel { name: "RustCrypto", many: hash::<Sha384>, few: None };

unsafe fn encrypt(items: &mut [CbcItem]) {
    for item in items {
        // SAFETY: the caller's promise.
        unsafe { encrypt_one(item) };
    }
    wipe_cipher();
}

/// In a frame of its own, as the cipher is made there.
///
/// # Safety
/// As for [`EncryptKernel`].
#[inline(never)]
unsafe fn encrypt_one(item: &mut CbcItem) {
    // SAFETY: the caller's promise.
    let cipher = unsafe { &*item.key }.plain();
    for segment in item.segments.iter().filter(|segment| segment.blocks > 0) {
        // SAFETY: the caller's promise.
        let blocks = unsafe {
            std::slice::from_raw_parts_mut(segment.start.cast::<[u8; 16]>(), segment.blocks)
        };
        for block in blocks {
            xor(block, &item.chain);
            cipher.encrypt_block(block);
            item.chain = *block;
        }
    }
}

fn decrypt(key: &AesKey, chain: &mut [u8; 16], blocks: &mut [[u8; 16]]) {
    decrypt_one(key, chain, blocks);
    wipe_cipher();
}

#[inline(never)]
fn decrypt_one(key: &AesKey, chain: &mut [u8; 16], blocks: &mut [[u8; 16]]) {
    let cipher = key.plain();
    for blocks in blocks.chunks_mut(8) {
        let mut ciphertext = [[0; 16]; 8];
        ciphertext[..blocks.len()].copy_from_slice(blocks);
        cipher.decrypt_blocks(blocks);
        for (block, ciphertext) in blocks.iter_mut().zip(&ciphertext) {
            xor(block, chain);
            *chain = *ciphertext;
        }
    }
}

unsafe fn hash<D: Digest>(items: &mut [HashItem<D::State>]) {
    for item in items {
        for segment in item.segments.iter().filter(|segment| segment.blocks > 0) {
            // SAFETY: the caller's promise.
            let blocks =
                unsafe { std::slice::from_raw_parts(segment.start, segment.blocks * D::BLOCK_LEN) };
            D::compress(&mut item.state, blocks);
        }
    }
}

fn xor(block: &mut [u8; 16], with: &[u8; 16]) {
    *block = (u128::from_ne_bytes(*block) ^ u128::from_ne_bytes(*with)).to_ne_bytes();
}
