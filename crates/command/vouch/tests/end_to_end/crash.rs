//! SIGKILL at seeded random instants under load: readers never see wrong or older data, and reading
//! continues.

use std::os::unix::fs::FileExt as _;
use std::thread;

use crate::prelude::*;

#[test]
#[ignore = "needs FUSE"]
fn readers_are_unaffected_by_a_killed_replica_when_another_remains() {
    let load = Load::new();
    let mut replicas = [load.site.serve(), load.site.serve_db("db", 0)];
    let second = replicas[1].address.clone();
    let args = ["--no-cache", "--memory-cache", "1M", "--replica", &second, &load.site.name("")];
    let mount = Mount::new(&load.site, "mnt", &args);
    let readers: Vec<_> =
        (0..2).map(|seed| load.reader(mount.path(""), seed, OnError::Fail)).collect();
    let copier = load.copier(&["--replica", &second], OnError::Fail);
    let mut random = SplitMix64(11);
    for round in 0..KILLS {
        thread::sleep(Duration::from_millis(random.roll(400)));
        let port = replicas[round % 2].port();
        replicas[round % 2].kill();
        thread::sleep(Duration::from_millis(random.roll(300)));
        replicas[round % 2] = load.site.serve_db("db", port);
        // The client must have ended its back-off before the other replica is killed.
        let (before, limit) = (load.files(), Duration::from_secs(20));
        assert!(
            eventually(limit, || load.files() > before + 20),
            "kill {round}: reading does not continue"
        );
    }
    load.end(readers.into_iter().chain([copier]));
}

#[test]
#[ignore = "needs FUSE"]
fn readers_recover_after_the_only_replica_is_killed() {
    let load = Load::new();
    let mut replica = load.site.serve();
    let args = ["--no-cache", "--memory-cache", "1M", "--timeout", "3s", &load.site.name("")];
    let mount = Mount::new(&load.site, "mnt", &args);
    let readers: Vec<_> =
        (0..2).map(|seed| load.reader(mount.path(""), seed + 10, OnError::GoOn)).collect();
    let copier = load.copier(&["--timeout", "3s"], OnError::GoOn);
    let mut random = SplitMix64(12);
    for round in 0..KILLS {
        thread::sleep(Duration::from_millis(random.roll(400)));
        replica.kill();
        thread::sleep(Duration::from_millis(random.roll(500)));
        replica = load.site.serve();
        let (before, limit) = (load.files(), Duration::from_secs(30));
        assert!(
            eventually(limit, || load.files() > before + 20),
            "kill {round}: reading does not continue"
        );
    }
    load.end(readers.into_iter().chain([copier]));
}

#[test]
#[ignore = "needs FUSE"]
fn killed_mount_leaves_usable_state_and_caches() {
    let load = Load::new();
    let site = &load.site;
    site.run_tool("cp", &["-a", "db", "old"]);
    let (mut random, mut usable) = (SplitMix64(13), 0);
    for round in 0..KILLS as u64 {
        let replica = site.serve();
        let args = ["--refresh", "1s", "--timeout", "5s", "--cache-quota", "64M", &site.name("")];
        let mount = Mount::new(site, "mnt", &args);
        let (seen_before, first) = (
            site.seen_revision(),
            load.shown_revision(&mount.path("")).expect("the replica is there"),
        );
        assert!(
            first >= load.shown.load(Ordering::SeqCst),
            "kill {round}: an older revision is shown after a remount"
        );
        let mut readers: Vec<_> = (0..2)
            .map(|seed| load.reader(mount.path(""), round * 10 + seed, OnError::GoOn))
            .collect();
        readers.push(load.revision_watcher(mount.path("")));
        thread::sleep(Duration::from_millis(random.roll(300)));
        load.change_source(round + 2);
        site.publish();
        thread::sleep(Duration::from_millis(random.roll(2500)));
        mount.kill();
        load.stop_readers(readers);
        let (seen, shown) = (site.seen_revision(), load.shown.load(Ordering::SeqCst));
        assert!(
            seen >= seen_before,
            "kill {round}: the newest seen revision went back from {seen_before} to {seen}"
        );
        assert!(
            seen >= shown,
            "kill {round}: revision {shown} was shown, but {seen} is recorded as the newest"
        );
        if round % 2 == 0 {
            site.run_tool("umount", &["-l", "mnt"]);
        }
        drop(replica);
        let lonely = Mount::new(site, "mnt", &["--timeout", "2s", &site.name("")]);
        assert!(
            load.shown_revision(&lonely.path("")).is_none_or(|number| number >= shown),
            "kill {round}: older after a remount"
        );
        // Without a replica, each file that is not in the cache takes the time limit.
        let mut some = (0..FILES).step_by(10);
        let is_usable =
            some.any(|file| load.check(&lonely.path(""), file, OnError::GoOn).is_some());
        usable += usize::from(is_usable);
        drop(lonely);
        let _stale = site.serve_db("old", site.port);
        let mut stale = site.command(["cat", "--timeout", "2s", &site.name("/number")]);
        let output_text = stale.output().expect("the binary starts");
        let revision = String::from_utf8_lossy(&output_text.stdout).trim().parse::<u64>();
        assert!(
            revision.is_err() || revision.is_ok_and(|number| number >= shown.max(seen)),
            "kill {round}: an old revision is accepted"
        );
    }
    assert!(usable * 2 >= KILLS, "the cache could be used after {usable} of {KILLS} kills");
    load.end([]);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnError {
    Fail,
    GoOn,
}

struct Load {
    site: Arc<TestSite>,
    is_over: Arc<AtomicBool>,
    files: Arc<AtomicU64>,
    shown: Arc<AtomicU64>,
}

impl Load {
    fn new() -> Load {
        let site = TestSite::new();
        for file in 0..FILES {
            site.write(&format!("src/{}", name(file)), content(file));
        }
        let load = Load {
            site: Arc::new(site),
            is_over: Arc::default(),
            files: Arc::default(),
            shown: Arc::default(),
        };
        load.change_source(1);
        load.site.publish();
        load
    }

    fn files(&self) -> u64 {
        self.files.load(Ordering::SeqCst)
    }

    fn change_source(&self, number: u64) {
        self.site.write("src/number", format!("{number}\n"));
    }

    fn shown_revision(&self, at: &Path) -> Option<u64> {
        let text = fs::read_to_string(at.join("number")).ok()?;
        let number = text.trim().parse().expect("a number was published");
        self.shown.fetch_max(number, Ordering::SeqCst);
        Some(number)
    }

    /// `None` if unreadable. Bytes read before an error must be right too.
    fn check(&self, at: &Path, file: u64, on_error: OnError) -> Option<()> {
        let (path, expected) = (at.join(name(file)), content(file));
        let failed = |error: std::io::Error| {
            assert!(on_error == OnError::GoOn, "{}: {error}", path.display())
        };
        let open = fs::File::open(&path).map_err(failed).ok()?;
        let (mut buffer, mut done) = (vec![0; 64 * 1024], 0);
        loop {
            let n = open.read_at(&mut buffer, done as u64).map_err(failed).ok()?;
            assert!(
                expected.get(done..done + n) == Some(&buffer[..n]),
                "{}: a wrong byte after {done}",
                path.display()
            );
            done += n;
            if n == 0 {
                break;
            }
        }
        assert_eq!(done, expected.len(), "{}: cut short", path.display());
        let _ = rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed);
        Some(())
    }

    fn reader(&self, at: impl AsRef<Path>, seed: u64, on_error: OnError) -> JoinHandle<()> {
        let (load, at) = (self.share(), at.as_ref().to_owned());
        thread::spawn(move || {
            let mut random = SplitMix64(seed + 100);
            while !load.is_over.load(Ordering::SeqCst) {
                match load.check(&at, random.roll(FILES), on_error) {
                    Some(()) => drop(load.files.fetch_add(1, Ordering::SeqCst)),
                    None => thread::sleep(Duration::from_millis(5)),
                }
            }
        })
    }

    fn revision_watcher(&self, at: impl AsRef<Path>) -> JoinHandle<()> {
        let (load, at) = (self.share(), at.as_ref().to_owned());
        thread::spawn(move || {
            let mut last = 0;
            while !load.is_over.load(Ordering::SeqCst) {
                if let Some(number) = load.shown_revision(&at) {
                    assert!(number >= last, "revision {number} after {last}");
                    last = number;
                }
                thread::sleep(Duration::from_millis(2));
            }
        })
    }

    fn copier(&self, args: &[&str], on_error: OnError) -> JoinHandle<()> {
        let (load, args) =
            (self.share(), args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        thread::spawn(move || {
            let (site, copy) = (&load.site, load.site.path("copy"));
            while !load.is_over.load(Ordering::SeqCst) {
                let mut command = site.command(["get", "--no-cache", &site.name(""), "copy"]);
                let output = command.args(&args).output().expect("the binary starts");
                if output.status.success() {
                    for file in 0..FILES {
                        load.check(&copy, file, OnError::Fail);
                    }
                    fs::remove_dir_all(&copy).expect("ours");
                } else {
                    let output_text = String::from_utf8_lossy(&output.stderr);
                    assert!(
                        on_error == OnError::GoOn && output.status.code() == Some(6),
                        "{:?}: {output_text}",
                        output.status
                    );
                    assert!(!copy.exists(), "half a copy");
                }
            }
        })
    }

    fn share(&self) -> Load {
        let Load { site, is_over, files, shown } = self;
        Load {
            site: site.clone(),
            is_over: is_over.clone(),
            files: files.clone(),
            shown: shown.clone(),
        }
    }

    fn stop_readers(&self, readers: impl IntoIterator<Item = JoinHandle<()>>) {
        self.is_over.store(true, Ordering::SeqCst);
        for reader in readers {
            reader.join().expect("the reader met no wrong byte");
        }
        self.is_over.store(false, Ordering::SeqCst);
    }

    fn end(&self, readers: impl IntoIterator<Item = JoinHandle<()>>) {
        let began = Instant::now();
        self.stop_readers(readers);
        assert!(began.elapsed() < Duration::from_secs(60), "a reader hung");
        assert!(self.files() > 0, "no file was read");
    }
}

fn name(file: u64) -> String {
    format!("d{}/{file}", file % 8)
}

fn content(file: u64) -> Vec<u8> {
    let len = if file.is_multiple_of(8) { 300_000 } else { 500 + file * 97 % 40_000 };
    noise(file + 1_000_000, len as usize)
}

const FILES: u64 = 200;

const KILLS: usize = 8;
