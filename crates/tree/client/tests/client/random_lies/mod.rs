//! No wrong byte reaches a reader, nothing hangs, and reads succeed while one honest replica is
//! reachable. `VOUCH_LIE_CASES`, `VOUCH_LIE_SEED` (one seed is one case).

#[allow(unreachable_pub, reason = "shared with the parent module")]
mod scenario;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use vouch_testkit::SplitMix64;
use vouch_tree::{Blob, BlobBody, Content, Inode};
use vouch_tree_client::{
    Client, ClientOptions, Clock, DiskCacheOptions, Error, ErrorClass, Position, Tree, TreeOptions,
};

use self::scenario::{OFFERS, Offer, RevisionId, Scenario, offer, scenarios};
use crate::fixture::network::TestNetwork;
use crate::fixture::replica::{Fault, TestReplica};
use crate::fixture::{NOW, Node, TestClock};

const DEADLINE: Duration = Duration::from_secs(30);

const FAULTS: [Fault; 20] = [
    Fault::Flip(255),
    Fault::Flip(40),
    Fault::FlipFrame,
    Fault::Truncate,
    Fault::Swap,
    Fault::WrongHandle,
    Fault::Withhold,
    Fault::Stall,
    Fault::Oversize,
    Fault::Garbage,
    Fault::HalfAnswer,
    Fault::HalfStall,
    Fault::Drip,
    Fault::WrongXid,
    Fault::Duplicate,
    Fault::FewResults,
    Fault::Refuse,
    Fault::Blackhole,
    Fault::Decline,
    Fault::NoTree,
];

struct Case {
    random: SplitMix64,
    scenario: &'static Scenario,
    replicas: Vec<Arc<TestReplica>>,
    honest: Option<usize>,
    clock: Arc<TestClock>,
    tree: Option<Arc<Tree>>,
    latest: u64,
    stage: Arc<AtomicUsize>,
    is_key_stolen: bool,
    revision_id: RevisionId,
    score: Score,
}

#[derive(Default, Clone, Copy)]
struct Score {
    answers: u64,
    lies: u64,
    newer: u64,
    renewed: u64,
}

fn revision_id_of(tree: &Tree) -> RevisionId {
    let newest = tree.newest();
    (newest.cert_serial(), newest.number())
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let scenario = random.pick(scenarios());
        let count = 1 + random.roll(4) as usize;
        let honest = (!random.one_in(4)).then(|| random.roll(count as u64) as usize);
        let replicas: Vec<Arc<TestReplica>> = (0..count)
            .map(|n| {
                let replica = TestReplica::new(&scenario.stages[0].1, Fault::None, random.draw());
                if Some(n) != honest {
                    let what = if random.one_in(3) { *random.pick(&OFFERS) } else { Offer::Newest };
                    offer(&replica, scenario, what, &mut random);
                    if !random.one_in(4) {
                        replica.set_fault(*random.pick(&FAULTS));
                    }
                }
                if random.one_in(3) {
                    let slowest = if random.one_in(6) { 2500 } else { 150 };
                    *replica.delay.lock() = Duration::from_millis(random.roll(slowest));
                }
                replica
            })
            .collect();
        Self {
            random,
            scenario,
            replicas,
            honest,
            clock: TestClock::at(NOW),
            tree: None,
            latest: 0,
            stage: Arc::default(),
            is_key_stolen: false,
            revision_id: (0, 0),
            score: Score::default(),
        }
    }

    async fn run(&mut self, cache: Option<&Path>) {
        let network = TestNetwork::of(&self.scenario.publisher.location, &self.replicas);
        let client = Client::new(ClientOptions {
            connector: network,
            clock: Arc::clone(&self.clock) as Arc<_>,
            deadline: DEADLINE,
            memory_cache_bytes: if self.random.one_in(4) { 100_000 } else { 8 << 20 },
            seed: Some(self.random.draw()),
            disk_cache: cache
                .map(|dir| DiskCacheOptions { dir: dir.to_owned(), quota_bytes: 16 << 20 }),
            ..ClientOptions::default()
        });
        let client = client.expect("in a runtime");
        let begun = Instant::now();
        let opened = client.open(&self.scenario.publisher.name(), &TreeOptions::default()).await;
        assert!(
            begun.elapsed() <= DEADLINE + Duration::from_secs(11),
            "open took {:?}",
            begun.elapsed()
        );
        match opened {
            Ok(tree) => self.tree = Some(tree),
            Err(error) => {
                assert!(self.honest.is_none(), "an honest replica, and opening failed: {error}");
                return;
            }
        }
        for _ in 0..2 + self.random.roll(10) {
            self.event();
            self.operation().await;
        }
    }

    fn event(&mut self) {
        if !self.random.one_in(3) {
            return;
        }
        let n = self.random.roll(self.replicas.len() as u64) as usize;
        match self.random.roll(8) {
            0 if Some(n) != self.honest => self.replicas[n].set_fault(*self.random.pick(&FAULTS)),
            1 if Some(n) != self.honest => self.replicas[n].set_fault(Fault::None),
            2 => self.clock.set(NOW - self.random.roll(100_000_000)),
            3 => {
                let far = self.random.one_in(8);
                let ahead = self.random.roll(if far { 200_000 } else { 80_000 });
                self.clock.set(NOW + ahead);
                self.latest = self.latest.max(ahead);
            }
            4..=6 => self.publish(),
            7 if Some(n) != self.honest => {
                self.replicas[n].set_fault(Fault::None);
                self.replicas[n].serve_revision(&self.scenario.stolen.1);
                self.is_key_stolen = true;
            }
            _ => {}
        }
    }

    fn publish(&mut self) {
        let next = self.stage.load(Ordering::SeqCst) + 1 + usize::from(self.random.one_in(3));
        let Some((_, published)) = self.scenario.stages.get(next) else { return };
        let mut follow = Vec::new();
        for (n, replica) in self.replicas.iter().enumerate() {
            if Some(n) == self.honest || self.random.one_in(2) {
                follow.push(Arc::clone(replica));
            }
        }
        let stage = Arc::clone(&self.stage);
        let publish = move || {
            if stage.load(Ordering::SeqCst) >= next {
                return;
            }
            follow.iter().for_each(|replica| replica.serve_revision(published));
            stage.store(next, Ordering::SeqCst);
        };
        if self.random.one_in(2) {
            return publish();
        }
        let delay = Duration::from_millis(self.random.roll(400));
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            publish();
        });
    }

    fn check_revision(&mut self, tree: &Tree) -> RevisionId {
        let (revision_id, stage) = (revision_id_of(tree), self.stage.load(Ordering::SeqCst));
        let is_genuine = revision_id == (1, 2)
            || self.scenario.stages[..=stage].iter().any(|known| known.0 == revision_id);
        let is_future = revision_id == (1, 4) && self.latest >= 50_000 - 300;
        let is_stolen = revision_id == self.scenario.stolen.0 && self.is_key_stolen;
        assert!(
            is_genuine || is_future || is_stolen,
            "{revision_id:?} is expired, future, forged or not yet published"
        );
        assert!(revision_id >= self.revision_id, "{revision_id:?} after {:?}", self.revision_id);
        if self.revision_id != (0, 0) && revision_id > self.revision_id {
            self.score.newer += 1;
            self.score.renewed += u64::from(revision_id.0 == 2);
        }
        self.revision_id = revision_id;
        revision_id
    }

    async fn check_refresh(&mut self, tree: &Tree) -> Result<(), Error> {
        let published = &self.scenario.stages[self.stage.load(Ordering::SeqCst)];
        // The first call may share a round that began before the publication.
        let mut outcome = tree.refresh().await;
        outcome = tree.refresh().await.or(outcome);
        let sees_it = self.clock.now() >= NOW as i64
            && NOW + self.latest
                < published.1.fsinfo.start + u64::from(published.1.fsinfo.duration_s);
        if outcome.is_ok() && self.honest.is_some() && sees_it {
            assert!(
                revision_id_of(tree) >= published.0,
                "{:?} is published, and {:?} in force",
                published.0,
                revision_id_of(tree)
            );
        }
        outcome.map(drop)
    }

    async fn operation(&mut self) {
        let Some(tree) = self.tree.clone() else { return };
        let revision_id = self.check_revision(&tree);
        let newest = tree.newest();
        let (published, offered) = &self.scenario.stages[self.stage.load(Ordering::SeqCst)];
        let (published, offered_until) =
            (*published, offered.fsinfo.start + u64::from(offered.fsinfo.duration_s));
        let fresh = newest.is_fresh(self.clock.now());
        let truth = &self.scenario.truth[&revision_id];
        let paths: Vec<&Vec<u8>> = truth.keys().collect();
        let path = (*self.random.pick(&paths)).clone();
        let begun = Instant::now();
        let roll = self.random.roll(10);
        let asks = roll == 2 || ((3..=5).contains(&roll) && published > revision_id);
        let outcome = match roll {
            0 => self.check_missing(&tree, newest.root(), truth, &path).await,
            1 => self.check_listing(&tree, newest.root(), truth, &path).await,
            _ if asks => self.check_refresh(&tree).await,
            _ => self.check_file(&tree, newest.root(), truth, &path).await,
        };
        assert!(
            begun.elapsed() <= DEADLINE * 4,
            "{:?} for {}",
            begun.elapsed(),
            String::from_utf8_lossy(&path)
        );
        match outcome {
            Ok(()) => {
                let fresh_now = tree.newest().is_fresh(self.clock.now());
                assert!(
                    fresh || fresh_now || asks,
                    "an answer from the expired revision {}",
                    newest.number()
                );
                self.score.answers += 1;
            }
            Err(_)
                if asks && (revision_id_of(&tree) > published || self.clock.now() < NOW as i64) => {
            }
            Err(_) if self.honest.is_none() || !fresh => {}
            Err(_) if (NOW + self.latest) as i64 >= newest.expires() => {}
            // The revision in force is not the honest replica's, whose own has expired.
            Err(_) if NOW + self.latest >= offered_until => {}
            Err(error) => {
                panic!("an honest replica, and {}: {error}", String::from_utf8_lossy(&path))
            }
        }
    }

    async fn timed<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let begun = Instant::now();
        let done = work.await;
        assert!(
            begun.elapsed() <= DEADLINE + Duration::from_secs(1),
            "an operation took {:?}",
            begun.elapsed()
        );
        done
    }

    async fn check_missing(
        &mut self,
        tree: &Tree,
        root: &Inode,
        truth: &BTreeMap<Vec<u8>, Node>,
        path: &[u8],
    ) -> Result<(), Error> {
        let name = format!("no-such-{}", self.random.roll(5));
        let missing = if path.is_empty() {
            name.clone().into_bytes()
        } else {
            [path, b"/", name.as_bytes()].concat()
        };
        let expected = if matches!(truth[path], Node::Dir(_)) {
            ErrorClass::NotFound
        } else {
            ErrorClass::Input
        };
        match self.timed(tree.lookup_path(root, &missing)).await {
            Ok(inode) => {
                panic!("{} does not exist, and is {inode:?}", String::from_utf8_lossy(&missing))
            }
            Err(error) if error.class() == expected => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn check_listing(
        &mut self,
        tree: &Arc<Tree>,
        root: &Inode,
        truth: &BTreeMap<Vec<u8>, Node>,
        path: &[u8],
    ) -> Result<(), Error> {
        let inode = self.timed(tree.lookup_path(root, path)).await?;
        let Node::Dir(entries) = &truth[path] else { return Ok(()) };
        let names: Vec<&Vec<u8>> = entries.keys().collect();
        let mut number = self.random.roll(names.len() as u64 + 2);
        loop {
            let listing = self.timed(tree.list(&inode, Position::Number(number))).await?;
            for entry in listing.entries() {
                assert_eq!(entry.name.as_bytes(), names[number as usize].as_slice());
                number += 1;
            }
            if listing.last {
                assert!(number >= names.len() as u64, "{number} of {} names", names.len());
                return Ok(());
            }
        }
    }

    async fn check_file(
        &mut self,
        tree: &Arc<Tree>,
        root: &Inode,
        truth: &BTreeMap<Vec<u8>, Node>,
        path: &[u8],
    ) -> Result<(), Error> {
        let inode = self.timed(tree.lookup_path(root, path)).await?;
        match (&truth[path], &inode.content) {
            (Node::File(bytes), Content::Regular { blob, .. }) => {
                assert_eq!(blob.size, bytes.len() as u64);
                self.check_bytes(tree, blob, bytes).await
            }
            (Node::Link(target), Content::Symlink(found)) => {
                assert_eq!(target, found);
                Ok(())
            }
            (Node::Dir(entries), Content::Directory { entries: count, .. }) => {
                assert_eq!(entries.len() as u64, *count);
                Ok(())
            }
            (truth, found) => panic!("{truth:?} was published and {found:?} is there"),
        }
    }

    async fn check_bytes(
        &mut self,
        tree: &Arc<Tree>,
        blob: &Blob,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let file = tree.open_file(blob.clone());
        for _ in 0..1 + self.random.roll(3) {
            let offset = self.random.roll(bytes.len() as u64 + 10) as usize;
            let len = self.random.roll(200_000) as usize;
            let expected = &bytes[offset.min(bytes.len())..(offset + len).min(bytes.len())];
            if let Some(Ok(found)) = file.try_read(offset as u64, len) {
                assert!(found == expected, "wrong bytes by try_read at {offset}");
            }
            let found = self.timed(file.read(offset as u64, len)).await?;
            assert!(
                found == expected,
                "wrong bytes by read at {offset} of {:?}",
                matches!(blob.body, BlobBody::Inline(_))
            );
        }
        Ok(())
    }
}

fn run_case(seed: u64, cache: Option<&Path>) -> Result<Score, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let mut case = Case::new(seed);
    let label = format!(
        "seed {seed}: honest {:?} of {:?}",
        case.honest,
        case.replicas.iter().map(|r| (r.fault(), *r.delay.lock())).collect::<Vec<_>>()
    );
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case.run(cache))));
    runtime.shutdown_background();
    case.score.lies = case.tree.as_ref().map_or(0, |tree| tree.counters().lies);
    outcome.map(|()| case.score).map_err(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        format!("{label}: {}", what.unwrap_or_default())
    })
}

fn run_cases(cases: u64, run: impl Fn(u64) -> Result<Score, String> + Sync) {
    let first = setting("VOUCH_LIE_SEED").unwrap_or(0);
    scenarios();
    let next = AtomicU64::new(0);
    let (total, failures) =
        (std::sync::Mutex::new(Score::default()), std::sync::Mutex::new(Vec::new()));
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= cases {
                        return;
                    }
                    match run(first + n) {
                        Ok(score) => {
                            let mut total =
                                total.lock().expect("no thread panicked with the lock held");
                            total.answers += score.answers;
                            total.lies += score.lies;
                            total.newer += score.newer;
                            total.renewed += score.renewed;
                        }
                        Err(failure) => failures
                            .lock()
                            .expect("no thread panicked with the lock held")
                            .push(failure),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panicked with the lock held");
    let Score { answers, lies, newer, renewed } =
        total.into_inner().expect("no thread panicked with the lock held");
    println!(
        "{cases} cases, {answers} right answers, {lies} lies detected, {newer} newer revisions, {renewed} of them new certificates, {:?}",
        begun.elapsed()
    );
    assert!(
        failures.is_empty(),
        "{} of {cases} cases failed:\n{}",
        failures.len(),
        failures.iter().take(20).cloned().collect::<Vec<_>>().join("\n")
    );
    if cases >= 100 {
        assert!(lies > cases / 10, "{lies} lies in {cases} cases: too few lies");
        assert!(
            renewed > cases / 100 && newer > renewed,
            "{newer} newer revisions, {renewed} new certificates in {cases} cases: too few revisions during cases"
        );
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn no_lie_reaches_a_reader() {
    let cases =
        setting("VOUCH_LIE_CASES").unwrap_or(if cfg!(debug_assertions) { 2_000 } else { 100_000 });
    run_cases(cases, |seed| run_case(seed, None));
}

#[test]
fn no_lie_reaches_a_reader_through_corrupt_disk_cache() {
    let cases = setting("VOUCH_LIE_CASES")
        .map(|cases| cases / 250)
        .unwrap_or(if cfg!(debug_assertions) { 300 } else { 2_000 });
    let dir = tempfile::tempdir().expect("a temporary directory");
    run_cases(cases, |seed| {
        let cache = dir.path().join((seed % 4).to_string());
        corrupt(&cache, &mut SplitMix64(seed));
        run_case(seed, Some(&cache))
    });
    let kept: u64 = std::fs::read_dir(dir.path())
        .expect("the value is ours")
        .map(|cache| files(&cache.expect("an entry").path()).len() as u64)
        .sum();
    assert!(kept > 0, "the cache is empty");
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file())
        .collect()
}

fn corrupt(cache: &Path, random: &mut SplitMix64) {
    use std::os::unix::fs::FileExt as _;
    for path in files(cache) {
        let Ok(file) = std::fs::File::options().read(true).write(true).open(&path) else {
            continue;
        };
        let len = file.metadata().map_or(0, |meta| meta.len());
        for _ in 0..random.roll(4) {
            let (at, mut byte) = (random.roll(len), [0]);
            if file.read_exact_at(&mut byte, at).is_ok() {
                let _ = file.write_all_at(&[byte[0] ^ (1 << random.roll(8))], at);
            }
        }
        if random.one_in(20) {
            let _ = file.set_len(random.roll(len));
        }
    }
}
