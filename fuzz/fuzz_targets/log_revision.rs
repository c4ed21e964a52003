//! Entries of revisions and certificates of logs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::revision::{LogCert, parse_origin, parse_revision_entry, revision_entry};
use vouch_xdr::Xdr;

fuzz_target!(|input: &[u8]| {
    if let Ok((signed, bytes)) = parse_revision_entry(input) {
        assert_eq!(revision_entry(bytes), input);
        assert_eq!(signed.to_xdr(), bytes);
    }
    if let Ok(cert) = LogCert::from_xdr(input) {
        assert_eq!(cert.to_xdr(), input);
        let _ = cert.is_certified(cert.log(), None);
    }
    let _ = std::str::from_utf8(input).ok().and_then(parse_origin);
});
