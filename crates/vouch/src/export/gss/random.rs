//! Random bytes of the system, a page at a time: a confounder of 16 bytes is not worth a system call.

use std::cell::RefCell;

/// Bytes taken from the system at once.
const POOL_LEN: usize = 4096;

struct Pool {
    bytes: [u8; POOL_LEN],
    /// What of it has been given out.
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOL_LEN], used: POOL_LEN }) };
}

/// Fills `out` with bytes that nobody else gets; false if the system has none.
pub(super) fn fill(out: &mut [u8]) -> bool {
    POOL.with_borrow_mut(|pool| {
        out.chunks_mut(POOL_LEN).all(|out| {
            if POOL_LEN - pool.used < out.len() {
                if getrandom::fill(&mut pool.bytes).is_err() {
                    return false;
                }
                pool.used = 0;
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

#[cfg(test)]
mod tests {
    #[test]
    fn no_bytes_are_given_out_twice() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..5000 {
            let mut bytes = [0; 16];
            assert!(super::fill(&mut bytes));
            assert!(seen.insert(bytes));
        }
        let mut long = vec![0; 10_000];
        assert!(super::fill(&mut long));
        assert!(long.chunks_exact(16).all(|chunk| seen.insert(chunk.try_into().unwrap())));
    }
}
