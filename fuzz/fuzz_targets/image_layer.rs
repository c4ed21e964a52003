//! A layer of a container image, and the merged tree of its entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_image::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::layer(input));
