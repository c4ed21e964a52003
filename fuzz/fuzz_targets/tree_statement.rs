//! Key statements in both of their forms, certificates, and the choice of the statement in force.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::key::SigningCert;
use vouch_tree::statement::{KeyStatement, effective_statement};
use vouch_xdr::Xdr;

fuzz_target!(|input: &[u8]| {
    if let Ok(statement) = KeyStatement::parse(input) {
        assert_eq!(KeyStatement::parse(statement.to_text().as_bytes()), Ok(statement.clone()));
        assert_eq!(KeyStatement::from_xdr(&statement.to_xdr()), Ok(statement.clone()));
        // A mutated statement has no valid signature unless it equals a seed.
        assert_eq!(
            effective_statement(&statement.hostid(), [&statement]).is_some(),
            statement.verified().is_some()
        );
    }
    if let Ok(cert) = SigningCert::from_xdr(input) {
        assert_eq!(cert.to_xdr(), input);
        let _ = cert.is_signed_by(&cert.root.hostid());
    }
});
