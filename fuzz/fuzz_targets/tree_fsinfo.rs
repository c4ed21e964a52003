//! Signed and unsigned fsinfos: an unsigned one is never accepted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::verify::{self, NewestSeen};
use vouch_tree::{Fsinfo, HostId, SignedFsinfo};
use vouch_xdr::Xdr;

fuzz_target!(|input: &[u8]| {
    if let Ok(fsinfo) = Fsinfo::from_xdr(input) {
        assert_eq!(fsinfo.to_xdr(), input);
    }
    if let Ok(signed) = SignedFsinfo::from_xdr(input) {
        assert_eq!(signed.to_xdr(), input);
        let _ = signed.unverified();
    }
    if let Ok(seen) = NewestSeen::from_xdr(input) {
        assert_eq!(seen.to_xdr(), input);
    }
    // No input can carry a signature by a key with this hash.
    let hostid = HostId::from_bytes([9; 32]);
    assert!(
        verify::verify_fsinfo(&hostid, input, 1_800_000_000, &NewestSeen::default(), []).is_err()
    );
});
