//! Fewer messages use vectors half as wide, which run on three ports of Intel's cores instead of
//! two.

use super::vectors512::{U32x8, U32x16, U64x4, U64x8};
use crate::kernels::interface::{HashItem, HashKernel};
use crate::kernels::lanes::{self, HashLanes};
use crate::kernels::plain;
use crate::kernels::wide::{sha1, sha2};

pub(in crate::kernels) static SHA1: HashKernel<[u32; 5]> = HashKernel {
    name: "AVX-512 x16 and x8, SHA-NI",
    many: sha1_with_shani,
    few: super::shani::SHA1.few,
};
pub(in crate::kernels) static SHA1_ALONE: HashKernel<[u32; 5]> =
    HashKernel { name: "AVX-512 x16 and x8", many: sha1_alone, few: None };
pub(in crate::kernels) static SHA256: HashKernel<[u32; 8]> = HashKernel {
    name: "AVX-512 x16 and x8, SHA-NI",
    many: sha256_with_shani,
    few: super::shani::SHA256.few,
};
pub(in crate::kernels) static SHA256_ALONE: HashKernel<[u32; 8]> =
    HashKernel { name: "AVX-512 x16 and x8", many: sha256_alone, few: None };
pub(in crate::kernels) static SHA512: HashKernel<[u64; 8]> =
    HashKernel { name: "AVX-512 x8 and x4", many: sha512, few: None };

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn sha1_16(lanes: &mut HashLanes<u32, 5, 16>, blocks: usize) {
    // SAFETY: the instructions are enabled here; the rest is the caller's promise.
    unsafe { sha1::compress::<U32x16, 16>(lanes, blocks) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn sha1_8(lanes: &mut HashLanes<u32, 5, 8>, blocks: usize) {
    // SAFETY: as above.
    unsafe { sha1::compress::<U32x8, 8>(lanes, blocks) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn sha256_16(lanes: &mut HashLanes<u32, 8, 16>, blocks: usize) {
    // SAFETY: as above.
    unsafe { sha2::compress256::<U32x16, 16>(lanes, blocks) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn sha256_8(lanes: &mut HashLanes<u32, 8, 8>, blocks: usize) {
    // SAFETY: as above.
    unsafe { sha2::compress256::<U32x8, 8>(lanes, blocks) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn sha512_8(lanes: &mut HashLanes<u64, 8, 8>, blocks: usize) {
    // SAFETY: as above.
    unsafe { sha2::compress512::<U64x8, 8>(lanes, blocks) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn sha512_4(lanes: &mut HashLanes<u64, 8, 4>, blocks: usize) {
    // SAFETY: as above.
    unsafe { sha2::compress512::<U64x4, 4>(lanes, blocks) }
}

unsafe fn sha1_with_shani(items: &mut [HashItem<[u32; 5]>]) {
    // SAFETY: offered only where AVX-512F, BW, VL and SHA-NI are; the rest is the caller's promise.
    unsafe { lanes::hash(items, 64, sha1_16, 9, sha1_half_with_shani) }
}

unsafe fn sha1_half_with_shani(items: &mut [HashItem<[u32; 5]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 64, sha1_8, 4, super::shani::SHA1.many) }
}

unsafe fn sha1_alone(items: &mut [HashItem<[u32; 5]>]) {
    // SAFETY: as above, without SHA-NI.
    unsafe { lanes::hash(items, 64, sha1_16, 9, sha1_half_alone) }
}

unsafe fn sha1_half_alone(items: &mut [HashItem<[u32; 5]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 64, sha1_8, 2, plain::SHA1.many) }
}

unsafe fn sha256_with_shani(items: &mut [HashItem<[u32; 8]>]) {
    // SAFETY: as above, with SHA-NI.
    unsafe { lanes::hash(items, 64, sha256_16, 9, sha256_half_with_shani) }
}

unsafe fn sha256_half_with_shani(items: &mut [HashItem<[u32; 8]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 64, sha256_8, 6, super::shani::SHA256.many) }
}

unsafe fn sha256_alone(items: &mut [HashItem<[u32; 8]>]) {
    // SAFETY: as above, without SHA-NI.
    unsafe { lanes::hash(items, 64, sha256_16, 9, sha256_half_alone) }
}

unsafe fn sha256_half_alone(items: &mut [HashItem<[u32; 8]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 64, sha256_8, 2, plain::SHA256.many) }
}

unsafe fn sha512(items: &mut [HashItem<[u64; 8]>]) {
    // SAFETY: as above, with BMI2.
    unsafe { lanes::hash(items, 128, sha512_8, 5, sha512_half) }
}

unsafe fn sha512_half(items: &mut [HashItem<[u64; 8]>]) {
    // SAFETY: as above.
    unsafe { lanes::hash(items, 128, sha512_4, 2, super::sha512::one_by_one_avx512) }
}
