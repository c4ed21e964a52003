use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use vouch_tree::Iv;
use vouch_tree_publish::Options;

use crate::prelude::*;

fn errno(error: &std::io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

fn reread(file: &mut File) -> std::io::Result<Vec<u8>> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map(|_| bytes)
}

fn site(seed: u8) -> std::sync::Arc<Site> {
    let site = Site::new("a.example", seed);
    fs::create_dir_all(site.source().join("d/e")).unwrap();
    fs::create_dir(site.source().join("same")).unwrap();
    for dir in ["", "d/", "d/e/", "same/"] {
        fs::write(site.source().join(format!("{dir}tiny")), b"tiny 1").unwrap();
        fs::write(site.source().join(format!("{dir}leaf")), noise(1, 50_000)).unwrap();
        fs::write(site.source().join(format!("{dir}tree")), noise(2, 500_000)).unwrap();
    }
    symlink("tiny", site.source().join("link")).unwrap();
    site.publish(NOW, 3600);
    site
}

#[test]
#[ignore = "needs FUSE"]
fn open_files_follow_their_path() {
    let site = site(11);
    let mount = TestMount::of_tree(&site);
    let names = ["tiny", "leaf", "tree", "d/e/tiny", "d/e/leaf", "d/e/tree", "same/tree"];
    let mut open: Vec<File> =
        names.iter().map(|name| File::open(mount.path(name)).unwrap()).collect();
    open.iter_mut().for_each(|file| drop(reread(file).unwrap()));
    let before = contents_of(&mount.point);
    let ino = fs::metadata(mount.path("d/e/leaf")).unwrap().ino();
    assert!(
        fs::metadata(mount.path("d/e/new")).is_err() && fs::metadata(mount.path("new")).is_err()
    );

    fs::write(site.source().join("tiny"), b"tiny 2").unwrap();
    fs::write(site.source().join("d/e/tiny"), b"tiny two").unwrap();
    fs::write(site.source().join("d/e/leaf"), noise(3, 60_000)).unwrap();
    fs::write(site.source().join("d/e/tree"), noise(4, 700_000)).unwrap();
    fs::write(site.source().join("d/e/new"), b"new").unwrap();
    fs::write(site.source().join("new"), b"new").unwrap();
    fs::remove_file(site.source().join("link")).unwrap();
    symlink("d/e/tiny", site.source().join("link")).unwrap();
    site.publish(NOW, 3600);
    assert_eq!(contents_of(&mount.point), before, "nothing changes before the refresh");
    mount.refresh();

    for (name, file) in names.iter().zip(&mut open) {
        assert!(
            reread(file).unwrap() == fs::read(site.source().join(name)).unwrap(),
            "{name} through the open file"
        );
        assert_eq!(
            file.metadata().unwrap().size(),
            fs::metadata(site.source().join(name)).unwrap().size(),
            "{name}"
        );
    }
    assert_eq!(fs::metadata(mount.path("d/e/leaf")).unwrap().ino(), ino);
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
    assert_eq!(fs::read_to_string(mount.path("d/e/new")).unwrap(), "new", "a cached missing name");
    assert_eq!(fs::read_to_string(mount.path("new")).unwrap(), "new");
    assert_eq!(fs::read_to_string(mount.path("link")).unwrap(), "tiny two");
}

#[test]
#[ignore = "needs FUSE"]
fn removed_files_are_stale_until_they_return() {
    let site = site(12);
    let mount = TestMount::of_tree(&site);
    let mut removed = File::open(mount.path("leaf")).unwrap();
    let mut below = File::open(mount.path("d/e/tree")).unwrap();
    let mut kept = File::open(mount.path("same/tree")).unwrap();
    for file in [&mut removed, &mut below, &mut kept] {
        reread(file).unwrap();
    }
    fs::remove_file(site.source().join("leaf")).unwrap();
    fs::remove_dir_all(site.source().join("d")).unwrap();
    fs::write(site.source().join("d"), b"a file now").unwrap();
    mount.publish(&site);
    for file in [&mut removed, &mut below] {
        assert_eq!(errno(&reread(file).unwrap_err()), Some(Errno::STALE));
        assert_eq!(errno(&file.metadata().unwrap_err()), Some(Errno::STALE));
    }
    reread(&mut kept).unwrap();
    assert_eq!(errno(&fs::metadata(mount.path("leaf")).unwrap_err()), Some(Errno::NOENT));
    assert_eq!(fs::read_to_string(mount.path("d")).unwrap(), "a file now");
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));

    fs::remove_file(site.source().join("d")).unwrap();
    fs::create_dir_all(site.source().join("d/e")).unwrap();
    fs::write(site.source().join("d/e/tree"), b"again").unwrap();
    fs::write(site.source().join("leaf"), b"again").unwrap();
    mount.publish(&site);
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
    assert_eq!(reread(&mut removed).unwrap(), b"again", "the path exists again");
}

#[test]
#[ignore = "needs FUSE"]
fn hard_links_split_and_rejoin() {
    let site = Site::new("a.example", 13);
    fs::create_dir(site.source().join("d")).unwrap();
    fs::write(site.source().join("one"), b"both").unwrap();
    fs::hard_link(site.source().join("one"), site.source().join("d/two")).unwrap();
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let mut open = File::open(mount.path("d/two")).unwrap();
    assert_eq!(reread(&mut open).unwrap(), fs::read(mount.path("one")).unwrap());
    fs::remove_file(site.source().join("d/two")).unwrap();
    fs::write(site.source().join("d/two"), b"alone").unwrap();
    mount.publish(&site);
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
    let ino = |name: &str| fs::metadata(mount.path(name)).unwrap().ino();
    assert_ne!(ino("one"), ino("d/two"));
    assert!(reread(&mut open).is_ok());
    fs::remove_file(site.source().join("d/two")).unwrap();
    fs::hard_link(site.source().join("one"), site.source().join("d/two")).unwrap();
    mount.publish(&site);
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
    let ino = |name: &str| fs::metadata(mount.path(name)).unwrap().ino();
    assert_eq!(ino("one"), ino("d/two"));
}

#[test]
#[ignore = "needs FUSE"]
fn keeps_old_files_while_new_revision_is_unreadable() {
    let site = site(14);
    let mount = TestMount::of_tree(&site);
    let mut open = File::open(mount.path("d/e/leaf")).unwrap();
    let before = reread(&mut open).unwrap();
    (0..5000)
        .for_each(|n| fs::write(site.source().join(format!("more-{n}")), n.to_string()).unwrap());
    fs::remove_file(site.source().join("d/e/leaf")).unwrap();
    site.publish(NOW, 3600);
    let tree = mount.tree.as_ref().unwrap();
    mount.runtime.block_on(tree.refresh()).unwrap();
    site.is_up.store(false, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(500));
    match reread(&mut open) {
        Ok(bytes) => assert_eq!(bytes, before),
        Err(error) => assert!([Some(Errno::STALE), Some(Errno::IO)].contains(&errno(&error))),
    }
    site.is_up.store(true, Ordering::SeqCst);
    mount.refresh();
    assert_eq!(errno(&reread(&mut open).unwrap_err()), Some(Errno::STALE));
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
}

#[test]
#[ignore = "needs FUSE"]
fn listing_continues_in_its_version() {
    let site = Site::new("a.example", 15);
    (0..4000).for_each(|n| fs::write(site.source().join(format!("name-{n:05}")), b"").unwrap());
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let mut listing = fs::read_dir(&mount.point).unwrap();
    let mut names: Vec<_> = listing.by_ref().take(1000).map(|e| e.unwrap().file_name()).collect();
    (0..900).for_each(|n| fs::remove_file(site.source().join(format!("name-{n:05}"))).unwrap());
    (0..500).for_each(|n| fs::write(site.source().join(format!("name-02000-{n}")), b"").unwrap());
    mount.publish(&site);
    names.extend(listing.map(|e| e.unwrap().file_name()));
    let all: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(all.len(), names.len(), "no duplicate name");
    let missing = (1000..4000)
        .filter(|n| !all.contains(&std::ffi::OsString::from(format!("name-{n:05}"))))
        .count();
    assert_eq!(missing, 0, "no unchanged name is missing");
    assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
}

#[test]
#[ignore = "needs FUSE"]
fn read_moves_on_if_replicas_dropped_revision() {
    let site = Site::new("a.example", 19);
    fs::create_dir(site.source().join("d")).unwrap();
    for (name, seed) in [("leaf", 1), ("d/leaf", 2), ("d/large", 3)] {
        fs::write(
            site.source().join(name),
            noise(seed, if name == "d/large" { 400_000 } else { 50_000 }),
        )
        .unwrap();
    }
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let mut open = File::open(mount.path("d/large")).unwrap();
    for (name, seed) in [("leaf", 4), ("d/leaf", 5), ("d/large", 6)] {
        fs::write(
            site.source().join(name),
            noise(seed, if name == "d/large" { 400_000 } else { 50_000 }),
        )
        .unwrap();
    }
    site.publish_with(Options {
        keep: Some(1),
        ..Options::new(site.source(), site.name.clone(), NOW as u64, 3600)
    });
    site.collect();
    assert!(
        fs::read(mount.path("leaf")).unwrap() == noise(4, 50_000),
        "the first read returns the new content"
    );
    assert!(reread(&mut open).unwrap() == noise(6, 400_000));
    assert!(fs::read(mount.path("d/leaf")).unwrap() == noise(5, 50_000));
}

#[test]
#[ignore = "needs FUSE"]
fn next_certificate_replaces_stolen_revision() {
    for count in [2, 4] {
        let site = Site::new("a.example", 19);
        let file = site.source().join("file");
        fs::write(&file, "genuine").unwrap();
        site.publish(NOW, 3600);
        let mount = TestMount::of_tree(&site);
        let mut open = File::open(mount.path("file")).unwrap();
        assert_eq!(reread(&mut open).unwrap(), b"genuine");
        site.serve_empty_database(Iv::from_bytes([19; 32]));
        fs::write(&file, "forged").unwrap();
        (0..count).for_each(|_| site.publish(NOW, 3600));
        mount.refresh();
        mount.until(|| reread(&mut open).is_ok_and(|bytes| bytes == b"forged"));
        site.certify();
        fs::write(&file, "mended").unwrap();
        mount.publish(&site);
        mount.until(|| reread(&mut open).is_ok_and(|bytes| bytes == b"mended"));
        assert_eq!(mount.mounted.as_ref().unwrap().status().trees[0].revision, 2);
        assert_eq!(contents_of(&mount.point), contents_of(&site.source()));
    }
}

#[test]
#[ignore = "needs FUSE"]
fn changed_iv_stops_mount_until_next_certificate() {
    let site = Site::new("a.example", 20);
    let file = site.source().join("file");
    fs::write(&file, "genuine").unwrap();
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"genuine");
    site.serve_empty_database(Iv::from_bytes([99; 32]));
    fs::write(&file, "forged").unwrap();
    (0..3).for_each(|_| site.publish(NOW, 3600));
    let tree = mount.tree.as_ref().unwrap();
    assert!(mount.runtime.block_on(tree.refresh()).is_err());
    mount.until(|| !mount.mounted.as_ref().unwrap().status().trees[0].served);
    mount.until(|| File::open(mount.path("file")).and_then(|mut file| reread(&mut file)).is_err());
    site.certify();
    fs::write(&file, "mended").unwrap();
    mount.publish(&site);
    mount.until(|| fs::read(mount.path("file")).is_ok_and(|bytes| bytes == b"mended"));
}

#[test]
#[ignore = "needs FUSE"]
fn new_xattrs_restrict_file_until_next_mount() {
    let site = Site::new("a.example", 18);
    for name in ["plain", "listed"] {
        fs::write(site.source().join(name), name).unwrap();
        fs::set_permissions(site.source().join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    site.publish(NOW, 3600);
    let mount = TestMount::of_tree(&site);
    let mode =
        |mount: &TestMount, name: &str| fs::metadata(mount.path(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode(&mount, "plain"), mode(&mount, "listed")), (0o644, 0o644));
    // With an ACL, the group bits of the mode are its mask and may exceed the granted rights.
    setxattr(site.source().join("listed"), "user.any", b"value", XattrFlags::empty()).unwrap();
    mount.publish(&site);
    mount.until(|| mode(&mount, "listed") == 0o600);
    assert_eq!(mode(&mount, "plain"), 0o644);
    let listed = fs::read_dir(&mount.point)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().mode() & 0o7777);
    assert_eq!(listed.collect::<std::collections::BTreeSet<_>>(), [0o600, 0o644].into());
    drop(mount);
    let mount = TestMount::of_tree(&site);
    assert_eq!(
        (mode(&mount, "plain"), mode(&mount, "listed")),
        (0o644, 0o644),
        "the kernel reads ACLs on this mount"
    );
}
