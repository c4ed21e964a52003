//! Length of packs when the caller sets none: web caches keep them whole.

mod fixtures;
mod power_cut;

use std::sync::Arc;

use power_cut::QuietDisk;
use vouch_tree_store::conformance::IV;
use vouch_tree_store::{Database, FrameSink, WriteOptions};

fn pack_lens(path: &std::path::Path) -> Vec<u64> {
    let packs = std::fs::read_dir(path.join("packs")).unwrap();
    packs.map(|pack| pack.unwrap().metadata().unwrap().len()).collect()
}

#[test]
fn small_database_has_packs_that_web_caches_keep() {
    let dir = fixtures::fast_dir();
    let path = dir.path().join("db");
    Database::create_on(&QuietDisk, &path, fixtures::HOSTID, IV).unwrap();
    let writer = Database::open_write(
        &path,
        WriteOptions { disk: Arc::new(QuietDisk), ..Default::default() },
    )
    .unwrap();
    for number in 0..20_000 {
        let (handle, frame) = fixtures::leaf(number);
        writer.put(&handle, &frame).unwrap();
    }
    writer.checkpoint().unwrap();
    let lens = pack_lens(&path);
    assert!(lens.len() > 1, "{lens:?}");
    assert!(lens.iter().all(|&len| len <= 448 << 10), "{lens:?}");
}
