//! SHA-256 and SHA-512 (FIPS 180-4 §6.2 and 6.4) over the lanes of a vector.

use super::Vector;
use crate::kernels::lanes::HashLanes;

macro_rules! compress {
    ($name:ident, $word:ty, $rounds:expr, $block_len:expr, $k:expr, $big0:ident, $big1:ident, $small0:ident, $small1:ident) => {
        /// # Safety
        /// As [`Vector`] says; `V` has `N` lanes of this word; each lane's pointer is valid for
        /// reads of `blocks` blocks.
        #[inline(always)]
        pub(in crate::kernels) unsafe fn $name<V: Vector<Word = $word>, const N: usize>(lanes: &mut HashLanes<$word, 8, N>, blocks: usize) {
            // SAFETY: the caller's promise; the state's rows are aligned to 64 bytes.
            unsafe {
                let mut h = [V::splat(0); 8];
                for word in 0..8 {
                    h[word] = V::load(lanes.state[word].as_ptr());
                }
                for block in 0..blocks {
                    let mut w = V::load_block(lanes.data.as_ptr(), $block_len * block);
                    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut hh] = h;
                    macro_rules! round {
                        ($t:expr, $w:expr, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident, $f:ident, $g:ident, $h:ident) => {{
                            let sum = $h.add(V::splat($k[$t])).add($w);
                            let t1 = sum.add($big1($e)).add($e.choose($f, $g));
                            $d = $d.add(t1);
                            $h = t1.add($big0($a)).add($a.majority($b, $c));
                        }};
                    }
                    macro_rules! word {
                        ($t:expr, $at:expr) => {{
                            if $t > 0 {
                                let mixed = w[$at].add($small0(w[($at + 1) & 15])).add(w[($at + 9) & 15]);
                                w[$at] = mixed.add($small1(w[($at + 14) & 15]));
                            }
                            w[$at]
                        }};
                    }
                    macro_rules! eight {
                        ($t:expr, $at:expr) => {
                            round!($t + $at, word!($t, $at), a, b, c, d, e, f, g, hh);
                            round!($t + $at + 1, word!($t, $at + 1), hh, a, b, c, d, e, f, g);
                            round!($t + $at + 2, word!($t, $at + 2), g, hh, a, b, c, d, e, f);
                            round!($t + $at + 3, word!($t, $at + 3), f, g, hh, a, b, c, d, e);
                            round!($t + $at + 4, word!($t, $at + 4), e, f, g, hh, a, b, c, d);
                            round!($t + $at + 5, word!($t, $at + 5), d, e, f, g, hh, a, b, c);
                            round!($t + $at + 6, word!($t, $at + 6), c, d, e, f, g, hh, a, b);
                            round!($t + $at + 7, word!($t, $at + 7), b, c, d, e, f, g, hh, a);
                        };
                    }
                    eight!(0, 0);
                    eight!(0, 8);
                    let mut t = 16;
                    while t < $rounds {
                        eight!(t, 0);
                        eight!(t, 8);
                        t += 16;
                    }
                    let worked = [a, b, c, d, e, f, g, hh];
                    for word in 0..8 {
                        h[word] = h[word].add(worked[word]);
                    }
                }
                for word in 0..8 {
                    h[word].store(lanes.state[word].as_mut_ptr());
                }
                for data in &mut lanes.data {
                    *data = data.add($block_len * blocks);
                }
            }
        }
    };
}

macro_rules! sigma {
    ($name:ident, $right0:literal, $left0:literal, $right1:literal, $left1:literal, rotate $right2:literal, $left2:literal) => {
        #[inline(always)]
        unsafe fn $name<V: Vector>(x: V) -> V {
            // SAFETY: as the caller.
            unsafe {
                x.rotate::<$right0, $left0>()
                    .xor3(x.rotate::<$right1, $left1>(), x.rotate::<$right2, $left2>())
            }
        }
    };
    ($name:ident, $right0:literal, $left0:literal, $right1:literal, $left1:literal, shift $bits:literal) => {
        #[inline(always)]
        unsafe fn $name<V: Vector>(x: V) -> V {
            // SAFETY: as the caller.
            unsafe {
                x.rotate::<$right0, $left0>()
                    .xor3(x.rotate::<$right1, $left1>(), x.shift_right::<$bits>())
            }
        }
    };
}

sigma!(big0_256, 2, 30, 13, 19, rotate 22, 10);
sigma!(big1_256, 6, 26, 11, 21, rotate 25, 7);
sigma!(small0_256, 7, 25, 18, 14, shift 3);
sigma!(small1_256, 17, 15, 19, 13, shift 10);
sigma!(big0_512, 28, 36, 34, 30, rotate 39, 25);
sigma!(big1_512, 14, 50, 18, 46, rotate 41, 23);
sigma!(small0_512, 1, 63, 8, 56, shift 7);
sigma!(small1_512, 19, 45, 61, 3, shift 6);

compress!(compress256, u32, 64, 64, K256, big0_256, big1_256, small0_256, small1_256);
compress!(compress512, u64, 80, 128, K512, big0_512, big1_512, small0_512, small1_512);

/// FIPS 180-4 §4.2.2.
pub(in crate::kernels) const K256: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

pub(in crate::kernels) static K512: [u64; 80] = [
    0x428a2f98d728ae22,
    0x7137449123ef65cd,
    0xb5c0fbcfec4d3b2f,
    0xe9b5dba58189dbbc,
    0x3956c25bf348b538,
    0x59f111f1b605d019,
    0x923f82a4af194f9b,
    0xab1c5ed5da6d8118,
    0xd807aa98a3030242,
    0x12835b0145706fbe,
    0x243185be4ee4b28c,
    0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f,
    0x80deb1fe3b1696b1,
    0x9bdc06a725c71235,
    0xc19bf174cf692694,
    0xe49b69c19ef14ad2,
    0xefbe4786384f25e3,
    0x0fc19dc68b8cd5b5,
    0x240ca1cc77ac9c65,
    0x2de92c6f592b0275,
    0x4a7484aa6ea6e483,
    0x5cb0a9dcbd41fbd4,
    0x76f988da831153b5,
    0x983e5152ee66dfab,
    0xa831c66d2db43210,
    0xb00327c898fb213f,
    0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2,
    0xd5a79147930aa725,
    0x06ca6351e003826f,
    0x142929670a0e6e70,
    0x27b70a8546d22ffc,
    0x2e1b21385c26c926,
    0x4d2c6dfc5ac42aed,
    0x53380d139d95b3df,
    0x650a73548baf63de,
    0x766a0abb3c77b2a8,
    0x81c2c92e47edaee6,
    0x92722c851482353b,
    0xa2bfe8a14cf10364,
    0xa81a664bbc423001,
    0xc24b8b70d0f89791,
    0xc76c51a30654be30,
    0xd192e819d6ef5218,
    0xd69906245565a910,
    0xf40e35855771202a,
    0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8,
    0x1e376c085141ab53,
    0x2748774cdf8eeb99,
    0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63,
    0x4ed8aa4ae3418acb,
    0x5b9cca4f7763e373,
    0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc,
    0x78a5636f43172f60,
    0x84c87814a1f0ab72,
    0x8cc702081a6439ec,
    0x90befffa23631e28,
    0xa4506cebde82bde9,
    0xbef9a3f7b2c67915,
    0xc67178f2e372532b,
    0xca273eceea26619c,
    0xd186b8c721c0c207,
    0xeada7dd6cde0eb1e,
    0xf57d4f7fee6ed178,
    0x06f067aa72176fba,
    0x0a637dc5a2c898a6,
    0x113f9804bef90dae,
    0x1b710b35131c471b,
    0x28db77f523047d84,
    0x32caab7b40c72493,
    0x3c9ebe0a15c9bebc,
    0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6,
    0x597f299cfc657e2a,
    0x5fcb6fab3ad6faec,
    0x6c44198c4a475817,
];
