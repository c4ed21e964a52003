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

#[test]
fn threads_write_packs_of_their_own_after_the_first() {
    let dir = fixtures::fast_dir();
    let path = dir.path().join("db");
    Database::create_on(&QuietDisk, &path, fixtures::HOSTID, IV).unwrap();
    let options = WriteOptions {
        disk: Arc::new(QuietDisk),
        packs_by_thread: true,
        pack_len: Some(64 << 10),
        ..Default::default()
    };
    let writer = Database::open_write(&path, options).unwrap();
    let put = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let (handle, frame) = fixtures::leaf(number);
            writer.put(&handle, &frame).unwrap();
        }
    };
    put(0..1);
    let turn = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (put, turn) = (&put, &turn);
            scope.spawn(move || {
                // Frame by frame in turns.
                for number in 0..COUNT {
                    turn.wait();
                    put(1 + thread * COUNT + number..2 + thread * COUNT + number);
                }
            });
        }
    });
    writer.checkpoint().unwrap();
    drop(writer);
    let snapshot = Database::open_read(&path).unwrap();
    let packs = |thread: u64| -> std::collections::BTreeSet<String> {
        let numbers = 1 + thread * COUNT..1 + (thread + 1) * COUNT;
        let place = |number| snapshot.place(&fixtures::leaf(number).0).unwrap().unwrap().0;
        numbers.map(place).collect()
    };
    let (one, other) = (packs(0), packs(1));
    assert!(one.len() > 3 && other.len() > 3, "{one:?} {other:?}");
    assert!(one.intersection(&other).count() <= 2, "{one:?} {other:?}");
}

const COUNT: u64 = 5_000;
