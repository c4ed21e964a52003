use super::*;
use std::fs::{self, File};
use std::path::Path;

use vouch_tree::{FrameKind, Iv, frame};

const IV: Iv = Iv::from_bytes([3; 32]);

fn make_frame(n: u64, len: usize) -> (BlockHandle, Bytes) {
    let mut payload: Vec<u8> = (0..len).map(|i| (i as u64 * 31 + n) as u8).collect();
    payload[..8].copy_from_slice(&n.to_le_bytes());
    let stored = frame::build(FrameKind::Leaf, &payload, 0);
    (IV.handle_of(&stored), stored.into())
}

fn open(dir: &Path, quota_bytes: u64) -> DiskCache {
    DiskCache::open(&DiskCacheOptions { dir: dir.join("cache"), quota_bytes }, 0).unwrap()
}

fn get_verified(cache: &DiskCache, handle: &BlockHandle) -> Option<Vec<u8>> {
    cache.get(handle).filter(|stored| frame::verify(&IV, handle, stored).is_ok())
}

fn used_bytes_of(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::read_dir(dir.join("cache"))
        .unwrap()
        .map(|f| f.unwrap().metadata().unwrap().blocks() * 512)
        .sum()
}

async fn put(cache: &DiskCache, range: std::ops::Range<u64>, len: usize) {
    for n in range {
        let (handle, stored) = make_frame(n, len);
        cache.put(&handle, stored);
        if n % 50 == 49 {
            cache.flush().await;
        }
    }
    cache.flush().await;
}

#[tokio::test]
async fn frames_survive_restart() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 64 << 20);
    put(&cache, 0..300, 5000).await;
    for _ in 0..2 {
        let again = open(dir.path(), 64 << 20);
        for n in 0..300 {
            let (handle, stored) = make_frame(n, 5000);
            assert_eq!(get_verified(&again, &handle).as_deref(), Some(&stored[..]), "frame {n}");
        }
    }
}

/// Of another user who may write to the directory.
#[tokio::test]
async fn files_of_others_are_neither_followed_nor_waited_for() {
    let (dir, quota) = (tempfile::tempdir().unwrap(), 8 << 20);
    put(&open(dir.path(), quota), 0..100, 5000).await;
    let place = |name: &str| dir.path().join("cache").join(name);
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let link = |name: &str| std::os::unix::fs::symlink(&victim, place(name)).unwrap();
    // Written when the first process ends.
    while fs::remove_file(place("segment-0000000000000001.list")).is_err() {
        tokio::task::yield_now().await;
    }
    link("segment-0000000000000001.new");
    link("segment-0000000000000002");
    let (pipe, mode) = (place("segment-0000000000000003"), 0o666.into());
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::write(place("segment-0000000000000004"), "no record").unwrap();
    let list = File::create(place("segment-0000000000000004.list")).unwrap();
    list.set_len(1 << 42).unwrap();
    fs::write(place("segment-ffffffffffffffff"), "").unwrap();
    let key = WholeKey { top: make_frame(1, 5000).0, size: 8 };
    let cache = open(dir.path(), quota);
    for n in 0..100 {
        let (handle, stored) = make_frame(n, 5000);
        assert_eq!(get_verified(&cache, &handle).as_deref(), Some(&stored[..]), "frame {n}");
    }
    let whole = cache.whole.finish(&key, cache.whole.create(&key).unwrap().unwrap()).unwrap();
    drop(whole);
    assert!(cache.whole.open_existing(&key).unwrap().is_some(), "it is ours");
    let path = fs::read_dir(dir.path().join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("whole-"))
        .unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    assert!(cache.whole.open_existing(&key).unwrap().is_none());
    std::os::unix::fs::symlink(&victim, &path).unwrap();
    assert!(cache.whole.open_existing(&key).is_err());
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[tokio::test]
async fn keeps_quota_and_recently_read_frames() {
    let (dir, quota) = (tempfile::tempdir().unwrap(), 8 << 20);
    let cache = open(dir.path(), quota);
    let (hot, hot_stored) = make_frame(1, 20_000);
    for round in 0..40 {
        put(&cache, round * 50 + 1..round * 50 + 51, 20_000).await;
        assert_eq!(get_verified(&cache, &hot).as_deref(), Some(&hot_stored[..]), "round {round}");
        assert!(
            used_bytes_of(dir.path()) <= quota,
            "{} bytes in round {round}",
            used_bytes_of(dir.path())
        );
    }
    let kept =
        (1..2001).filter(|&n| get_verified(&cache, &make_frame(n, 20_000).0).is_some()).count();
    assert!(kept > 200, "{kept} of some 350 that fit");
}

#[tokio::test]
async fn two_processes_share_one_quota() {
    let (dir, quota) = (tempfile::tempdir().unwrap(), 8 << 20);
    let (one, two) = (open(dir.path(), quota), open(dir.path(), quota));
    for round in 0..20 {
        put(&one, round * 50..round * 50 + 50, 20_000).await;
        put(&two, 100_000 + round * 50..100_000 + round * 50 + 50, 20_000).await;
        assert!(
            used_bytes_of(dir.path()) <= quota,
            "{} bytes in round {round}",
            used_bytes_of(dir.path())
        );
    }
    let third = open(dir.path(), quota);
    assert!((950..1000).any(|n| get_verified(&third, &make_frame(n, 20_000).0).is_some()));
    assert!((100_950..101_000).any(|n| get_verified(&third, &make_frame(n, 20_000).0).is_some()));
}

#[tokio::test]
async fn corrupt_and_missing_files_only_lose_frames() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 64 << 20);
    put(&cache, 0..100, 9000).await;
    let segment = fs::read_dir(dir.path().join("cache")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[20_000] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let whole =
        (0..100).filter(|&n| get_verified(&cache, &make_frame(n, 9000).0).is_some()).count();
    assert_eq!(whole, 99);
    fs::write(&segment, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!((0..100).filter(|&n| get_verified(&open(dir.path(), 64 << 20), &make_frame(n, 9000).0).is_some()).count(), 49);
    fs::write(&segment, vec![0xa5; 100_000]).unwrap();
    fs::write(segment.with_extension("list"), b"VCI1 nothing").unwrap();
    assert!(
        (0..100)
            .all(|n| get_verified(&open(dir.path(), 64 << 20), &make_frame(n, 9000).0).is_none())
    );
    fs::remove_dir_all(dir.path().join("cache")).unwrap();
    put(&cache, 200..2000, 9000).await;
    assert!(get_verified(&cache, &make_frame(1999, 9000).0).is_some());
}

struct FullDisk;

impl Disk for FullDisk {
    fn write_at(&self, _: &File, _: &mut [io::IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()))
    }
}

#[tokio::test]
async fn full_disk_stores_nothing_and_fails_nothing() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path(), 16 << 20), 0..50, 9000).await;
    let options = DiskCacheOptions { dir: dir.path().join("cache"), quota_bytes: 16 << 20 };
    let cache = DiskCache::open_on(&options, 0, Arc::new(FullDisk)).unwrap();
    put(&cache, 100..200, 9000).await;
    assert!((100..200).all(|n| cache.get(&make_frame(n, 9000).0).is_none()));
    fs::write(dir.path().join("file"), b"a file").unwrap();
    assert!(
        DiskCache::open(
            &DiskCacheOptions { dir: dir.path().join("file"), quota_bytes: 1 << 20 },
            0
        )
        .is_err()
    );
}

#[tokio::test]
async fn held_directory_lock_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 64 << 20);
    // Like a process stopped while it holds the lock. flock(2) locks belong to the open file.
    let held = File::open(dir.path().join("cache")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    put(&cache, 0..20, 9000).await;
    let key = WholeKey { top: make_frame(1, 100).0, size: 1 << 20 };
    assert_eq!(cache.whole.create(&key).unwrap_err().kind(), io::ErrorKind::TimedOut);
    cache.flush().await;
    assert!((0..20).all(|n| cache.get(&make_frame(n, 9000).0).is_none()));
    drop(held);
    assert!(cache.whole.create(&key).unwrap().is_some());
    let next = open(dir.path(), 64 << 20);
    put(&next, 0..20, 9000).await;
    assert!((0..20).all(|n| get_verified(&next, &make_frame(n, 9000).0).is_some()));
}

#[tokio::test]
async fn files_match_documented_format() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 4 << 20);
    let (handle, stored) = make_frame(7, 10);
    cache.put(&handle, stored.clone());
    cache.flush().await;
    let segment = dir.path().join("cache/segment-0000000000000001");
    assert_eq!(
        fs::read(&segment).unwrap(),
        [&b"VCR1"[..], &[0, 0, 0, 12], handle.as_bytes(), &stored].concat()
    );
    let body =
        [&b"VCI1"[..], &[0, 0, 0, 1], handle.as_bytes(), &[0, 0, 0, 40], &[0, 0, 0, 12]].concat();
    drop(cache);
    let list = segment.with_extension("list");
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while !list.exists() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fs::read(list).unwrap(), [&body[..], blake3::hash(&body).as_bytes()].concat());
}
