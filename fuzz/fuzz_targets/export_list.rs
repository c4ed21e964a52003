//! Fuzzes the parser of export lists in the syntax of exports(5), which is included by path.
#![no_main]
#![allow(dead_code, unused_imports, unreachable_pub)]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/export/service/src/exports/syntax/mod.rs"]
mod exports;

fuzz_target!(|input: &[u8]| {
    // Every list is accepted, possibly with warnings, or refused with faults that name their lines.
    let lines = input.iter().filter(|&&byte| byte == b'\n').count() + 1;
    match exports::parse(input) {
        Ok(parsed) => {
            assert!(parsed.warnings.iter().all(|warning| (1..=lines).contains(&warning.line)));
            assert!(parsed.entries.iter().all(|entry| !entry.clients.is_empty()));
        }
        Err(faults) => assert!(!faults.is_empty() && faults.iter().all(|fault| (1..=lines).contains(&fault.line))),
    }
});
