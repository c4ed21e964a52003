//! Recovery of a pack from a killed writer: the next writer keeps only complete frames whose hash
//! matches their handle.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use vouch_tree::{HostId, Iv, frame};
use vouch_tree_store::{Database, FrameSource as _, WriteOptions};

const IV: Iv = Iv::from_bytes([2; 32]);
const HEADER_LEN: usize = 32;

static DIR: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("vouch-fuzz-pack-{}", std::process::id())));

fuzz_target!(|input: &[u8]| {
    let _ = std::fs::remove_dir_all(&*DIR);
    Database::create(&DIR, HostId::from_bytes([1; 32]), IV).expect("a temporary directory");
    let records = if input.starts_with(b"VOUCHPAK") {
        input.get(HEADER_LEN..).unwrap_or_default()
    } else {
        input
    };
    let mark = blake3::keyed_hash(IV.as_bytes(), b"vouch pack");
    let bytes = [&b"VOUCHPAK\0\0\0\x01\0\0\0\x02"[..], &mark.as_bytes()[..16], records].concat();
    std::fs::write(DIR.join("packs/d-00000000.pack"), bytes).expect("a temporary file");
    let Ok(writer) = Database::open_write(&DIR, WriteOptions::default()) else { return };
    if let Some(len) =
        records.get(4..8).map(|len| u32::from_be_bytes(len.try_into().expect("4 bytes")) as usize)
        && let Some(stored) = len.checked_add(8).and_then(|end| records.get(8..end))
    {
        let handle = IV.handle_of(stored);
        if let Ok(Some(found)) = writer.get(&handle) {
            assert!(frame::verify(&IV, &handle, &found).is_ok());
        }
    }
    drop(writer);
});
