//! What a replica sends, cut into replies and frames while it arrives: the same however it is read, and what the decoder of whole replies says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree_client::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::replica_stream(input));
