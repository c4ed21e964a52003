//! For confounders and handles, by a generator in each thread: a system call for sixteen bytes
//! would be too slow.

use std::cell::RefCell;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use zeroize::Zeroizing;

const POOL_LEN: usize = 4096;
const POOLS_MAX: usize = 256;

struct Pool {
    made_by: Option<ChaCha12Rng>,
    made: usize,
    bytes: [u8; POOL_LEN],
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { made_by: None, made: 0, bytes: [0; POOL_LEN], used: POOL_LEN }) };
}

pub(super) fn fill(out: &mut [u8]) -> bool {
    POOL.with_borrow_mut(|pool| {
        out.chunks_mut(POOL_LEN).all(|out| {
            if POOL_LEN - pool.used < out.len() && !pool.make() {
                return false;
            }
            let given = &mut pool.bytes[pool.used..][..out.len()];
            out.copy_from_slice(given);
            given.fill(0);
            pool.used += out.len();
            true
        })
    })
}

impl Pool {
    fn make(&mut self) -> bool {
        if self.made_by.is_none() || self.made == POOLS_MAX {
            let mut seed = Zeroizing::new([0; 32]);
            if getrandom::fill(&mut *seed).is_err() {
                return false;
            }
            (self.made_by, self.made) = (Some(ChaCha12Rng::from_seed(*seed)), 0);
        }
        let Some(generator) = &mut self.made_by else { return false };
        generator.fill_bytes(&mut self.bytes);
        (self.made, self.used) = (self.made + 1, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn never_repeats_bytes() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..super::POOL_LEN / 16 * (super::POOLS_MAX + 2) {
            let mut bytes = [0; 16];
            assert!(super::fill(&mut bytes));
            assert!(seen.insert(bytes));
        }
        let mut long = vec![0; 10_000];
        assert!(super::fill(&mut long));
        assert!(long.chunks_exact(16).all(|chunk| seen.insert(chunk.try_into().unwrap())));
    }
}
