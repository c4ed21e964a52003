use std::process::Stdio;

use vouch_testkit::this_test;
use vouch_tree_mount::{MountError, clear_dead_mount, unmount_point};

use crate::prelude::*;

fn site(seed: u8) -> std::sync::Arc<Site> {
    let site = Site::new("a.example", seed);
    fs::write(site.source().join("file"), b"x").unwrap();
    site.publish(NOW, 3600);
    site
}

#[test]
#[ignore = "needs FUSE"]
fn either_side_can_unmount() {
    let site = site(41);
    let mut mount = TestMount::of_tree(&site);
    let point = mount.point.clone();
    assert_eq!(fs::read(point.join("file")).unwrap(), b"x");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(
        mounts.contains(&format!(" {} fuse.vouch ro,nosuid,nodev", point.display())),
        "{mounts}"
    );
    assert!(matches!(clear_dead_mount(&point), Err(MountError::Busy { .. })));
    let mounted = mount.mounted.take().unwrap();
    unmount_point(&point).unwrap();
    mount
        .runtime
        .block_on(async {
            tokio::time::timeout(
                Duration::from_secs(10),
                mounted.serve_until(std::future::pending()),
            )
            .await
        })
        .unwrap()
        .unwrap();
    assert!(!point.join("file").exists());

    let mount = TestMount::of_tree(&site);
    let open = fs::File::open(mount.path("file")).unwrap();
    let point = mount.point.clone();
    drop(mount);
    assert!(!point.join("file").exists(), "unmounted while a file is open");
    drop(open);
}

#[test]
#[ignore = "needs FUSE"]
fn stop_signal_unmounts() {
    let site = site(42);
    let mut mount = TestMount::of_tree(&site);
    let mounted = mount.mounted.take().unwrap();
    mount
        .runtime
        .block_on(async {
            mounted.serve_until(tokio::time::sleep(Duration::from_millis(50))).await
        })
        .unwrap();
    assert!(!mount.path("file").exists());
}

#[test]
fn victim() {
    let Some(point) = std::env::var_os("VOUCH_TEST_VICTIM") else { return };
    let site = site(43);
    let _mount = TestMount::of_tree_at(&site, point.into());
    println!("mounted");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
#[ignore = "needs FUSE"]
fn next_mount_removes_dead_mount() {
    let site = site(44);
    let mount = TestMount::of_tree(&site);
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let mut victim = this_test("lifecycle::victim")
        .env("VOUCH_TEST_VICTIM", &point)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    mount.until(|| point.join("file").exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(
        fs::read_dir(&point).and_then(|mut d| d.next().unwrap()).unwrap_err().kind(),
        std::io::ErrorKind::NotConnected
    );
    let again = TestMount::of_tree_at(&site, point.clone());
    assert_eq!(fs::read(point.join("file")).unwrap(), b"x");
    drop(again);
    assert!(!clear_dead_mount(&point).unwrap());
}

#[test]
#[ignore = "needs FUSE"]
fn refuses_unusable_mount_points() {
    let site = site(45);
    let mount = TestMount::of_tree(&site);
    let (dir, tree) = (tempfile::tempdir().unwrap(), mount.tree.clone().unwrap());
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for (point, exists) in [(file, true), (dir.path().join("missing"), false)] {
        let config = vouch_tree_mount::MountConfig { point, options: Default::default() };
        let refused = mount
            .runtime
            .block_on(vouch_tree_mount::mount_tree(config, tree.clone()))
            .err()
            .unwrap();
        let is_expected = if exists {
            matches!(refused, MountError::Point { .. })
        } else {
            matches!(refused, MountError::NoPoint { .. })
        };
        assert!(is_expected, "{refused}");
    }
}
