//! The small files of an audit trail: moved paths, lost-record count, policy in force, index and
//! send position. Arbitrary bytes must parse or be rejected, and parsed values must round-trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_audit::trail::{Index, LostCount, Segment, SegmentFile, Term, segments};

/// The index's header matches an 8-byte segment.
fn index(bytes: &[u8]) {
    let directory = std::env::temp_dir().join(format!("vouch-fuzz-index-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("memory holds a directory");
    let path = directory.join("000000000001.trail");
    let segment_len = std::fs::metadata(&path).map_or(0, |of| of.len());
    if segment_len == 0 {
        std::fs::write(&path, b"VOUCHTR1").expect("memory holds a file");
    }
    let mut head = [&b"VOUCHIX2"[..], &1u64.to_le_bytes(), &8u64.to_le_bytes()].concat();
    head.extend_from_slice(bytes);
    std::fs::write(directory.join("000000000001.index"), head).expect("memory holds a file");
    let files: Vec<SegmentFile> = segments(&directory).expect("the directory is there");
    if let Ok(segment) = Segment::open(&files[0])
        && let Some(index) = Index::open(&files[0], &segment)
    {
        for text in [&b""[..], b"alice"] {
            let _ = index.postings(Term::Principal, text);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    match kind % 5 {
        0 => vouch_export::fuzzing::moved_paths(&text),
        1 => {
            // A file with a valid checksum.
            let mut rest = bytes.to_vec();
            rest.resize(504, 0);
            let file = [&vouch_audit::chain::digest(&rest)[..8], &rest[..]].concat();
            let lost = LostCount::decode(&file).expect("the checksum is right");
            let again = LostCount::decode(&lost.encode()).expect("the encoded form decodes");
            assert_eq!((again.count(1), &again), (lost.count(1), &lost));
        }
        2 => vouch_daemon::fuzzing::trail_configuration(bytes),
        3 => index(bytes),
        _ => vouch_audit_pipeline::fuzzing::send_place(&text),
    }
});
