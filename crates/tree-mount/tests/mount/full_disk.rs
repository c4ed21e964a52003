//! A disk that is full, under the cache and the memory of what was seen: reads go on, and new
//! revisions appear.
//!
//! Needs root, to mount a small tmpfs; else the test says so and passes.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use vouch_tree_mount::Passthrough;

use crate::fixture::{NOW, Site, World, noise, survey};

const DISK_LEN: usize = 6 << 20;

/// A disk of 6 MiB that goes when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={DISK_LEN}")).unwrap();
        match mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str()) {
            Ok(()) => Some(Self(dir)),
            Err(error) => {
                println!("skipped: no tmpfs can be mounted: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes until nothing more fits.
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
fn reads_go_on_when_the_disk_is_full() {
    for passthrough in [Passthrough::Never, Passthrough::Always] {
        let Some(disk) = SmallDisk::new() else { return };
        let site = Site::new("a.example", 90);
        // More than the disk holds, each file more than the client's memory.
        for n in 0..6 {
            fs::write(site.source().join(format!("file-{n}")), noise(n + 1, 2 << 20)).unwrap();
        }
        site.publish(NOW, 3600);
        // The quota is no help: it is above what the disk has.
        let choose = |options: &mut vouch_tree_mount::MountOptions| options.passthrough = passthrough;
        let Some(world) = World::of_tree_on_disk(&site, disk.path(), 64 << 20, choose) else { return };
        for _ in 0..2 {
            assert_eq!(survey(&world.point), survey(&site.source()));
        }
        // Not a byte is left, neither for frames nor for the newest revision seen.
        let filler = disk.fill();
        for n in 0..3 {
            fs::write(site.source().join(format!("file-{n}")), noise(n + 20, 3 << 20)).unwrap();
        }
        site.publish(NOW + 1, 3600);
        world.refresh();
        for _ in 0..2 {
            assert_eq!(survey(&world.point), survey(&site.source()));
        }
        // With room again the next revision is remembered, on the disk as well.
        fs::remove_file(filler).unwrap();
        fs::remove_dir_all(disk.path().join("cache")).unwrap();
        fs::write(site.source().join("file-5"), noise(30, 1 << 20)).unwrap();
        site.publish(NOW + 2, 3600);
        world.refresh();
        assert_eq!(survey(&world.point), survey(&site.source()));
        let seen = fs::read_dir(disk.path().join("state")).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).max();
        assert!(seen > Some(0), "nothing was written of the newest revision");
    }
}
