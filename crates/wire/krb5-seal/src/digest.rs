//! Hash states, padding, and HMAC (RFC 2104) with precompressed pads.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::enctype::Enctype;
use crate::kernels::{HashFew, HashItem, Kernels, StitchOne};

pub(crate) const BLOCK_LEN_MAX: usize = 128;
/// SHA-384's.
pub(crate) const DIGEST_LEN_MAX: usize = 48;

pub(crate) trait Digest: Sized + 'static {
    type State: Copy + Zeroize + PartialEq + std::fmt::Debug + Send + Sync + 'static;
    const BLOCK_LEN: usize;
    const COUNT_LEN: usize;
    const LEN: usize;
    const INITIAL: Self::State;

    fn compress(state: &mut Self::State, blocks: &[u8]);

    fn output(state: &Self::State) -> [u8; DIGEST_LEN_MAX];

    /// # Safety
    /// As [`HashItem`] says.
    unsafe fn run(kernels: &Kernels, items: &mut [HashItem<Self::State>]);

    fn few(kernels: &Kernels) -> Option<HashFew<Self::State>>;

    fn stitched(_kernels: &Kernels) -> Option<StitchOne<Self::State>> {
        None
    }

    fn pads(key: &HmacKey) -> Option<&HmacPads<Self>>;
}

pub(crate) struct Sha1;
pub(crate) struct Sha256;
pub(crate) struct Sha384;

impl Digest for Sha1 {
    type State = [u32; 5];
    const BLOCK_LEN: usize = 64;
    const COUNT_LEN: usize = 8;
    const LEN: usize = 20;
    const INITIAL: [u32; 5] = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0];

    fn compress(state: &mut [u32; 5], blocks: &[u8]) {
        sha1::block_api::compress(state, blocks.as_chunks().0);
    }

    fn output(state: &[u32; 5]) -> [u8; DIGEST_LEN_MAX] {
        words_out(state, u32::to_be_bytes)
    }

    unsafe fn run(kernels: &Kernels, items: &mut [HashItem<[u32; 5]>]) {
        // SAFETY: the caller's promise.
        unsafe { (kernels.sha1.many)(items) }
    }

    fn few(kernels: &Kernels) -> Option<HashFew<[u32; 5]>> {
        kernels.sha1.few
    }

    fn pads(key: &HmacKey) -> Option<&HmacPads<Sha1>> {
        if let HmacKey::Sha1(pads) = key { Some(pads) } else { None }
    }
}

impl Digest for Sha256 {
    type State = [u32; 8];
    const BLOCK_LEN: usize = 64;
    const COUNT_LEN: usize = 8;
    const LEN: usize = 32;
    const INITIAL: [u32; 8] = [
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
        0x5be0cd19,
    ];

    fn compress(state: &mut [u32; 8], blocks: &[u8]) {
        sha2::block_api::compress256(state, blocks.as_chunks().0);
    }

    fn output(state: &[u32; 8]) -> [u8; DIGEST_LEN_MAX] {
        words_out(state, u32::to_be_bytes)
    }

    unsafe fn run(kernels: &Kernels, items: &mut [HashItem<[u32; 8]>]) {
        // SAFETY: the caller's promise.
        unsafe { (kernels.sha256.many)(items) }
    }

    fn few(kernels: &Kernels) -> Option<HashFew<[u32; 8]>> {
        kernels.sha256.few
    }

    fn pads(key: &HmacKey) -> Option<&HmacPads<Sha256>> {
        if let HmacKey::Sha256(pads) = key { Some(pads) } else { None }
    }
}

impl Digest for Sha384 {
    type State = [u64; 8];
    const BLOCK_LEN: usize = 128;
    const COUNT_LEN: usize = 16;
    const LEN: usize = 48;
    const INITIAL: [u64; 8] = [
        0xcbbb9d5dc1059ed8,
        0x629a292a367cd507,
        0x9159015a3070dd17,
        0x152fecd8f70e5939,
        0x67332667ffc00b31,
        0x8eb44a8768581511,
        0xdb0c2e0d64f98fa7,
        0x47b5481dbefa4fa4,
    ];

    fn compress(state: &mut [u64; 8], blocks: &[u8]) {
        sha2::block_api::compress512(state, blocks.as_chunks().0);
    }

    fn output(state: &[u64; 8]) -> [u8; DIGEST_LEN_MAX] {
        words_out(&state[..6], u64::to_be_bytes)
    }

    unsafe fn run(kernels: &Kernels, items: &mut [HashItem<[u64; 8]>]) {
        // SAFETY: the caller's promise.
        unsafe { (kernels.sha512.many)(items) }
    }

    fn few(kernels: &Kernels) -> Option<HashFew<[u64; 8]>> {
        kernels.sha512.few
    }

    fn stitched(kernels: &Kernels) -> Option<StitchOne<[u64; 8]>> {
        kernels.stitched512
    }

    fn pads(key: &HmacKey) -> Option<&HmacPads<Sha384>> {
        if let HmacKey::Sha384(pads) = key { Some(pads) } else { None }
    }
}

fn words_out<W: Copy, const LEN: usize>(
    words: &[W],
    bytes: impl Fn(W) -> [u8; LEN],
) -> [u8; DIGEST_LEN_MAX] {
    let mut output = [0; DIGEST_LEN_MAX];
    for (to, word) in output.as_chunks_mut().0.iter_mut().zip(words) {
        *to = bytes(*word);
    }
    output
}

/// `tail` has `filled` bytes of the last block; `total_len` includes the HMAC key's block. Returns
/// the blocks in `tail`: one or two.
pub(crate) fn pad<D: Digest>(
    tail: &mut [u8; 2 * BLOCK_LEN_MAX],
    filled: usize,
    total_len: u64,
) -> usize {
    debug_assert!(filled < D::BLOCK_LEN);
    let blocks = if filled + 1 + D::COUNT_LEN <= D::BLOCK_LEN { 1 } else { 2 };
    let end = blocks * D::BLOCK_LEN;
    tail[filled] = 0x80;
    tail[filled + 1..end].fill(0);
    tail[end - 8..end].copy_from_slice(&(8 * total_len).to_be_bytes());
    blocks
}

#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct HmacPads<D: Digest> {
    pub(crate) inner: D::State,
    pub(crate) outer: D::State,
}

impl<D: Digest> HmacPads<D> {
    pub(crate) fn empty() -> HmacPads<D> {
        HmacPads { inner: D::INITIAL, outer: D::INITIAL }
    }

    #[cfg(test)]
    pub(crate) fn new(key: &[u8]) -> HmacPads<D> {
        let mut pads = HmacPads::empty();
        pads.set(key);
        pads
    }

    pub(crate) fn set(&mut self, key: &[u8]) {
        for (state, with) in [(&mut self.inner, 0x36), (&mut self.outer, 0x5c)] {
            let mut block = [with; BLOCK_LEN_MAX];
            for (byte, key) in block.iter_mut().zip(key) {
                *byte ^= key;
            }
            *state = D::INITIAL;
            D::compress(state, &block[..D::BLOCK_LEN]);
            block.zeroize();
        }
    }

    /// Uses the plain kernel: it runs once in a context.
    pub(crate) fn mac(&self, message: &[u8]) -> [u8; DIGEST_LEN_MAX] {
        let whole = message.len() / D::BLOCK_LEN * D::BLOCK_LEN;
        let mut state = self.inner;
        D::compress(&mut state, &message[..whole]);
        let mut tail = [0; 2 * BLOCK_LEN_MAX];
        tail[..message.len() - whole].copy_from_slice(&message[whole..]);
        let blocks =
            pad::<D>(&mut tail, message.len() - whole, (D::BLOCK_LEN + message.len()) as u64);
        D::compress(&mut state, &tail[..blocks * D::BLOCK_LEN]);
        Self::outer_block(&state, &mut tail);
        let mut outer = self.outer;
        D::compress(&mut outer, &tail[..D::BLOCK_LEN]);
        let mac = D::output(&outer);
        state.zeroize();
        outer.zeroize();
        tail.zeroize();
        mac
    }

    pub(crate) fn outer_block(inner: &D::State, tail: &mut [u8; 2 * BLOCK_LEN_MAX]) {
        tail[..D::LEN].copy_from_slice(&D::output(inner)[..D::LEN]);
        let blocks = pad::<D>(tail, D::LEN, (D::BLOCK_LEN + D::LEN) as u64);
        debug_assert_eq!(blocks, 1);
    }
}

pub(crate) enum HmacKey {
    Sha1(HmacPads<Sha1>),
    Sha256(HmacPads<Sha256>),
    Sha384(HmacPads<Sha384>),
}

impl HmacKey {
    pub(crate) fn empty(enctype: Enctype) -> HmacKey {
        match enctype {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => {
                HmacKey::Sha1(HmacPads::empty())
            }
            Enctype::Aes128CtsHmacSha256_128 => HmacKey::Sha256(HmacPads::empty()),
            Enctype::Aes256CtsHmacSha384_192 => HmacKey::Sha384(HmacPads::empty()),
        }
    }

    pub(crate) fn set(&mut self, key: &[u8]) {
        match self {
            HmacKey::Sha1(pads) => pads.set(key),
            HmacKey::Sha256(pads) => pads.set(key),
            HmacKey::Sha384(pads) => pads.set(key),
        }
    }
}
