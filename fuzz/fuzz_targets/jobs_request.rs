//! Messages of the broker of tickets, and Slurm's lists of nodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vouch_jobs::fuzzing::request(input));
