//! Kernels for x86-64, by instruction set.

pub(super) mod aesni;
pub(super) mod avx2;
pub(super) mod avx512;
mod sha512;
pub(super) mod sha512_cbc;
pub(super) mod shani;
pub(super) mod stitched;
pub(super) mod stitched512;
pub(super) mod vaes256;
pub(super) mod vaes512;
mod vectors256;
mod vectors512;
