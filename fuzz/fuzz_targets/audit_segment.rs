//! Reads and verifies audit trail segments with arbitrary bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_audit::trail::{Segment, Trust, entries, segments, verify};

fuzz_target!(|input: &[u8]| {
    let Some((first, bytes)) = input.split_first() else { return };
    let directory = std::env::temp_dir().join(format!("vouch-fuzz-audit-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("memory holds a directory");
    let name = if first & 1 == 1 { "000000000001.trail.zst" } else { "000000000001.trail" };
    std::fs::write(directory.join(name), bytes).expect("memory holds a file");
    let _ = entries(&directory, 1, |_| true);
    let _ = verify(&directory, &Trust::default(), |_, _| {});
    for file in segments(&directory).expect("the directory is there") {
        if let Ok(segment) = Segment::open(&file) {
            let _ = segment.frame_at(8);
        }
    }
    let _ = std::fs::remove_dir_all(&directory);
});
