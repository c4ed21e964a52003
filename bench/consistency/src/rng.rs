//! SplitMix64 (Steele, Lea and Flood, 2014): seeds of workloads and hash keys. Not for secrets.

#[derive(Debug, Clone)]
pub struct Rng(pub(crate) u64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
