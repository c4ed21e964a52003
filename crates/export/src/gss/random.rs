//! Random bytes for confounders and names, sixteen at a time: neither is worth a system call, nor
//! what the system's generator takes for each block. A generator of each thread, with a seed from
//! the system, and a new one before long.

use std::cell::RefCell;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use zeroize::Zeroizing;

/// Bytes that are made at once.
const POOL_LEN: usize = 4096;
/// So many times of them by one seed.
const POOLS_MAX: usize = 256;

struct Pool {
    made_by: Option<ChaCha12Rng>,
    /// How often by this seed.
    made: usize,
    bytes: [u8; POOL_LEN],
    /// What of it has been given out.
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { made_by: None, made: 0, bytes: [0; POOL_LEN], used: POOL_LEN }) };
}

/// Fills `out` with bytes that nobody else gets; false if the system has none.
pub(super) fn fill(out: &mut [u8]) -> bool {
    POOL.with_borrow_mut(|pool| {
        out.chunks_mut(POOL_LEN).all(|out| {
            if POOL_LEN - pool.used < out.len() && !pool.make() {
                return false;
            }
            let given = &mut pool.bytes[pool.used..][..out.len()];
            out.copy_from_slice(given);
            // What was given out is not kept.
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
    fn no_bytes_are_given_out_twice() {
        let mut seen = std::collections::HashSet::new();
        // More than one seed gives.
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
