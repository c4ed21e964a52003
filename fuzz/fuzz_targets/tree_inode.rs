//! Fuzzes inodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::Inode;
use vouch_xdr::Xdr;

fuzz_target!(|input: &[u8]| {
    round_trip::<Inode>(input);
});

/// A decoded value encodes to the same bytes.
fn round_trip<T: Xdr>(input: &[u8]) {
    if let Ok(value) = T::from_xdr(input) {
        assert_eq!(value.to_xdr(), input);
    }
}
