//! Both processes are in this one. `vouch/tests/end_to_end/` has real ones.

use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use vouch_tree_mount::{MountError, MountImage, create_journal};

use crate::prelude::*;

#[test]
#[ignore = "needs FUSE"]
fn files_and_revisions_survive_changes_of_the_process() {
    let site = Site::new("a.example", 41);
    fs::create_dir_all(site.source().join("d/e")).unwrap();
    fs::write(site.source().join("d/e/file"), noise(1, 500_000)).unwrap();
    fs::write(site.source().join("d/tiny"), b"tiny 1").unwrap();
    fs::hard_link(site.source().join("d/tiny"), site.source().join("link")).unwrap();
    site.publish(NOW, 3600);
    let journal = Arc::new(create_journal().unwrap());
    let mut mount =
        TestMount::of_tree_with(&site, |options| options.journal = Some(journal.clone()));
    let held = File::open(mount.path("d/e/file")).unwrap();
    let ino = held.metadata().unwrap().ino();
    for round in 2..6 {
        let before = contents_of(&mount.point);
        assert!(fs::metadata(mount.path("new")).is_err() || round > 2);
        let handle = mount.mounted.as_ref().unwrap().handle();
        mount.runtime.block_on(handle.stop_serving()).unwrap();
        handle.resume();
        assert_eq!(contents_of(&mount.point), before);
        mount.runtime.block_on(handle.stop_serving()).unwrap();
        mount.take_over(&site, &journal, false);
        assert_eq!(contents_of(&mount.point), before);
        fs::write(site.source().join("d/e/file"), noise(round, 500_000)).unwrap();
        fs::write(site.source().join("new"), format!("new {round}")).unwrap();
        mount.publish(&site);
        let mut bytes = vec![0; 1000];
        held.read_exact_at(&mut bytes, 400_000).unwrap();
        assert_eq!(bytes, noise(round, 500_000)[400_000..401_000]);
        assert_eq!(fs::read_to_string(mount.path("new")).unwrap(), format!("new {round}"));
        assert_eq!(
            (held.metadata().unwrap().ino(), fs::metadata(mount.path("d/e/file")).unwrap().ino()),
            (ino, ino)
        );
        assert_eq!(
            fs::metadata(mount.path("link")).unwrap().ino(),
            fs::metadata(mount.path("d/tiny")).unwrap().ino()
        );
    }
    let image = MountImage::read(&journal).unwrap();
    assert_eq!(image.node_count(), mount.mounted.as_ref().unwrap().status().nodes);
}

#[test]
#[ignore = "needs FUSE"]
fn mount_that_cannot_stop_serves_on() {
    let site = Site::new("a.example", 42);
    fs::write(site.source().join("file"), noise(1, 500_000)).unwrap();
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let handle = mount.mounted.as_ref().unwrap().handle();
    assert!(
        matches!(mount.runtime.block_on(handle.stop_serving()), Err(MountError::TakeOver { .. })),
        "it has no journal"
    );
    assert_eq!(fs::read(mount.path("file")).unwrap(), noise(1, 500_000));
}
