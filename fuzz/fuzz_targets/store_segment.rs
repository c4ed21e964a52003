//! Searches, reads and the full check of arbitrary content must neither panic nor read out of
//! bounds.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use vouch_tree::BlockHandle;
use vouch_tree_store::{Database, FrameSource as _, RemoteFile, RemoteSearch, RemoteView};
use vouch_xdr::Writer;

const RECORD_LEN: usize = 44;

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("vouch-fuzz-segment-{}", std::process::id()));
    for name in ["packs", "index"] {
        std::fs::create_dir_all(dir.join(name)).expect("a temporary directory");
    }
    dir
});

fuzz_target!(|input: &[u8]| {
    // Seeds are whole files; other inputs are the records.
    let records =
        if input.starts_with(b"VOUCHIDX") { &input[16.min(input.len())..] } else { input };
    let count = records.len() / RECORD_LEN;
    let mut bytes = [&b"VOUCHIDX\0\0\0\x01\0\0\0\0"[..], &records[..count * RECORD_LEN]].concat();
    bytes.extend((count as u64).to_be_bytes());
    let checksum = *blake3::hash(&bytes).as_bytes();
    bytes.extend(checksum);
    let file = RemoteFile {
        path: "index/00000001.segment".into(),
        len: bytes.len() as u64,
        is_data: false,
    };
    for record in records.chunks_exact(RECORD_LEN).take(64) {
        let handle = BlockHandle::from_bytes(record[..32].try_into().expect("32 bytes of 44"));
        let range = RemoteView::first_guess(&file, &handle);
        let part = bytes
            .get(range.start as usize..range.end as usize)
            .expect("a guess is within the records");
        if let RemoteSearch::Read(next) =
            RemoteView::search(&file, &range, part, &handle).expect("whole records")
        {
            assert!(next.end <= bytes.len() as u64 && next.start < next.end);
        }
    }
    // A new file for each input, because a snapshot may still have the old one open.
    let path = DIR.join("index/00000001.segment");
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, bytes).expect("a temporary file");
    write_manifest(count as u64);
    let Ok(snapshot) = Database::open_read(&DIR) else { return };
    for record in records.chunks_exact(RECORD_LEN).take(64) {
        let handle = BlockHandle::from_bytes(record[..32].try_into().expect("32 bytes of 44"));
        let _ = (snapshot.contains(&handle), snapshot.locate(&handle), snapshot.get(&handle));
    }
    for byte in [0, 127, 255] {
        let _ = snapshot.contains(&BlockHandle::from_bytes([byte; 32]));
    }
    let _ = Database::verify(&DIR, None);
});

fn write_manifest(count: u64) {
    let mut w = Writer::new();
    w.opaque_fixed(&[1; 32]);
    w.opaque_fixed(&[2; 32]);
    w.u64(1);
    w.u32(2);
    w.u32(2);
    w.count(1);
    w.u32(0);
    w.u32(2);
    w.u64(1 << 20);
    w.count(1);
    w.u32(1);
    w.u64(count);
    w.bool(false);
    for _ in 0..3 {
        w.count(0);
    }
    let body = w.into_bytes();
    let bytes = [&b"VOUCHDB\n\0\0\0\x01"[..], blake3::hash(&body).as_bytes(), &body].concat();
    std::fs::write(DIR.join("manifest"), bytes).expect("a temporary file");
}
