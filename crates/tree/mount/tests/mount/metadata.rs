use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::time::UNIX_EPOCH;

use rustix::fs::{CWD, FileType, Mode, SeekFrom, XattrFlags, mknodat, seek, setxattr};

use crate::prelude::*;

fn odd_source(site: &Site) {
    let root = site.source();
    for len in [0, 1, 1023, 1024, 1025, 4096, 128 * 1024, 128 * 1024 + 1, 3 << 20] {
        fs::write(root.join(format!("f{len}")), noise(len as u64, len)).unwrap();
    }
    fs::create_dir_all(root.join("a/b/c/d")).unwrap();
    fs::write(root.join("a/b/c/d/leaf"), b"leaf").unwrap();
    fs::write(root.join("a/one"), b"linked").unwrap();
    fs::hard_link(root.join("a/one"), root.join("a/b/two")).unwrap();
    fs::hard_link(root.join("a/one"), root.join("three")).unwrap();
    symlink("b/../one", root.join("a/link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"not-utf8-\xff\xfe")), b"x").unwrap();
    fs::write(root.join(OsStr::from_bytes(&[b'n'; 255])), b"long").unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    if rustix::process::geteuid().is_root() {
        mknodat(
            CWD,
            root.join("null"),
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            rustix::fs::makedev(259, 70_000),
        )
        .unwrap();
        std::os::unix::fs::chown(root.join("f1"), Some(12_345), Some(54_321)).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(100 << 30).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"here", 50 << 30).unwrap();
    fs::set_permissions(root.join("f1024"), fs::Permissions::from_mode(0o4751)).unwrap();
    let _ = setxattr(root.join("f1"), "user.small", b"value", XattrFlags::empty());
    let _ = setxattr(root.join("a"), "user.of-directory", b"value", XattrFlags::empty());
    let _ = setxattr(root.join("f4096"), "user.large", &noise(1, 2000), XattrFlags::empty());
    File::open(root.join("f4096"))
        .unwrap()
        .set_modified(UNIX_EPOCH - Duration::new(86_400, 123_456_789))
        .unwrap();
    File::open(root.join("f1025"))
        .unwrap()
        .set_modified(UNIX_EPOCH + Duration::new(5_000_000_000, 1))
        .unwrap();
}

#[test]
#[ignore = "needs FUSE"]
fn mount_equals_source() {
    let site = Site::new("a.example", 1);
    odd_source(&site);
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let (source, mounted) = (contents_of(&site.source()), contents_of(&mount.point));
    for (path, line) in &source {
        assert_eq!(mounted.get(path), Some(line), "{}", path.display());
    }
    assert_eq!(source.len(), mounted.len());
    assert_eq!(contents_of(&mount.point), mounted);
}

#[test]
#[ignore = "needs FUSE"]
fn hard_links_and_readdir_have_stable_inode_numbers() {
    let site = Site::new("a.example", 2);
    odd_source(&site);
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let ino = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap().ino();
    assert_eq!(ino("a/one"), ino("a/b/two"));
    assert_eq!(ino("a/one"), ino("three"));
    assert_ne!(ino("a/one"), ino("f1"));
    let mut seen = std::collections::HashSet::new();
    for entry in fs::read_dir(&mount.point).unwrap() {
        let entry = entry.unwrap();
        let listed = std::os::unix::fs::DirEntryExt::ino(&entry);
        assert_eq!(listed, fs::symlink_metadata(entry.path()).unwrap().ino(), "{:?}", entry.path());
        assert!(seen.insert(listed));
    }
    let before = (ino("a/one"), ino("a/b/c"), ino("f0"));
    drop(mount);
    let mount = TestMount::of_tree(&site);
    let ino = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap().ino();
    assert_eq!(before, (ino("a/one"), ino("a/b/c"), ino("f0")), "inode numbers survive a remount");
}

#[test]
#[ignore = "needs FUSE"]
fn finds_holes_and_reads_zeros() {
    let site = Site::new("a.example", 3);
    odd_source(&site);
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let file = File::open(mount.path("sparse")).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)).unwrap(), 50 << 30);
    assert_eq!(seek(&file, SeekFrom::Hole(50 << 30)).unwrap(), (50 << 30) + 128 * 1024);
    assert!(seek(&file, SeekFrom::Data(51 << 30)).is_err());
    let mut bytes = [1; 12];
    std::os::unix::fs::FileExt::read_at(&file, &mut bytes, (50 << 30) - 4).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0here\0\0\0\0");
    assert!(fs::metadata(mount.path("sparse")).unwrap().blocks() <= 256);
    let small = File::open(mount.path("f1023")).unwrap();
    assert_eq!(seek(&small, SeekFrom::Data(5)).unwrap(), 5);
    assert_eq!(seek(&small, SeekFrom::Hole(5)).unwrap(), 1023);
}

#[test]
#[ignore = "needs FUSE"]
fn lists_large_directory_completely() {
    const COUNT: usize = 30_000;
    let site = Site::new("a.example", 4);
    fs::create_dir(site.source().join("big")).unwrap();
    for n in 0..COUNT {
        fs::write(site.source().join(format!("big/name-{n:07}")), n.to_string()).unwrap();
    }
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    for _ in 0..2 {
        let mut names: Vec<_> =
            fs::read_dir(mount.path("big")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names.len(), COUNT);
        assert!(names.iter().enumerate().all(|(n, name)| *name == *format!("name-{n:07}")));
    }
    assert_eq!(fs::read_to_string(mount.path("big/name-0012345")).unwrap(), "12345");
    let missing = fs::metadata(mount.path("big/name-9999999")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    let listed = Command::new("ls").arg("-lU").arg(mount.path("big")).output().unwrap();
    assert_eq!(listed.stdout.split(|&b| b == b'\n').filter(|l| l.contains(&b'-')).count(), COUNT);
}

#[test]
#[ignore = "needs FUSE"]
fn refuses_writes_and_checks_modes() {
    let site = Site::new("a.example", 5);
    fs::write(site.source().join("file"), b"x").unwrap();
    fs::DirBuilder::new().mode(0o700).create(site.source().join("private")).unwrap();
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let refused = fs::write(mount.path("file"), b"y").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    assert!(
        fs::remove_file(mount.path("file")).is_err() && fs::create_dir(mount.path("new")).is_err()
    );
    if rustix::process::geteuid().is_root() {
        let nobody = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "ls"])
            .arg(mount.path("private"))
            .output();
        assert!(nobody.is_ok_and(|output| !output.status.success()));
    }
}

#[test]
#[ignore = "needs FUSE"]
fn parallel_and_interrupted_reads_are_right() {
    let site = Site::new("a.example", 6);
    let whole = noise(7, 24 << 20);
    fs::write(site.source().join("large"), &whole).unwrap();
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let path = mount.path("large");
    std::thread::scope(|scope| {
        for reader in 0..6usize {
            let (path, whole) = (&path, &whole);
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                for n in 0..200 {
                    let at = (n * 7_919_001 + reader * 1_234_567) % (whole.len() - 9000);
                    let mut bytes = vec![0; 8192];
                    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, at as u64)
                        .unwrap();
                    assert!(bytes == whole[at..at + 8192]);
                }
            });
        }
        let script = "trap : USR1; (for i in 1 2 3 4 5 6 7 8; do kill -USR1 $$; sleep 0.02; done) & cksum < \"$0\"";
        let interrupted = Command::new("sh").arg("-c").arg(script).arg(&path).output().unwrap();
        assert!(interrupted.status.success() || interrupted.status.code().is_some());
        let mut killed =
            Command::new("cat").arg(&path).stdout(std::process::Stdio::null()).spawn().unwrap();
        killed.kill().unwrap();
        killed.wait().unwrap();
    });
    assert!(fs::read(&path).unwrap() == whole);
}
