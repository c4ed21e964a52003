use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use parking_lot::Mutex;
use tokio::sync::watch;
use vouch_tree_client::ErrorClass;
use vouch_tree_mount::{MountOptions, Observation, Observer, Operation, Recorded, TreeEvent};

use crate::prelude::*;

struct Watcher {
    wanted: Mutex<Vec<Operation>>,
    seen: Mutex<Vec<Seen>>,
    news: Mutex<Vec<String>>,
    open: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
struct Seen {
    operation: Operation,
    uid: u32,
    pid: Option<u32>,
    path: String,
    others: Vec<String>,
    number: Option<u64>,
    executes: bool,
    read: Option<u64>,
    has_length: bool,
    errno: i32,
    words: String,
}

const ALL: [Operation; 10] = [
    Operation::Lookup,
    Operation::Attributes,
    Operation::Link,
    Operation::List,
    Operation::Xattr,
    Operation::Xattrs,
    Operation::Open,
    Operation::Read,
    Operation::Seek,
    Operation::Close,
];

impl Watcher {
    fn of(wanted: &[Operation]) -> Arc<Self> {
        Arc::new(Self {
            wanted: Mutex::new(wanted.to_vec()),
            seen: Mutex::default(),
            news: Mutex::default(),
            open: watch::Sender::new(true),
        })
    }

    fn of_all() -> Arc<Self> {
        Self::of(&ALL)
    }

    fn sights(&self, operation: Operation, path: &str) -> Vec<Seen> {
        self.seen
            .lock()
            .iter()
            .filter(|sight| sight.operation == operation && sight.path == path)
            .cloned()
            .collect()
    }

    fn closes(&self, mount: &TestMount, path: &str, count: usize) -> Vec<Seen> {
        mount.until(|| self.sights(Operation::Close, path).len() >= count);
        self.sights(Operation::Close, path)
    }
}

impl Observer for Watcher {
    fn wants(&self, operation: Operation) -> bool {
        self.wanted.lock().contains(&operation)
    }

    fn observe(&self, seen: &Observation<'_>) -> Option<Recorded> {
        let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        assert!(seen.tree.starts_with("@a.example,"), "{seen:?}");
        self.seen.lock().push(Seen {
            operation: seen.operation,
            uid: seen.caller.uid,
            pid: seen.caller.pid,
            path: text(seen.path),
            others: seen.other_paths.iter().map(|path| text(path)).collect(),
            number: seen.number,
            executes: seen.executes,
            read: seen.read,
            has_length: seen.open.is_some(),
            errno: seen.failure.map_or(0, |failure| failure.errno),
            words: seen.failure.map_or(seen.remark, |failure| failure.why).to_owned(),
        });
        let mut open = self.open.subscribe();
        let is_open = *open.borrow();
        (!is_open).then(|| {
            let kept: Recorded = Box::pin(async move { drop(open.wait_for(|open| *open).await) });
            kept
        })
    }

    fn tree_event(&self, news: &TreeEvent<'_>) {
        self.news.lock().push(match news {
            TreeEvent::Shown { revision, before, .. } => {
                format!("shown {revision} after {before:?}")
            }
            TreeEvent::Withdrawn { class, .. } => format!("withdrawn {class:?}"),
            TreeEvent::Restored { revision, .. } => format!("back {revision}"),
            TreeEvent::NotOpened { class, .. } => format!("not opened {class:?}"),
        });
    }
}

fn site(seed: u8) -> Arc<Site> {
    let site = Site::new("a.example", seed);
    fs::create_dir_all(site.source().join("d/e")).unwrap();
    fs::write(site.source().join("d/e/file"), noise(1, 200_000)).unwrap();
    fs::hard_link(site.source().join("d/e/file"), site.source().join("other")).unwrap();
    fs::write(site.source().join("tool"), "#!/bin/true\n").unwrap();
    fs::set_permissions(
        site.source().join("tool"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    std::os::unix::fs::symlink("d/e/file", site.source().join("link")).unwrap();
    site.publish(NOW, 3600);
    site
}

fn observed(site: &Arc<Site>, watcher: &Arc<Watcher>) -> TestMount {
    TestMount::of_tree_with(site, |options: &mut MountOptions| {
        options.observer = Some(watcher.clone());
        options.xattrs = vouch_tree_mount::XattrMode::Off;
    })
}

fn as_user(uid: u32, program: &[&str], path: &Path) -> std::process::Output {
    assert!(rustix::process::geteuid().is_root(), "only root acts as others");
    let who = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()];
    let parent =
        path.ancestors().find(|above| above.ends_with("mnt")).and_then(Path::parent).unwrap();
    fs::set_permissions(parent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new("setpriv").args(who).args(program).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
#[ignore = "needs root and FUSE"]
fn observes_opens_reads_and_closes_of_each_user() {
    let (site, watcher) = (site(81), Watcher::of_all());
    let mount = observed(&site, &watcher);
    let path = mount.path("d/e/file");
    let me = rustix::process::geteuid().as_raw();
    assert_eq!(fs::read(&path).unwrap().len(), 200_000);
    let closes = watcher.closes(&mount, "/d/e/file", 1);
    assert_eq!((closes[0].uid, closes[0].read, closes[0].has_length), (me, Some(200_000), true));
    assert_eq!(closes[0].number, Some(fs::metadata(&path).unwrap().ino()));
    let read: u64 =
        watcher.sights(Operation::Read, "/d/e/file").iter().filter_map(|sight| sight.read).sum();
    assert_eq!(read, 200_000);
    assert_eq!(fs::read(&path).unwrap().len(), 200_000);
    assert_eq!(watcher.closes(&mount, "/d/e/file", 2)[1].read, Some(0));
    let output = as_user(4711, &["cat"], &path);
    assert_eq!(output.stdout.len(), 200_000);
    let closes = watcher.closes(&mount, "/d/e/file", 3);
    let opens = watcher.sights(Operation::Open, "/d/e/file");
    assert_eq!(opens.iter().map(|sight| sight.uid).collect::<Vec<_>>(), [me, me, 4711]);
    assert_eq!((closes[2].uid, closes[2].pid.is_some()), (4711, true));
    assert!(opens.iter().all(|sight| sight.pid.is_some() && !sight.executes && sight.errno == 0));
}

#[test]
#[ignore = "needs FUSE"]
fn observes_listings_links_and_executions() {
    let (site, watcher) = (site(82), Watcher::of_all());
    let mount = observed(&site, &watcher);
    for times in 1..=3 {
        assert_eq!(fs::read_dir(mount.path("d")).unwrap().count(), 1);
        assert_eq!(fs::read_link(mount.path("link")).unwrap(), Path::new("d/e/file"));
        assert!(watcher.sights(Operation::List, "/d").len() >= times);
        assert_eq!(watcher.sights(Operation::Link, "/link").len(), times);
    }
    assert!(fs::metadata(mount.path("missing")).is_err());
    let missing = watcher.sights(Operation::Lookup, "/missing");
    assert_eq!((missing.len(), missing[0].errno, missing[0].number), (1, 2, None));
    assert!(Command::new(mount.path("tool")).status().unwrap().success());
    assert!(
        watcher.sights(Operation::Open, "/tool").iter().any(|sight| sight.executes),
        "{:?}",
        watcher.seen.lock()
    );
}

#[test]
#[ignore = "needs FUSE"]
fn reply_waits_for_record() {
    let (site, watcher) = (site(83), Watcher::of(&[Operation::Open]));
    let mount = observed(&site, &watcher);
    let path = mount.path("d/e/file");
    fs::metadata(&path).unwrap();
    watcher.open.send_replace(false);
    let reader = std::thread::spawn({
        let path = path.clone();
        move || fs::read(path).unwrap().len()
    });
    mount.until(|| watcher.sights(Operation::Open, "/d/e/file").len() == 1);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!reader.is_finished(), "the open must wait for its record");
    watcher.open.send_replace(true);
    assert_eq!(reader.join().unwrap(), 200_000);
    // A record that is never made ends with an error at the deadline.
    watcher.open.send_replace(false);
    assert_eq!(File::open(&path).unwrap_err().raw_os_error(), Some(5));
    watcher.open.send_replace(true);
    drop(mount);
    assert!(watcher.sights(Operation::Close, "/d/e/file").is_empty(), "closes are not wanted");
}

#[test]
#[ignore = "needs FUSE"]
fn observes_failed_reads() {
    let (site, watcher) = (site(84), Watcher::of_all());
    let mount = observed(&site, &watcher);
    let mut file = File::open(mount.path("d/e/file")).unwrap();
    site.is_up.store(false, Ordering::SeqCst);
    let mut bytes = Vec::new();
    assert_eq!(file.read_to_end(&mut bytes).unwrap_err().raw_os_error(), Some(5));
    let failed: Vec<_> = watcher
        .sights(Operation::Read, "/d/e/file")
        .into_iter()
        .filter(|sight| sight.errno == 5)
        .collect();
    assert!(!failed.is_empty() && failed[0].words.contains("10.0.0.1"), "{failed:?}");
    drop(file);
    let closed = &watcher.closes(&mount, "/d/e/file", 1)[0];
    assert!(closed.words.contains("reads failed") && closed.read == Some(0), "{closed:?}");
}

#[test]
#[ignore = "needs FUSE"]
fn observes_all_paths_and_files_open_at_the_end() {
    let (site, watcher) = (site(85), Watcher::of_all());
    let mut mount = observed(&site, &watcher);
    fs::metadata(mount.path("other")).unwrap();
    let file = File::open(mount.path("d/e/file")).unwrap();
    let opened = &watcher.sights(Operation::Open, "/other")[0];
    assert_eq!(opened.others, ["/d/e/file"]);
    let mounted = mount.mounted.take().unwrap();
    mount.runtime.block_on(mounted.serve_until(std::future::ready(()))).unwrap();
    let closed = watcher.sights(Operation::Close, "/other");
    assert_eq!(closed.len(), 1);
    assert!(closed[0].words.contains("still open"), "{closed:?}");
    drop(file);
}

#[test]
#[ignore = "needs FUSE"]
fn observes_revisions_and_expiry() {
    let (site, watcher) = (site(86), Watcher::of_all());
    let mount = observed(&site, &watcher);
    fs::write(site.source().join("tool"), "second").unwrap();
    site.publish(NOW, 1800);
    mount.refresh();
    mount.until(|| watcher.news.lock().len() == 2);
    mount.clock.set(NOW + 1801);
    mount.until(|| watcher.news.lock().len() == 3);
    site.publish(NOW + 1800, 3600);
    mount.refresh();
    mount.until(|| watcher.news.lock().iter().any(|news| news == "back 3"));
    let mut news = watcher.news.lock().clone();
    news.sort();
    let expired = format!("withdrawn {:?}", ErrorClass::Expired);
    assert_eq!(
        news,
        [
            "back 3",
            "shown 1 after None",
            "shown 2 after Some(1)",
            "shown 3 after Some(2)",
            &expired
        ]
    );
}

#[test]
#[ignore = "needs root and FUSE"]
fn passthrough_only_if_reads_are_not_observed() {
    assert!(rustix::process::geteuid().is_root(), "passthrough needs root");
    let site = Site::new("a.example", 87);
    fs::write(site.source().join("large"), noise(1, 3 << 20)).unwrap();
    site.publish(NOW, 3600);
    let (dir, watcher) = (tempfile::tempdir().unwrap(), Watcher::of(&[Operation::Open]));
    let cache = DiskCacheOptions { dir: dir.path().to_owned(), quota_bytes: 64 << 20 };
    let mount = TestMount::of_tree_with_cache(&site, cache, |options| {
        options.observer = Some(watcher.clone());
        options.passthrough = Passthrough::Auto;
    });
    fs::metadata(mount.path("large")).unwrap();
    let status = mount.mounted.as_ref().unwrap().status();
    assert!(status.passthrough, "this kernel has no FUSE passthrough");
    let passed = || mount.mounted.as_ref().unwrap().status().passed_through > 0;
    let mut opens = 0;
    let mut open_and_read = || {
        mount.until(|| !passed());
        let mut file = File::open(mount.path("large")).unwrap();
        opens += 1;
        let is_through = passed();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 3 << 20);
        is_through
    };
    mount.until(&mut open_and_read);
    assert!(open_and_read());
    watcher.wanted.lock().push(Operation::Close);
    assert!((0..20).all(|_| !open_and_read()));
    watcher.closes(&mount, "/large", 20);
    assert_eq!(watcher.sights(Operation::Open, "/large").len(), opens);
}
