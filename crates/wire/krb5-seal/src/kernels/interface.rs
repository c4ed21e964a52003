//! The items that a kernel takes, and its functions.

use crate::aes_key::AesKey;

/// Messages in progress: the lanes of the widest kernel.
pub(crate) const LANES_MAX: usize = 32;

pub(crate) const SHORTS_MAX: usize = 16;

#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) start: *mut u8,
    pub(crate) blocks: usize,
}

impl Segment {
    pub(crate) const NONE: Segment = Segment { start: std::ptr::null_mut(), blocks: 0 };
}

/// Compresses `segments` one after the other into `state`.
///
/// # Safety
/// The caller of a kernel promises that each segment with blocks is valid for reads during the
/// call.
#[derive(Clone, Copy)]
pub(crate) struct HashItem<S> {
    pub(crate) state: S,
    pub(crate) segments: [Segment; 2],
}

/// Encrypts `segments` one after the other in place in CBC mode. `chain` is the last ciphertext
/// block afterwards.
///
/// # Safety
/// The caller of a kernel promises that `key` is valid for reads, that each segment with blocks is
/// valid for reads and writes and does not overlap other memory of the call, and that all items
/// have keys of one length.
#[derive(Clone, Copy)]
pub(crate) struct CbcItem {
    pub(crate) key: *const AesKey,
    pub(crate) chain: [u8; 16],
    pub(crate) segments: [Segment; 2],
}

pub(crate) struct HashKernel<S> {
    pub(crate) name: &'static str,
    pub(crate) many: unsafe fn(&mut [HashItem<S>]),
    pub(crate) few: Option<HashFew<S>>,
}

/// As far as both messages go. The blocks must be valid for reads.
pub(crate) type HashFew<S> = unsafe fn(&mut [S; 2], [*const u8; 2], [usize; 2]);

pub(crate) struct EncryptKernel {
    pub(crate) name: &'static str,
    pub(crate) many: unsafe fn(&mut [CbcItem]),
}

pub(crate) struct DecryptKernel {
    pub(crate) name: &'static str,
    /// In place; `chain` is the preceding ciphertext block, and afterwards the last one.
    pub(crate) one: fn(&AesKey, &mut [u8; 16], &mut [[u8; 16]]),
}

/// A message of RFC 3962, hashed and encrypted in one pass.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is no such kernel"))]
pub(crate) struct Stitched {
    /// Valid for reads; all items' keys have the same length.
    pub(crate) key: *const AesKey,
    pub(crate) chain: [u8; 16],
    pub(crate) state: [u32; 5],
    pub(crate) data: *mut u8,
}

pub(crate) const STITCHED_MAX: usize = 16;

#[derive(Clone, Copy)]
pub(crate) struct StitchedKernel {
    pub(crate) messages_max: usize,
    /// Blocks of 64 bytes of each message in place, valid for reads and writes and unaliased.
    /// Advances chains and states.
    pub(crate) seal: unsafe fn(&mut [Stitched], usize),
}

/// A message of RFC 8009, encrypted and hashed in one pass.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is no such kernel"))]
pub(crate) struct StitchedOne<S> {
    /// Valid for reads, with the hash's key length.
    pub(crate) key: *const AesKey,
    pub(crate) chain: [u8; 16],
    pub(crate) state: S,
    pub(crate) cipher: *mut u8,
    /// Lags behind encryption.
    pub(crate) hash: *const u8,
}

/// Encrypts `steps` hash blocks in place, and hashes one block less, each after its encryption. The
/// data must be valid for reads and writes, and unaliased. Advances chain and state.
pub(crate) type StitchOne<S> = unsafe fn(&mut StitchedOne<S>, usize);
