//! One pull, and a pull that repeats for each new revision.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use vouch_tree::{FrameKind, Fsinfo, SignedFsinfo, TreeName};
use vouch_tree_store::{CollectOptions, Database, FrameSink, Writer};
use vouch_xdr::Xdr;

use super::database::{blocking, commit, open_database, release};
use super::log::pull_log;
use super::visitor::PullVisitor;
use super::{PullOptions, PullPhase, PullProgress, PullProgressFn, PullReport, statements};
use crate::client::Client;
use crate::replica::{FrameRequest, Priority};
use crate::revision::{Revision, RevisionOrder};
use crate::traversal::traverse;
use crate::{Error, ErrorClass, Result, Tree};

const RESTARTS_MAX: u32 = 5;

const HISTORY_MAX: u64 = 10_000;

const WATCH_PAUSE_MIN: Duration = Duration::from_secs(5);
const WATCH_PAUSE_MAX: Duration = Duration::from_secs(600);

/// Brings the database to the newest revision of `name`. After a failure or kill, the database has
/// its previous revision, and the next pull uses the frames fetched so far.
pub async fn pull(
    client: &Arc<Client>,
    name: &TreeName,
    options: &PullOptions,
    progress: &PullProgressFn,
) -> Result<PullReport> {
    progress(PullProgress {
        phase: PullPhase::Connecting,
        frames_done: 0,
        frames_known: 0,
        bytes: 0,
        frames_present: 0,
    });
    let tree = statements::open(client, name, options).await?;
    let pulled = pull_tree(&tree, options, progress).await;
    if let Err(error) = &pulled {
        statements::store_statements_if_blocked(client, name, options, error).await?;
    }
    pulled.map(|(report, _)| report)
}

/// Keeps the database current until the future is dropped, and reports each pull to `done`. Fails
/// only for good: the database cannot be written, or the key is revoked or forwarded. Lying
/// replicas and a stolen signing key only delay.
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
            pull_tree(&tree, options, progress)
                .await
                .map(|(report, order)| (report, order, news, tree))
        };
        match outcome.await {
            Ok((report, order, mut news, tree)) => {
                pause = WATCH_PAUSE_MIN;
                done(Ok(report));
                while tree.newest().order() <= order && tree.freshness().blocked().is_none() {
                    let _ = tokio::time::timeout(WATCH_PAUSE_MAX, news.changed()).await;
                }
            }
            Err(error) => {
                statements::store_statements_if_blocked(client, name, options, &error).await?;
                if is_permanent(&error) {
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

fn is_permanent(error: &Error) -> bool {
    matches!(error, Error::Revoked { .. } | Error::Forwarded { .. })
        || matches!(error.class(), ErrorClass::Busy | ErrorClass::Local)
}

async fn pull_tree(
    tree: &Arc<Tree>,
    options: &PullOptions,
    progress: &PullProgressFn,
) -> Result<(PullReport, RevisionOrder)> {
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
        let (pack_len, disk) = (options.pack_len, Arc::clone(&options.disk));
        let collected = blocking(tree.client(), move || {
            Ok(Database::collect(
                &db,
                CollectOptions { lock_wait, pack_len, disk, ..CollectOptions::default() },
            )?)
        })
        .await;
        match collected {
            Ok(collected) => {
                report.collected_bytes =
                    collected.bytes_before.saturating_sub(collected.bytes_after)
            }
            // The pull has succeeded, and the next one collects too.
            Err(error) => tracing::warn!(db = %options.db.display(), "collecting: {error}"),
        }
    }
    report.elapsed = begun.elapsed();
    Ok((report, order))
}

async fn pull_newest(
    tree: &Arc<Tree>,
    writer: &Arc<Writer>,
    options: &PullOptions,
    progress: &PullProgressFn,
) -> Result<(PullReport, RevisionOrder)> {
    let mut restarts = 0;
    loop {
        let revision = tree.revision()?;
        match pull_revision(tree, &revision, writer, options, progress).await {
            Err(Error::Missing { .. } | Error::Lied { .. })
                if restarts < RESTARTS_MAX && tree.refresh().await.unwrap_or(false) =>
            {
                restarts += 1;
                tracing::info!(tree = %tree.name(), "the replicas have moved on to revision {}", tree.newest().number());
            }
            done => return done.map(|report| (report, revision.order())),
        }
    }
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
            blocking(tree.client(), move || Ok(writer.set_statements(statements)?)).await?;
        }
        if let Some(evidence) = pull_log(tree, revision, writer, options).await? {
            let writer = Arc::clone(writer);
            blocking(tree.client(), move || Ok(writer.set_evidence(&evidence)?)).await?;
        }
        return Ok(PullReport {
            revision: revision.number(),
            was_current: true,
            ..PullReport::default()
        });
    }
    let head = writer.head().and_then(|head| SignedFsinfo::from_xdr(&head).ok());
    let committed = head.as_ref().and_then(|head| head.unverified().ok());
    let supersedes = head.is_some_and(|head| head.cert().serial < revision.cert_serial());
    let visitor = Arc::new(PullVisitor::new(Arc::clone(writer), committed.as_ref()));
    let first = visitor.first(revision.root());
    // Reports from this task, so that the caller's closure may borrow.
    let traversed = traverse(tree, &visitor, first, options.in_flight_bytes);
    report_while(traversed, || progress(visitor.progress_now(PullPhase::Frames))).await?;
    progress(visitor.progress_now(PullPhase::History));
    let history_frames = pull_history(tree, &revision.fsinfo, writer).await?;
    let evidence = pull_log(tree, revision, writer, options).await?;
    progress(visitor.progress_now(PullPhase::Commit));
    let (writer, new, keep) = (Arc::clone(writer), Arc::clone(revision), options.keep);
    let put = blocking(tree.client(), move || {
        commit(&writer, &new, keep, statements, supersedes, evidence)
    })
    .await?;
    let done = visitor.progress_now(PullPhase::Commit);
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

async fn report_while<T>(work: impl Future<Output = T>, report: impl Fn()) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                report();
                return done;
            }
            _ = tick.tick() => report(),
        }
    }
}

async fn pull_history(tree: &Tree, fsinfo: &Fsinfo, writer: &Arc<Writer>) -> Result<u64> {
    let (mut next, mut count) = (fsinfo.previous, 0);
    while let Some(handle) = next {
        if count == HISTORY_MAX || writer.contains(&handle)? {
            break;
        }
        let want = FrameRequest {
            handle,
            iv: tree.iv(),
            decode: None,
            len_expected: 1024,
            priority: Priority::Background,
        };
        let stored = match tree
            .replicas_set()
            .fetch(want, Instant::now() + tree.operation_max(), tree.operation_max())
            .await
        {
            Ok(fetched) => fetched.stored,
            // No replica kept this revision.
            Err(Error::Missing { .. } | Error::Lied { .. }) => break,
            Err(error) => return Err(error),
        };
        let payload = vouch_tree::frame::payload(FrameKind::Fsinfo, &stored)
            .map_err(|e| Error::frame(&handle, e))?;
        let older = SignedFsinfo::from_xdr(&payload)
            .and_then(|signed| signed.unverified())
            .map_err(|e| Error::malformed(&handle, e))?;
        let writer = Arc::clone(writer);
        blocking(tree.client(), move || Ok(writer.put(&handle, &stored)?)).await?;
        next = older.previous;
        count += 1;
    }
    Ok(count)
}
