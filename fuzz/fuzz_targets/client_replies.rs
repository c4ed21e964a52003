//! The client's reply reader: a stream in arbitrary pieces gives the same frames as the decoder of
//! whole replies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree_client::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::replica_stream(input));
