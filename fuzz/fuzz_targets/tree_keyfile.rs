//! Key and certificate files. Sealed keys are not opened, because their key derivation is slow by
//! design.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::keyfile::{self, Role};

fuzz_target!(|input: &[u8]| {
    for role in [Role::Root, Role::Signing] {
        let _ = keyfile::is_sealed(role, input);
        if let Ok(key) = keyfile::read_secret(role, input, None) {
            let text =
                keyfile::write_secret(role, &key, None).expect("an unsealed key is always written");
            let back =
                keyfile::read_secret(role, text.as_bytes(), None).ok().expect("and read again");
            assert_eq!(back.public(), key.public());
        }
    }
    if let Ok(cert) = keyfile::read_cert(input) {
        assert_eq!(keyfile::read_cert(keyfile::write_cert(&cert).as_bytes()), Ok(cert));
    }
});
