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
use crate::error::is_not_implemented;
use crate::objects::{Expected, LOCK, StoredObject};
use crate::runtime::{self, Task};

pub(crate) fn take(session: &Arc<Session>, wait: Duration) -> io::Result<BucketLock> {
    let deadline = Instant::now() + wait;
    let taken = session.clone();
    let (tag, has_leftovers) = runtime::run(async move {
        let (tag, has_leftovers) = taken.take_lock(deadline).await?;
        if let Err(error) = taken.check_conditions().await {
            // The lock would keep other writers waiting.
            let _ = taken.release(tag, has_leftovers).await;
            return Err(error);
        }
        Ok((tag, has_leftovers))
    })?;
    session.is_lock_lost.store(false, Ordering::Release);
    session.has_unnamed.store(has_leftovers, Ordering::Relaxed);
    let stop = Arc::new(Notify::new());
    let (renewing, stopped) = (session.clone(), stop.clone());
    let renewal = runtime::spawn(async move { Ok(renewing.renew_lock(tag, &stopped).await) });
    Ok(BucketLock {
        guard: Box::new(Guard { session: session.clone(), stop, renewal }),
        has_leftovers,
    })
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
        let released = runtime::run(async move { session.release(tag, has_unnamed).await });
        if let Err(error) = released {
            tracing::warn!(
                "the lock was not released, and expires in {} s: {error}",
                EXPIRY.as_secs()
            );
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
                    Err(
                        Error::Precondition { .. }
                        | Error::AlreadyExists { .. }
                        | Error::NotFound { .. },
                    ) => {}
                    Err(error) => return Err(self.objects.failed(LOCK, &error).into()),
                }
            } else if Instant::now() >= deadline {
                return Err(self.busy(age(&found)).into());
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    /// Of two writers, one wins only if the server refuses a write whose condition is false. Some
    /// servers ignore conditions and answer success.
    async fn check_conditions(&self) -> io::Result<()> {
        let wrong = Expected::Tag(WRONG_TAG.to_owned());
        for (condition, expected) in [("If-None-Match: *", Expected::Nothing), ("If-Match", wrong)]
        {
            let refused = self.objects.put(LOCK, content(&self.id, HELD, 0), expected).await;
            let what = match refused {
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => continue,
                Ok(_) => "ignores",
                Err(error) if is_not_implemented(&error) => "does not know",
                Err(error) => return Err(self.objects.failed(LOCK, &error).into()),
            };
            let (address, endpoint) = (&self.objects.address, &self.objects.endpoint);
            let text = format!(
                "{address}: {endpoint} {what} the condition {condition} of PutObject, so two writers would destroy each other's \
                 revisions; nothing was written; use a server of the table in docs/object-storage.md"
            );
            return Err(BucketError { kind: BucketErrorKind::Invalid, text }.into());
        }
        Ok(())
    }

    async fn release(&self, tag: String, has_unnamed: bool) -> io::Result<()> {
        if !has_unnamed {
            return self.objects.delete(vec![LOCK.to_owned()]).await;
        }
        let left = self.objects.put(LOCK, content(&self.id, LEFT, 0), Expected::Tag(tag)).await;
        left.map(drop).map_err(|error| self.objects.failed(LOCK, &error).into())
    }

    /// Left, expired, or of this work directory, whose file lock the caller holds.
    fn may_take(&self, found: &StoredObject) -> bool {
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
            match self
                .objects
                .put(LOCK, content(&self.id, HELD, count), Expected::Tag(tag.clone()))
                .await
            {
                Ok(new) => tag = new,
                Err(
                    Error::Precondition { .. }
                    | Error::AlreadyExists { .. }
                    | Error::NotFound { .. },
                ) => {
                    // The answer to an earlier renewal may be lost.
                    match self.objects.get(LOCK, None, LOCK_LEN_MAX).await {
                        Ok(Some(found))
                            if String::from_utf8_lossy(&found.bytes).contains(&self.id) =>
                        {
                            tag = found.tag
                        }
                        _ => {
                            tracing::warn!(
                                "{}: another writer took the lock",
                                self.objects.address
                            );
                            self.is_lock_lost.store(true, Ordering::Release);
                            return None;
                        }
                    }
                }
                Err(error) => tracing::warn!(
                    "the lock could not be renewed: {}",
                    self.objects.failed(LOCK, &error)
                ),
            }
        }
        Some(tag)
    }

    /// Asks the bucket: another writer may have taken the lock since the last renewal.
    pub(crate) async fn confirm_lock(&self) -> io::Result<()> {
        let found = match self.objects.get(LOCK, None, LOCK_LEN_MAX).await {
            Err(error) if is_missing(&error) => None,
            found => found?,
        };
        let is_held = found.is_some_and(|found| {
            String::from_utf8_lossy(&found.bytes).starts_with(&format!("{HELD} {} ", self.id))
        });
        if !is_held {
            self.is_lock_lost.store(true, Ordering::Release);
        }
        self.check_lock()
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

fn age(found: &StoredObject) -> Duration {
    SystemTime::now().duration_since(found.meta.last_modified.into()).unwrap_or_default()
}

/// `count` gives each renewal another tag.
fn content(id: &str, state: &str, count: u64) -> Bytes {
    format!("{state} {id} {count}\n").into()
}

const HELD: &str = "held";
/// Released, with objects that no manifest names.
const LEFT: &str = "left";
/// The MD5 of no object that is written here.
pub(crate) const WRONG_TAG: &str = "\"00000000000000000000000000000000\"";
const EXPIRY: Duration = Duration::from_secs(120);
const RENEWAL: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_millis(500);
const LOCK_LEN_MAX: u64 = 4096;
