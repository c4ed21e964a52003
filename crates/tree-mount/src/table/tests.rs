//! The table against what the kernel may do, in any order: nothing leaks, nothing that is held is lost.

use super::*;

#[test]
fn numbers_hash_to_themselves() {
    let mut hasher = NumberHasher::default();
    hasher.write_u64(42);
    assert_eq!(hasher.finish(), 42);
}
