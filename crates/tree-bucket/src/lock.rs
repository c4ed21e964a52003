//! An object that its holder renews. It saves publishers work; safety depends on the conditional
//! write of the manifest.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use object_store::Error;
use tokio::sync::Notify;
use vouch_tree_store::{BucketError, BucketErrorKind, BucketLock};

use crate::database::Session;
use crate::objects::{Expected, Found, LOCK};
use crate::runtime::{self, Task};

pub(crate) fn take(session: &Arc<Session>, wait: Duration) -> io::Result<BucketLock> {
    let deadline = Instant::now() + wait;
    let taken = session.clone();
    let (tag, has_leftovers) = runtime::run(async move { taken.take_lock(deadline).await })?;
    session.is_lock_lost.store(false, Ordering::Release);
    session.has_unnamed.store(has_leftovers, Ordering::Relaxed);
    let stop = Arc::new(Notify::new());
    let (renewing, stopped) = (session.clone(), stop.clone());
    let renewal = runtime::spawn(async move { Ok(renewing.renew_lock(tag, &stopped).await) });
    Ok(BucketLock { guard: Box::new(Guard { session: session.clone(), stop, renewal }), has_leftovers })
}

struct Guard {
    session: Arc<Session>,
    stop: Arc<Notify>,
    /// The lock's tag; `None` if it was lost.
    renewal: Task<Option<String>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.notify_one();
        let Ok(Some(tag)) = self.renewal.wait() else { return };
        let session = self.session.clone();
        let has_unnamed = session.has_unnamed.load(Ordering::Relaxed);
        let released = runtime::run(async move {
            if has_unnamed {
                let left = session.objects.put(LOCK, content(&session.id, LEFT, 0), Expected::Tag(tag)).await;
                left.map(drop).map_err(|error| session.objects.failed(LOCK, &error).into())
            } else {
                session.objects.delete(vec![LOCK.to_owned()]).await
            }
        });
        if let Err(error) = released {
            tracing::warn!("the lock was not released, and expires in {} s: {error}", EXPIRY.as_secs());
        }
    }
}

impl Session {
    /// Also returns true if an earlier writer has left the lock.
    async fn take_lock(&self, deadline: Instant) -> io::Result<(String, bool)> {
        let held = content(&self.id, HELD, 0);
        let mut has_leftovers = false;
        loop {
            match self.objects.put(LOCK, held.clone(), Expected::Nothing).await {
                Ok(tag) => return Ok((tag, has_leftovers)),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                Err(error) => return Err(self.objects.failed(LOCK, &error).into()),
            }
            let found = match self.objects.get(LOCK, None, LOCK_LEN_MAX).await {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) if is_missing(&error) => continue,
                Err(error) => return Err(error),
            };
            if self.may_take(&found) {
                has_leftovers = true;
                match self.objects.put(LOCK, held.clone(), Expected::Tag(found.tag)).await {
                    Ok(tag) => return Ok((tag, has_leftovers)),
                    Err(Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotFound { .. }) => {}
                    Err(error) => return Err(self.objects.failed(LOCK, &error).into()),
                }
            } else if Instant::now() >= deadline {
                return Err(self.busy(age(&found)).into());
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    /// Left, expired, or of this work directory, whose file lock the caller holds.
    fn may_take(&self, found: &Found) -> bool {
        let text = String::from_utf8_lossy(&found.bytes);
        let mut words = text.split_whitespace();
        let (state, id) = (words.next(), words.next());
        state == Some(LEFT) || id == Some(&self.id) || age(found) > EXPIRY
    }

    fn busy(&self, age: Duration) -> BucketError {
        let text = format!(
            "{}: another process is writing this database, and renewed its lock {} s ago; wait for it to end. The lock of a killed writer expires after {} s",
            self.objects.address,
            age.as_secs(),
            EXPIRY.as_secs()
        );
        BucketError { kind: BucketErrorKind::Busy, text }
    }

    async fn renew_lock(&self, mut tag: String, stop: &Notify) -> Option<String> {
        for count in 1.. {
            tokio::select! {
                () = stop.notified() => break,
                () = tokio::time::sleep(RENEWAL) => {}
            }
            match self.objects.put(LOCK, content(&self.id, HELD, count), Expected::Tag(tag.clone())).await {
                Ok(new) => tag = new,
                Err(Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotFound { .. }) => {
                    // The answer to an earlier renewal may be lost.
                    match self.objects.get(LOCK, None, LOCK_LEN_MAX).await {
                        Ok(Some(found)) if String::from_utf8_lossy(&found.bytes).contains(&self.id) => tag = found.tag,
                        _ => {
                            tracing::warn!("{}: another writer took the lock", self.objects.address);
                            self.is_lock_lost.store(true, Ordering::Release);
                            return None;
                        }
                    }
                }
                Err(error) => tracing::warn!("the lock could not be renewed: {}", self.objects.failed(LOCK, &error)),
            }
        }
        Some(tag)
    }

    pub(crate) fn check_lock(&self) -> io::Result<()> {
        if !self.is_lock_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let text = format!(
            "{}: another process has taken the lock of this database; nothing was committed; run the command again",
            self.objects.address
        );
        Err(BucketError { kind: BucketErrorKind::Busy, text }.into())
    }
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<BucketError>());
    inner.is_some_and(|error| error.kind == BucketErrorKind::Missing)
}

fn age(found: &Found) -> Duration {
    SystemTime::now().duration_since(found.meta.last_modified.into()).unwrap_or_default()
}

/// `count` gives each renewal another tag.
fn content(id: &str, state: &str, count: u64) -> Bytes {
    format!("{state} {id} {count}\n").into()
}

const HELD: &str = "held";
/// Released, with objects that no manifest names.
const LEFT: &str = "left";
const EXPIRY: Duration = Duration::from_secs(120);
const RENEWAL: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_millis(500);
const LOCK_LEN_MAX: u64 = 4096;
