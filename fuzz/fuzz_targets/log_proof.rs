//! Proofs of logs: what decodes is what was written, byte by byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::evidence::LogEvidence;
use vouch_log::merkle::Hash;
use vouch_log::policy::Policy;
use vouch_log::proof::TlogProof;
use vouch_xdr::Xdr;

fuzz_target!(|input: &[u8]| {
    if let Ok(evidence) = LogEvidence::from_xdr(input) {
        assert_eq!(LogEvidence::from_xdr(&evidence.to_xdr()).as_ref(), Ok(&evidence));
    }
    if let Ok(proof) = TlogProof::from_xdr(input) {
        assert_eq!(proof.to_xdr(), input);
        assert_eq!(TlogProof::parse(proof.to_text().as_bytes()).as_ref(), Ok(&proof));
    }
    let Ok(proof) = TlogProof::parse(input) else { return };
    assert_eq!(proof.to_text().as_bytes(), input);
    assert_eq!(TlogProof::from_xdr(&proof.to_xdr()).as_ref(), Ok(&proof));
    let policy = Policy::parse(b"quorum none\n").expect("the shortest policy");
    assert!(proof.verify(Hash([1; 32]), &policy, &[], 1).is_err());
});
