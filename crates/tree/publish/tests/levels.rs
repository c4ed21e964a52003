//! Another compression of the same content.

mod reference;

use std::fs;

use reference::{Publisher, let_timestamps_age};
use vouch_tree_publish::Options;

/// Compresses differently at each level.
fn text(seed: u32, len: usize) -> Vec<u8> {
    let mut noise = seed;
    let words = std::iter::from_fn(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(format!("word{} ", noise >> 24))
    });
    let mut bytes: Vec<u8> = words.take(len / 4).collect::<String>().into_bytes();
    bytes.truncate(len);
    bytes
}

fn publisher() -> Publisher {
    let publisher = Publisher::new();
    let dir = publisher.source().join("dir/below");
    fs::create_dir_all(&dir).unwrap();
    for n in 0..1500u32 {
        fs::write(dir.join(format!("file-{n:05}")), text(n, 2000 + n as usize)).unwrap();
    }
    fs::write(publisher.source().join("large"), text(9, 3 << 20)).unwrap();
    let_timestamps_age();
    publisher.publish(&publisher.options()).unwrap();
    publisher
}

#[test]
fn another_level_keeps_frames_of_equal_content() {
    let publisher = publisher();
    let again =
        publisher.publish(&Options { level: 12, rehash: true, ..publisher.options() }).unwrap();
    assert_eq!((again.files_read, again.new_frames), (1501, 1), "only the signed fsinfo is new");
    publisher.tree().compare(&publisher.source());
    fs::remove_file(publisher.db().join("publisher/stat.redb")).unwrap();
    let again = publisher.publish(&Options { level: 0, ..publisher.options() }).unwrap();
    assert_eq!((again.files_read, again.new_frames), (1501, 1), "the publisher's cache is lost");
    publisher.tree().compare(&publisher.source());
}

#[test]
fn another_level_sends_only_changed_leaves_of_a_large_file() {
    let publisher = publisher();
    let mut content = text(9, 3 << 20);
    content[1 << 20] ^= 1;
    fs::write(publisher.source().join("large"), content).unwrap();
    let changed = publisher.publish(&Options { level: 12, ..publisher.options() }).unwrap();
    // A leaf, the indirect frame above it, the page of the root, and the fsinfo.
    assert!(changed.new_frames <= 4, "{changed:?}");
    publisher.tree().compare(&publisher.source());
}
