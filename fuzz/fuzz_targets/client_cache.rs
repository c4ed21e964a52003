//! The disk cache's files: arbitrary records under a valid checksum, and a segment of arbitrary
//! content.
#![no_main]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use vouch_tree_client::fuzzing;

const ENTRY_LEN: usize = 40;
const RECORD_MAGIC: &[u8] = b"VCR1";

static SEGMENT: LazyLock<File> = LazyLock::new(|| {
    let path =
        std::env::temp_dir().join(format!("vouch-fuzz-segment-of-cache-{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .expect("a temporary file");
    let _ = std::fs::remove_file(path);
    file
});

fuzz_target!(|input: &[u8]| {
    fuzzing::cache_list(input);
    let count = input.len() / ENTRY_LEN;
    let mut list =
        [&b"VCI1"[..], &(count as u32).to_be_bytes(), &input[..count * ENTRY_LEN]].concat();
    list.extend_from_slice(blake3::hash(&list).as_bytes());
    fuzzing::cache_list(&list);

    let begin = if input.starts_with(RECORD_MAGIC) { &b""[..] } else { RECORD_MAGIC };
    let bytes = [begin, input].concat();
    SEGMENT.set_len(bytes.len() as u64).expect("a temporary file");
    SEGMENT.write_all_at(&bytes, 0).expect("a temporary file");
    fuzzing::cache_segment(&SEGMENT, bytes.len() as u64).expect("a temporary file");
});
