//! Publications of a changed directory.

mod reference;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use reference::{Publisher, let_timestamps_age};
use vouch_tree::Content;

fn many_files(publisher: &Publisher, count: usize) {
    let dir = publisher.source().join("dir");
    fs::create_dir_all(&dir).unwrap();
    for n in 0..count {
        fs::write(dir.join(format!("file-{n:06}")), format!("content {n}")).unwrap();
    }
    let_timestamps_age();
}

fn set_mtime(path: &Path, s: i64, ns: i64) {
    let time = rustix::fs::Timespec { tv_sec: s, tv_nsec: ns };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
}

#[test]
fn one_change_costs_one_read_and_a_page_per_level() {
    let publisher = Publisher::new();
    many_files(&publisher, 10_000);
    let first = publisher.publish_and_compare();
    assert_eq!(first.files_read, 10_000);
    let same = publisher.publish_and_compare();
    assert_eq!((same.files_read, same.new_frames, same.counts), (0, 1, first.counts));
    fs::write(publisher.source().join("dir/file-005000"), "changed").unwrap();
    let changed = publisher.publish_and_compare();
    let tree = publisher.tree();
    let dir = tree.find("dir").unwrap();
    let Content::Directory { top: Some(top), .. } = dir.content else { panic!("a directory") };
    assert!(changed.new_frames <= u64::from(top.height) + 1 + 1 + 1, "{changed:?}");
    assert_eq!((changed.files_read, changed.revision), (1, 3));
}

#[test]
fn added_removed_and_moved_names_are_seen() {
    let publisher = Publisher::new();
    many_files(&publisher, 500);
    let source = publisher.source();
    for n in 0..50 {
        fs::create_dir_all(source.join(format!("tree/{n}"))).unwrap();
        fs::write(source.join(format!("tree/{n}/file")), format!("{n}")).unwrap();
    }
    let_timestamps_age();
    publisher.publish_and_compare();
    fs::remove_file(source.join("dir/file-000000")).unwrap();
    fs::write(source.join("dir/aaa"), "new").unwrap();
    assert_eq!(publisher.publish_and_compare().files_read, 1);
    let_timestamps_age();
    publisher.publish_and_compare();
    fs::rename(source.join("tree"), source.join("another tree")).unwrap();
    let moved = publisher.publish_and_compare();
    assert_eq!(moved.files_read, 0, "{moved:?}");
    fs::rename(source.join("dir/file-000100"), source.join("dir/x")).unwrap();
    fs::rename(source.join("dir/file-000400"), source.join("dir/file-000100")).unwrap();
    fs::rename(source.join("dir/x"), source.join("dir/file-000400")).unwrap();
    assert_eq!(publisher.publish_and_compare().files_read, 2);
    fs::remove_dir_all(source.join("dir")).unwrap();
    fs::create_dir(source.join("dir")).unwrap();
    publisher.publish_and_compare();
    fs::set_permissions(source.join("dir"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o750)).unwrap();
    publisher.publish_and_compare();
    fs::remove_file(source.join("another tree/7/file")).unwrap();
    fs::create_dir(source.join("another tree/7/file")).unwrap();
    publisher.publish_and_compare();
}

#[test]
fn deep_change_reaches_the_root() {
    let publisher = Publisher::new();
    let deep = publisher.source().join("a/b/c/d/e/f");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "before").unwrap();
    let_timestamps_age();
    publisher.publish_and_compare();
    publisher.publish_and_compare();
    fs::write(deep.join("file"), "after!").unwrap();
    assert_eq!(publisher.publish_and_compare().files_read, 1);
}

#[test]
fn rewrite_within_publication_tick_is_seen_next_time() {
    let publisher = Publisher::new();
    let file = publisher.source().join("file");
    for round in 0..20 {
        fs::write(&file, format!("a{round:03}")).unwrap();
        let meta = fs::metadata(&file).unwrap();
        publisher.publish(&publisher.options()).unwrap();
        fs::write(&file, format!("b{round:03}")).unwrap();
        set_mtime(&file, meta.mtime(), meta.mtime_nsec());
        publisher.publish_and_compare();
    }
    assert_eq!(publisher.publish_and_compare().files_read, 1);
    let_timestamps_age();
    publisher.publish_and_compare();
    assert_eq!(publisher.publish_and_compare().files_read, 0);
}

#[test]
fn old_mtime_does_not_hide_a_change() {
    let publisher = Publisher::new();
    let file = publisher.source().join("file");
    fs::write(&file, "aaaa").unwrap();
    set_mtime(&file, 1_000, 5);
    let_timestamps_age();
    publisher.publish_and_compare();
    fs::write(&file, "bbbb").unwrap();
    set_mtime(&file, 1_000, 5);
    assert_eq!(publisher.publish_and_compare().files_read, 1);
}

#[test]
fn rehash_reads_all_and_finds_the_same() {
    let publisher = Publisher::new();
    many_files(&publisher, 300);
    publisher.publish_and_compare();
    let root = publisher.tree().fsinfo.root;
    let mut options = publisher.options();
    options.rehash = true;
    let summary = publisher.publish(&options).unwrap();
    assert_eq!((summary.files_read, summary.new_frames), (300, 1));
    assert_eq!(publisher.tree().fsinfo.root, root);
    assert_eq!(publisher.publish_and_compare().files_read, 0);
}

#[test]
fn lost_or_damaged_cache_only_costs_reading() {
    let publisher = Publisher::new();
    many_files(&publisher, 300);
    let cache = publisher.db().join("publisher/stat.redb");
    publisher.publish_and_compare();
    let of_first = fs::read(&cache).unwrap();
    fs::write(publisher.source().join("dir/file-000001"), "changed").unwrap();
    publisher.publish_and_compare();
    fs::write(&cache, &of_first).unwrap();
    assert_eq!(publisher.publish_and_compare().files_read, 300);
    fs::remove_file(&cache).unwrap();
    assert_eq!(publisher.publish_and_compare().files_read, 300);
    let_timestamps_age();
    publisher.publish_and_compare();
    assert_eq!(publisher.publish_and_compare().files_read, 0);
    for damage in [
        b"garbage".to_vec(),
        of_first[..of_first.len() / 2].to_vec(),
        vec![0; of_first.len()],
        Vec::new(),
    ] {
        fs::write(&cache, damage).unwrap();
        assert_eq!(publisher.publish_and_compare().files_read, 300);
    }
}

#[test]
fn records_of_removed_directories_are_swept() {
    let publisher = Publisher::new();
    let source = publisher.source();
    for n in 0..3_000 {
        fs::create_dir(source.join(n.to_string())).unwrap();
    }
    fs::write(source.join("file"), "x").unwrap();
    let_timestamps_age();
    publisher.publish_and_compare();
    (10..3_000).for_each(|n| fs::remove_dir(source.join(n.to_string())).unwrap());
    publisher.publish_and_compare();
    for _ in 0..3 {
        assert_eq!(publisher.publish_and_compare().files_read, 0);
    }
}

#[test]
fn hard_links_stay_one_file_over_changes() {
    let publisher = Publisher::new();
    let source = publisher.source();
    fs::create_dir_all(source.join("a")).unwrap();
    fs::create_dir_all(source.join("b")).unwrap();
    fs::write(source.join("a/file"), vec![5; 3 << 20]).unwrap();
    fs::hard_link(source.join("a/file"), source.join("b/file")).unwrap();
    let_timestamps_age();
    publisher.publish_and_compare();
    assert_eq!(publisher.publish_and_compare().files_read, 0);
    fs::hard_link(source.join("a/file"), source.join("b/another")).unwrap();
    assert_eq!(publisher.publish_and_compare().files_read, 1);
    fs::remove_file(source.join("a/file")).unwrap();
    publisher.publish_and_compare();
}

#[test]
fn revisions_are_chained_and_kept_as_asked() {
    use vouch_tree_store::Database;
    let publisher = Publisher::new();
    let file = publisher.source().join("file");
    let mut options = publisher.options();
    for round in 1..=6 {
        fs::write(&file, format!("{round}")).unwrap();
        options.tag = (round == 2).then(|| "release".to_owned());
        options.keep = (round == 6).then_some(2);
        assert_eq!(publisher.publish(&options).unwrap().revision, round);
    }
    let snapshot = Database::open_read(&publisher.db()).unwrap();
    let kept: Vec<_> = snapshot.revisions().iter().map(|r| (r.number, r.tag.clone())).collect();
    assert_eq!(kept, [(2, Some("release".to_owned())), (5, None), (6, None)]);
    let tree = publisher.tree();
    let before = snapshot.revisions()[1].fsinfo;
    assert_eq!(tree.fsinfo.previous, Some(before));
    assert_eq!(snapshot.companions().len(), 1);
}
