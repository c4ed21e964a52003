//! Key statements in both of their forms, certificates, and which statement is in force.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::key::SigningCert;
use vouch_tree::statement::{KeyStatement, effective_statement};
use vouch_xdr::Xdr;

fuzz_target!(|input: &[u8]| {
    if let Ok(statement) = KeyStatement::parse(input) {
        assert_eq!(KeyStatement::parse(statement.to_text().as_bytes()), Ok(statement.clone()));
        assert_eq!(KeyStatement::from_xdr(&statement.to_xdr()), Ok(statement.clone()));
        // Made by mutation, so its signature does not fit unless it is one of the seeds.
        assert_eq!(effective_statement(&statement.hostid(), [&statement]).is_some(), statement.verified().is_some());
    }
    if let Ok(cert) = SigningCert::from_xdr(input) {
        assert_eq!(cert.to_xdr(), input);
        let _ = cert.is_signed_by(&cert.root.hostid());
    }
});
