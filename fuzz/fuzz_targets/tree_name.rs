//! Self-certifying names, HOSTIDs and file names, as text and in XDR.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::{FileName, HostId, TreeName};
use vouch_xdr::Xdr;

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        if let Ok(name) = text.parse::<TreeName>() {
            // A printed name parses to the same name and is a single path component.
            assert_eq!(name.to_string().parse::<TreeName>(), Ok(name.clone()));
            assert_eq!(TreeName::from_xdr(&name.to_xdr()), Ok(name.clone()));
            assert!(!name.to_string().contains('/'));
        }
        if let Ok(hostid) = text.parse::<HostId>() {
            assert_eq!(hostid.to_string(), text.to_ascii_lowercase());
        }
    }
    if let Ok(name) = TreeName::from_xdr(input) {
        assert_eq!(TreeName::from_xdr(&name.to_xdr()), Ok(name));
    }
    if let Ok(name) = FileName::parse(input) {
        assert_eq!(name.as_bytes(), input);
        assert_eq!(FileName::from_xdr(&name.to_xdr()), Ok(name));
    }
});
