//! SHA-1 (FIPS 180-4 §6.1) over the lanes of a vector.

use super::{Interleaved, NotInterleaved, Vector};
use crate::kernels::lanes::HashLanes;

const K: [u32; 4] = [0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6];

/// # Safety
/// As [`Vector`] says; `V` has `N` lanes of 32 bits; each lane's pointer is valid for reads of
/// `blocks` blocks.
#[inline(always)]
pub(in crate::kernels) unsafe fn compress<V: Vector<Word = u32>, const N: usize>(
    lanes: &mut HashLanes<u32, 5, N>,
    blocks: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { compress_interleaved::<V, _, N>(lanes, blocks, &mut NotInterleaved) }
}

/// Like [`compress`], with interleaved work.
///
/// # Safety
/// As [`compress`] says. The interleaved work may write to a block after its `begin`.
#[inline(always)]
pub(in crate::kernels) unsafe fn compress_interleaved<
    V: Vector<Word = u32>,
    B: Interleaved,
    const N: usize,
>(
    lanes: &mut HashLanes<u32, 5, N>,
    blocks: usize,
    interleaved: &mut B,
) {
    // SAFETY: the caller's promise; the state's rows are aligned to 64 bytes.
    unsafe {
        let mut h = [V::splat(0); 5];
        for word in 0..5 {
            h[word] = V::load(lanes.state[word].as_ptr());
        }
        for block in 0..blocks {
            let mut w = V::load_block(lanes.data.as_ptr(), 64 * block);
            interleaved.begin(block);
            let [mut a, mut b, mut c, mut d, mut e] = h;
            macro_rules! word {
                ($t:expr) => {{
                    if $t >= 16 {
                        let mixed = w[($t + 13) & 15]
                            .xor(w[($t + 8) & 15])
                            .xor3(w[($t + 2) & 15], w[$t & 15]);
                        w[$t & 15] = B::ordered(mixed.rotate::<31, 1>());
                    }
                    w[$t & 15]
                }};
            }
            macro_rules! round {
                ($f:ident, $t:expr, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident) => {{
                    let sum = $e.add(V::splat(K[$t / 20])).add(word!($t));
                    $e = B::ordered(sum.add($f($b, $c, $d)).add($a.rotate::<27, 5>()));
                    $b = $b.rotate::<2, 30>();
                    interleaved.step_round($t);
                }};
            }
            macro_rules! five {
                ($f:ident, $t:expr) => {
                    round!($f, $t, a, b, c, d, e);
                    round!($f, $t + 1, e, a, b, c, d);
                    round!($f, $t + 2, d, e, a, b, c);
                    round!($f, $t + 3, c, d, e, a, b);
                    round!($f, $t + 4, b, c, d, e, a);
                };
            }
            macro_rules! twenty {
                ($f:ident, $t:expr) => {
                    five!($f, $t);
                    five!($f, $t + 5);
                    five!($f, $t + 10);
                    five!($f, $t + 15);
                };
            }
            twenty!(choose, 0);
            twenty!(parity, 20);
            twenty!(majority, 40);
            twenty!(parity, 60);
            h = [h[0].add(a), h[1].add(b), h[2].add(c), h[3].add(d), h[4].add(e)];
        }
        for word in 0..5 {
            h[word].store(lanes.state[word].as_mut_ptr());
        }
        for data in &mut lanes.data {
            *data = data.add(64 * blocks);
        }
    }
}

#[inline(always)]
unsafe fn choose<V: Vector>(b: V, c: V, d: V) -> V {
    // SAFETY: as the caller.
    unsafe { b.choose(c, d) }
}

#[inline(always)]
unsafe fn parity<V: Vector>(b: V, c: V, d: V) -> V {
    // SAFETY: as the caller.
    unsafe { b.xor3(c, d) }
}

#[inline(always)]
unsafe fn majority<V: Vector>(b: V, c: V, d: V) -> V {
    // SAFETY: as the caller.
    unsafe { b.majority(c, d) }
}
