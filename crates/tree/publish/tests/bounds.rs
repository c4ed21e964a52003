//! Memory stays within 256 MiB. Full size in optimized builds, else a twentieth.

mod reference;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use reference::{Publisher, publish_into};
use vouch_tree::TreeName;
use vouch_tree_publish::{Options, Progress};
use vouch_tree_store::Database;

const RSS_KIB_MAX: u64 = 256 << 10;

#[test]
fn child() {
    let Some(dir) = std::env::var_os("VOUCH_TEST_PUBLISH_IN") else { return };
    let dir = Path::new(&dir);
    let snapshot = Database::open_read(&dir.join("db")).unwrap();
    let name = TreeName::new("localhost", snapshot.hostid()).unwrap();
    let options = Options::new(dir.join("source"), name, 1_000_000, 86_400);
    let summary = publish_into(&dir.join("db"), &options, &Progress::default()).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .to_owned();
    fs::write(dir.join("peak"), peak).unwrap();
    eprintln!("{summary:?}");
}

fn peak_kib(publisher: &Publisher) -> u64 {
    peak_kib_under(publisher, "true")
}

fn peak_kib_under(publisher: &Publisher, limits: &str) -> u64 {
    let output = Command::new("sh")
        .args(["-c", &format!("{limits} && exec \"$0\" child --exact --nocapture")])
        .arg(std::env::current_exe().unwrap())
        .env("VOUCH_TEST_PUBLISH_IN", publisher.dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let peak = fs::read_to_string(publisher.dir.path().join("peak")).unwrap().parse().unwrap();
    eprintln!("{}peak {peak} KiB", String::from_utf8_lossy(&output.stderr));
    peak
}

const fn scale(full: u64) -> u64 {
    if cfg!(debug_assertions) { full / 20 } else { full }
}

#[test]
fn directory_of_a_million_entries_stays_within_memory() {
    let publisher = Publisher::new();
    let dir = publisher.source().join("dir");
    fs::create_dir(&dir).unwrap();
    for n in 0..scale(1_000_000) {
        fs::write(dir.join(format!("entry-{n:08}")), n.to_string()).unwrap();
    }
    assert!(peak_kib(&publisher) <= RSS_KIB_MAX);
    let tree = publisher.tree();
    assert_eq!(tree.fsinfo.counts.files, scale(1_000_000));
    fs::write(dir.join("entry-00010000"), "changed").unwrap();
    assert!(peak_kib(&publisher) <= RSS_KIB_MAX);
}

#[test]
fn huge_sparse_file_stays_within_memory() {
    let publisher = Publisher::new();
    let file = fs::File::create(publisher.source().join("sparse")).unwrap();
    file.set_len(100 << 30).unwrap();
    for n in 0..2_000 {
        file.write_all_at(b"island", n * (50 << 20)).unwrap();
    }
    let file = fs::File::create(publisher.source().join("large")).unwrap();
    let block: Vec<u8> =
        (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for n in 0..scale(2_000) {
        file.write_all_at(&block, n << 20).unwrap();
    }
    assert!(peak_kib(&publisher) <= RSS_KIB_MAX);
    publisher.tree().compare(&publisher.source());
}

#[test]
fn deep_tree_needs_few_descriptors() {
    use std::os::fd::{AsFd as _, OwnedFd};
    let publisher = Publisher::new();
    let mut dir: OwnedFd = fs::File::open(publisher.source()).unwrap().into();
    for _ in 0..400 {
        for name in ["a", "b", "c"] {
            rustix::fs::mkdirat(dir.as_fd(), name, rustix::fs::Mode::from(0o755)).unwrap();
        }
        rustix::fs::symlinkat("a", dir.as_fd(), "link").unwrap();
        dir = rustix::fs::openat(
            dir.as_fd(),
            "b",
            rustix::fs::OFlags::DIRECTORY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
    }
    peak_kib_under(&publisher, "ulimit -n 80");
    let counts = publisher.tree().fsinfo.counts;
    assert_eq!((counts.directories, counts.symlinks), (1_201, 400));
}
