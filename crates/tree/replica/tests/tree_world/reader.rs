//! A client that lists and reads, and what must hold of each read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use vouch_tree::{Content, Inode};
use vouch_tree_client::{Client, Clock, Error, Position, Tree, TreeOptions};

use crate::World;
use crate::publisher::{ATTEMPT, Files, Order, name};

/// Each call ends within its deadline.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) struct Reader {
    world: Arc<World>,
    number: usize,
    state: PathBuf,
    ahead: ClockOffset,
    tree: Option<Arc<Tree>>,
    /// Of the newest revision that it has seen.
    newest: Order,
}

/// Seconds that a machine's clock is ahead.
#[derive(Clone, Default)]
pub(crate) struct ClockOffset(pub(crate) Arc<AtomicI64>);

pub(crate) struct WorldClock {
    pub(crate) world: std::sync::Weak<World>,
    pub(crate) ahead: ClockOffset,
}

impl Clock for WorldClock {
    fn now(&self) -> i64 {
        self.world.upgrade().map_or(0, |world| world.now() as i64)
            + self.ahead.0.load(Ordering::SeqCst)
    }
}

impl Reader {
    pub(crate) fn new(world: Arc<World>, number: usize, ahead: ClockOffset) -> Self {
        let state = world.dir.join(format!("reader{number}"));
        Self { world, number, state, ahead, tree: None, newest: (0, 0) }
    }

    /// Until the faults have ended and the newest revision is read.
    pub(crate) async fn run(mut self) {
        let world = Arc::clone(&self.world);
        loop {
            sleep(Duration::from_millis(world.roll(15_000))).await;
            match world.roll(if world.is_calm() { u64::MAX } else { 12 }) {
                0 => {
                    self.note("restarts");
                    self.tree = None;
                }
                1 => {
                    let seconds = if world.one_in(2) { 0 } else { world.roll(5400) as i64 - 3600 };
                    self.note(&format!("clock is {seconds} s ahead"));
                    self.ahead.0.store(seconds, Ordering::SeqCst);
                }
                _ => {
                    let (begun, is_right) = (world.now(), self.ahead.0.load(Ordering::SeqCst) >= 0);
                    match self.read().await {
                        Ok((order, attempt, files)) => {
                            self.check(order, attempt, &files, is_right.then_some(begun));
                            if world.is_newest(order) {
                                return;
                            }
                        }
                        Err(error) => self.note(&error.to_string()),
                    }
                }
            }
        }
    }

    fn note(&self, what: &str) {
        self.world.note(format!("reader {}: {what}", self.number));
    }

    fn check(&mut self, order: Order, attempt: usize, files: &Files, now: Option<u64>) {
        self.note(&format!("reads {order:?}, attempt {attempt}"));
        let fail = |what: String| self.world.fail(format!("reader {}: {what}", self.number));
        if order < self.newest {
            fail(format!("{order:?} after {:?}", self.newest));
        }
        self.newest = order;
        let published = self.world.published.lock();
        match published.attempts.get(attempt) {
            Some((right, _)) if right != files => fail(format!("other files than in {attempt}")),
            Some((_, end)) if now.is_some_and(|now| now >= *end) => {
                fail(format!("{order:?} is expired since {end}"))
            }
            Some(_) => {}
            None => fail(format!("attempt {attempt} was never made")),
        }
        let mut seen = self.world.seen.lock();
        let first = *seen.entry(order).or_insert(attempt);
        if first != attempt {
            fail(format!("{order:?} is attempt {attempt}, and was {first}"));
        }
    }

    /// Every byte of one revision.
    async fn read(&mut self) -> Result<(Order, usize, Files), Error> {
        let tree = match &self.tree {
            Some(tree) => Arc::clone(tree),
            None => {
                let options = self.world.client_options(&self.state, self.ahead.clone());
                let client = Client::new(options)?;
                let replicas = vec!["mirror1".into(), "mirror2".into()];
                let options = TreeOptions { replicas, only_replicas: true, ..Default::default() };
                let tree = self.bounded(client.open(&name(), &options)).await?;
                Arc::clone(self.tree.insert(tree))
            }
        };
        if tree.revision().is_err() || self.world.one_in(8) {
            self.bounded(tree.refresh()).await?;
        }
        let revision = tree.revision()?;
        let mut files = Files::new();
        let mut directories = vec![(String::new(), revision.root().clone())];
        while let Some((path, inode)) = directories.pop() {
            self.list(&tree, &path, &inode, &mut files, &mut directories).await?;
        }
        let missing = self.bounded(tree.lookup(revision.root(), b"missing")).await?;
        if missing.is_some() {
            self.world.fail("a name that was never published".into());
        }
        let attempt = files.get(ATTEMPT).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let attempt = attempt.and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
        Ok(((revision.cert_serial(), revision.number()), attempt, files))
    }

    async fn list(
        &self,
        tree: &Arc<Tree>,
        path: &str,
        directory: &Inode,
        files: &mut Files,
        directories: &mut Vec<(String, Inode)>,
    ) -> Result<(), Error> {
        let mut from = Position::Start;
        loop {
            let listing = self.bounded(tree.list(directory, from)).await?;
            for entry in listing.entries() {
                let name = format!("{path}{}", String::from_utf8_lossy(entry.name.as_bytes()));
                match &entry.inode.content {
                    Content::Regular { blob, .. } => {
                        let len = blob.size as usize + 1;
                        let bytes = self.bounded(tree.read(blob, 0, len)).await?;
                        files.insert(name, bytes[..].into());
                    }
                    _ => directories.push((format!("{name}/"), entry.inode.clone())),
                }
            }
            if listing.last {
                return Ok(());
            }
            from = listing.next();
        }
    }

    async fn bounded<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match timeout(DEADLINE + Duration::from_secs(1), call).await {
            Ok(done) => done,
            Err(_) => {
                self.world.fail(format!("reader {}: a call hangs", self.number));
                std::future::pending().await
            }
        }
    }
}
