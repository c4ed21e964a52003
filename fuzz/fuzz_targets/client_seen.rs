//! The file of the newest seen revisions: an arbitrary body under a valid checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree_client::fuzzing;

const MAGIC_AND_VERSION: &[u8] = b"VOUCHSEE\0\0\0\x01";

fuzz_target!(|input: &[u8]| {
    fuzzing::seen_file(input);
    let begin = if input.starts_with(b"VOUCHSEE") { &b""[..] } else { MAGIC_AND_VERSION };
    let mut file = [begin, input].concat();
    file.extend_from_slice(blake3::hash(&file).as_bytes());
    fuzzing::seen_file(&file);
});
