//! Fuzzes the parser of the map from Kerberos principals to accounts, which is included by path.
#![no_main]
#![allow(dead_code, unreachable_pub)]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/export/service/src/identity/principal_map.rs"]
mod principal_map;

fuzz_target!(|input: &[u8]| {
    // The first line is a principal, the rest is the map. The map answers or is refused with faults
    // that name their lines.
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (principal, text) = (String::from_utf8_lossy(&input[..end]), input.get(end + 1..).unwrap_or_default());
    match principal_map::PrincipalMap::parse(text) {
        Ok(map) => drop(map.account(&principal).cloned()),
        Err(faults) => assert!(!faults.is_empty() && faults.iter().all(|fault| fault.to_string().starts_with("line "))),
    }
});
