//! The kernel reads the same bytes, across revisions, eviction, restarts and damage. Skipped
//! without root or FUSE passthrough.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::prelude::*;

const LEN: usize = 3 << 20;

fn site(seed: u8) -> Arc<Site> {
    let site = Site::new("a.example", seed);
    fs::write(site.source().join("one"), noise(1, LEN + 77)).unwrap();
    // Compressible and with a hole: the hashes cover other bytes than the copy.
    let mut text = b"all of this compresses well, ".repeat(LEN / 29);
    text.resize(LEN + 500_000, 0);
    fs::write(site.source().join("two"), text).unwrap();
    fs::write(site.source().join("small"), noise(3, 300_000)).unwrap();
    site.publish(NOW, 3600);
    site
}

fn mount_with_cache(site: &Arc<Site>, cache: &Path, quota_bytes: u64) -> TestMount {
    mount_with(site, cache, quota_bytes, Passthrough::Always)
}

fn mount_with(
    site: &Arc<Site>,
    cache: &Path,
    quota_bytes: u64,
    passthrough: Passthrough,
) -> TestMount {
    assert!(rustix::process::geteuid().is_root(), "passthrough needs root");
    let cache = DiskCacheOptions { dir: cache.to_owned(), quota_bytes };
    let mount =
        TestMount::of_tree_with_cache(site, cache, |options| options.passthrough = passthrough);
    fs::metadata(mount.path("small")).ok();
    let status = mount.mounted.as_ref().unwrap().status();
    assert!(status.passthrough, "this kernel has no FUSE passthrough");
    mount
}

fn passed_through(mount: &TestMount) -> usize {
    mount.mounted.as_ref().unwrap().status().passed_through
}

fn open_through(mount: &TestMount, name: &str) -> File {
    let mut open = None;
    mount.until(|| {
        drop(open.take());
        let before = passed_through(mount);
        let file = File::open(mount.path(name)).unwrap();
        let is_through = passed_through(mount) > before;
        if !is_through {
            let mut all = Vec::new();
            (&file).read_to_end(&mut all).unwrap();
        }
        open = Some(file);
        is_through
    });
    open.unwrap()
}

fn reread(mut file: &File) -> Vec<u8> {
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn copies(cache: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(cache).unwrap().map(|e| e.unwrap().path());
    names.filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with("whole-")).collect()
}

#[test]
#[ignore = "needs root and FUSE"]
fn passthrough_reads_published_bytes() {
    let (site, dir) = (site(41), tempfile::tempdir().unwrap());
    let mount = mount_with_cache(&site, dir.path(), 64 << 20);
    for name in ["one", "two"] {
        let file = open_through(&mount, name);
        assert!(reread(&file) == fs::read(site.source().join(name)).unwrap(), "{name}");
        let again = File::open(mount.path(name)).unwrap();
        let mut part = vec![0; 5000];
        again.read_exact_at(&mut part, 131_000).unwrap();
        assert!(part == reread(&file)[131_000..136_000], "a second open of {name}");
    }
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
    assert_eq!(copies(dir.path()).len(), 2, "small files have none");
    for path in copies(dir.path()) {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o400);
    }
    let file = open_through(&mount, "one");
    site.is_up.store(false, Ordering::SeqCst);
    assert!(reread(&file) == noise(1, LEN + 77));
    site.is_up.store(true, Ordering::SeqCst);
}

#[test]
#[ignore = "needs root and FUSE"]
fn passed_files_follow_new_revision() {
    let (site, dir) = (site(42), tempfile::tempdir().unwrap());
    let mount = mount_with_cache(&site, dir.path(), 64 << 20);
    let (one, two) = (open_through(&mount, "one"), open_through(&mount, "two"));
    let mut longer = noise(1, LEN + 77);
    longer[400_000..400_010].copy_from_slice(b"0123456789");
    longer.extend(noise(5, 700_000));
    fs::write(site.source().join("one"), &longer).unwrap();
    fs::write(site.source().join("two"), b"tiny now").unwrap();
    mount.publish(&site);
    assert!(reread(&one) == longer, "through the file that was open");
    assert_eq!(reread(&two), b"tiny now");
    assert!(
        fs::read(mount.path("one")).unwrap() == longer,
        "a new open while the old one is there"
    );
    assert_eq!(fs::read(mount.path("two")).unwrap(), b"tiny now");
    drop((one, two));
    mount.until(|| passed_through(&mount) == 0);
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
    assert!(reread(&open_through(&mount, "one")) == longer);
}

#[test]
#[ignore = "needs root and FUSE"]
fn copies_keep_quota_and_open_files() {
    let (site, dir) = (Site::new("a.example", 43), tempfile::tempdir().unwrap());
    (0..8).for_each(|n| fs::write(site.source().join(format!("f{n}")), noise(n, LEN)).unwrap());
    site.publish(NOW, 3600);
    let quota = 16 << 20;
    let mount = mount_with_cache(&site, dir.path(), quota);
    let first = open_through(&mount, "f0");
    for n in 1..8 {
        let file = open_through(&mount, &format!("f{n}"));
        assert!(reread(&file) == noise(n, LEN));
        let used: u64 = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().metadata().unwrap().blocks() * 512)
            .sum();
        assert!(used <= quota, "{used} bytes after {n}");
    }
    assert!(copies(dir.path()).len() <= 2);
    assert!(reread(&first) == noise(0, LEN), "the first was open all the time");
}

#[test]
#[ignore = "needs root and FUSE"]
fn damaged_copy_is_detected_after_restart() {
    let (site, dir) = (site(44), tempfile::tempdir().unwrap());
    let mount = mount_with_cache(&site, dir.path(), 64 << 20);
    drop((open_through(&mount, "one"), open_through(&mount, "two")));
    drop(mount);
    let whole = copies(dir.path());
    assert_eq!(whole.len(), 2);
    for (damage, path) in (0..).zip(&whole) {
        let mut bytes = fs::read(path).unwrap();
        bytes[1_000_000 + damage] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let mount = mount_with_cache(&site, dir.path(), 64 << 20);
    for name in ["one", "two"] {
        let true_bytes = fs::read(site.source().join(name)).unwrap();
        for _ in 0..5 {
            assert!(fs::read(mount.path(name)).unwrap() == true_bytes, "{name}");
        }
        assert!(reread(&open_through(&mount, name)) == true_bytes, "{name} by the kernel");
    }
    drop(mount);
    let numbers = |paths: &[PathBuf]| {
        paths
            .iter()
            .map(|p| fs::metadata(p).unwrap().ino())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let before = numbers(&copies(dir.path()));
    let mount = mount_with_cache(&site, dir.path(), 64 << 20);
    for name in ["one", "two"] {
        assert!(reread(&open_through(&mount, name)) == fs::read(site.source().join(name)).unwrap());
    }
    assert_eq!(numbers(&copies(dir.path())), before);
}

#[test]
#[ignore = "needs root and FUSE"]
fn modified_copy_is_not_used() {
    let (site, dir) = (site(45), tempfile::tempdir().unwrap());
    let mount = mount_with_cache(&site, dir.path(), 64 << 20);
    drop(open_through(&mount, "one"));
    mount.until(|| passed_through(&mount) == 0);
    let path = copies(dir.path()).remove(0);
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(b"not so", 2_000_000)
        .unwrap();
    for _ in 0..20 {
        assert!(fs::read(mount.path("one")).unwrap() == noise(1, LEN + 77));
    }
}

#[test]
#[ignore = "needs root and FUSE"]
fn opens_of_small_files_turn_passthrough_off() {
    let (site, cache) = (site(41), tempfile::tempdir().unwrap());
    let mount = mount_with(&site, cache.path(), 64 << 20, Passthrough::Auto);
    let open = open_through(&mount, "one");
    assert!(reread(&open) == noise(1, LEN + 77));
    let is_asked = || mount.mounted.as_ref().unwrap().status().passthrough;
    let small = || assert!(fs::read(mount.path("small")).unwrap() == noise(3, 300_000));
    (0..100).for_each(|_| small());
    assert!(is_asked());
    (0..5000).for_each(|_| drop(File::open(mount.path("small")).unwrap()));
    assert!(is_asked());
    assert!(reread(&open) == noise(1, LEN + 77));
    assert!(fs::read(mount.path("one")).unwrap() == noise(1, LEN + 77));
    drop(open);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while is_asked() && std::time::Instant::now() < end {
        (0..5000).for_each(|_| drop(File::open(mount.path("small")).unwrap()));
    }
    assert!(!is_asked());
    assert!(fs::read(mount.path("one")).unwrap() == noise(1, LEN + 77));
    small();
}

#[test]
#[ignore = "needs root and FUSE"]
fn no_passthrough_without_disk_cache() {
    let site = site(42);
    let mount = TestMount::of_tree_with(&site, |options| options.passthrough = Passthrough::Always);
    assert!(fs::read(mount.path("one")).unwrap() == noise(1, LEN + 77));
    assert!(!mount.mounted.as_ref().unwrap().status().passthrough);
}
