pub struct Sampler(u64);

impl Sampler {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn number(&mut self) -> u64 {
        match self.word() % 4 {
            0 => 0,
            1 => u64::MAX,
            2 => self.word() % 100,
            _ => self.word(),
        }
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    pub fn bytes(&mut self, len_max: usize) -> &'static [u8] {
        static POOL: [u8; 512] = {
            let mut pool = [0; 512];
            let mut at = 0;
            while at < pool.len() {
                pool[at] = (at * 151 + 7) as u8;
                at += 1;
            }
            pool
        };
        let len = self.below(len_max.min(300) + 1);
        let start = self.below(POOL.len() - len);
        &POOL[start..start + len]
    }
}
