//! Reads and new revisions still work.

use std::io::Write as _;
use std::path::PathBuf;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::prelude::*;

const DISK_LEN: usize = 6 << 20;

struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={DISK_LEN}")).unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str())
            .expect("root may mount a tmpfs");
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn fill(&self) -> PathBuf {
        let path = self.path().join("filler");
        let mut filler = fs::File::create(&path).unwrap();
        for len in [1 << 16, 4096, 1] {
            while filler.write_all(&vec![1; len]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

#[test]
#[ignore = "needs root and FUSE"]
fn full_disk_does_not_stop_reads_or_updates() {
    for passthrough in [Passthrough::Never, Passthrough::Always] {
        let disk = SmallDisk::new();
        let site = Site::new("a.example", 90);
        for n in 0..6 {
            fs::write(site.source().join(format!("file-{n}")), noise(n + 1, 2 << 20)).unwrap();
        }
        site.publish(NOW, 3600);
        let choose =
            |options: &mut vouch_tree_mount::MountOptions| options.passthrough = passthrough;
        let mount = TestMount::of_tree_on_disk(&site, disk.path(), 64 << 20, choose);
        for _ in 0..2 {
            assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
        }
        let filler = disk.fill();
        for n in 0..3 {
            fs::write(site.source().join(format!("file-{n}")), noise(n + 20, 3 << 20)).unwrap();
        }
        site.publish(NOW + 1, 3600);
        mount.refresh();
        for _ in 0..2 {
            assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
        }
        fs::remove_file(filler).unwrap();
        fs::remove_dir_all(disk.path().join("cache")).unwrap();
        fs::write(site.source().join("file-5"), noise(30, 1 << 20)).unwrap();
        site.publish(NOW + 2, 3600);
        mount.refresh();
        assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
        let seen = fs::read_dir(disk.path().join("state"))
            .unwrap()
            .map(|e| e.unwrap().metadata().unwrap().len())
            .max();
        assert!(seen > Some(0), "the newest revision was not recorded");
    }
}
