//! Arbitrary frames under a valid header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree_mount::MountImage;

const HEADER: &[u8] = b"vouchmnt\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x18";

fuzz_target!(|input: &[u8]| {
    drop(MountImage::decode(input));
    drop(MountImage::decode(&[HEADER, input].concat()));
});
