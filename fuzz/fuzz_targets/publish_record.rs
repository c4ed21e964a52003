//! Directory records of the publisher's stat cache.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree_publish::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::stat_record(input));
