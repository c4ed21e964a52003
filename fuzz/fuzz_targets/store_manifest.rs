//! An arbitrary body under a valid checksum: opening and queries must not panic.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use vouch_tree::BlockHandle;
use vouch_tree_store::{Database, RemoteView};

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("vouch-fuzz-manifest-{}", std::process::id()));
    for name in ["packs", "index"] {
        std::fs::create_dir_all(dir.join(name)).expect("a temporary directory");
    }
    dir
});

const HEADER_LEN: usize = 44;

fuzz_target!(|input: &[u8]| {
    // Seeds are whole files; of other inputs the body is used.
    let body = if input.starts_with(b"VOUCHDB\n") {
        input.get(HEADER_LEN..).unwrap_or_default()
    } else {
        input
    };
    let bytes = [&b"VOUCHDB\n\0\0\0\x01"[..], blake3::hash(body).as_bytes(), body].concat();
    std::fs::write(DIR.join("manifest"), &bytes).expect("a temporary file");
    if let Ok(view) = RemoteView::parse(&bytes) {
        let _ = (view.segments().len(), view.head(), view.frame(&[1; 44]));
    }
    if let Ok(snapshot) = Database::open_read(&DIR) {
        let view = snapshot.view();
        let _ = (
            view.generation(),
            view.hostid(),
            view.iv(),
            view.head(),
            view.statements().len(),
            view.revisions().len(),
        );
        let _ = snapshot.contains(&BlockHandle::from_bytes([1; 32]));
        for handle in view.companions() {
            let _ = snapshot.locate(handle);
        }
        let _ = snapshot.refresh();
    }
    let _ = Database::open_read(&DIR);
});
