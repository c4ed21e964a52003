//! Lying replicas and a lying network, by the seed: no wrong byte reaches a reader, nothing hangs, and where one honest
//! replica can be reached, every read succeeds.
//!
//! `VOUCH_LIE_CASES` sets how many cases are run, `VOUCH_LIE_SEED` the first seed: one seed is one case, to be run again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use vouch_tree::statement::{Body, KeyStatement};
use vouch_tree::{Blob, BlobBody, Content, Inode};
use vouch_tree_client::{Client, ClientOptions, Clock, Error, ErrorClass, Position, Tree, TreeOptions};
use vouch_xdr::Xdr;

use crate::world::network::TestNetwork;
use crate::world::replica::{Fault, TestReplica};
use crate::world::{NOW, Node, Published, Publisher, TestClock, dir, noise};

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

/// What a replica offers as the fsinfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offer {
    Newest,
    /// Valid, but a newer one exists.
    Older,
    Expired,
    FromTheFuture,
    OfAnotherTree,
    ForgedBytes,
    ForgedKey,
    ForgedRevocation,
    Nothing,
}

const OFFERS: [Offer; 9] = [
    Offer::Newest,
    Offer::Older,
    Offer::Expired,
    Offer::FromTheFuture,
    Offer::OfAnotherTree,
    Offer::ForgedBytes,
    Offer::ForgedKey,
    Offer::ForgedRevocation,
    Offer::Nothing,
];

struct World {
    publisher: Publisher,
    expired: Published,
    older: Published,
    newest: Published,
    future: Published,
    forged_key: Published,
    other: Published,
    /// By revision number.
    truth: BTreeMap<u64, BTreeMap<Vec<u8>, Node>>,
}

fn content(seed: u64) -> Node {
    let small = (0..40u64).map(|n| (format!("s{n}").into_bytes(), Node::File(noise(seed ^ n, (n * n * 3) as usize)))).collect();
    let many = (0..700u64).map(|n| (format!("entry-{n:05}").into_bytes(), Node::File(noise(seed + n, (n % 90) as usize)))).collect();
    let big = noise(seed, 300_000);
    let holey = [&big[..1000], &vec![0; 400_000], &big[..70_000]].concat();
    dir([
        ("small", Node::Dir(small)),
        ("many", Node::Dir(many)),
        ("deep", dir([("er", dir([("still", dir([("file", Node::File(noise(seed, 2000)))]))]))])),
        ("big", Node::File(big)),
        ("holey", Node::File(holey)),
        ("link", Node::Link(b"small/s3".to_vec())),
        ("empty", dir([])),
    ])
}

/// The tree and the same with some changes.
fn changed(tree: &Node, seed: u64) -> Node {
    let Node::Dir(mut root) = tree.clone() else { unreachable!("roots are directories") };
    root.insert(b"big".to_vec(), Node::File(noise(seed ^ 77, 290_000)));
    root.insert(format!("new-{seed}").into_bytes(), Node::File(noise(seed, 5000)));
    if let Some(Node::Dir(many)) = root.get_mut(&b"many"[..]) {
        many.remove(&b"entry-00100"[..]);
        many.insert(b"entry-00100x".to_vec(), Node::File(noise(seed, 3000)));
    }
    Node::Dir(root)
}

fn flatten(node: &Node, path: &[u8], into: &mut BTreeMap<Vec<u8>, Node>) {
    into.insert(path.to_vec(), node.clone());
    if let Node::Dir(entries) = node {
        for (name, node) in entries {
            let path = if path.is_empty() { name.clone() } else { [path, b"/", name].concat() };
            flatten(node, &path, into);
        }
    }
}

impl World {
    fn new(seed: u8) -> Self {
        let mut publisher = Publisher::new(seed);
        let trees = (0..3).scan(content(seed.into()), |tree, n| {
            let this = tree.clone();
            *tree = changed(&this, n + 1);
            Some(this)
        });
        let trees: Vec<Node> = trees.collect();
        let expired = publisher.publish(&trees[0], NOW - 200_000);
        let older = publisher.publish(&trees[1], NOW - 5000);
        let newest = publisher.publish(&trees[2], NOW - 1000);
        // Revision 4 holds what revision 1 did; it is the publisher's own, but nobody may believe it before its time.
        let truth = trees.iter().chain([&trees[0]]).zip(1..).map(|(tree, revision)| {
            let mut flat = BTreeMap::new();
            flatten(tree, b"", &mut flat);
            (revision, flat)
        });
        let truth = truth.collect();
        let (revision, previous) = (publisher.revision, publisher.previous);
        let future = publisher.publish(&trees[0], NOW + 50_000);
        (publisher.revision, publisher.previous) = (revision, previous);
        let mut thief = Publisher::new(seed);
        let other_root = Publisher::new(seed ^ 0x33);
        thief.cert = other_root.cert;
        thief.signing = vouch_tree::key::SecretKey::from_seed(&[seed ^ 0x33 ^ 0x80; 32]);
        thief.root = vouch_tree::key::SecretKey::from_seed(&[seed ^ 0x33; 32]);
        thief.revision = 50;
        thief.previous = publisher.previous;
        let forged_key = thief.publish(&trees[0], NOW - 10);
        let other = Publisher::new(seed ^ 0x44).publish(&trees[0], NOW - 10);
        Self { publisher, expired, older, newest, future, forged_key, other, truth }
    }
}

fn worlds() -> &'static [World] {
    static WORLDS: OnceLock<Vec<World>> = OnceLock::new();
    WORLDS.get_or_init(|| vec![World::new(10), World::new(11)])
}

/// Draws of one case.
struct Dice(u64);

impl Dice {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

struct Case {
    dice: Dice,
    world: &'static World,
    replicas: Vec<Arc<TestReplica>>,
    /// The index of a replica that stays honest and reachable, with the newest revision.
    honest: Option<usize>,
    clock: Arc<TestClock>,
    tree: Option<Arc<Tree>>,
    /// How far ahead the clock has ever been.
    latest: u64,
    /// Answers that were right.
    answers: u64,
}

fn offer(replica: &TestReplica, world: &World, offer: Offer, dice: &mut Dice) {
    let base = match offer {
        Offer::Older => &world.older,
        Offer::Expired => &world.expired,
        Offer::FromTheFuture => &world.future,
        Offer::OfAnotherTree => &world.other,
        Offer::ForgedKey => &world.forged_key,
        _ => &world.newest,
    };
    replica.serve_revision(base);
    replica.alter(|served| {
        served.hostid = Some(world.publisher.hostid());
        served.statements.clear();
        match offer {
            Offer::ForgedBytes => {
                let bit = dice.below(served.signed.len() as u64 * 8) as usize;
                served.signed[bit / 8] ^= 1 << (bit % 8);
            }
            Offer::ForgedRevocation => {
                let mut statement = KeyStatement::issue(&world.publisher.root, NOW, Body::Revocation { reason: "lie".into() }).to_xdr();
                let last = statement.len() - 1;
                statement[last] ^= 1;
                served.statements.push(statement);
            }
            Offer::Nothing => served.signed.clear(),
            _ => {}
        }
        if dice.one_in(2) {
            served.companions = served.frames.values().take(3).filter(|f| f.len() < 20_000).map(|f| f.to_vec()).collect();
        }
        if dice.one_in(8) {
            served.companions.push(noise(dice.draw(), 3000));
        }
    });
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let world = dice.pick(worlds());
        let count = 1 + dice.below(4) as usize;
        let honest = (!dice.one_in(4)).then(|| dice.below(count as u64) as usize);
        let replicas: Vec<Arc<TestReplica>> = (0..count)
            .map(|n| {
                let replica = TestReplica::new(&world.newest, Fault::None, dice.draw());
                if Some(n) != honest {
                    let what = if dice.one_in(3) { *dice.pick(&OFFERS) } else { Offer::Newest };
                    offer(&replica, world, what, &mut dice);
                    if !dice.one_in(4) {
                        replica.set_fault(*dice.pick(&FAULTS));
                    }
                }
                if dice.one_in(3) {
                    let slowest = if dice.one_in(6) { 2500 } else { 150 };
                    *replica.delay.lock() = Duration::from_millis(dice.below(slowest));
                }
                replica
            })
            .collect();
        Self { dice, world, replicas, honest, clock: TestClock::at(NOW), tree: None, latest: 0, answers: 0 }
    }

    async fn run(&mut self) {
        let network = TestNetwork::of(&self.world.publisher.location, &self.replicas);
        let client = Client::new(ClientOptions {
            connector: network,
            clock: Arc::clone(&self.clock) as Arc<_>,
            deadline: DEADLINE,
            memory_cache_bytes: if self.dice.one_in(4) { 100_000 } else { 8 << 20 },
            seed: Some(self.dice.draw()),
            ..ClientOptions::default()
        });
        let client = client.expect("in a runtime");
        let begun = Instant::now();
        let opened = client.open(&self.world.publisher.name(), &TreeOptions::default()).await;
        assert!(begun.elapsed() <= DEADLINE + Duration::from_secs(11), "open took {:?}", begun.elapsed());
        match opened {
            Ok(tree) => self.tree = Some(tree),
            Err(error) => {
                assert!(self.honest.is_none(), "an honest replica, and opening failed: {error}");
                return;
            }
        }
        for _ in 0..2 + self.dice.below(10) {
            self.event();
            self.operation().await;
        }
    }

    /// Something changes.
    fn event(&mut self) {
        if !self.dice.one_in(3) {
            return;
        }
        let n = self.dice.below(self.replicas.len() as u64) as usize;
        match self.dice.below(4) {
            0 if Some(n) != self.honest => self.replicas[n].set_fault(*self.dice.pick(&FAULTS)),
            1 if Some(n) != self.honest => self.replicas[n].set_fault(Fault::None),
            2 => self.clock.set(NOW - self.dice.below(100_000_000)),
            3 => {
                // Seldom so far that all has ended: what was found expired stays so when the clock is set back.
                let far = self.dice.one_in(8);
                let ahead = self.dice.below(if far { 200_000 } else { 80_000 });
                self.clock.set(NOW + ahead);
                self.latest = self.latest.max(ahead);
            }
            _ => {}
        }
    }

    /// One random operation, its answer held against the truth.
    async fn operation(&mut self) {
        let Some(tree) = self.tree.clone() else { return };
        let newest = tree.newest();
        let last = if self.latest >= 50_000 - 300 { 4 } else { 3 };
        assert!((2..=last).contains(&newest.number()), "revision {} is expired, future or forged", newest.number());
        let fresh = newest.is_fresh(self.clock.now());
        let truth = &self.world.truth[&newest.number()];
        let paths: Vec<&Vec<u8>> = truth.keys().collect();
        let path = (*self.dice.pick(&paths)).clone();
        let begun = Instant::now();
        let roll = self.dice.below(10);
        let outcome = match roll {
            0 => self.check_missing(&tree, newest.root(), truth, &path).await,
            1 => self.check_listing(&tree, newest.root(), truth, &path).await,
            2 => tree.refresh().await.map(drop),
            _ => self.check_file(&tree, newest.root(), truth, &path).await,
        };
        // Several calls, each within its deadline.
        assert!(begun.elapsed() <= DEADLINE * 4, "{:?} for {}", begun.elapsed(), String::from_utf8_lossy(&path));
        match outcome {
            Ok(()) => {
                let fresh_now = tree.newest().is_fresh(self.clock.now());
                assert!(fresh || fresh_now || roll == 2, "an answer from the expired revision {}", newest.number());
                self.answers += 1;
            }
            // The honest replica has nothing newer than revision 3, and to a clock far behind that is not valid yet.
            Err(_) if roll == 2 && (newest.number() > 3 || self.clock.now() < NOW as i64 - 1300) => {}
            Err(_) if self.honest.is_none() || !fresh => {}
            Err(_) if (NOW + self.latest) as i64 >= newest.expires() => {}
            Err(error) => panic!("an honest replica, and {}: {error}", String::from_utf8_lossy(&path)),
        }
    }

    async fn timed<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let begun = Instant::now();
        let done = work.await;
        assert!(begun.elapsed() <= DEADLINE + Duration::from_secs(1), "an operation took {:?}", begun.elapsed());
        done
    }

    async fn check_missing(&mut self, tree: &Tree, root: &Inode, truth: &BTreeMap<Vec<u8>, Node>, path: &[u8]) -> Result<(), Error> {
        let name = format!("no-such-{}", self.dice.below(5));
        let missing = if path.is_empty() { name.clone().into_bytes() } else { [path, b"/", name.as_bytes()].concat() };
        let expected = if matches!(truth[path], Node::Dir(_)) { ErrorClass::NotFound } else { ErrorClass::Input };
        match self.timed(tree.walk(root, &missing)).await {
            Ok(inode) => panic!("{} does not exist, and is {inode:?}", String::from_utf8_lossy(&missing)),
            Err(error) if error.class() == expected => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn check_listing(&mut self, tree: &Arc<Tree>, root: &Inode, truth: &BTreeMap<Vec<u8>, Node>, path: &[u8]) -> Result<(), Error> {
        let inode = self.timed(tree.walk(root, path)).await?;
        let Node::Dir(entries) = &truth[path] else { return Ok(()) };
        let names: Vec<&Vec<u8>> = entries.keys().collect();
        let mut number = self.dice.below(names.len() as u64 + 2);
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

    async fn check_file(&mut self, tree: &Arc<Tree>, root: &Inode, truth: &BTreeMap<Vec<u8>, Node>, path: &[u8]) -> Result<(), Error> {
        let inode = self.timed(tree.walk(root, path)).await?;
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

    async fn check_bytes(&mut self, tree: &Arc<Tree>, blob: &Blob, bytes: &[u8]) -> Result<(), Error> {
        let file = tree.open_file(blob.clone());
        for _ in 0..1 + self.dice.below(3) {
            let offset = self.dice.below(bytes.len() as u64 + 10) as usize;
            let len = self.dice.below(200_000) as usize;
            let expected = &bytes[offset.min(bytes.len())..(offset + len).min(bytes.len())];
            if let Some(Ok(found)) = file.try_read(offset as u64, len) {
                assert!(found == expected, "wrong bytes by try_read at {offset}");
            }
            let found = self.timed(file.read(offset as u64, len)).await?;
            assert!(found == expected, "wrong bytes by read at {offset} of {:?}", matches!(blob.body, BlobBody::Inline(_)));
        }
        Ok(())
    }
}

/// Right answers, and lies that were caught.
fn run_case(seed: u64) -> Result<[u64; 2], String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    let mut case = Case::new(seed);
    let told = format!(
        "seed {seed}: honest {:?} of {:?}",
        case.honest,
        case.replicas.iter().map(|r| (r.fault(), *r.delay.lock())).collect::<Vec<_>>()
    );
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case.run())));
    runtime.shutdown_background();
    let lies = case.tree.as_ref().map_or(0, |tree| tree.counters().lies);
    outcome.map(|()| [case.answers, lies]).map_err(|panic| {
        let what = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        format!("{told}: {}", what.unwrap_or_default())
    })
}

#[test]
fn no_lie_reaches_a_reader() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let cases = setting("VOUCH_LIE_CASES").unwrap_or(if cfg!(debug_assertions) { 2_000 } else { 100_000 });
    let first = setting("VOUCH_LIE_SEED").unwrap_or(0);
    worlds();
    let (next, answers, lies) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failures = std::sync::Mutex::new(Vec::new());
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= cases {
                        return;
                    }
                    match run_case(first + n) {
                        Ok([right, caught]) => {
                            answers.fetch_add(right, Ordering::Relaxed);
                            lies.fetch_add(caught, Ordering::Relaxed);
                        }
                        Err(failure) => failures.lock().expect("no panic holds it").push(failure),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic holds it");
    let lies = lies.into_inner();
    println!("{cases} cases, {} right answers, {lies} lies caught, {:?}", answers.into_inner(), begun.elapsed());
    assert!(cases < 100 || lies > cases / 10, "{lies} lies in {cases} cases: the liars do not get to lie");
    assert!(
        failures.is_empty(),
        "{} of {cases} cases failed:\n{}",
        failures.len(),
        failures.iter().take(20).cloned().collect::<Vec<_>>().join("\n")
    );
}
