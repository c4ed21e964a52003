//! Bringing a database up to date from replicas: only what is missing, verified, restartable, and
//! offered only when whole.

mod held;
mod job;
mod statements;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use vouch_tree::{FrameKind, Fsinfo, SignedFsinfo, TreeName};
use vouch_tree_store::{CollectOptions, Database, FrameSink, NewRevision, PutCounts, WriteOptions, Writer};
use vouch_xdr::Xdr;

use crate::client::{Client, TreeOptions};
use crate::crawl::crawl;
use crate::replica::{Urgency, Want};
use crate::revision::{Order, Revision};
use crate::{Error, ErrorClass, Result, Tree};

use job::PullJob;

/// How often a pull begins anew because the replicas have gone on to a newer revision and dropped
/// the one in work.
const RESTARTS_MAX: u32 = 5;

/// The longest wait for threads that still write: a frame each.
const RELEASE_MAX: Duration = Duration::from_secs(10);

/// Signed fsinfos of older revisions that one pull fetches.
const HISTORY_MAX: u64 = 10_000;

/// After a failed pull, `pull_watch` waits so long; doubles.
const WATCH_PAUSE_MIN: Duration = Duration::from_secs(5);
const WATCH_PAUSE_MAX: Duration = Duration::from_secs(600);

/// How a database is brought up to date.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// The database's directory; made when missing.
    pub db: PathBuf,
    /// Where to pull from.
    pub tree: TreeOptions,
    /// Revisions to keep, the tagged ones aside; `None`: all.
    pub keep: Option<usize>,
    /// Bytes asked for and not yet written: bounds the memory.
    pub in_flight_bytes: u64,
    /// Whether to give back the space of what no kept revision reaches.
    pub collect: bool,
    /// How long to wait for another writer of the database.
    pub lock_wait: Duration,
}

impl PullOptions {
    /// Into `db`, keeping all revisions.
    pub fn new(db: impl Into<PathBuf>) -> Self {
        Self {
            db: db.into(),
            tree: TreeOptions::default(),
            keep: None,
            in_flight_bytes: 16 << 20,
            collect: true,
            lock_wait: Duration::ZERO,
        }
    }
}

/// What a pull is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PullPhase {
    /// Finding replicas and the newest revision.
    Connecting,
    /// Fetching what is missing.
    Frames,
    /// Fetching the signed fsinfos of older revisions.
    History,
    /// Making the new revision durable.
    Commit,
    /// Dropping what no kept revision reaches.
    Collect,
}

/// How far a pull has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullProgress {
    /// What it is doing.
    pub phase: PullPhase,
    /// Frames fetched.
    pub frames_done: u64,
    /// Frames fetched, and those known to be needed; grows while directories are read.
    pub frames_known: u64,
    /// Bytes fetched, as stored.
    pub bytes: u64,
    /// Frames that were here already.
    pub frames_present: u64,
}

/// What a pull has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PullReport {
    /// The revision that the database offers now.
    pub revision: u64,
    /// Whether it did so before.
    pub was_current: bool,
    /// Frames fetched.
    pub new_frames: u64,
    /// Their bytes, as stored.
    pub new_bytes: u64,
    /// Frames that were here already; of an unchanged directory only the first is counted.
    pub present_frames: u64,
    /// Signed fsinfos of older revisions fetched.
    pub history_frames: u64,
    /// Space given back.
    pub collected_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Tells how far a pull has come; called often, from any thread.
pub type PullProgressFn = dyn Fn(PullProgress) + Send + Sync;

/// Brings the database up to the newest revision of the tree `name`.
///
/// Killed or failed at any moment, it leaves the database offering what it offered before, and
/// keeps what was fetched for the next run.
pub async fn pull(client: &Arc<Client>, name: &TreeName, options: &PullOptions, progress: &PullProgressFn) -> Result<PullReport> {
    progress(PullProgress { phase: PullPhase::Connecting, frames_done: 0, frames_known: 0, bytes: 0, frames_present: 0 });
    let tree = statements::open(client, name, options).await?;
    let pulled = pull_tree(&tree, options, progress).await;
    if let Err(error) = &pulled {
        statements::hand_on_if_condemned(client, name, options, error).await?;
    }
    pulled.map(|(report, _)| report)
}

/// Keeps the database current until it is dropped. `done` is told of each pull. Returns only what
/// another try can't help: the database is being written by others or can't be written, or the key
/// is no longer to be believed. Replicas that lie, and what a thief of the signing key has signed,
/// are sat out: nobody but the root key's owner may end a mirror.
pub async fn pull_watch(
    client: &Arc<Client>,
    name: &TreeName,
    options: &PullOptions,
    progress: &PullProgressFn,
    done: &(dyn Fn(Result<PullReport>) + Send + Sync),
) -> Result<()> {
    let mut pause = WATCH_PAUSE_MIN;
    let mut open: Option<Arc<Tree>> = None;
    loop {
        let outcome = async {
            let tree = match &open {
                Some(tree) => Arc::clone(tree),
                None => statements::open(client, name, options).await?,
            };
            let news = open.insert(Arc::clone(&tree)).watch();
            pull_tree(&tree, options, progress).await.map(|(report, order)| (report, order, news, tree))
        };
        match outcome.await {
            Ok((report, order, mut news, tree)) => {
                pause = WATCH_PAUSE_MIN;
                done(Ok(report));
                // Also looks again now and then: the newest may have come while it was pulled.
                while tree.newest().order() <= order && tree.freshness().condemned().is_none() {
                    let _ = tokio::time::timeout(WATCH_PAUSE_MAX, news.changed()).await;
                }
            }
            Err(error) => {
                statements::hand_on_if_condemned(client, name, options, &error).await?;
                if is_final(&error) {
                    return Err(error);
                }
                if matches!(error, Error::Damaged { .. } | Error::OtherIv { .. }) {
                    open = None;
                }
                done(Err(error));
                sleep(pause).await;
                pause = (pause * 2).min(WATCH_PAUSE_MAX);
            }
        }
    }
}

/// Whether trying again is of no use.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Revoked { .. } | Error::Forwarded { .. }) || matches!(error.class(), ErrorClass::Busy | ErrorClass::Local)
}

async fn pull_tree(tree: &Arc<Tree>, options: &PullOptions, progress: &PullProgressFn) -> Result<(PullReport, Order)> {
    let begun = Instant::now();
    let writer = open_database(tree, options).await?;
    let pulled = pull_newest(tree, &writer, options, progress).await;
    release(writer).await;
    let (mut report, order) = pulled?;
    if options.collect && options.keep.is_some() && !report.was_current {
        progress(PullProgress {
            phase: PullPhase::Collect,
            frames_done: report.new_frames,
            frames_known: report.new_frames,
            bytes: report.new_bytes,
            frames_present: report.present_frames,
        });
        let (db, lock_wait) = (options.db.clone(), options.lock_wait.max(Duration::from_secs(10)));
        let collected = blocking(move || Ok(Database::collect(&db, CollectOptions { lock_wait, ..CollectOptions::default() })?)).await;
        match collected {
            Ok(collected) => report.collected_bytes = collected.bytes_before.saturating_sub(collected.bytes_after),
            // The pull itself has succeeded, and the next one collects as well.
            Err(error) => tracing::warn!(db = %options.db.display(), "collecting: {error}"),
        }
    }
    report.elapsed = begun.elapsed();
    Ok((report, order))
}

/// Pulls the newest revision, and a newer one where replicas have dropped the first meanwhile.
async fn pull_newest(
    tree: &Arc<Tree>,
    writer: &Arc<Writer>,
    options: &PullOptions,
    progress: &PullProgressFn,
) -> Result<(PullReport, Order)> {
    let mut restarts = 0;
    loop {
        let revision = tree.revision()?;
        match pull_revision(tree, &revision, writer, options, progress).await {
            Err(Error::Missing { .. } | Error::Lied { .. }) if restarts < RESTARTS_MAX && tree.refresh().await.unwrap_or(false) => {
                restarts += 1;
                tracing::info!(tree = %tree.name(), "the replicas have gone on to revision {}", tree.newest().number());
            }
            done => return done.map(|report| (report, revision.order())),
        }
    }
}

/// Lets go of the database. Its lock goes with the last holder, and after a failure threads may
/// still be writing what came before it: whoever is told of the failure must be able to try again
/// at once.
async fn release(writer: Arc<Writer>) {
    let end = Instant::now() + RELEASE_MAX;
    while Arc::strong_count(&writer) > 1 && Instant::now() < end {
        sleep(Duration::from_millis(5)).await;
    }
}

/// The database, made if it is missing, with its lock held.
async fn open_database(tree: &Tree, options: &PullOptions) -> Result<Arc<Writer>> {
    let (db, hostid, iv, lock_wait) = (options.db.clone(), *tree.hostid(), tree.iv(), options.lock_wait);
    let writer = blocking(move || {
        Database::ensure(&db, hostid, iv, lock_wait)?;
        Ok(Database::open_write(&db, WriteOptions { lock_wait, ..WriteOptions::default() })?)
    });
    let writer = writer.await?;
    if writer.hostid() != hostid {
        let what = "it holds another tree; pull into an empty directory";
        let source = std::io::Error::new(std::io::ErrorKind::AlreadyExists, what);
        return Err(Error::local("pull into", &options.db, source));
    }
    if writer.iv() != iv {
        return Err(Error::OtherIv { db: options.db.clone() });
    }
    Ok(Arc::new(writer))
}

async fn pull_revision(
    tree: &Arc<Tree>,
    revision: &Arc<Revision>,
    writer: &Arc<Writer>,
    options: &PullOptions,
    progress: &PullProgressFn,
) -> Result<PullReport> {
    let statements: Vec<Vec<u8>> = tree.freshness().statements().iter().map(Xdr::to_xdr).collect();
    if writer.head().is_some_and(|head| *head == revision.signed[..]) {
        if writer.statements() != statements && !statements.is_empty() {
            let writer = Arc::clone(writer);
            blocking(move || Ok(writer.set_statements(statements)?)).await?;
        }
        return Ok(PullReport { revision: revision.number(), was_current: true, ..PullReport::default() });
    }
    let head = writer.head().and_then(|head| SignedFsinfo::from_xdr(&head).ok());
    let held = head.as_ref().and_then(|head| head.unverified().ok());
    let supersedes = head.is_some_and(|head| head.cert().serial < revision.cert_serial());
    let job = Arc::new(PullJob::new(Arc::clone(writer), held.as_ref()));
    let first = job.first(revision.root());
    // Progress is told from here, so that the caller's function need not outlive the call.
    let crawled = crawl(tree, &job, first, options.in_flight_bytes);
    tell_while(crawled, || progress(job.progress_now(PullPhase::Frames))).await?;
    progress(job.progress_now(PullPhase::History));
    let history_frames = pull_history(tree, &revision.fsinfo, writer).await?;
    progress(job.progress_now(PullPhase::Commit));
    let (writer, new, keep) = (Arc::clone(writer), Arc::clone(revision), options.keep);
    let put = blocking(move || commit(&writer, &new, keep, statements, supersedes)).await?;
    let done = job.progress_now(PullPhase::Commit);
    tracing::info!(tree = %tree.name(), revision = revision.number(), frames = put.new_frames, "pulled");
    Ok(PullReport {
        revision: revision.number(),
        new_frames: done.frames_done,
        new_bytes: done.bytes,
        present_frames: done.frames_present,
        history_frames,
        ..PullReport::default()
    })
}

/// Runs `work`, and `tell` ten times a second and at the end.
async fn tell_while<T>(work: impl Future<Output = T>, tell: impl Fn()) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                tell();
                return done;
            }
            _ = tick.tick() => tell(),
        }
    }
}

/// Fetches the signed fsinfos of older revisions, back to one that is here or that no replica
/// keeps.
async fn pull_history(tree: &Tree, fsinfo: &Fsinfo, writer: &Arc<Writer>) -> Result<u64> {
    let (mut next, mut count) = (fsinfo.previous, 0);
    while let Some(handle) = next {
        if count == HISTORY_MAX || writer.contains(&handle)? {
            break;
        }
        let want = Want { handle, iv: tree.iv(), decode: None, len_expected: 1024, urgency: Urgency::Bulk };
        let stored = match tree.replicas_set().fetch(want, Instant::now() + tree.limit(), tree.limit()).await {
            Ok(fetched) => fetched.stored,
            // Nobody has it: it is history that was not kept, whatever is said in its place.
            Err(Error::Missing { .. } | Error::Lied { .. }) => break,
            Err(error) => return Err(error),
        };
        let payload = vouch_tree::frame::payload(FrameKind::Fsinfo, &stored).map_err(|e| Error::frame(&handle, e))?;
        let older = SignedFsinfo::from_xdr(&payload).and_then(|signed| signed.unverified()).map_err(|e| Error::malformed(&handle, e))?;
        let writer = Arc::clone(writer);
        blocking(move || Ok(writer.put(&handle, &stored)?)).await?;
        next = older.previous;
        count += 1;
    }
    Ok(count)
}

fn commit(writer: &Writer, revision: &Revision, keep: Option<usize>, statements: Vec<Vec<u8>>, supersedes: bool) -> Result<PutCounts> {
    writer.put(&revision.handle, &Revision::frame_of(&revision.signed))?;
    if writer.statements() != statements && !statements.is_empty() {
        writer.set_statements(statements)?;
    }
    let tag = Some(revision.fsinfo.tag.clone()).filter(|tag| !tag.is_empty());
    Ok(writer.commit(NewRevision {
        number: revision.number(),
        start: i64::try_from(revision.fsinfo.start).unwrap_or(i64::MAX),
        fsinfo: revision.handle,
        signed: revision.signed.to_vec(),
        tag,
        companions: vouch_tree_store::companions(writer, &revision.fsinfo.root)?,
        keep,
        supersedes,
    })?)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(Error::local("write", Path::new("the database"), std::io::Error::other(e))))
}
