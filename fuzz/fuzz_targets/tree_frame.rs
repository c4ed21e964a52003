//! Only the bytes that match the handle open, and a payload is no longer than a leaf.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::frame::{self, FRAME_LEN_MAX};
use vouch_tree::{FrameKind, Iv, LEAF_LEN_MAX, references};

const IV: Iv = Iv::from_bytes([7; 32]);

fuzz_target!(|input: &[u8]| {
    let handle = IV.handle_of(input);
    let Some(kind) = frame::kind_of(input) else { return };
    match frame::open(&IV, &handle, kind, input) {
        Ok(payload) => {
            assert!(payload.len() <= LEAF_LEN_MAX && input.len() <= FRAME_LEN_MAX);
            // Walks the references that a client would follow.
            if let Ok(children) = references::of_payload(kind, &payload) {
                assert!(children.len() <= payload.len() / 8);
            }
            let mut other = input.to_vec();
            if let Some(last) = other.last_mut() {
                *last ^= 1;
                assert!(frame::open(&IV, &handle, kind, &other).is_err());
            }
            let built = frame::build(kind, &payload, 3);
            assert_eq!(
                frame::open(&IV, &IV.handle_of(&built), kind, &built).as_deref(),
                Ok(&*payload)
            );
        }
        Err(_) => assert!(
            frame::open(&IV, &handle, FrameKind::Leaf, input).is_err()
                || kind == FrameKind::Leaf
                || input[0] == 1
        ),
    }
});
