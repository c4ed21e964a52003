//! SHA-1 and CBC encryption in one pass over the lanes of AVX-512 (RFC 3962): ports limit one,
//! latency the other.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use zeroize::Zeroize;

use super::stitched;
use super::vectors512::{U32x8, U32x16};
use crate::kernels::interface::Stitched;
use crate::kernels::lanes::{CbcLanes, HashLanes};
use crate::kernels::wide::{Interleaved, Vector, sha1};
use crate::wipe::wipe_frames;

pub(in crate::kernels) const MESSAGES_MAX: usize = 16;

/// Hashes and then encrypts blocks of 64 bytes in place, of up to [`MESSAGES_MAX`] messages.
///
/// # Safety
/// As [`StitchedKernel`](crate::kernels::StitchedKernel) says; the CPU has VAES, AVX-512F, BW and
/// VL, AES-NI and the SHA extensions.
pub(in crate::kernels) unsafe fn seal(items: &mut [Stitched], blocks: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match items.len() {
            0..=3 => stitched::seal(items, blocks),
            4..=8 => over::<8>(items, blocks, [seal8::<10>, seal8::<14>]),
            _ => items
                .chunks_mut(MESSAGES_MAX)
                .for_each(|items| over::<16>(items, blocks, [seal16::<10>, seal16::<14>])),
        }
    }
}

type Wide<const N: usize> = unsafe fn(&mut HashLanes<u32, 5, N>, &mut CbcLanes<N>, usize);

/// Distributes up to `N` items to the lanes of the kernel for their key length. Idle lanes repeat
/// the first lane's work and write equal data.
///
/// # Safety
/// As [`seal`].
unsafe fn over<const N: usize>(items: &mut [Stitched], blocks: usize, kernels: [Wide<N>; 2]) {
    let Some(first) = items.first() else { return };
    // SAFETY: the caller's promise.
    let rounds = unsafe { (*first.key).rounds };
    let mut hash = HashLanes { state: [[0; N]; 5], data: [first.data.cast_const(); N] };
    let mut cbc = CbcLanes::new([first.data; N]);
    for lane in 0..N {
        let item = items.get(lane).unwrap_or(&items[0]);
        for (words, word) in hash.state.iter_mut().zip(item.state) {
            words[lane] = word;
        }
        // SAFETY: the caller's promise.
        cbc.set_key(lane, unsafe { &*item.key });
        (cbc.chain[lane], cbc.data[lane], hash.data[lane]) = (item.chain, item.data, item.data);
    }
    // SAFETY: the caller's promise.
    unsafe { kernels[usize::from(rounds == 14)](&mut hash, &mut cbc, blocks) };
    wipe_frames();
    for (lane, item) in items.iter_mut().enumerate() {
        item.state = std::array::from_fn(|word| hash.state[word][lane]);
        item.chain = cbc.chain[lane];
    }
    hash.state.zeroize();
    cbc.wipe_keys(N);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,aes,vaes")]
unsafe fn seal16<const ROUNDS: usize>(
    hash: &mut HashLanes<u32, 5, 16>,
    cbc: &mut CbcLanes<16>,
    blocks: usize,
) {
    // SAFETY: the instructions are enabled here; the rest is the caller's promise.
    unsafe { both::<U32x16, __m512i, 16, ROUNDS>(hash, cbc, blocks) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,aes,vaes")]
unsafe fn seal8<const ROUNDS: usize>(
    hash: &mut HashLanes<u32, 5, 8>,
    cbc: &mut CbcLanes<8>,
    blocks: usize,
) {
    // SAFETY: as above.
    unsafe { both::<U32x8, __m256i, 8, ROUNDS>(hash, cbc, blocks) }
}

/// # Safety
/// As [`seal`]; `C` has `N / 4` blocks.
#[inline(always)]
unsafe fn both<V: Vector<Word = u32>, C: Blocks, const N: usize, const ROUNDS: usize>(
    hash: &mut HashLanes<u32, 5, N>,
    cbc: &mut CbcLanes<N>,
    blocks: usize,
) {
    const { assert!(N == VECTORS * C::COUNT) };
    // SAFETY: rows of a table aligned to 64 bytes; the rest is the caller's promise.
    unsafe {
        let chain = cbc.chain.as_mut_ptr().cast::<C>();
        let mut cipher = Cipher::<C, N, ROUNDS> {
            x: std::array::from_fn(|at| *chain.add(at)),
            keys: &cbc.keys,
            data: &cbc.data,
            offset: 0,
        };
        sha1::compress_interleaved::<V, _, N>(hash, blocks, &mut cipher);
        for (at, x) in cipher.x.into_iter().enumerate() {
            *chain.add(at) = x;
        }
    }
}

const VECTORS: usize = 4;
const QUARTERS: usize = 4;
const TURNS: usize = 80;

struct Cipher<'a, C, const N: usize, const ROUNDS: usize> {
    x: [C; VECTORS],
    keys: &'a [[MaybeUninit<[u8; 16]>; N]; 15],
    data: &'a [*mut u8; N],
    offset: usize,
}

impl<C: Blocks, const N: usize, const ROUNDS: usize> Interleaved for Cipher<'_, C, N, ROUNDS> {
    #[inline(always)]
    unsafe fn begin(&mut self, block: usize) {
        self.offset = 64 * block;
    }

    /// A step of the cipher, or none: `ROUNDS + 1` for each of the four blocks, all read before one
    /// is written.
    #[inline(always)]
    unsafe fn step_round(&mut self, round: usize) {
        const { assert!(QUARTERS * (ROUNDS + 1) <= TURNS) };
        let steps = QUARTERS * (ROUNDS + 1);
        let step = round * steps / TURNS;
        if (round + 1) * steps / TURNS == step {
            return;
        }
        let (quarter, step) = (step / (ROUNDS + 1), step % (ROUNDS + 1));
        let offset = self.offset + 16 * quarter;
        // SAFETY: rows of a table aligned to 64 bytes; each lane has the block for reads and
        // writes.
        unsafe {
            let keys = self.keys[step].as_ptr().cast::<C>();
            for (at, x) in self.x.iter_mut().enumerate() {
                let key = *keys.add(at);
                let data = self.data.as_ptr().add(C::COUNT * at);
                if step == 0 {
                    *x = x.xor3(C::gather(data, offset), key);
                } else if step < ROUNDS {
                    *x = x.aesenc(key);
                } else {
                    *x = x.aesenclast(key);
                }
            }
            if step == ROUNDS {
                for (at, x) in self.x.iter().enumerate() {
                    x.scatter(self.data.as_ptr().add(C::COUNT * at), offset);
                }
            }
        }
    }
}

/// A vector of the cipher's blocks.
///
/// # Safety
/// All methods need VAES and AVX-512F and VL; they are inlined into functions that enable them.
/// Pointers are valid for reads and writes of a block behind `offset`.
trait Blocks: Copy {
    const COUNT: usize;

    unsafe fn gather(data: *const *mut u8, offset: usize) -> Self;
    unsafe fn scatter(self, data: *const *mut u8, offset: usize);
    unsafe fn xor3(self, b: Self, c: Self) -> Self;
    unsafe fn aesenc(self, key: Self) -> Self;
    unsafe fn aesenclast(self, key: Self) -> Self;
}

#[inline(always)]
unsafe fn block(data: *const *mut u8, lane: usize, offset: usize) -> *mut __m128i {
    // SAFETY: as [`Blocks`] says.
    unsafe { (*data.add(lane)).add(offset).cast() }
}

impl Blocks for __m512i {
    const COUNT: usize = 4;

    #[inline(always)]
    unsafe fn gather(data: *const *mut u8, offset: usize) -> Self {
        // SAFETY: as Blocks says.
        unsafe {
            let low = _mm512_castsi128_si512(_mm_loadu_si128(block(data, 0, offset)));
            let low = _mm512_inserti32x4::<1>(low, _mm_loadu_si128(block(data, 1, offset)));
            let low = _mm512_inserti32x4::<2>(low, _mm_loadu_si128(block(data, 2, offset)));
            _mm512_inserti32x4::<3>(low, _mm_loadu_si128(block(data, 3, offset)))
        }
    }

    #[inline(always)]
    unsafe fn scatter(self, data: *const *mut u8, offset: usize) {
        // SAFETY: as Blocks says.
        unsafe {
            _mm_storeu_si128(block(data, 0, offset), _mm512_castsi512_si128(self));
            _mm_storeu_si128(block(data, 1, offset), _mm512_extracti32x4_epi32::<1>(self));
            _mm_storeu_si128(block(data, 2, offset), _mm512_extracti32x4_epi32::<2>(self));
            _mm_storeu_si128(block(data, 3, offset), _mm512_extracti32x4_epi32::<3>(self));
        }
    }

    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: as Blocks says.
        unsafe { _mm512_ternarylogic_epi32::<0x96>(self, b, c) }
    }

    #[inline(always)]
    unsafe fn aesenc(self, key: Self) -> Self {
        // SAFETY: as Blocks says.
        unsafe { _mm512_aesenc_epi128(self, key) }
    }

    #[inline(always)]
    unsafe fn aesenclast(self, key: Self) -> Self {
        // SAFETY: as Blocks says.
        unsafe { _mm512_aesenclast_epi128(self, key) }
    }
}

impl Blocks for __m256i {
    const COUNT: usize = 2;

    #[inline(always)]
    unsafe fn gather(data: *const *mut u8, offset: usize) -> Self {
        // SAFETY: as Blocks says.
        unsafe {
            let low = _mm256_castsi128_si256(_mm_loadu_si128(block(data, 0, offset)));
            _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(block(data, 1, offset)))
        }
    }

    #[inline(always)]
    unsafe fn scatter(self, data: *const *mut u8, offset: usize) {
        // SAFETY: as Blocks says.
        unsafe {
            _mm_storeu_si128(block(data, 0, offset), _mm256_castsi256_si128(self));
            _mm_storeu_si128(block(data, 1, offset), _mm256_extracti128_si256::<1>(self));
        }
    }

    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: as Blocks says.
        unsafe { _mm256_ternarylogic_epi32::<0x96>(self, b, c) }
    }

    #[inline(always)]
    unsafe fn aesenc(self, key: Self) -> Self {
        // SAFETY: as Blocks says.
        unsafe { _mm256_aesenc_epi128(self, key) }
    }

    #[inline(always)]
    unsafe fn aesenclast(self, key: Self) -> Self {
        // SAFETY: as Blocks says.
        unsafe { _mm256_aesenclast_epi128(self, key) }
    }
}
