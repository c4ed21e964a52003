use std::time::Instant;

use rustix::io::Errno;

use crate::prelude::*;

fn is_eio<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()))
}

fn site(seed: u8) -> std::sync::Arc<Site> {
    let site = Site::new("a.example", seed);
    fs::create_dir(site.source().join("d")).unwrap();
    fs::write(site.source().join("d/tiny"), b"tiny").unwrap();
    fs::write(site.source().join("large"), noise(1, 700_000)).unwrap();
    fs::write(site.source().join("unread"), noise(2, 700_000)).unwrap();
    site.publish(NOW, 3600);
    site
}

#[test]
#[ignore = "needs FUSE"]
fn serves_cached_files_without_replicas() {
    let site = site(21);
    let mount = TestMount::of_tree(&site);
    let unread = mount.path("unread");
    fs::metadata(&unread).unwrap();
    assert_eq!(fs::read(mount.path("large")).unwrap(), noise(1, 700_000));
    assert_eq!(fs::read(mount.path("d/tiny")).unwrap(), b"tiny");
    site.is_up.store(false, Ordering::SeqCst);
    assert_eq!(fs::read(mount.path("large")).unwrap(), noise(1, 700_000));
    assert_eq!(fs::read(mount.path("d/tiny")).unwrap(), b"tiny");
    assert_eq!(fs::read_dir(mount.path("d")).unwrap().count(), 1);
    let began = Instant::now();
    assert!(is_eio(fs::read(&unread)));
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    site.is_up.store(true, Ordering::SeqCst);
    mount.until(|| fs::read(&unread).is_ok_and(|bytes| bytes == noise(2, 700_000)));
}

#[test]
#[ignore = "needs FUSE"]
fn expired_tree_fails_and_recovers() {
    let site = site(22);
    let mount = TestMount::of_tree(&site);
    let mut open = File::open(mount.path("large")).unwrap();
    let mut reread = move || {
        open.rewind()?;
        let mut bytes = Vec::new();
        open.read_to_end(&mut bytes).map(|_| bytes)
    };
    assert_eq!(reread().unwrap(), noise(1, 700_000));
    let before = contents_of(&mount.point);
    mount.clock.set(NOW + 3600);
    mount.until(|| !mount.mounted.as_ref().unwrap().status().trees[0].served);
    // The kernel drops its caches within two seconds.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(is_eio(reread()), "also from the page cache");
    assert!(is_eio(
        fs::read_dir(&mount.point).and_then(|mut d| d.next().unwrap_or(Err(Errno::NOENT.into())))
    ));
    site.publish(NOW + 3500, 3600);
    mount.until(|| reread().is_ok_and(|bytes| bytes == noise(1, 700_000)));
    mount.until(|| fs::read(mount.path("d/tiny")).is_ok());
    assert_eq!(contents_of(&mount.point), before);
}
