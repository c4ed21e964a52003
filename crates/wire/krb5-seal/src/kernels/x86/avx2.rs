//! SHA-1 and SHA-256 of 8 messages, SHA-512 of 4, with AVX2.

use super::vectors256::{U32x8, U64x4};
use crate::kernels::interface::{HashItem, HashKernel};
use crate::kernels::lanes::{self, HashLanes};
use crate::kernels::plain;
use crate::kernels::wide::{sha1, sha2};

pub(in crate::kernels) static SHA1: HashKernel<[u32; 5]> =
    HashKernel { name: "AVX2 x8, SHA-NI", many: sha1_with_shani, few: super::shani::SHA1.few };
pub(in crate::kernels) static SHA1_ALONE: HashKernel<[u32; 5]> =
    HashKernel { name: "AVX2 x8", many: sha1_alone, few: None };
pub(in crate::kernels) static SHA256_ALONE: HashKernel<[u32; 8]> =
    HashKernel { name: "AVX2 x8", many: sha256_alone, few: None };
pub(in crate::kernels) static SHA512: HashKernel<[u64; 8]> =
    HashKernel { name: "AVX2 x4, BMI2", many: sha512, few: None };

#[target_feature(enable = "avx2")]
unsafe fn sha1_wide(lanes: &mut HashLanes<u32, 5, 8>, blocks: usize) {
    // SAFETY: AVX2 is enabled here; the rest is the caller's promise.
    unsafe { sha1::compress::<U32x8, 8>(lanes, blocks) }
}

#[target_feature(enable = "avx2")]
unsafe fn sha256_wide(lanes: &mut HashLanes<u32, 8, 8>, blocks: usize) {
    // SAFETY: as above.
    unsafe { sha2::compress256::<U32x8, 8>(lanes, blocks) }
}

#[target_feature(enable = "avx2")]
unsafe fn sha512_wide(lanes: &mut HashLanes<u64, 8, 4>, blocks: usize) {
    // SAFETY: as above.
    unsafe { sha2::compress512::<U64x4, 4>(lanes, blocks) }
}

unsafe fn sha1_with_shani(items: &mut [HashItem<[u32; 5]>]) {
    // SAFETY: offered only where AVX2 and SHA-NI are; the rest is the caller's promise.
    unsafe { lanes::hash(items, 64, sha1_wide, 5, super::shani::SHA1.many) }
}

unsafe fn sha1_alone(items: &mut [HashItem<[u32; 5]>]) {
    // SAFETY: as above, without SHA-NI.
    unsafe { lanes::hash(items, 64, sha1_wide, 3, plain::SHA1.many) }
}

unsafe fn sha256_alone(items: &mut [HashItem<[u32; 8]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 64, sha256_wide, 3, plain::SHA256.many) }
}

unsafe fn sha512(items: &mut [HashItem<[u64; 8]>]) {
    // SAFETY: as above, with BMI2.
    unsafe { lanes::hash(items, 128, sha512_wide, 2, super::sha512::one_by_one) }
}
