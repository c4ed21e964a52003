//! Each store against the same contract.

use std::sync::Arc;

use vouch_tree::{BlockHandle, HostId};
use vouch_tree_store::{
    Database, FrameSink, FrameSource, MemoryStore, Result, WriteOptions, Writer, conformance,
};

#[test]
fn memory_store_conforms() {
    conformance::check(MemoryStore::new);
}

#[test]
fn writer_conforms() {
    conformance::check(|| Packs::new(WriteOptions::default()));
}

#[test]
fn writer_conforms_with_tiny_packs_and_segments() {
    conformance::check(|| {
        Packs::new(WriteOptions {
            pack_len: Some(200_000),
            packs_by_thread: true,
            fresh_count_max: 3,
            ..WriteOptions::default()
        })
    });
}

struct Packs {
    writer: Arc<Writer>,
    _dir: tempfile::TempDir,
}

impl Packs {
    fn new(options: WriteOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        Database::create(&path, HostId::from_bytes([1; 32]), conformance::IV).unwrap();
        Self { writer: Arc::new(Database::open_write(&path, options).unwrap()), _dir: dir }
    }
}

impl FrameSource for Packs {
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>> {
        self.writer.get(handle)
    }
}

impl FrameSink for Packs {
    fn contains(&self, handle: &BlockHandle) -> Result<bool> {
        self.writer.contains(handle)
    }

    fn put(&self, handle: &BlockHandle, frame: &[u8]) -> Result<bool> {
        self.writer.put(handle, frame)
    }
}
